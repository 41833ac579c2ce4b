package victorialogs

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// node is a running VictoriaLogs.
type node struct {
	t    *testing.T
	addr string
	args []string
	cmd  *exec.Cmd
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (n *node) start() {
	n.t.Helper()
	n.cmd = exec.Command(n.args[0], n.args[1:]...)
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := n.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		resp, err := http.Get("http://" + n.addr + "/health")
		if err == nil {
			resp.Body.Close()
			return
		}
		if time.Now().After(end) {
			n.t.Fatalf("VictoriaLogs does not answer: %v", err)
		}
	}
}

func (n *node) kill() {
	_ = n.cmd.Process.Kill()
	_ = n.cmd.Wait()
}

// cluster starts a front and two storage nodes, which take further arguments.
func cluster(t *testing.T, storageArgs ...string) (front *node, storage []*node) {
	t.Helper()
	bin, err := filepath.Abs("../../../.victorialogs/victoria-logs")
	if err == nil {
		_, err = os.Stat(bin)
	}
	if err != nil {
		t.Skip("SKIP: no VictoriaLogs (script/setup.sh lab builds it): what it gets is NOT tested against the real one")
	}
	begin := func(args ...string) *node {
		n := &node{t: t, addr: freePort(t)}
		n.args = append([]string{bin, "-httpListenAddr=" + n.addr, "-loggerLevel=ERROR", "-memory.allowedBytes=64MiB"}, args...)
		n.start()
		t.Cleanup(n.kill)
		return n
	}
	for range 2 {
		storage = append(storage, begin(append([]string{"-storageDataPath=" + t.TempDir(), "-retentionPeriod=10y"}, storageArgs...)...))
	}
	front = begin("-storageNode="+storage[0].addr+","+storage[1].addr, "-storageDataPath="+t.TempDir())
	return front, storage
}

// ask gives the rows that LogsQL answers.
func ask(t *testing.T, addr, query string) (rows []map[string]string) {
	t.Helper()
	resp, err := http.PostForm("http://"+addr+"/select/logsql/query", url.Values{"query": {query}})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %v", query, text, err)
	}
	for line := range strings.Lines(string(text)) {
		var row map[string]string
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		rows = append(rows, row)
	}
	return rows
}

var testHost = &fleet.Host{Name: `db "7"`, ID: "00000000-0000-4000-8000-000000000007", Labels: map[string]string{"rack": "r1\n"}, Kernel: "6.12", CPUs: 2, Addresses: []string{"10.0.0.7"}}

// requests makes a batch of numbered requests, which began a millisecond apart.
func requests(first fleet.Position, n int, start int64) *fleet.Batch {
	b := &fleet.Batch{Host: testHost, Stream: fleet.Requests, First: first, Last: first + fleet.Position(n) - 1, Count: n}
	b.Requests = func(yield func(fleet.Position, *store.Request) bool) {
		for i := range n {
			r := store.Request{Process: observe.Identity{Comm: "nginx", Unit: "nginx.service"}, Why: store.Slow}
			r.Side, r.StartNS, r.Seq, r.Weight, r.Status, r.Label = observe.Served, start+int64(i)*1e6, uint32(i+1), 1, observe.StatusOK, "GET /\x1b[31m\"\\"
			r.Local, r.Peer = netip.MustParseAddrPort("10.0.0.7:80"), netip.MustParseAddrPort("10.0.0.9:4000")
			r.Ledger[observe.Server] = int64(i+1) * 1e6
			if !yield(first+fleet.Position(i), &r) {
				return
			}
		}
	}
	return b
}

func one[T any](p fleet.Position, r *T) iter.Seq2[fleet.Position, *T] {
	return func(yield func(fleet.Position, *T) bool) { yield(p, r) }
}

