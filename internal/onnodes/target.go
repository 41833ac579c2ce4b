package onnodes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/slowray/slowray/internal/sense/kube/owner"
	"github.com/slowray/slowray/internal/shell"
)

// Spot is a node, and the pods there that are asked about: none for all of the node.
type Spot struct {
	Node string
	Pods []*corev1.Pod
}

// containers is the flag by which slowray why looks at these pods only: the ids of what
// runs in them, sidecars too, which a node knows without the API server.
func (s Spot) containers() ([]string, error) {
	if len(s.Pods) == 0 {
		return nil, nil
	}
	var ids []string
	for _, p := range s.Pods {
		for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			if _, id, ok := strings.Cut(c.ContainerID, "://"); ok && c.State.Running != nil && id != "" {
				ids = append(ids, id[:min(len(id), shortID)])
			}
		}
	}
	if len(ids) == 0 { // without the flag it would be about all of the node
		p := s.Pods[0]
		return nil, fmt.Errorf("no container of %s runs at the moment: %s", s.podNames(), shell.Args("kubectl", "describe", "-n", p.Namespace, "pod/"+p.Name))
	}
	return []string{"--container=" + strings.Join(ids, ",")}, nil
}

// podNames is the pod, or how many there are.
func (s Spot) podNames() string {
	if len(s.Pods) == 1 {
		return s.Pods[0].Namespace + "/" + s.Pods[0].Name
	}
	return fmt.Sprintf("%d pods", len(s.Pods))
}

// shortID is how much of the id of a container slowray compares.
const shortID = 12

// Workload is the flag by which slowray requests and top look at these pods only: the pod,
// or what controls all of them.
func (s Spot) Workload() ([]string, error) {
	if len(s.Pods) == 0 {
		return nil, nil
	}
	name := s.Pods[0].Name
	if len(s.Pods) > 1 {
		name = controller(s.Pods[0])
	}
	for _, p := range s.Pods[1:] {
		if name == "" || controller(p) != name {
			return nil, fmt.Errorf("nothing controls all %d pods on node %s: name one of them", len(s.Pods), s.Node)
		}
	}
	return []string{"--pod=" + s.Pods[0].Namespace + "/" + name}, nil
}

// First is the flag by which slowray wait looks at the first process of the first of these
// pods, or of a container of it.
func (s Spot) First(container string) (string, error) {
	if len(s.Pods) == 0 {
		return "", fmt.Errorf("give a pod of node %s, or the pid of a process there", s.Node)
	}
	p := s.Pods[0]
	if container == "" {
		return "--pod=" + p.Namespace + "/" + p.Name, nil
	}
	var names []string
	for i := range p.Spec.Containers {
		names = append(names, p.Spec.Containers[i].Name)
	}
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways { // a sidecar
			names = append(names, c.Name)
		}
	}
	if !slices.Contains(names, container) {
		return "", fmt.Errorf("pod %s has no container %q: it has %s", p.Name, container, strings.Join(names, ", "))
	}
	return "--pod=" + p.Namespace + "/" + p.Name + "/" + container, nil
}

// controller is the name of what controls a pod, as its node knows it; "" where nothing does.
func controller(p *corev1.Pod) string {
	kind, name := owner.Of(p.Name, p.Labels, p.OwnerReferences, p.CreationTimestamp.Time)
	if kind == "Pod" {
		return ""
	}
	return name
}

// kinds are the names by which kubectl knows them.
var kinds = map[string]string{
	"po": "pod", "pod": "pod", "pods": "pod",
	"deploy": "deployment", "deployment": "deployment", "deployments": "deployment", "deployment.apps": "deployment",
	"rs": "replicaset", "replicaset": "replicaset", "replicasets": "replicaset", "replicaset.apps": "replicaset",
	"sts": "statefulset", "statefulset": "statefulset", "statefulsets": "statefulset", "statefulset.apps": "statefulset",
	"ds": "daemonset", "daemonset": "daemonset", "daemonsets": "daemonset", "daemonset.apps": "daemonset",
	"job": "job", "jobs": "job", "job.batch": "job",
	"svc": "service", "service": "service", "services": "service",
	"no": "node", "node": "node", "nodes": "node",
}

// Spots are where the pods of a target run: deploy/cart, svc/cart, pod/cart-1 or cart-1;
// or node/node-7, all of it. They are sorted by node.
func (c *Cluster) Spots(ctx context.Context, target string) ([]Spot, error) {
	kind, name, found := strings.Cut(target, "/")
	if !found {
		kind, name = "pod", target
	}
	known := kinds[strings.ToLower(kind)]
	if known == "" || name == "" || strings.Contains(name, "/") {
		return nil, fmt.Errorf("%s: give deploy/NAME, sts/NAME, ds/NAME, rs/NAME, job/NAME, svc/NAME, pod/NAME or node/NAME", target)
	}
	switch known {
	case "node":
		return []Spot{{Node: name}}, nil
	case "pod":
		p, err := c.core.Pods(c.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, explain(err)
		}
		if !runs(p) {
			return nil, fmt.Errorf("pod %s does not run: %s", name, shell.Args("kubectl", "describe", "-n", c.Namespace, "pod/"+name))
		}
		return []Spot{{p.Spec.NodeName, []*corev1.Pod{p}}}, nil
	}
	selector, err := c.selector(ctx, known, name)
	if err != nil {
		return nil, explain(err)
	}
	list, err := c.core.Pods(c.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return nil, explain(err)
	}
	on := map[string]*Spot{}
	for i := range list.Items {
		if p := &list.Items[i]; runs(p) {
			if on[p.Spec.NodeName] == nil {
				on[p.Spec.NodeName] = &Spot{Node: p.Spec.NodeName}
			}
			s := on[p.Spec.NodeName]
			s.Pods = append(s.Pods, p)
		}
	}
	if len(on) == 0 {
		return nil, fmt.Errorf("%s has no pod that runs: %s", target, shell.Args("kubectl", "get", "pods", "-n", c.Namespace, "-l", selector.String()))
	}
	var spots []Spot
	for _, node := range slices.Sorted(maps.Keys(on)) {
		spots = append(spots, *on[node])
	}
	return spots, nil
}

func runs(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning && p.Spec.NodeName != "" }

// selector selects the pods of a workload or service.
func (c *Cluster) selector(ctx context.Context, kind, name string) (labels.Selector, error) {
	var s *metav1.LabelSelector
	switch kind {
	case "deployment":
		o, err := c.apps.Deployments(c.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		s = o.Spec.Selector
	case "replicaset":
		o, err := c.apps.ReplicaSets(c.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		s = o.Spec.Selector
	case "statefulset":
		o, err := c.apps.StatefulSets(c.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		s = o.Spec.Selector
	case "daemonset":
		o, err := c.apps.DaemonSets(c.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		s = o.Spec.Selector
	case "job":
		o, err := c.batch.Jobs(c.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		s = o.Spec.Selector
	case "service":
		o, err := c.core.Services(c.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		if len(o.Spec.Selector) == 0 {
			return nil, fmt.Errorf("service %s has no selector: name the workload or the pod", name)
		}
		return labels.SelectorFromSet(o.Spec.Selector), nil
	}
	if s == nil || len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
		return nil, errors.New(kind + " " + name + " has no selector: name the pod") // an empty one selects all
	}
	return metav1.LabelSelectorAsSelector(s)
}
