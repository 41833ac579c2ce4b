package kube

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// fakeAPI is an API server with the objects of a test, which answers in protobuf as a
// real one does.
type fakeAPI struct {
	*httptest.Server
	t testing.TB

	mu      sync.Mutex
	lists   map[string]runtime.Object // by the last word of the path
	asked   []string                  // paths with their queries
	refuse  map[string]int            // status by resource
	watches map[string]chan event
	hook    http.HandlerFunc // instead of all that
}

type event struct {
	kind string
	obj  runtime.Object
}

func newAPI(t testing.TB, lists map[string]runtime.Object) *fakeAPI {
	f := &fakeAPI{t: t, lists: lists, refuse: map[string]int{}, watches: map[string]chan event{}}
	for _, r := range []string{"pods", "services", "endpointslices"} {
		f.watches[r] = make(chan event, 4096)
	}
	f.Server = httptest.NewUnstartedServer(http.HandlerFunc(f.serve))
	f.EnableHTTP2 = true
	f.Config.ErrorLog = nil
	f.StartTLS()
	t.Cleanup(func() { f.CloseClientConnections(); f.Close() })
	return f
}

// kubeconfig is a file that names the server.
func (f *fakeAPI) kubeconfig() string {
	ca := filepath.Join(f.t.TempDir(), "ca.crt")
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.Certificate().Raw})
	path := filepath.Join(filepath.Dir(ca), "config")
	text := fmt.Sprintf(`{"kind":"Config","apiVersion":"v1","current-context":"c","contexts":[{"name":"c","context":{"cluster":"k","user":"u"}}],
"clusters":[{"name":"k","cluster":{"server":%q,"certificate-authority":%q}}],"users":[{"name":"u","user":{"token":"secret"}}]}`, f.URL, ca)
	for name, data := range map[string][]byte{ca: cert, path: []byte(text)} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			f.t.Fatal(err)
		}
	}
	return path
}

func (f *fakeAPI) send(resource, kind string, obj runtime.Object) {
	f.watches[resource] <- event{kind, obj}
}

func (f *fakeAPI) requests(containing string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.asked {
		if strings.Contains(a, containing) {
			n++
		}
	}
	return n
}

func groupOf(path string) schema.GroupVersion {
	words := strings.Split(strings.Trim(path, "/"), "/")
	if words[0] == "api" {
		return schema.GroupVersion{Version: "v1"}
	}
	return schema.GroupVersion{Group: words[1], Version: words[2]}
}

func encode(obj runtime.Object, gv schema.GroupVersion) []byte {
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	b, err := runtime.Encode(codecs.EncoderForVersion(info.Serializer, gv), obj)
	if err != nil {
		panic(err)
	}
	return b
}

func (f *fakeAPI) serve(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.asked = append(f.asked, r.URL.String())
	words := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	resource, hook := words[len(words)-1], f.hook
	if r.Header.Get("Authorization") != "Bearer secret" {
		hook = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }
	}
	list, refused, watched := f.lists[resource], f.refuse[resource], f.watches[resource]
	if s := r.URL.Query().Get("fieldSelector"); strings.HasPrefix(s, "status.podIP=") || strings.HasPrefix(s, "involvedObject") {
		list = f.lists[s]
	}
	f.mu.Unlock()
	gv := groupOf(r.URL.Path)
	switch {
	case hook != nil:
		hook(w, r)
	case refused != 0:
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
		w.WriteHeader(refused)
		_, _ = w.Write(encode(&metav1.Status{Status: "Failure", Code: int32(refused), Reason: metav1.StatusReasonForbidden, Message: "no"}, schema.GroupVersion{Version: "v1"}))
	case r.URL.Query().Get("watch") != "":
		f.watch(w, r, watched, gv)
	case list == nil:
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write(encode(&metav1.Status{Status: "Failure", Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: "not there"}, schema.GroupVersion{Version: "v1"}))
	default:
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
		_, _ = w.Write(encode(list, gv))
	}
}

func (f *fakeAPI) watch(w http.ResponseWriter, r *http.Request, events chan event, gv schema.GroupVersion) {
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf+";stream=watch")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	frames := info.StreamSerializer.NewFrameWriter(w)
	for {
		select {
		case <-r.Context().Done():
			return
		case e := <-events:
			if e.kind == "END" {
				return
			}
			b, err := runtime.Encode(info.StreamSerializer.Serializer, &metav1.WatchEvent{Type: e.kind, Object: runtime.RawExtension{Raw: encode(e.obj, gv)}})
			if err == nil {
				_, err = frames.Write(b)
			}
			if err != nil {
				return
			}
			if len(events) == 0 {
				w.(http.Flusher).Flush()
			}
		}
	}
}

