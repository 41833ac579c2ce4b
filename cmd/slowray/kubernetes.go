package main

import (
	"context"

	"github.com/slowray/slowray/internal/sense/kube"
)

// kubeFlags say who knows the pods of this host, where it is a node of Kubernetes.
type kubeFlags struct {
	NodeName   string `placeholder:"X" env:"NODE_NAME" help:"What Kubernetes calls this host; else its own name."`
	Kubeconfig string `placeholder:"FILE" complete:"files" help:"Ask the API server of this file about pods, services and events. In a pod it is found without."`
}

// start begins to ask who the pods of this host are; nil where it is no node.
func (f *kubeFlags) start(ctx context.Context) *kube.Kube {
	return kube.Start(ctx, kube.Options{Node: f.NodeName, Kubeconfig: f.Kubeconfig, Version: version()})
}
