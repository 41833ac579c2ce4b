package kube

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	k8s "k8s.io/apimachinery/pkg/runtime"

	"github.com/slowray/slowray/internal/sense/workload"
)

func newIndex() *workload.Index { return workload.New(workload.DefaultLimits) }

// TestHostileKubelet: whatever it answers, the report is there without it, in time.
func TestHostileKubelet(t *testing.T) {
	endless := func(begin, more string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, begin)
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, more); err != nil {
					return
				}
			}
		}
	}
	for name, answer := range map[string]http.HandlerFunc{
		"endless body":   endless(`{"items":[`, strings.Repeat(`{"metadata":{"uid":"1","name":"a","namespace":"b"}},`, 1000)),
		"endless string": endless(`{"items":[{"metadata":{"name":"`, strings.Repeat("a", 1<<16)),
		"endless before": endless(`{"kind":"`, strings.Repeat("\\u0000", 1<<12)),
		"no JSON":        func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") },
		"wrong types":    func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"items":[{"metadata":7}]}`) },
		"items a number": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"items":7}`) },
		"cut off":        func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"items":[{"metadata":{}}`) },
		"refused":        func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
		"elsewhere": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
		},
		"never": func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			mustBeNode(t, root)
			k := startKube(t, Options{Root: root, KubeletPort: fakeKubelet(t, answer)})
			began := time.Now()
			_, _ = k.Window(context.Background(), Query{Start: start})
			if took := time.Since(began); took > patience+time.Second {
				t.Errorf("it took %s", took)
			}
			eventually(t, "it is over", func() bool { return k.kubelet.source().Error != "" })
			w, errs := k.Window(context.Background(), Query{Start: start})
			if w == nil || len(w.Pods) != 0 || len(errs) != 1 || len(w.Sources) != 1 || w.Sources[0].Error == "" {
				t.Fatalf("%+v %v", w, errs)
			}
			if e := w.Sources[0].Error; strings.ContainsAny(e, "\n\r") || len(e) > 250 {
				t.Errorf("%q", e)
			}
			t.Log(errs[0])
		})
	}
}

// TestHostileNames: of 4 kB, with newlines and markup.
func TestHostileNames(t *testing.T) {
	p := cartPod()
	p.Name = strings.Repeat("<script>\n\x1b[2J", 400)
	p.Namespace, p.OwnerReferences[0].Name, p.Spec.Containers[0].Name = p.Name, p.Name, p.Name
	p.Status.ContainerStatuses[0].Name, p.Status.ContainerStatuses[0].Image = p.Name, p.Name
	p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: "no address"}, corev1.PodIP{IP: "127.0.0.1"})
	p.Spec.Containers[0].VolumeMounts[0].MountPath = p.Name
	for range 200 {
		p.Spec.Containers = append(p.Spec.Containers, p.Spec.Containers[0])
	}
	k := startKube(t, Options{KubeletPort: fakeKubelet(t, podList(p))})
	w, errs := k.Window(context.Background(), Query{Start: start})
	if len(errs) != 0 || w == nil || len(w.Pods) != 1 || len(w.Pods[0].Containers) > maxContainers {
		t.Fatalf("%v", errs)
	}
	got := &w.Pods[0]
	for _, s := range []string{got.Name, got.Namespace, got.Owner, got.Containers[0].Name, got.Containers[0].Image, got.Volumes[0].Path, k.Container(cartID[:12], time.Now().UnixNano()).Pod} {
		if s == "" || len(s) > 512 || strings.ContainsAny(s, "\n\x1b") {
			t.Errorf("%q", s)
		}
	}
}

// TestHostileAPI: the same of the API server.
func TestHostileAPI(t *testing.T) {
	junk := strings.Repeat("k8s\x00\xff\xff\xff\x7f", 1<<12)
	for name, hook := range map[string]http.HandlerFunc{
		"endless body": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", k8s.ContentTypeProtobuf)
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, junk); err != nil {
					return
				}
			}
		},
		"no list": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello\nworld") },
		"wrong kind": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"kind":"Node","apiVersion":"v1"}`)
		},
		"unauthorized": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
		"never":        func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := newAPI(t, cluster())
			api.hook = hook
			k := startKube(t, Options{Kubeconfig: api.kubeconfig()})
			began := time.Now()
			w, errs := k.Window(context.Background(), Query{Start: start})
			if took := time.Since(began); took > patience+time.Second {
				t.Errorf("it took %s", took)
			}
			if w == nil || len(w.Pods) != 0 || len(errs) == 0 || w.Sources[0].Error == "" {
				t.Fatalf("%+v %v", w, errs)
			}
			for _, err := range errs {
				if text := err.Error(); strings.ContainsAny(text, "\n\r") || len(text) > 400 {
					t.Errorf("%q", text)
				}
				t.Log(err)
			}
		})
	}
}

