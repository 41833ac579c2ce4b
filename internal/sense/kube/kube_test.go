package kube

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8s "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/kube/owner"
)

const (
	cartID  = "3c5a6e1f0c2b4d7e8f9a0b1c2d3e4f5061728394a5b6c7d8e9f0a1b2c3d4e5f6"
	proxyID = "aaaa6e1f0c2b4d7e8f9a0b1c2d3e4f5061728394a5b6c7d8e9f0a1b2c3d4e5f6"
)

var start = time.Now().Truncate(time.Second)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(start.Add(-d)) }

func ptr[T any](v T) *T { return &v }

// cartPod is a pod of a Deployment as its manifest and status say.
func cartPod() corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			UID: "uid-cart", Namespace: "shop", Name: "cart-7d9f8b6c5d-x2x4z", ResourceVersion: "5", CreationTimestamp: ago(time.Hour),
			Labels:          map[string]string{owner.LabelTemplateHash: "7d9f8b6c5d"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "cart-7d9f8b6c5d", Controller: ptr(true)}},
		},
		Spec: corev1.PodSpec{
			NodeName: "node-7", DNSPolicy: corev1.DNSClusterFirst, DNSConfig: &corev1.PodDNSConfig{Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: ptr("2")}, {Name: "use-vc"}}},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "cart-data"}}}, {Name: "tmp"},
				{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
				{Name: "fast", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
				{Name: "raw", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}},
			Containers: []corev1.Container{{
				Name: "web", Image: "shop/cart:1", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{"cpu": resource.MustParse("250m"), "memory": resource.MustParse("64Mi")},
					Limits:   corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("128Mi")},
				},
				VolumeMounts:   []corev1.VolumeMount{{Name: "data", MountPath: "/data"}, {Name: "tmp", MountPath: "/tmp"}, {Name: "scratch", MountPath: "/scratch"}, {Name: "fast", MountPath: "/fast"}},
				VolumeDevices:  []corev1.VolumeDevice{{Name: "raw", DevicePath: "/dev/xvda"}},
				LivenessProbe:  &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/live", Port: intstr.FromString("http")}}, PeriodSeconds: 5},
				ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{}}},
				Lifecycle:      &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{}},
			}},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBurstable, PodIP: "10.1.0.7", PodIPs: []corev1.PodIP{{IP: "10.1.0.7"}, {IP: "fd00::7"}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: ago(30 * time.Second)}},
			ContainerStatuses: []corev1.ContainerStatus{{
				Name: "web", ContainerID: "containerd://" + cartID, Image: "shop/cart:1", ImageID: "shop/cart@sha256:0123456789abcdef0123", Ready: true, RestartCount: 2,
				State:                corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: ago(time.Minute)}},
				LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137, StartedAt: ago(10 * time.Minute), FinishedAt: ago(70 * time.Second), ContainerID: "containerd://" + proxyID}},
			}},
		},
	}
}

var cart = observe.Workload{Namespace: "shop", Pod: "cart-7d9f8b6c5d-x2x4z", Kind: "Deployment", Name: "cart", Node: "node-7"}

func wantCart() observe.Pod {
	return observe.Pod{
		UID: "uid-cart", Namespace: "shop", Name: "cart-7d9f8b6c5d-x2x4z", Kind: "Deployment", Owner: "cart", IPs: []string{"10.1.0.7", "fd00::7"}, Phase: "Running", QoS: "Burstable",
		Ready: true, ReadySince: -30, CreatedAt: -3600, DNSOptions: []observe.DNSOption{{Name: "ndots", Value: "2"}, {Name: "use-vc"}}, DNSPolicy: "ClusterFirst",
		Containers: []observe.PodContainer{{
			Name: "web", ID: cartID[:12], Image: "shop/cart:1", ImageID: "0123456789ab", Ready: true, State: "running", Started: -60, Restarts: 2,
			Last:       observe.PodExit{Reason: "OOMKilled", ExitCode: 137, At: -70},
			CPURequest: 0.25, CPULimit: 1, MemoryRequest: 64 << 20, MemoryLimit: 128 << 20,
			Liveness:  &observe.Probe{Kind: "http", Path: "/live", Port: 8080, TimeoutSeconds: 1, PeriodSeconds: 5, FailureThreshold: 3},
			Readiness: &observe.Probe{Kind: "exec", TimeoutSeconds: 1, PeriodSeconds: 10, FailureThreshold: 3}, PreStop: true,
		}},
		Volumes: []observe.PodVolume{
			{Name: "data", Kind: "persistentVolumeClaim", Claim: "cart-data", Container: "web", Path: "/data"},
			{Name: "scratch", Kind: "emptyDir", Container: "web", Path: "/scratch"},
			{Name: "raw", Kind: "ephemeral", Claim: "cart-7d9f8b6c5d-x2x4z-raw", Container: "web", Path: "/dev/xvda", Block: true},
		},
	}
}