// list gives a list a version.
func list[L runtime.Object](l L) L {
	m, _ := meta.ListAccessor(l)
	m.SetResourceVersion("1")
	return l
}

// fakeCRI is a container runtime.
type fakeCRI struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	mu         sync.Mutex
	boxes      []*runtimeapi.PodSandbox
	containers []*runtimeapi.Container
	status     map[string]*runtimeapi.PodSandboxStatus
	asked      int // for the status of a container
	askedFor   func(id string) error
	wait       time.Duration
}

func (f *fakeCRI) ListPodSandbox(ctx context.Context, _ *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-time.After(f.wait):
	}
	return &runtimeapi.ListPodSandboxResponse{Items: f.boxes}, nil
}

func (f *fakeCRI) ListContainers(context.Context, *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &runtimeapi.ListContainersResponse{Containers: f.containers}, nil
}

func (f *fakeCRI) PodSandboxStatus(_ context.Context, r *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &runtimeapi.PodSandboxStatusResponse{Status: f.status[r.PodSandboxId]}, nil
}

func (f *fakeCRI) ContainerStatus(_ context.Context, r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	if f.askedFor != nil {
		if err := f.askedFor(r.ContainerId); err != nil {
			return nil, err
		}
	}
	return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{ImageRef: imageRef}}, nil
}

// imageRef is an image as the status of a container has it, which the kubelet takes over.
const imageRef = "docker.io/shop/cart@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// add adds a pod with one container.
func (f *fakeCRI) add(uid, namespace, name, ip, container string, host bool, labels map[string]string, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := map[string]string{labelPodUID: uid, labelPodName: name, labelPodNamespace: namespace}
	for k, v := range labels {
		all[k] = v
	}
	f.boxes = append(f.boxes, &runtimeapi.PodSandbox{Id: "box-" + uid, Labels: all, CreatedAt: at.UnixNano()})
	f.containers = append(f.containers, &runtimeapi.Container{Id: container, PodSandboxId: "box-" + uid, State: runtimeapi.ContainerState_CONTAINER_RUNNING,
		CreatedAt: at.UnixNano(), Labels: map[string]string{labelContainerName: "web"},
		Image: &runtimeapi.ImageSpec{Image: "sha256:77", UserSpecifiedImage: "shop/cart:latest"}, ImageRef: "sha256:77"})
	mode := runtimeapi.NamespaceMode_POD
	if host {
		mode = runtimeapi.NamespaceMode_NODE
	}
	if f.status == nil {
		f.status = map[string]*runtimeapi.PodSandboxStatus{}
	}
	f.status["box-"+uid] = &runtimeapi.PodSandboxStatus{Network: &runtimeapi.PodSandboxNetworkStatus{Ip: ip},
		Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: &runtimeapi.NamespaceOption{Network: mode}}}}
}

func (f *fakeCRI) remove(uid string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, b := range f.boxes {
		if b.Id == "box-"+uid {
			f.boxes = append(f.boxes[:i:i], f.boxes[i+1:]...)
			f.containers = append(f.containers[:i:i], f.containers[i+1:]...)
			return
		}
	}
}

// shortRoot is a root directory for sockets, whose paths are short.
func shortRoot(t testing.TB) string {
	root, err := os.MkdirTemp("", "cri")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	return root
}

// serve listens below a root directory, which it gives.
func (f *fakeCRI) serve(t testing.TB) (root string) {
	root = shortRoot(t)
	serveAt(t, root+sockets[0], f)
	return root
}

// serveAt listens at a path; with nil as a containerd that speaks no CRI.
func serveAt(t testing.TB, path string, f *fakeCRI) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	if f != nil {
		runtimeapi.RegisterRuntimeServiceServer(server, f)
	}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
}

// fakeKubelet serves a list of pods and gives its port.
func fakeKubelet(t testing.TB, answer http.HandlerFunc) int {
	s := httptest.NewServer(answer)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s.Listener.Addr().(*net.TCPAddr).Port
}

func podList(pods ...corev1.Pod) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/pods" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_ = json.NewEncoder(w).Encode(corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: pods})
	}
}

// closedPort is a port that nobody listens at.
func closedPort(t testing.TB) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// eventually waits until something is so.
func eventually(t testing.TB, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 5 s: %s", what)
		}
	}
}

// mustBeNode says that a kubelet was set up below a root directory.
func mustBeNode(t testing.TB, root string) {
	if err := os.MkdirAll(root+"/var/lib/kubelet/pods", 0o755); err != nil {
		t.Fatal(err)
	}
}
