package server

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// KubeconfigFile is the file in the sandbox's directory that names the stand-in for an API
// server, and NodeName the node that it knows, where the pod's Cluster is set.
const (
	KubeconfigFile = "kubeconfig"
	NodeName       = "lab"
)

// kinds are the resources that a cluster keeps, as their lists are called.
var kinds = map[string]metav1.TypeMeta{
	"pods": {Kind: "Pod", APIVersion: "v1"}, "services": {Kind: "Service", APIVersion: "v1"}, "events": {Kind: "Event", APIVersion: "v1"}, "nodes": {Kind: "Node", APIVersion: "v1"},
	"endpointslices":           {Kind: "EndpointSlice", APIVersion: discoveryv1.SchemeGroupVersion.String()},
	"persistentvolumeclaims":   {Kind: "PersistentVolumeClaim", APIVersion: "v1"},
	"horizontalpodautoscalers": {Kind: "HorizontalPodAutoscaler", APIVersion: autoscalingv2.SchemeGroupVersion.String()},
}

// cluster is a stand-in for an API server with the objects of one node, which can be listed
// and watched; it checks no rights. What it tells the stand-in for a kubelet puts there.
type cluster struct {
	mu      sync.Mutex
	version int
	objects map[string]map[string]change // by resource and name, also what was taken away
}

// change is the last one of an object.
type change struct {
	version, made int // the latter of when it was new
	gone          bool
	object        json.RawMessage
}

const watchEvery = 100 * time.Millisecond

// cluster starts one, and writes the kubeconfig that names it.
func (s *starter) cluster() (*cluster, error) {
	c := &cluster{objects: map[string]map[string]change{}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("the stand-in for an API server: %w", err)
	}
	s.serveUntilGone(l, c)
	return c, writeKubeconfig(s.box.Dir, "http://"+l.Addr().String())
}

func writeKubeconfig(dir, url string) error {
	text := fmt.Sprintf(`{"kind":"Config","apiVersion":"v1","current-context":"lab","contexts":[{"name":"lab","context":{"cluster":"lab","user":"lab"}}],
"clusters":[{"name":"lab","cluster":{"server":%q}}],"users":[{"name":"lab","user":{}}]}`, url)
	return os.WriteFile(filepath.Join(dir, KubeconfigFile), []byte(text), 0o600)
}

// put keeps an object under its name, or, where it is nil, takes it away.
func (c *cluster) put(resource, name string, object any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.objects[resource] == nil {
		c.objects[resource] = map[string]change{}
	}
	c.version++
	was, known := c.objects[resource][name]
	now := change{version: c.version, made: was.made, gone: object == nil, object: was.object}
	if !known || was.gone {
		now.made = c.version
	}
	if object != nil {
		now.object = c.encode(resource, name, object)
	}
	c.objects[resource][name] = now
}

// encode writes an object with what an API server adds to it.
func (c *cluster) encode(resource, name string, object any) json.RawMessage {
	var fields map[string]any
	text, err := json.Marshal(object)
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	if err != nil {
		panic(err) // a mistake of the program
	}
	fields["kind"], fields["apiVersion"] = kinds[resource].Kind, kinds[resource].APIVersion
	meta := fields["metadata"].(map[string]any)
	meta["name"], meta["resourceVersion"] = name, strconv.Itoa(c.version)
	if resource != "nodes" {
		meta["namespace"] = podNamespace
	}
	text, _ = json.Marshal(fields) // it came from JSON
	return text
}

// since are the changes of a resource after a version, in their order.
func (c *cluster) since(resource string, version int) (list []change, now int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ch := range c.objects[resource] {
		if ch.version > version {
			list = append(list, ch)
		}
	}
	slices.SortFunc(list, func(a, b change) int { return a.version - b.version })
	return list, c.version
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	words := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	resource, name := words[len(words)-1], ""
	if _, known := kinds[resource]; !known && len(words) > 1 {
		resource, name = words[len(words)-2], words[len(words)-1]
	}
	list, now := c.since(resource, 0)
	list = slices.DeleteFunc(list, func(ch change) bool { return ch.gone })
	w.Header().Set("Content-Type", "application/json")
	out := json.NewEncoder(w)
	switch q := r.URL.Query(); {
	case kinds[resource].Kind == "":
		http.NotFound(w, r)
	case q.Get("watch") != "":
		c.watch(w, r, resource)
	case name != "":
		for _, ch := range list {
			if strings.Contains(string(ch.object), strconv.Quote(name)) {
				w.Write(ch.object) // whoever asks may be gone
				return
			}
		}
		w.WriteHeader(http.StatusNotFound)
		out.Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound})
	default:
		items := []json.RawMessage{}
		for _, ch := range list {
			if selected(q.Get("fieldSelector"), ch.object) {
				items = append(items, ch.object)
			}
		}
		out.Encode(map[string]any{"kind": kinds[resource].Kind + "List", "apiVersion": kinds[resource].APIVersion, "metadata": map[string]string{"resourceVersion": strconv.Itoa(now)}, "items": items})
	}
}