// cluster is the objects of an API server around that pod.
func cluster() map[string]k8s.Object {
	return map[string]k8s.Object{
		"pods": list(&corev1.PodList{Items: []corev1.Pod{cartPod()}}),
		"services": list(&corev1.ServiceList{Items: []corev1.Service{{
			ObjectMeta: metav1.ObjectMeta{UID: "uid-svc", Namespace: "shop", Name: "db", CreationTimestamp: ago(time.Hour)},
			Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.9", Selector: map[string]string{"app": "db"}, Ports: []corev1.ServicePort{{Name: "sql", Protocol: "TCP", Port: 5432, TargetPort: intstr.FromString("sql")}}},
		}}}),
		"endpointslices": list(&discoveryv1.EndpointSliceList{Items: []discoveryv1.EndpointSlice{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-1", Labels: map[string]string{discoveryv1.LabelServiceName: "db"}},
			Ports:      []discoveryv1.EndpointPort{{Port: ptr(int32(5432))}},
			Endpoints: []discoveryv1.Endpoint{
				{Addresses: []string{"10.1.9.1"}, NodeName: ptr("node-9"), Zone: ptr("b"), TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "db-0", UID: "uid-db"}},
				{Addresses: []string{"192.168.0.9"}, NodeName: ptr("node-9"), TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "exporter", UID: "uid-exp"},
					Conditions: discoveryv1.EndpointConditions{Ready: ptr(false), Terminating: ptr(true)}},
			},
		}}}),
		"db-0":     podAt("uid-db", "db-0", "10.1.9.1", false),
		"exporter": podAt("uid-exp", "exporter", "192.168.0.9", true),
		"status.podIP=10.1.9.8": list(&corev1.PodList{Items: []corev1.Pod{
			func() corev1.Pod { // it is over and keeps its address in its status
				p := *podAt("uid-old", "old", "10.1.9.8", false)
				p.Status.Phase = corev1.PodSucceeded
				p.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{StartedAt: ago(time.Hour), FinishedAt: ago(30 * time.Minute)}}
				return p
			}(),
			*podAt("uid-new", "new", "10.1.9.8", false),
		}}),
		"node-7": &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-7", Labels: map[string]string{labelZone: "a"}}, Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi")},
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionTrue}, {Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		}},
		"events": list(&corev1.EventList{Items: []corev1.Event{
			{InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: cart.Pod, FieldPath: "spec.containers{web}"}, Type: "Warning", Reason: "Unhealthy", Count: 7,
				Message: "Liveness probe failed:\n<b>500</b>\n", FirstTimestamp: ago(90 * time.Second), LastTimestamp: ago(20 * time.Second)},
			{InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "other"}, Reason: "Pulled", LastTimestamp: ago(time.Second)},
			{InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: cart.Pod}, Reason: "Pulled", LastTimestamp: ago(time.Hour)},
			{InvolvedObject: corev1.ObjectReference{Kind: "HorizontalPodAutoscaler", Namespace: "shop", Name: "cart"}, Reason: "SuccessfulRescale", EventTime: metav1.NewMicroTime(start.Add(-5 * time.Second))},
		}}),
		"involvedObject.kind=Node,involvedObject.name=node-7": list(&corev1.EventList{}),
		"persistentvolumeclaims": list(&corev1.PersistentVolumeClaimList{Items: []corev1.PersistentVolumeClaim{
			{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart-data"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pvc-7f3a", StorageClassName: ptr("fast")}},
			{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "other"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pvc-0000"}},
		}}),
		"horizontalpodautoscalers": list(&autoscalingv2.HorizontalPodAutoscalerList{Items: []autoscalingv2.HorizontalPodAutoscaler{
			{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart"}, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: "cart"}, MinReplicas: ptr(int32(2)), MaxReplicas: 9},
				Status: autoscalingv2.HorizontalPodAutoscalerStatus{CurrentReplicas: 3, DesiredReplicas: 5}},
			{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "other"}, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: "other"}}},
		}}),
	}
}

