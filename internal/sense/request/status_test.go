package request

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/slowray/slowray/internal/observe"
)

// TestStatusOfSentBytes: once the place of sent bytes in memory is known, the
// hook that looks at them on their way into the socket is not needed any more.
func TestStatusOfSentBytes(t *testing.T) {
	if testing.Short() || os.Getuid() != 0 {
		t.Skip("SKIP: needs root, for BPF: the status in sent bytes is NOT tested")
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/missing" {
			http.NotFound(w, r)
			return
		}
		io.WriteString(w, "here\n")
	}))
	defer server.Close()
	port := server.Listener.Addr().(*net.TCPAddr).Port
	get := func(path string) {
		t.Helper()
		answer, err := server.Client().Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
	}
	nothing := func(*observe.Request) {}
	r, err := Start(Options{Ports: []int{port}, Budget: -1, Labels: true})
	if errors.Is(err, ebpf.ErrNotSupported) {
		t.Skipf("SKIP: %v: the status in sent bytes is NOT tested", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if r.sendingLink == nil {
		t.Skip("SKIP: this kernel has no tcp_sendmsg_locked to do without (Linux 6.16)")
	}
	// How far a request's bytes lie from their buffer's header differs from buffer to
	// buffer, and only some distances are tried on each. All requests come over one
	// connection.
	for deadline := time.Now().Add(10 * time.Second); r.sendingLink != nil && time.Now().Before(deadline); {
		for range 100 {
			get("/")
		}
		time.Sleep(20 * time.Millisecond)
		r.Poll(nothing)
	}
	if r.sendingLink != nil {
		t.Fatal("sent bytes are not found in memory")
	}
	r.FlushAll()
	r.Poll(nothing)

	get("/a")
	get("/missing")
	server.Client().CloseIdleConnections()
	time.Sleep(50 * time.Millisecond)
	r.FlushAll()
	seen := map[string]int{}
	r.Poll(func(q *observe.Request) { seen[q.Side.String()+" "+q.Label] = q.HTTP })
	for what, status := range map[string]int{
		"served GET /a": 200, "called GET /a": 200, "served GET /missing": 404, "called GET /missing": 404,
	} {
		if seen[what] != status {
			t.Errorf("%s: status %d, want %d (seen: %v)", what, seen[what], status, seen)
		}
	}
}
