package observe

import (
	"fmt"
	"slices"
	"strings"
)

// WorkloadRef names pods as people do: NAMESPACE/POD, or NAMESPACE/KIND/NAME with the
// short kinds of kubectl; and one of their containers behind another slash.
type WorkloadRef struct{ Namespace, Kind, Name, Container string }

var shortKinds = map[string]string{
	"po": "Pod", "pod": "Pod", "pods": "Pod", "deploy": "Deployment", "deployment": "Deployment", "deployments": "Deployment",
	"sts": "StatefulSet", "statefulset": "StatefulSet", "statefulsets": "StatefulSet", "ds": "DaemonSet", "daemonset": "DaemonSet", "daemonsets": "DaemonSet",
	"job": "Job", "jobs": "Job", "cj": "CronJob", "cronjob": "CronJob", "cronjobs": "CronJob",
}

// ParseWorkloadRef reads such a name. Of NAMESPACE/NAME the kind is empty: it may be that
// of a pod or of what controls it. A name that is a kind is one: shop/job/x is a Job.
func ParseWorkloadRef(s string) (WorkloadRef, error) {
	var r WorkloadRef
	parts := strings.Split(s, "/")
	r.Namespace, parts = parts[0], parts[1:]
	if len(parts) > 1 {
		if r.Kind = shortKinds[strings.ToLower(parts[0])]; r.Kind != "" {
			parts = parts[1:]
		}
	}
	if len(parts) == 0 || len(parts) > 2 || r.Namespace == "" || slices.Contains(parts, "") {
		return r, fmt.Errorf("%q: give NAMESPACE/POD, or NAMESPACE/KIND/NAME as shop/deploy/cart (deploy, sts, ds, job, cj, pod), and /CONTAINER where only one is meant", s)
	}
	r.Name = parts[0]
	if len(parts) == 2 {
		r.Container = parts[1]
	}
	return r, nil
}

// Is says whether a pod is one of those that are named.
func (r WorkloadRef) Is(w *Workload) bool {
	if w.Namespace != r.Namespace || r.Container != "" && w.Container != r.Container {
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
		for _, c := range p.Containers {
			if w := p.Workload(c.Name, &k.Node); c.ID != "" && r.Is(&w) {
				ids = append(ids, c.ID)
			}
		}
	}
	return strings.Join(ids, ",")
}