// podAt is a pod of a StatefulSet on another node.
func podAt(uid, name, ip string, host bool) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Namespace: "shop", Name: name, ResourceVersion: "3", OwnerReferences: []metav1.OwnerReference{{Kind: "StatefulSet", Name: "db", Controller: ptr(true)}}},
		Spec:       corev1.PodSpec{NodeName: "node-9", HostNetwork: host, Containers: []corev1.Container{{Name: "c"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, ContainerStatuses: []corev1.ContainerStatus{{Name: "c", ContainerID: "containerd://" + uid,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: ago(time.Hour)}}}}},
	}
}

func startKube(t testing.TB, o Options) *Kube {
	t.Helper()
	o.Node = "node-7"
	if o.Root == "" {
		o.Root = t.TempDir()
	}
	if o.KubeletPort == 0 {
		o.KubeletPort = closedPort(t)
	}
	k := Start(context.Background(), o)
	t.Cleanup(k.Close)
	return k
}

func TestNoNodeIsNothing(t *testing.T) {
	if k := startKube(t, Options{}); k != nil {
		t.Fatalf("there is nothing, and it asks: %+v", k)
	}
	var k *Kube
	if w, errs := k.Window(context.Background(), Query{}); w != nil || errs != nil || k.Peer(netip.MustParseAddr("10.1.0.7"), 1) != (observe.Workload{}) || k.Container("x", 1) != (observe.Workload{}) {
		t.Error("nobody knows something")
	}
	// Docker's containerd has no pods, and another server may listen where kubelets do.
	f := &fakeCRI{}
	k = startKube(t, Options{Root: f.serve(t), KubeletPort: fakeKubelet(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })})
	if w, errs := k.Window(context.Background(), Query{Start: start}); w != nil || errs != nil {
		t.Errorf("%+v %v", w, errs)
	}
	done := make(chan struct{})
	go func() { k.running.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Error("it goes on asking")
	}
}

func TestKubelet(t *testing.T) {
	k := startKube(t, Options{KubeletPort: fakeKubelet(t, podList(cartPod()))})
	w, errs := k.Window(context.Background(), Query{Start: start})
	if len(errs) != 0 {
		t.Error(errs)
	}
	if diff := cmp.Diff([]observe.Pod{wantCart()}, w.Pods); diff != "" {
		t.Error(diff)
	}
	now := time.Now().UnixNano()
	in := cart
	in.Container = "web"
	for _, at := range []int64{now, start.Add(-50 * time.Second).UnixNano()} {
		if got := k.Container(cartID[:12], at); got != in {
			t.Errorf("%+v, want %+v", got, in)
		}
		if got := k.Peer(netip.MustParseAddr("::ffff:10.1.0.7"), at); got != cart {
			t.Errorf("%+v, want %+v", got, cart)
		}
	}
	if got := k.Container(proxyID[:12], start.Add(-2*time.Minute).UnixNano()); got != in { // the run before
		t.Errorf("%+v, want %+v", got, in)
	}
	for p, want := range map[observe.Identity]observe.Workload{
		{Comm: "kubelet"}:                              cart, // of the node
		{Container: cartID[:12], Workload: in}:         cart,
		{Container: "feedfeedfeed", Comm: "in Docker"}: {},
	} {
		if got := k.PeerOf(&p, netip.MustParseAddr("10.1.0.7"), now); got != want {
			t.Errorf("%+v has a connection with %+v, want %+v", p, got, want)
		}
	}
	if got := k.Peer(netip.MustParseAddr("10.1.0.7"), start.Add(-2*time.Hour).UnixNano()); got != (observe.Workload{}) {
		t.Errorf("before it had the address: %+v", got)
	}
	if w, _ := k.Window(context.Background(), Query{Start: start, Containers: map[string]bool{"other": true}}); len(w.Pods) != 0 {
		t.Errorf("%+v", w.Pods)
	}
}

