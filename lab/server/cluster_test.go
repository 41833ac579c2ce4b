package server

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/kube"
)

// TestCluster: what is put is listed and got, and a watch tells what comes after the list, in
// its order, and nothing twice.
func TestCluster(t *testing.T) {
	c := &cluster{objects: map[string]map[string]change{}}
	web := httptest.NewServer(c)
	defer web.Close()
	get := func(path string) (int, string) {
		resp, err := http.Get(web.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b)
	}
	c.put("pods", "a", corev1.Pod{Status: corev1.PodStatus{PodIP: podIP}})
	c.put("pods", "old", corev1.Pod{})
	c.put("pods", "old", nil)
	var list corev1.PodList
	_, text := get("/api/v1/pods?fieldSelector=spec.nodeName%3Dlab")
	if err := json.Unmarshal([]byte(text), &list); err != nil || len(list.Items) != 1 || list.Items[0].Name != "a" || list.Items[0].Namespace != podNamespace || list.Kind != "PodList" {
		t.Fatalf("%v %s", err, text)
	}
	if _, text := get("/api/v1/pods?fieldSelector=status.podIP%3D10.0.0.9"); len(text) == 0 || json.Unmarshal([]byte(text), &list) != nil || len(list.Items) != 0 {
		t.Errorf("an address that no pod has: %s", text)
	}
	for path, want := range map[string]int{"/api/v1/namespaces/shop/pods/a": 200, "/api/v1/namespaces/shop/pods/old": 404, "/api/v1/nodes/lab": 404, "/api/v1/secrets": 404} {
		if code, text := get(path); code != want {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
	resp, err := http.Get(web.URL + "/api/v1/pods?watch=1&resourceVersion=" + list.ResourceVersion)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	events := bufio.NewScanner(resp.Body)
	next := func() string {
		events.Scan()
		var e struct {
			Type   string
			Object metav1.PartialObjectMetadata
		}
		if err := json.Unmarshal(events.Bytes(), &e); err != nil {
			t.Fatalf("%v %s", err, events.Text())
		}
		return fmt.Sprint(e.Type, " ", e.Object.Kind, " ", e.Object.Name)
	}
	c.put("pods", "b", corev1.Pod{})
	if got := next(); got != "ADDED Pod b" {
		t.Error(got)
	}
	c.put("pods", "a", corev1.Pod{})
	if got := next(); got != "MODIFIED Pod a" {
		t.Error(got)
	}
	c.put("pods", "b", nil)
	if got := next(); got != "DELETED Pod b" {
		t.Error(got)
	}
}

// TestClusterAsSlowrayReadsIt: slowray's own reader lists and watches it, and a window has the
// pods of the node with their limits, the service with its endpoints, the autoscaler and its
// events, and what changed after the list.
func TestClusterAsSlowrayReadsIt(t *testing.T) {
	c := &cluster{objects: map[string]map[string]change{}}
	web := httptest.NewServer(c)
	t.Cleanup(func() { web.CloseClientConnections(); web.Close() })
	dir := t.TempDir()
	if err := writeKubeconfig(dir, web.URL); err != nil {
		t.Fatal(err)
	}
	v := values{}
	v.Pod = Pod{Deployment: "cart", Container: "app", Cluster: true, Flaps: true, Evict: time.Second}
	v.ServerAddr, v.FrontPort = "10.9.8.1", 8000
	k := &kubelet{s: &starter{v: v}, api: c}
	if err := k.join(); err != nil {
		t.Fatal(err)
	}
	controller := true
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "cart-6d9f7c4b58-a", UID: "u1", Labels: map[string]string{"pod-template-hash": "6d9f7c4b58"}, CreationTimestamp: metav1.Now(),
		OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "cart-6d9f7c4b58", Controller: &controller}}},
		Spec: corev1.PodSpec{NodeName: NodeName, Containers: []corev1.Container{{Name: "app"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: podIP, PodIPs: []corev1.PodIP{{IP: podIP}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "app", Ready: true, ContainerID: "containerd://" + randomHex(32), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}}}}}
	started := time.Now()
	reader := kube.Start(t.Context(), kube.Options{Node: NodeName, Kubeconfig: filepath.Join(dir, KubeconfigFile), Root: dir})
	defer reader.Close()
	k.mu.Lock()
	k.pods = append(k.pods, pod)
	k.tell()
	k.event("evicted", "Pod", pod.Name, "Evicted", "The node was low on resource: memory.", time.Now())
	k.mu.Unlock()
	var got *observe.Kubernetes
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if got, _ = reader.Window(t.Context(), kube.Query{Start: started}); got != nil && len(got.Pods) == 1 && len(got.Services) == 1 && len(got.Services[0].Endpoints) == 1 {
			break
		}
	}
	switch {
	case got == nil || len(got.Pods) != 1 || len(got.Services) != 1 || len(got.Services[0].Endpoints) != 1:
		t.Fatalf("%+v", got)
	case got.Pods[0].Owner != "cart" || got.Pods[0].Kind != "Deployment":
		t.Errorf("the pod is of %s %s", got.Pods[0].Kind, got.Pods[0].Owner)
	case got.Services[0].Endpoints[0].Address != podIP || !got.Services[0].Selects || !got.Services[0].EndpointsKnown:
		t.Errorf("%+v", got.Services[0])
	case len(got.Autoscalers) != 1 || got.Autoscalers[0].StabilizeDownSeconds != 0 || got.Autoscalers[0].Target != "cart":
		t.Errorf("autoscalers: %+v", got.Autoscalers)
	case len(got.Events) != 6:
		t.Errorf("%d events: %+v", len(got.Events), got.Events)
	case !slices.Contains(got.Node.Pressure, "MemoryPressure"):
		t.Errorf("%+v", got.Node)
	}
	k.mu.Lock()
	k.s.v.Pod.Unselected = true
	k.tell()
	k.mu.Unlock()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		peers := map[netip.Addr]bool{netip.MustParseAddr(v.ServerAddr): true}
		if got, _ = reader.Window(t.Context(), kube.Query{Start: started, Peers: peers}); len(got.Services) == 1 && len(got.Services[0].Endpoints) == 0 {
			if left := got.Services[0].Left; len(left) != 1 || left[0] != pod.Name {
				t.Errorf("behind it was %v", left)
			}
			break
		}
		if time.Now().After(end) {
			t.Fatal("the watch does not tell that the endpoint is gone")
		}
	}
}
