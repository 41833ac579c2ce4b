package observe

import (
	"fmt"
	"strings"
)

// WorkloadRef names pods as people do: NAMESPACE/POD, or NAMESPACE/KIND/NAME with the
// short kinds of kubectl.
type WorkloadRef struct{ Namespace, Kind, Name string }

var shortKinds = map[string]string{
	"po": "Pod", "pod": "Pod", "pods": "Pod", "deploy": "Deployment", "deployment": "Deployment", "deployments": "Deployment",
	"sts": "StatefulSet", "statefulset": "StatefulSet", "statefulsets": "StatefulSet", "ds": "DaemonSet", "daemonset": "DaemonSet", "daemonsets": "DaemonSet",
	"job": "Job", "jobs": "Job", "cj": "CronJob", "cronjob": "CronJob", "cronjobs": "CronJob",
}

// ParseWorkloadRef reads such a name. Of NAMESPACE/NAME the kind is empty: it may be that
// of a pod or of what controls it.
func ParseWorkloadRef(s string) (WorkloadRef, error) {
	parts := strings.Split(s, "/")
	r := WorkloadRef{Namespace: parts[0], Name: parts[len(parts)-1]}
	if len(parts) < 2 || len(parts) > 3 || r.Namespace == "" || r.Name == "" {
		return r, fmt.Errorf("%q: give NAMESPACE/POD, or NAMESPACE/KIND/NAME as shop/deploy/cart", s)
	}
	if len(parts) == 3 {
		if r.Kind = shortKinds[strings.ToLower(parts[1])]; r.Kind == "" {
			return r, fmt.Errorf("%q: %q is no kind of workload (deploy, sts, ds, job, cj, pod)", s, parts[1])
		}
	}
	return r, nil
}

// Is says whether a pod is one of those that are named.
func (r WorkloadRef) Is(w *Workload) bool {
	if w.Namespace != r.Namespace {
		return false
	}
	pod, controller := w.Pod == r.Name, w.Name == r.Name
	switch r.Kind {
	case "":
		return pod || controller
	case "Pod":
		return pod
	}
	return controller && w.Kind == r.Kind
}

// ContainersOf are the ids of the containers of the pods that are named, joined as in
// Filter.Container; empty when there are none.
func (k *Kubernetes) ContainersOf(r WorkloadRef) string {
	if k == nil {
		return ""
	}
	var ids []string
	for i := range k.Pods {
		p := &k.Pods[i]
		if !r.Is(&Workload{Namespace: p.Namespace, Pod: p.Name, Kind: p.Kind, Name: p.Owner}) {
			continue
		}
		for _, c := range p.Containers {
			if c.ID != "" {
				ids = append(ids, c.ID)
			}
		}
	}
	return strings.Join(ids, ",")
}