// TestCRINextToDocker: the containerd of Docker, which speaks no CRI or knows no pod, does not
// hide that of the kubelet; and when that one is away, its pods are not over.
func TestCRINextToDocker(t *testing.T) {
	for name, docker := range map[string]*fakeCRI{"speaks no CRI": nil, "knows no pod": {}} {
		f := &fakeCRI{}
		f.add("uid-cart", "shop", cart.Pod, "10.1.0.7", cartID, false, map[string]string{owner.LabelTemplateHash: "7d9f8b6c5d"}, time.Now().Add(-time.Minute))
		root := shortRoot(t)
		serveAt(t, root+sockets[0], docker)
		serveAt(t, root+sockets[2], f)
		c := findCRI(root, newState(newIndex(), "node-7"))
		if c == nil || len(c.asked) < 2 {
			t.Fatalf("%s: %+v", name, c)
		}
		t.Cleanup(c.close)
		if n, err := c.look(context.Background()); n != 1 || err != nil || c.source().Where != sockets[2] {
			t.Errorf("%s: %d pods, %v, %+v", name, n, err, c.source())
		}
		f.mu.Lock()
		f.wait = time.Hour
		f.mu.Unlock()
		if _, err := c.look(context.Background()); err == nil || c.source().Where != sockets[2] {
			t.Errorf("%s: it is away: %v, %+v", name, err, c.source())
		}
	}
}

