package kube

import (
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/sense/workload"
)

// secureKubelet is one that wants a token, at an address, and what a pod of its cluster has
// in its files: the cluster's CA and a token.
func secureKubelet(t *testing.T, addr string, answer http.HandlerFunc) (opt Options, asked *atomic.Int32) {
	t.Helper()
	asked = new(atomic.Int32)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		answer(w, r)
	}))
	l, err := net.Listen("tcp", addr+":0")
	if err != nil {
		t.Fatal(err)
	}
	server.Listener.Close()
	server.Listener = l
	server.Config.ErrorLog = nil
	server.StartTLS()
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	opt = Options{Root: t.TempDir(), KubeletPort: closedPort(t), KubeletTLS: l.Addr().(*net.TCPAddr).Port}
	put(t, opt, caFile, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	put(t, opt, tokenFile, "first\n")
	return opt, asked
}

func put(t *testing.T, opt Options, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(opt.Root+name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(opt.Root+name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func findSecure(t *testing.T, opt Options, addr string) *kubelet {
	t.Helper()
	t.Setenv("NODE_IP", addr)
	k := findKubelet(t.Context(), opt, "node-7", newState(workload.New(workload.DefaultLimits), "node-7"))
	if k == nil {
		t.Fatal("no kubelet was found")
	}
	return k
}

// TestSecureKubelet: the kubelet gets the token of the service account, also the next one
// when it was renewed, and its pods are known.
func TestSecureKubelet(t *testing.T) {
	var shown atomic.Value
	opt, asked := secureKubelet(t, "127.0.0.1", func(w http.ResponseWriter, r *http.Request) {
		shown.Store(r.Header.Get("Authorization"))
		podList(cartPod())(w, r)
	})
	k := findSecure(t, opt, "127.0.0.1")
	if err := k.look(t.Context()); err != nil || k.state.pods["uid-cart"] == nil || shown.Load() != "Bearer first" {
		t.Fatalf("%v, %v, shown %v", err, k.state.pods, shown.Load())
	}
	put(t, opt, tokenFile, "second")
	if err := k.look(t.Context()); err != nil || asked.Load() != 2 || shown.Load() != "Bearer second" {
		t.Fatalf("asked %d times, shown %v: %v", asked.Load(), shown.Load(), err)
	}
	if s := k.source(); s.Error != "" || !strings.HasPrefix(s.Where, "https://127.0.0.1:") || strings.Contains(s.Where, "/pods") {
		t.Errorf("%+v", s)
	}
	if err := os.Remove(opt.Root + tokenFile); err != nil {
		t.Fatal(err)
	}
	if err := k.look(t.Context()); err == nil || asked.Load() != 2 {
		t.Errorf("without a token it was asked: %v", err)
	}
}

// TestSecureKubeletRefuses: one that does not answer as it should is one line, in time, and
// whoever cannot prove to be of this cluster does not see the token.
func TestSecureKubeletRefuses(t *testing.T) {
	endless := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"items":[`)
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, strings.Repeat(`{"metadata":{"uid":"1","name":"a","namespace":"b"}},`, 1000)); err != nil {
				return
			}
		}
	}
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	for _, c := range []struct {
		name, addr string
		answer     http.HandlerFunc
		change     func(t *testing.T, opt Options)
		want       string
		shown      bool // it comes to see the token
	}{
		{name: "no right", answer: status(http.StatusForbidden), want: "answers 403 Forbidden", shown: true},
		{name: "an old token", answer: status(http.StatusUnauthorized), want: "answers 401 Unauthorized", shown: true},
		{name: "never", answer: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, want: "no answer within 3s", shown: true},
		{name: "endless", answer: endless, want: "its list of pods: ", shown: true},
		{name: "sends elsewhere", answer: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://127.0.0.1:1/", http.StatusTemporaryRedirect)
		}, want: "it sends elsewhere", shown: true},
		{name: "another cluster's", answer: podList(cartPod()), want: "certificate", change: func(t *testing.T, opt Options) {
			put(t, opt, caFile, otherCA)
		}},
		{name: "no CA", answer: podList(cartPod()), want: "certificate", change: func(t *testing.T, opt Options) { put(t, opt, caFile, "none\n") }},
		{name: "another node's", addr: "127.0.0.2", answer: podList(cartPod()), want: "127.0.0.2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			addr := c.addr
			if addr == "" {
				addr = "127.0.0.1"
			}
			opt, asked := secureKubelet(t, addr, c.answer)
			if c.change != nil {
				c.change(t, opt)
			}
			k := findSecure(t, opt, addr)
			began := time.Now()
			err := k.look(t.Context())
			if took := time.Since(began); took > kubeletTimeout+3*time.Second {
				t.Errorf("it took %s", took)
			}
			said := k.source().Error
			if err == nil || !strings.Contains(said, c.want) || strings.ContainsAny(said, "\n\r") || len(said) > 250 || strings.Contains(said, "first") {
				t.Errorf("%q, want %q", said, c.want)
			}
			if shown := asked.Load() > 0; shown != c.shown || len(k.state.pods) > 0 {
				t.Errorf("shown the token: %t; %d pods", shown, len(k.state.pods))
			}
		})
	}
}

// otherCA is the certificate of another CA; nobody has its key any more.
const otherCA = `-----BEGIN CERTIFICATE-----
MIIBdzCCAR2gAwIBAgIUBz/Nvag89+cgQNMixry59RkZQoAwCgYIKoZIzj0EAwIw
EDEOMAwGA1UEAwwFb3RoZXIwIBcNMjYxMTI3MTkyMzA1WhgPMjEyNjExMDMxOTIz
MDVaMBAxDjAMBgNVBAMMBW90aGVyMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE
fqR1D5wBjQDnOepppGecAWW0FH8r8+0NAAGeZdsmMN2h9t5Kt+VbI77G9TYf8OLY
H4eZyffSM5Nf7KYMy7Hl06NTMFEwHQYDVR0OBBYEFHyO7r1bufLBDG8bcx22R0Sx
cCDaMB8GA1UdIwQYMBaAFHyO7r1bufLBDG8bcx22R0SxcCDaMA8GA1UdEwEB/wQF
MAMBAf8wCgYIKoZIzj0EAwIDSAAwRQIhAL2AvFtHJGEVTbgboF0fJDbs64LdPm2p
cMQLAViwY7LxAiB4S/XU4iXqoCM58SjtvJz9z0IOJQlbkAzA0qWJQJ1hxw==
-----END CERTIFICATE-----
`