// TestRightsMissing: what may be read is reported, what may not in one line.
func TestRightsMissing(t *testing.T) {
	api := newAPI(t, cluster())
	for _, r := range []string{"services", "endpointslices", "events", "horizontalpodautoscalers", "persistentvolumeclaims", "node-7"} {
		api.refuse[r] = http.StatusForbidden
	}
	k := startKube(t, Options{Kubeconfig: api.kubeconfig()})
	eventually(t, "pods are watched", k.api.pods.synced)
	w, errs := k.Window(context.Background(), Query{Start: start})
	if len(w.Pods) != 1 || len(w.Services) != 0 || len(errs) != 1 {
		t.Errorf("%+v\n%v", w, errs)
	}
	for _, err := range errs {
		if !strings.Contains(err.Error(), "forbidden") {
			t.Error(err)
		}
	}
	bad := startKube(t, Options{Kubeconfig: t.TempDir() + "/none"})
	if w, errs := bad.Window(context.Background(), Query{Start: start}); w == nil || len(errs) == 0 {
		t.Errorf("a file that is not there: %+v %v", w, errs)
	}
}

// TestSlowCRI: a runtime that hangs costs nobody any time.
func TestSlowCRI(t *testing.T) {
	f := &fakeCRI{wait: time.Hour}
	root := f.serve(t)
	mustBeNode(t, root)
	began := time.Now()
	k := startKube(t, Options{Root: root})
	k.Container("3c5a6e1f0c2b", time.Now().UnixNano())
	if took := time.Since(began); took > time.Second {
		t.Errorf("to begin took %s", took)
	}
	eventually(t, "it is given up", func() bool { return k.cri.source().Error != "" })
	w, errs := k.Window(context.Background(), Query{Start: start})
	if w == nil || len(errs) != 1 || !strings.Contains(errs[0].Error(), "DeadlineExceeded") {
		t.Errorf("%+v %v", w, errs)
	}
}

// TestNotRootsKubelet: every user may listen where a kubelet does. Nobody but root is believed.
func TestNotRootsKubelet(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it listens as another user")
	}
	// net.Listen would give the socket to root: the thread is another user's while it is made.
	var port int
	served := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if _, _, e := syscall.RawSyscall(syscall.SYS_SETFSUID, 65534, 0, 0); e != 0 {
			served <- e
			return
		}
		fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			served <- err
			return
		}
		f := os.NewFile(uintptr(fd), "listener")
		defer f.Close()
		if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), syscall.Listen(fd, 16)); err != nil {
			served <- err
			return
		}
		l, err := net.FileListener(f)
		if err == nil {
			port = l.Addr().(*net.TCPAddr).Port
			server := &http.Server{Handler: podList(cartPod())}
			t.Cleanup(func() { server.Close() })
			go func() { _ = server.Serve(l) }()
		}
		served <- err
	}()
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	mustBeNode(t, root)
	k := startKube(t, Options{Root: root, KubeletPort: port})
	w, _ := k.Window(context.Background(), Query{Start: start})
	if w == nil || len(w.Pods) != 0 || len(w.Sources) != 1 || !strings.Contains(w.Sources[0].Error, errNotRoots.Error()) {
		t.Fatalf("%+v", w)
	}
}
