// Package onnodes runs slowray on the nodes of a Kubernetes cluster where the pods of a
// workload are, and brings back what it says.
//
// In: the name of a workload, as kubectl takes it, a command line of slowray, and the
// access that a kubeconfig gives. Out: what slowray printed for each pod, and its exit
// status; or one report of all. It runs in the pods of the DaemonSet, or where there are
// none, and it was asked for, in pods that it makes on the nodes and deletes again.
//
// It never changes anything else in the cluster, and needs no more rights than
// docs/kubernetes.md lists.
package onnodes
