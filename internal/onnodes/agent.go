package onnodes

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slowray/slowray/internal/printable"
)

// Home is the namespace that the DaemonSet is in, unless said otherwise.
const Home = "slowray"

// container is what the DaemonSet calls the container of slowray.
const container = "slowray"

// Agents are the pods of the DaemonSet that run, by node.
func (c *Cluster) Agents(ctx context.Context) (map[string]*corev1.Pod, error) {
	list, err := c.core.Pods(c.home).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=slowray"})
	if err != nil {
		return nil, explain(err)
	}
	agents := map[string]*corev1.Pod{}
	for i := range list.Items {
		p := &list.Items[i]
		owner := metav1.GetControllerOf(p)
		if runs(p) && p.DeletionTimestamp == nil && owner != nil && owner.Kind == "DaemonSet" {
			agents[p.Spec.NodeName] = p
		}
	}
	return agents, nil
}

// missing says that slowray does not run on a node, and what to do.
func (c *Cluster) missing(node string) error {
	return fmt.Errorf("slowray does not run on node %s (no pod of its DaemonSet in namespace %s): install it (docs/kubernetes.md), name its namespace with --slowray-namespace, or run it once with --ephemeral", node, c.home)
}

// explain says in a line what the API server refused, and what to do.
func explain(err error) error {
	var status apierrors.APIStatus
	switch {
	case err == nil || !errors.As(err, &status):
		return err
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "violates PodSecurity"):
		return fmt.Errorf("%s (choose a namespace that admits privileged pods with --slowray-namespace)", printable.Text(err.Error()))
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%s (docs/kubernetes.md lists the rights that kubectl slowray needs)", printable.Text(err.Error()))
	case apierrors.IsUnauthorized(err):
		return errors.New("the API server does not know you: log in as for kubectl get pods")
	}
	return errors.New(printable.Text(err.Error()))
}
