package onnodes

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// api is an API server with some objects; exec is a program in its pods.
type api struct {
	mu      sync.Mutex
	objects map[string]any // by path
	denied  map[string]bool
	old     bool
	calls   []string // method and path of what changes something
	// program answers a command line: what it prints, its exit status, and whether it goes
	// on until its input ends.
	program func(pod string, args []string) (stdout, stderr string, status int, stays bool)
}

func serve(t *testing.T, a *api) *Cluster {
	t.Helper()
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	c, err := newCluster(&rest.Config{Host: server.URL}, "shop", "")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/exec") {
		a.exec(w, r)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.Method != http.MethodGet {
		a.calls = append(a.calls, r.Method+" "+r.URL.Path)
	}
	w.Header().Set("Content-Type", "application/json")
	fail := func(code int, reason metav1.StatusReason, message string) {
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: int32(code), Reason: reason, Message: message})
	}
	if a.denied[r.URL.Path] {
		fail(403, metav1.StatusReasonForbidden, `pods is forbidden: User "eve" cannot list resource "pods" in API group "" in the namespace "shop"`)
		return
	}
	switch {
	case r.Method == http.MethodPost:
		var pod corev1.Pod
		body, err := io.ReadAll(r.Body) // protobuf or JSON
		if err == nil {
			_, _, err = scheme.Codecs.UniversalDeserializer().Decode(body, nil, &pod)
		}
		if err != nil {
			fail(400, metav1.StatusReasonBadRequest, err.Error())
			return
		}
		pod.Name, pod.Namespace = fmt.Sprintf("%s%d", pod.GenerateName, len(a.objects)), "shop"
		out, _, status, _ := a.program(pod.Name, pod.Spec.Containers[0].Args)
		pod.Status = corev1.PodStatus{Phase: corev1.PodSucceeded, ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: int32(status)}}}}}
		if out == "" {
			pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such image"}}
		}
		a.objects[r.URL.Path+"/"+pod.Name], a.objects[r.URL.Path+"/"+pod.Name+"/log"] = pod, out
		_ = json.NewEncoder(w).Encode(pod)
	case r.Method == http.MethodDelete:
		delete(a.objects, r.URL.Path)
		_ = json.NewEncoder(w).Encode(metav1.Status{Status: "Success"})
	default:
		o, ok := a.objects[r.URL.Path]
		if !ok {
			fail(404, metav1.StatusReasonNotFound, fmt.Sprintf("%s not found", r.URL.Path))
			return
		}
		if list, ok := o.(corev1.PodList); ok {
			wanted, _ := metav1.ParseToLabelSelector(r.URL.Query().Get("labelSelector"))
			selector, _ := metav1.LabelSelectorAsSelector(wanted)
			var kept corev1.PodList
			for _, p := range list.Items {
				if selector.Matches(labelsOf(p.Labels)) {
					kept.Items = append(kept.Items, p)
				}
			}
			o = kept
		}
		if text, ok := o.(string); ok {
			_, _ = w.Write([]byte(text))
			return
		}
		_ = json.NewEncoder(w).Encode(o)
	}
}

type labelsOf map[string]string

func (l labelsOf) Has(k string) bool              { _, ok := l[k]; return ok }
func (l labelsOf) Get(k string) string            { return l[k] }
func (l labelsOf) Lookup(k string) (string, bool) { v, ok := l[k]; return v, ok }

// exec speaks v5.channel.k8s.io (k8s.io/apimachinery/pkg/util/remotecommand): the first
// byte of a message is the channel, and 255 closes one.
func (a *api) exec(w http.ResponseWriter, r *http.Request) {
	if a.old { // before WebSocket; SPDY is client-go's to test
		a.mu.Lock()
		a.calls = append(a.calls, r.Method+" "+r.Header.Get("Upgrade"))
		a.mu.Unlock()
		http.Error(w, "unable to upgrade", http.StatusBadRequest)
		return
	}
	up := websocket.Upgrader{Subprotocols: []string{"v5.channel.k8s.io"}}
	conn, err := up.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer conn.Close()
	q := r.URL.Query()
	pod := strings.Split(r.URL.Path, "/")
	stdout, stderr, status, stays := a.program(pod[len(pod)-2], q["command"])
	send := func(channel byte, text string) {
		_ = conn.WriteMessage(websocket.BinaryMessage, append([]byte{channel}, text...))
	}
	send(2, stderr)
	if stays { // until its input ends
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		for {
			_, data, err := conn.ReadMessage()
			if err != nil {
				return
			}
			if len(data) == 2 && data[0] == 255 && data[1] == 0 {
				break
			}
		}
	}
	send(1, stdout)
	end := metav1.Status{Status: metav1.StatusSuccess}
	if status != 0 {
		end = metav1.Status{Status: metav1.StatusFailure, Reason: "NonZeroExitCode", Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: "ExitCode", Message: fmt.Sprint(status)}}}}
	}
	text, _ := json.Marshal(end)
	send(3, string(text))
	_ = conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(time.Second))
}

// pod is one that runs.
func pod(namespace, name, node, app string, owner string) corev1.Pod {
	yes := true
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": app, "app.kubernetes.io/name": app},
			OwnerReferences: []metav1.OwnerReference{{Kind: owner, Name: app, Controller: &yes}}},
		Spec:   corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "slowray", Args: []string{"record", "--listen=127.0.0.1:7799"}}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{ContainerID: "containerd://id-of-" + name + "-longer-than-shown", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}},
	}
}

// shop has cart on two nodes, and slowray on both.
func shop() *api {
	ended := pod("shop", "cart-0", "node-1", "cart", "ReplicaSet")
	ended.Status.Phase = corev1.PodSucceeded
	stray := pod("slowray", "stray", "node-1", "slowray", "ReplicaSet") // not the DaemonSet's
	return &api{objects: map[string]any{
		"/apis/apps/v1/namespaces/shop/deployments/cart": appsv1.Deployment{Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "cart"}}}},
		"/apis/apps/v1/namespaces/shop/deployments/all":  appsv1.Deployment{Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{}}},
		"/apis/apps/v1/namespaces/shop/deployments/idle": appsv1.Deployment{Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "idle"}}}},
		"/api/v1/namespaces/shop/services/cart":          corev1.Service{Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "cart"}}},
		"/api/v1/namespaces/shop/services/outside":       corev1.Service{},
		"/api/v1/namespaces/shop/pods/cart-0":            ended,
		"/api/v1/namespaces/shop/pods/cart-b":            pod("shop", "cart-b", "node-2", "cart", "ReplicaSet"),
		"/api/v1/namespaces/shop/pods": corev1.PodList{Items: []corev1.Pod{
			pod("shop", "cart-b", "node-2", "cart", "ReplicaSet"), pod("shop", "cart-a", "node-1", "cart", "ReplicaSet"), ended, pod("shop", "stock", "node-3", "stock", "ReplicaSet"),
		}},
		"/api/v1/namespaces/slowray/pods": corev1.PodList{Items: []corev1.Pod{
			pod("slowray", "slowray-1", "node-1", "slowray", "DaemonSet"), stray, pod("slowray", "slowray-2", "node-2", "slowray", "DaemonSet"),
		}},
	}}
}