// A real cluster has what was sent, once, also when a batch comes again of which a
// part, or nothing, or all is there; and takes it while a storage node is dead.
func TestCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: a cluster of VictoriaLogs takes 15 s: NOT tested with -short")
	}
	front, storage := cluster(t)
	target, err := Open("victorialogs://" + front.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	now := time.Now().Add(-time.Minute).Truncate(time.Second)
	const base = fleet.Position(17<<32 + 1)
	send := func(b *fleet.Batch, again bool) {
		t.Helper()
		b.Again = again
		if err := target.Send(ctx, b); err != nil {
			t.Fatal(err)
		}
	}
	if err := target.Hello(ctx, testHost, now); err != nil {
		t.Fatal(err)
	}
	if _, err := target.Mark(ctx, testHost, fleet.Requests); err != fleet.ErrNoMark {
		t.Errorf("mark: %v", err)
	}
	send(requests(base, 60, now.UnixNano()), false) // the first part of what comes again
	send(requests(base, 100, now.UnixNano()), true)
	send(requests(base, 100, now.UnixNano()), true)
	send(requests(base+100, 50, now.Add(time.Second).UnixNano()), true) // nothing of it is there
	second := store.Second{At: now.Unix(), Process: observe.Identity{Comm: "nginx"}}
	second.Endpoint = observe.Endpoint{Side: "served", Addr: "10.0.0.7", Port: 80, Requests: 9, Parts: map[string]observe.PartStats{"server": {SumNS: 9e6}}}
	second.Endpoint.Total.AddN(1e6, 9)
	send(&fleet.Batch{Host: testHost, Stream: fleet.Seconds, First: 1, Last: 1, Count: 1, Seconds: one(1, &second)}, false)
	finding := store.Finding{Start: now, End: now.Add(time.Minute), Finding: cause.Finding{Cause: "blocked-on-disk", Title: "Threads wait for the disk", Role: cause.RoleCause}}
	send(&fleet.Batch{Host: testHost, Stream: fleet.Findings, First: 1, Last: 1, Count: 1, Findings: one(1, &finding)}, false)

	mine := fmt.Sprintf(`{host=%s}`, strconv.Quote(testHost.Name))
	rows := func(stream string) []map[string]string {
		return ask(t, front.addr, mine+` stream:=`+stream+` _time:1h | sort by (position)`)
	}
	wait := func(stream string, n int) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); len(rows(stream)) < n; time.Sleep(200 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d %s of %d", len(rows(stream)), stream, n)
			}
		}
	}
	wait("requests", 150)
	wait("seconds", 1)
	wait("findings", 1)
	got := rows("requests")
	if len(got) != 150 {
		t.Errorf("%d requests, want 150", len(got))
	}
	seen := map[string]bool{}
	for _, row := range got {
		if seen[row["position"]] {
			t.Errorf("position %s came twice", row["position"])
		}
		seen[row["position"]] = true
	}
	want := map[string]string{"service": "nginx:80", "label": "GET /\x1b[31m\"\\", "label.rack": "r1\n", "total_us": "1000", "ledger.server_us": "1000", "why": "slow",
		"history": testHost.ID, "addr": "10.0.0.7", "other_port": "4000", "_msg": "nginx:80 1000 µs ok"}
	for key, value := range want {
		if got[0][key] != value {
			t.Errorf("%s is %q, want %q", key, got[0][key], value)
		}
	}
	if s := rows("seconds"); len(s) != 1 || s[0]["requests"] != "9" || !strings.HasSuffix(s[0]["total_hist"], ":9") {
		t.Errorf("seconds: %v", s)
	}
	if f := rows("findings"); len(f) != 1 || f[0]["cause"] != "blocked-on-disk" {
		t.Errorf("findings: %v", f)
	}
	if h := rows("hosts"); len(h) != 1 || h[0]["kernel"] != "6.12" {
		t.Errorf("hosts: %v", h)
	}

	// A storage node is dead: what is sent now is there; what cannot be known is not
	// sent a second time until it can.
	storage[1].kill()
	send(requests(base+150, 30, now.Add(2*time.Second).UnixNano()), false)
	short, stop := context.WithTimeout(ctx, 5*time.Second)
	b := requests(base+150, 30, now.Add(2*time.Second).UnixNano())
	b.Again = true
	if err := target.Send(short, b); err == nil {
		t.Error("what a dead node has is reported to be known")
	} else if !fleet.Temporary(err) {
		t.Errorf("a dead node is no error that passes: %v", err)
	}
	stop()
	storage[1].start()
	send(b, true)
	wait("requests", 180)
	if got := rows("requests"); len(got) != 180 {
		t.Errorf("%d requests, want 180", len(got))
	}
}

func TestErrors(t *testing.T) {
	status := 0
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no\nway", status) })}
	go srv.Serve(l)
	defer srv.Close()
	target, err := Open("victorialogs://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for code, temporary := range map[int]bool{400: false, 401: false, 403: false, 404: false, 429: true, 500: true, 502: true, 503: true, 301: false} {
		status = code
		err := target.Send(t.Context(), requests(1, 1, 1e18))
		if err == nil || fleet.Temporary(err) != temporary {
			t.Errorf("status %d: %v, temporary is %v", code, err, fleet.Temporary(err))
		}
	}
}
