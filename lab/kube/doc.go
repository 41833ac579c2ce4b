// Package kube runs a Kubernetes node on this machine: etcd, API server, controller
// manager, scheduler, kube-proxy, kubelet and containerd, each the real program, in
// network, mount and UTS namespaces of their own.
//
// In: the directory of the programs that script/kube.sh builds, and Debian's containerd,
// runc and CNI plugins (script/setup.sh k8s). Out: a node that pods run on, a client for its
// API, and a way to run other programs next to it.
//
// Images are made here from static binaries; none is pulled. Processes and pods are in
// control groups below one of the node's own, files in a temporary directory, and mounts
// in the namespace only. Whatever ends the program, the node ends too: its keeper is a
// process of its own that takes it down when its parent is gone, and if both are killed
// the next Start ends what they left. No setting of the host is changed: the kernel
// settings that a kubelet insists on are files of the namespace.
package kube