func TestCRI(t *testing.T) {
	f := &fakeCRI{}
	at := time.Now().Add(-time.Minute)
	f.add("uid-cart", "shop", cart.Pod, "10.1.0.7", cartID, false, map[string]string{owner.LabelTemplateHash: "7d9f8b6c5d"}, at)
	f.add("uid-proxy", "kube-system", "kube-proxy-x2x4z", "192.168.0.7", proxyID, true, map[string]string{owner.LabelGeneration: "1"}, at)
	k := startKube(t, Options{Root: f.serve(t)})
	w, errs := k.Window(context.Background(), Query{Start: start})
	if len(errs) != 0 || w == nil || len(w.Pods) != 2 || w.Pods[1].Name != cart.Pod || w.Pods[1].Kind != "Deployment" || w.Pods[0].Owner != "kube-proxy" {
		t.Fatalf("%+v %v", w, errs)
	}
	now := time.Now().UnixNano()
	if got := k.Peer(netip.MustParseAddr("10.1.0.7"), now); got != cart {
		t.Errorf("%+v, want %+v", got, cart)
	}
	if got := k.Peer(netip.MustParseAddr("192.168.0.7"), now); got != (observe.Workload{}) {
		t.Errorf("the node's address is %+v", got)
	}
	if got := k.Container(proxyID[:12], now); got.Name != "kube-proxy" || got.Kind != "DaemonSet" || got.Container != "web" {
		t.Errorf("%+v", got)
	}

	// The address is another pod's now: what is known of yesterday stays.
	f.remove("uid-cart")
	f.add("uid-db", "shop", "db-0", "10.1.0.7", strings.Repeat("b", 64), false, map[string]string{owner.LabelStatefulPod: "db-0"}, time.Now())
	began := time.Now().UnixNano()
	if _, err := k.cri.look(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := k.Peer(netip.MustParseAddr("10.1.0.7"), began); got.Pod != "db-0" || got.Kind != "StatefulSet" || got.Name != "db" {
		t.Errorf("%+v", got)
	}
	if got := k.Peer(netip.MustParseAddr("10.1.0.7"), at.Add(time.Second).UnixNano()); got != cart {
		t.Errorf("%+v, want %+v", got, cart)
	}
	if w, _ := k.Window(context.Background(), Query{Start: start}); len(w.Pods) != 3 {
		t.Errorf("one that ended a moment ago is missing: %+v", w.Pods)
	}
}

func TestAPI(t *testing.T) {
	api := newAPI(t, cluster())
	k := startKube(t, Options{Kubeconfig: api.kubeconfig()})
	eventually(t, "all is watched", func() bool { return k.api.pods.synced() && k.api.services.synced() && k.api.endpoints.synced() })
	w, errs := k.Window(context.Background(), Query{Start: start, Peers: map[netip.Addr]bool{netip.MustParseAddr("10.96.0.9"): true}})
	if len(errs) != 0 {
		t.Error(errs)
	}
	want := &observe.Kubernetes{
		Node: observe.KubeNode{Name: "node-7", Zone: "a", Pressure: []string{"MemoryPressure"}, AllocatableCPU: 4, AllocatableMem: 8 << 30},
		Pods: []observe.Pod{wantCart()},
		Services: []observe.KubeService{{Namespace: "shop", Name: "db", IPs: []string{"10.96.0.9"}, Selects: true, EndpointsKnown: true,
			Ports: []observe.KubeServicePort{{Name: "sql", Protocol: "TCP", Port: 5432, Target: "sql"}},
			Endpoints: []observe.KubeEndpoint{
				{Address: "10.1.9.1", Port: 5432, Pod: "db-0", Node: "node-9", Ready: true, Serving: true},
				{Address: "192.168.0.9", Port: 5432, Pod: "exporter", Node: "node-9", Terminating: true},
			}}},
		Autoscalers: []observe.KubeAutoscaler{{Namespace: "shop", Name: "cart", Kind: "Deployment", Target: "cart", Min: 2, Max: 9, Current: 3, Desired: 5, StabilizeDownSeconds: -1}},
		Events: []observe.KubeEvent{
			{At: -20, First: -90, Count: 7, Warning: true, Reason: "Unhealthy", Kind: "Pod", Namespace: "shop", Name: cart.Pod, Container: "web", Message: "Liveness probe failed:?<b>500</b>?"},
			{At: -5, Reason: "SuccessfulRescale", Kind: "HorizontalPodAutoscaler", Namespace: "shop", Name: "cart"},
		},
		Sources: []observe.KubeSource{{Name: "api", Where: api.URL}},
	}
	want.Pods[0].Volumes[0].Volume, want.Pods[0].Volumes[0].Class = "pvc-7f3a", "fast"
	if diff := cmp.Diff(want, w); diff != "" {
		t.Error(diff)
	}

	who := func(s string) observe.Workload { return k.Peer(netip.MustParseAddr(s), time.Now().UnixNano()) }
	if got := who("10.96.0.9"); got != (observe.Workload{Namespace: "shop", Kind: "Service", Name: "db"}) {
		t.Errorf("the service is %+v", got)
	}
	db := observe.Workload{Namespace: "shop", Pod: "db-0", Kind: "StatefulSet", Name: "db", Node: "node-9", Zone: "b"}
	eventually(t, "what controls a pod elsewhere", func() bool { return who("10.1.9.1") == db })
	eventually(t, "a pod that no service lists", func() bool { return who("10.1.9.8").Pod == "new" })
	if got := k.Peer(netip.MustParseAddr("10.1.9.8"), start.Add(-45*time.Minute).UnixNano()); got != (observe.Workload{}) {
		t.Errorf("two had it for all that is known, and it is %+v", got)
	}
	who("192.168.0.9")
	eventually(t, "the pod with the node's address is asked for", func() bool { return api.requests("/pods/exporter") > 0 })
	time.Sleep(20 * time.Millisecond)
	if got := who("192.168.0.9"); got != (observe.Workload{}) {
		t.Errorf("the node's address is %+v", got)
	}
	before := api.requests("")
	for range 1000 { // none of these is asked for again, nor an address of the internet
		who("192.168.0.9")
		who("10.1.9.1")
		who("93.184.216.34")
	}
	if n := api.requests("") - before; n != 0 {
		t.Errorf("%d more requests", n)
	}

	// The pod ends, and its address is another's.
	gone, next := cartPod(), podAt("uid-next", "next", "10.1.0.7", false)
	api.send("pods", "DELETED", &gone)
	eventually(t, "the pod is gone", func() bool { return who("10.1.0.7") == (observe.Workload{}) })
	next.Status.ContainerStatuses = nil
	api.send("pods", "ADDED", next)
	eventually(t, "the next has its address", func() bool { return who("10.1.0.7").Pod == "next" })
	if got := k.Peer(netip.MustParseAddr("10.1.0.7"), start.Add(-time.Second).UnixNano()); got.Pod != cart.Pod {
		t.Errorf("a second ago it was %+v", got)
	}
}

// TestWatchBreaks: while nobody tells what changes, what is not known is not guessed; and
// what happened meanwhile is found out.
func TestWatchBreaks(t *testing.T) {
	api := newAPI(t, cluster())
	k := startKube(t, Options{Kubeconfig: api.kubeconfig()})
	eventually(t, "pods are watched", k.api.pods.synced)
	addr := netip.MustParseAddr("10.1.0.7")
	api.mu.Lock()
	api.hook = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }
	api.mu.Unlock()
	api.CloseClientConnections()
	eventually(t, "the watch is lost", func() bool { return !k.api.pods.synced() })
	if got := k.Peer(addr, time.Now().Add(time.Second).UnixNano()); got != (observe.Workload{}) {
		t.Errorf("while nobody tells it is %+v", got)
	}
	if got := k.Peer(addr, start.Add(-time.Second).UnixNano()); got.Pod != cart.Pod {
		t.Errorf("before it was %+v", got)
	}
	_, errs := k.Window(context.Background(), Query{Start: start})
	if len(errs) == 0 {
		t.Error("no word of it")
	}
	for _, err := range errs {
		if text := err.Error(); strings.ContainsAny(text, "\n\r") || len(text) > 400 {
			t.Errorf("%q", text)
		}
	}
}