// selected says whether an object has what a field selector asks for: an address of a pod, or
// the kind of what an event is about. All others are of the one node.
func selected(selector string, object json.RawMessage) bool {
	var o struct {
		Status struct {
			PodIP string `json:"podIP"`
		} `json:"status"`
		InvolvedObject struct {
			Kind string `json:"kind"`
		} `json:"involvedObject"`
	}
	if json.Unmarshal(object, &o) != nil {
		return false
	}
	for one := range strings.SplitSeq(selector, ",") {
		field, value, _ := strings.Cut(one, "=")
		if field == "status.podIP" && value != o.Status.PodIP || field == "involvedObject.kind" && value != o.InvolvedObject.Kind {
			return false
		}
	}
	return true
}

// watch tells of the changes after the version that was asked for, until nobody listens.
func (c *cluster) watch(w http.ResponseWriter, r *http.Request, resource string) {
	version, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion")) // none: of all that there is
	out := json.NewEncoder(w)
	for {
		list, now := c.since(resource, version)
		for _, ch := range list {
			kind := "MODIFIED"
			switch {
			case ch.gone && ch.made > version:
				continue
			case ch.gone:
				kind = "DELETED"
			case ch.made > version:
				kind = "ADDED"
			}
			if out.Encode(map[string]any{"type": kind, "object": ch.object}) != nil {
				return
			}
		}
		version = now
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
			return
		case <-time.After(watchEvery):
		}
	}
}

// podIP is the address of pods where a service stands before them: clients ask at its
// address, which is the server's here, for nobody translates it.
const podIP = "10.244.0.7"

// join puts what is there before the first pod: the node, the service, and what the faults
// of the control plane made.
func (k *kubelet) join() error {
	spec, now := &k.s.v.Pod, time.Now()
	node := corev1.Node{}
	if spec.Evict > 0 {
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionTrue}}
	}
	k.api.put("nodes", NodeName, node)
	k.api.put("services", spec.Deployment, corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: k.s.v.ServerAddr, ClusterIPs: []string{k.s.v.ServerAddr},
		Selector: map[string]string{"app": spec.Deployment}, Ports: []corev1.ServicePort{{Port: int32(k.s.v.FrontPort)}}}})
	k.endpoints()
	if spec.Flaps {
		least, window := int32(1), int32(0)
		k.api.put("horizontalpodautoscalers", spec.Deployment, autoscalingv2.HorizontalPodAutoscaler{
			Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MinReplicas: &least, MaxReplicas: 4, ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: spec.Deployment},
				Behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: &window}}}})
		for i, size := range []int{1, 3, 1, 3, 1} {
			at := now.Add(time.Duration(i-5) * time.Minute)
			k.event(fmt.Sprintf("rescale-%d", i), "HorizontalPodAutoscaler", spec.Deployment, "SuccessfulRescale", fmt.Sprintf("New size: %d; reason: cpu resource utilization (percentage of request) above target", size), at)
		}
	}
	if !spec.Unselected {
		return nil
	}
	// kube-proxy's rule for a service without endpoints.
	for _, rule := range []string{"-N KUBE-SERVICES", "-A INPUT -j KUBE-SERVICES", fmt.Sprintf("-A KUBE-SERVICES -p tcp --dport %d -j REJECT", k.s.v.FrontPort)} {
		if _, err := k.s.box.Server.Output(k.s.ctx, append([]string{"iptables-nft"}, strings.Fields(rule)...)...); err != nil {
			return err
		}
	}
	return nil
}

// event tells of an object.
func (k *kubelet) event(name, kind, of, reason, message string, at time.Time) {
	k.api.put("events", name, corev1.Event{Type: corev1.EventTypeWarning, Reason: reason, Message: message, Count: 1, FirstTimestamp: metav1.NewTime(at), LastTimestamp: metav1.NewTime(at),
		InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: podNamespace, Name: of}})
}

// endpoints puts the pods that are ready behind the service, as far as it selects them.
func (k *kubelet) endpoints() {
	spec := &k.s.v.Pod
	port, name, node := int32(k.s.v.FrontPort), "", NodeName
	slice := discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{discoveryv1.LabelServiceName: spec.Deployment}}, AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port}}}
	for _, p := range k.pods {
		if ready := p.Status.ContainerStatuses[0].Ready && p.DeletionTimestamp == nil; ready && !spec.Unselected {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{p.Status.PodIP}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}, NodeName: &node,
				TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: p.Name, UID: types.UID(p.UID)}})
		}
	}
	k.api.put("endpointslices", spec.Deployment+"-x", slice)
}

// tell puts what the kubelet knows of its pods; the caller holds its lock.
func (k *kubelet) tell() {
	if k.api == nil {
		return
	}
	for _, p := range slices.Concat(k.jobs, k.pods) {
		k.api.put("pods", p.Name, p)
	}
	k.endpoints()
}
