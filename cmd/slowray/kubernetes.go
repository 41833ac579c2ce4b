package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
	"github.com/slowray/slowray/internal/sense/kube"
)

// kubeFlags say who knows the pods of this host, where it is a node of Kubernetes.
type kubeFlags struct {
	NodeName   string `placeholder:"X" env:"NODE_NAME" help:"What Kubernetes calls this host; else its own name."`
	Kubeconfig string `placeholder:"FILE" complete:"files" help:"Ask the API server of this file about pods, services and events. In a pod it is found without."`
}

// podFlag names the pods that are asked about.
type podFlag struct {
	Pod       *string `placeholder:"NS/X" help:"Only this pod of this node, as shop/cart-7d9f8b6c5d-x2x4z, or all of a workload, as shop/deploy/cart; /CONTAINER behind it names one of its containers."`
	Namespace *string `short:"n" placeholder:"NS" help:"The namespace of --pod, which then needs none: -n shop --pod deploy/cart."`
}

// ref is what was asked for, empty where nothing was.
func (f *podFlag) ref() string {
	if f.Pod == nil || f.Namespace == nil {
		return value(f.Pod)
	}
	return *f.Namespace + "/" + *f.Pod
}

func (f *podFlag) validate() error {
	switch {
	case f.Pod == nil && f.Namespace != nil:
		return errors.New("-n goes with --pod")
	case f.Pod == nil:
		return nil
	}
	if _, err := observe.ParseWorkloadRef(f.ref()); err != nil {
		return fmt.Errorf("--pod %w", err)
	}
	return nil
}

// workload is what was asked for; false where nothing was.
func (f *podFlag) workload() (observe.WorkloadRef, bool) {
	r, err := observe.ParseWorkloadRef(f.ref()) // it was checked
	return r, err == nil
}

// find gives the containers of those pods, by their id as in observe.Filter.
func (f *podFlag) find(ctx context.Context, pods *kube.Kube) (string, error) {
	r, _ := f.workload()
	ids := pods.Find(ctx, r)
	if ids == "" {
		return "", fmt.Errorf("no pod of this node is %q, as far as can be known (see slowray doctor)", f.ref())
	}
	return ids, nil
}

// of says whether a process is in one of those pods, also in one that comes later. It is nil
// where none was asked for, and fails where there is none now.
func (f *podFlag) of(ctx context.Context, names *host.Names, pods *kube.Kube) (func(pid int, at int64) bool, error) {
	r, asked := f.workload()
	if !asked {
		return nil, nil
	}
	if _, err := f.find(ctx, pods); err != nil {
		return nil, err
	}
	return func(pid int, at int64) bool {
		id, _ := names.Of(pid, at)
		return r.Is(&id.Workload)
	}, nil
}

// start begins to ask who the pods of this host are; nil where it is no node.
func (f *kubeFlags) start(ctx context.Context) *kube.Kube {
	return kube.Start(ctx, kube.Options{Node: f.NodeName, Kubeconfig: f.Kubeconfig, Version: version()})
}