// TestExpired: what is too old to go on from is listed again, and who is not in the list
// has ended when it was last heard of.
func TestExpired(t *testing.T) {
	api := newAPI(t, cluster())
	k := startKube(t, Options{Kubeconfig: api.kubeconfig()})
	eventually(t, "pods are watched", k.api.pods.synced)
	api.mu.Lock()
	api.lists["pods"] = list(&corev1.PodList{})
	api.mu.Unlock()
	api.send("pods", "ERROR", &metav1.Status{Status: "Failure", Code: http.StatusGone, Reason: metav1.StatusReasonExpired, Message: "too old"})
	eventually(t, "the pod is gone", func() bool {
		return k.api.pods.synced() && k.Peer(netip.MustParseAddr("10.1.0.7"), time.Now().UnixNano()) == (observe.Workload{})
	})
	w, _ := k.Window(context.Background(), Query{Start: start})
	if len(w.Pods) != 1 || w.Pods[0].DeletedAt == 0 {
		t.Errorf("%+v", w.Pods)
	}
}

// TestLargestCluster feeds the endpoints of 150,000 pods of 5,000 nodes through the watch
// and measures what all of it takes: under 20 MB.
func TestLargestCluster(t *testing.T) {
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	k := &Kube{}
	before := heap()
	k.state = newState(newIndex(), "node-7")
	pods := 0
	for app := range 1500 {
		s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprintf("team-%d", app%300), Name: fmt.Sprintf("service-%d-x2x4z", app), Labels: map[string]string{discoveryv1.LabelServiceName: fmt.Sprintf("service-%d", app)}}}
		for range 100 {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{netip.AddrFrom4([4]byte{10, 64 + byte(pods>>16), byte(pods >> 8), byte(pods)}).String()}, NodeName: ptr(fmt.Sprintf("ip-10-%d-%d.internal", pods%5000/256, pods%5000%256)), Zone: ptr(fmt.Sprintf("eu-west-1%c", 'a'+pods%5000%3)),
				TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: fmt.Sprintf("service-%d-%010x-%05x", app, app*7919, pods), UID: types.UID(fmt.Sprintf("%08x-1234-1234-1234-123456789abc", pods))},
			})
			pods++
		}
		k.state.said(s, start, false)
	}
	used := heap() - before
	t.Logf("%d pods: %.1f MB", k.state.index.Stats().Spans, float64(used)/1e6)
	if s := k.state.index.Stats(); s.Spans != 150_000 || s.LeftOut != 0 || used > 20e6 {
		t.Errorf("%+v: %d bytes", s, used)
	}
	runtime.KeepAlive(k)
}
