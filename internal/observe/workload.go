package observe

import "strings"

// kubectlNames are the kinds as kubectl(1) abbreviates them.
var kubectlNames = map[string]string{
	"Deployment": "deploy", "StatefulSet": "sts", "DaemonSet": "ds", "ReplicaSet": "rs", "ReplicationController": "rc", "Service": "svc",
}

// Text names a workload as kubectl does: "deploy/cart (ns shop)". Empty for the zero
// Workload.
func (w Workload) Text() string {
	kind, name := w.Kind, w.Name
	if name == "" {
		kind, name = "Pod", w.Pod
	}
	if name == "" {
		return ""
	}
	short, known := kubectlNames[kind]
	if !known {
		short = strings.ToLower(kind)
	}
	if short != "" {
		name = short + "/" + name
	}
	if w.Namespace != "" {
		name += " (ns " + w.Namespace + ")"
	}
	return name
}

// ContainerText is Text with the container: "deploy/cart (ns shop), container app".
func (w Workload) ContainerText() string {
	if w.Container == "" {
		return w.Text()
	}
	return w.Text() + ", container " + w.Container
}

// Workload is who a container of the pod is; of the pod as such with "".
func (p *Pod) Workload(container string, node *KubeNode) Workload {
	return Workload{Namespace: p.Namespace, Pod: p.Name, Container: container, Kind: p.Kind, Name: p.Owner, Node: node.Name, Zone: node.Zone}
}
