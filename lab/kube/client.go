package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slowray/slowray/lab/netns"
)

// Client is an administrator's client of a node's API server.
type Client struct {
	kubernetes.Interface
	config *rest.Config
}

// Client gives a client, which works from here: it connects inside the node's namespace.
func (n *Node) Client() (*Client, error) { return newClient(n.Kubeconfig(), n.netns) }

// newClient reads a kubeconfig; ns is where the API server is, nil for where this process is.
func newClient(kubeconfig string, ns *os.File) (*Client, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kube: %w", err)
	}
	config.QPS, config.Burst = 100, 200
	if ns != nil {
		config.Dial = dialIn(ns)
	}
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("kube: %w", err)
	}
	return &Client{Interface: c, config: config}, nil
}

// dialIn connects inside a network namespace.
func dialIn(ns *os.File) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (c net.Conn, err error) {
		err = netns.Do(ns, func() (err error) {
			c, err = new(net.Dialer).DialContext(ctx, network, addr)
			return err
		})
		return c, err
	}
}

// nodeReady is why pods cannot run yet.
func (c *Client) nodeReady(ctx context.Context) error {
	n, err := c.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if len(n.Spec.Taints) > 0 {
		return fmt.Errorf("node %s has the taint %s", nodeName, n.Spec.Taints[0].Key)
	}
	for _, cond := range n.Status.Conditions {
		if cond.Type == corev1.NodeReady && cond.Status == corev1.ConditionTrue {
			// Pods get their namespace's account.
			_, err := c.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
			return err
		} else if cond.Type == corev1.NodeReady {
			return errors.New(cond.Message)
		}
	}
	return errors.New("the node has no condition Ready")
}

// Apply applies the objects of a manifest, as kubectl apply --server-side does.
func (c *Client) Apply(ctx context.Context, manifest []byte) error {
	client, err := dynamic.NewForConfig(c.config)
	if err != nil {
		return err
	}
	disco, err := discovery.NewDiscoveryClientForConfig(c.config)
	if err != nil {
		return err
	}
	groups, err := restmapper.GetAPIGroupResources(disco)
	if err != nil {
		return fmt.Errorf("kube: apply: %w", err)
	}
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096)
	for {
		var o unstructured.Unstructured
		switch err := decoder.Decode(&o.Object); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("kube: manifest: %w", err)
		case len(o.Object) == 0:
			continue
		}
		kind := o.GroupVersionKind()
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return fmt.Errorf("kube: apply %s: %w", o.GetName(), err)
		}
		var to dynamic.ResourceInterface = client.Resource(mapping.Resource)
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			to = client.Resource(mapping.Resource).Namespace(o.GetNamespace())
		}
		if err := retried(ctx, func() error {
			_, err := to.Apply(ctx, o.GetName(), &o, metav1.ApplyOptions{FieldManager: "lab", Force: true})
			return err
		}); err != nil {
			return fmt.Errorf("kube: apply %s %s: %w", kind.Kind, o.GetName(), err)
		}
	}
}

// retried does it again for a while: a namespace gets its service account, and an API server
// its roles, a moment after they answer.
func retried(ctx context.Context, do func() error) error {
	for attempt := 0; ; attempt++ {
		err := do()
		if err == nil || attempt == 20 || ctx.Err() != nil {
			return err
		}
		time.Sleep(250 * time.Millisecond)
	}
}

// Patch applies a strategic merge patch, in YAML, to a Deployment.
func (c *Client) Patch(ctx context.Context, namespace, deployment string, patch []byte) error {
	return patched(deployment, patch, func(raw []byte) error {
		_, err := c.AppsV1().Deployments(namespace).Patch(ctx, deployment, types.StrategicMergePatchType, raw, byLab)
		return err
	})
}

// PatchService applies one to a Service.
func (c *Client) PatchService(ctx context.Context, namespace, service string, patch []byte) error {
	return patched(service, patch, func(raw []byte) error {
		_, err := c.CoreV1().Services(namespace).Patch(ctx, service, types.StrategicMergePatchType, raw, byLab)
		return err
	})
}

var byLab = metav1.PatchOptions{FieldManager: "lab"}

func patched(name string, patch []byte, apply func(raw []byte) error) error {
	raw, err := yaml.ToJSON(patch)
	if err != nil {
		return fmt.Errorf("kube: patch: %w", err)
	}
	if err := apply(raw); err != nil {
		return fmt.Errorf("kube: patch %s: %w", name, err)
	}
	return nil
}

// RolledOut waits until all pods of these Deployments are of their newest template and
// ready, and none else is left, as kubectl rollout status does.
func (c *Client) RolledOut(ctx context.Context, namespace string, names ...string) error {
	for _, name := range names {
		for {
			d, err := c.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil && ctx.Err() == nil {
				return fmt.Errorf("kube: %s: %w", name, err)
			}
			if err == nil && complete(d) && c.alone(ctx, d) {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("kube: %s is not rolled out: %s", name, c.why(namespace))
			case <-time.After(250 * time.Millisecond):
			}
		}
	}
	return nil
}

// complete is whether a Deployment's roll-out has come to its end.
func complete(d *appsv1.Deployment) bool {
	s := d.Status
	return s.ObservedGeneration >= d.Generation && s.UpdatedReplicas == *d.Spec.Replicas &&
		s.AvailableReplicas == s.UpdatedReplicas && s.Replicas == s.UpdatedReplicas
}

// alone is whether no pod is left but those that a Deployment wants: its status says nothing
// of those that are about to end.
func (c *Client) alone(ctx context.Context, d *appsv1.Deployment) bool {
	list, err := c.CoreV1().Pods(d.Namespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(d.Spec.Selector)})
	return err == nil && len(list.Items) == int(*d.Spec.Replicas)
}

// why gives the newest warnings about the pods of a namespace.
func (c *Client) why(namespace string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	list, err := c.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "type=Warning"})
	if err != nil {
		return err.Error()
	}
	text := fmt.Sprintf("%d warnings", len(list.Items))
	for _, e := range list.Items[max(0, len(list.Items)-3):] {
		text += fmt.Sprintf("; %s %s: %s", e.InvolvedObject.Name, e.Reason, e.Message)
	}
	return text
}
