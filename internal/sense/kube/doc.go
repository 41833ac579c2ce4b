// Package kube asks who the pods of this node are, and those that they have to do with.
//
// In: the container runtime over its CRI socket, the kubelet's list of pods, and the API
// server, each where it is there. Out: claims for a workload.Index, told as they come, and
// an observe.Kubernetes of a window. Each source is optional: what it does not answer, or
// answers too slowly or with too much, is left out and reported in one line. Nothing that
// records waits for any of them. It changes nothing, anywhere.
package kube
