package onnodes

import (
	"cmp"
	"fmt"

	appsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	batchv1 "k8s.io/client-go/kubernetes/typed/batch/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	_ "k8s.io/client-go/plugin/pkg/client/auth" // what kubectl logs in with
)

// Access is how the cluster is reached; what is empty is as for kubectl.
type Access struct {
	Kubeconfig, Context, Namespace string
	Home                           string // namespace of slowray's pods; empty: [Home], and of ephemeral ones Namespace
}

// Cluster is a cluster that slowray can be run in.
type Cluster struct {
	Namespace string // of what is asked about
	home      string // of the DaemonSet
	ephemeral string // of ephemeral pods
	config    *rest.Config
	core      corev1.CoreV1Interface
	apps      appsv1.AppsV1Interface
	batch     batchv1.BatchV1Interface
}

// Connect reads the kubeconfig as kubectl does.
func Connect(a Access) (*Cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = a.Kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: a.Context}
	overrides.Context.Namespace = a.Namespace
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return newCluster(config, namespace, a.Home)
}

func newCluster(config *rest.Config, namespace, home string) (*Cluster, error) {
	config.UserAgent = "kubectl-slowray"
	c := &Cluster{Namespace: namespace, home: cmp.Or(home, Home), ephemeral: cmp.Or(home, namespace), config: config}
	var err error
	if c.core, err = corev1.NewForConfig(config); err != nil {
		return nil, err
	}
	if c.apps, err = appsv1.NewForConfig(config); err != nil {
		return nil, err
	}
	c.batch, err = batchv1.NewForConfig(config)
	return c, err
}
