package onnodes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/slowray/slowray/internal/shell"
)

// Spot is where slowray is run once: for a pod, or for all of a node.
type Spot struct {
	Node string
	Pod  *corev1.Pod // nil: all of the node
}

// PodName is the pod as slowray names it, "" for all of a node.
func (s Spot) PodName() string {
	if s.Pod == nil {
		return ""
	}
	return s.Pod.Namespace + "/" + s.Pod.Name
}

// filter are the flags by which slowray looks at this pod only.
func (s Spot) filter() []string {
	if s.Pod == nil {
		return nil
	}
	for _, c := range s.Pod.Status.ContainerStatuses {
		if _, id, ok := strings.Cut(c.ContainerID, "://"); ok && c.State.Running != nil && id != "" {
			return []string{"--container=" + id}
		}
	}
	return nil
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
// or node/node-7, all of it. They are sorted by node and pod.
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
		if _, err := c.core.Nodes().Get(ctx, name, metav1.GetOptions{}); err != nil {
			return nil, explain(err)
		}
		return []Spot{{Node: name}}, nil
	case "pod":
		p, err := c.core.Pods(c.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, explain(err)
		}
		if !runs(p) {
			return nil, fmt.Errorf("pod %s does not run: %s", name, shell.Args("kubectl", "describe", "-n", c.Namespace, "pod/"+name))
		}
		return []Spot{{p.Spec.NodeName, p}}, nil
	}
	selector, err := c.selector(ctx, known, name)
	if err != nil {
		return nil, explain(err)
	}
	list, err := c.core.Pods(c.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return nil, explain(err)
	}
	var spots []Spot
	for i := range list.Items {
		if p := &list.Items[i]; runs(p) {
			spots = append(spots, Spot{p.Spec.NodeName, p})
		}
	}
	if len(spots) == 0 {
		return nil, fmt.Errorf("%s has no pod that runs: %s", target, shell.Args("kubectl", "get", "pods", "-n", c.Namespace, "-l", selector.String()))
	}
	slices.SortFunc(spots, func(a, b Spot) int { return strings.Compare(a.Node+"/"+a.PodName(), b.Node+"/"+b.PodName()) })
	return spots, nil
}

// Choose is the first n of the spots, of every node some; 0 is all.
func Choose(spots []Spot, n int) []Spot {
	if n == 0 || len(spots) <= n {
		return spots
	}
	turn, of := map[string]int{}, make([]int, len(spots))
	order := make([]int, len(spots))
	for i, s := range spots {
		order[i], of[i] = i, turn[s.Node]
		turn[s.Node]++
	}
	slices.SortStableFunc(order, func(a, b int) int { return of[a] - of[b] })
	order = order[:n]
	slices.Sort(order)
	chosen := make([]Spot, n)
	for i, at := range order {
		chosen[i] = spots[at]
	}
	return chosen
}

// Nodes are the nodes of the spots, each once, as a whole.
func Nodes(spots []Spot) []Spot {
	var nodes []Spot
	for _, s := range spots {
		if !slices.ContainsFunc(nodes, func(n Spot) bool { return n.Node == s.Node }) {
			nodes = append(nodes, Spot{Node: s.Node})
		}
	}
	return nodes
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
