package dns

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slowray/slowray/internal/bpf"
	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
)

func TestParseResolver(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       observe.Resolver
	}{
		{"defaults", "", observe.Resolver{File: resolvConf, NDots: 1, TimeoutSeconds: 5, Attempts: 2}},
		{"kubernetes", "nameserver 10.96.0.10\nsearch shop.svc.cluster.local svc.cluster.local. cluster.local\noptions ndots:5\n",
			observe.Resolver{File: resolvConf, NameServers: []string{"10.96.0.10"}, Search: []string{"shop.svc.cluster.local", "svc.cluster.local", "cluster.local"}, NDots: 5, TimeoutSeconds: 5, Attempts: 2}},
		{"options", "; comment\n#nameserver 1.1.1.1\ndomain example.com\nnameserver\t192.0.2.1\nnameserver ::1\nnameserver a\nnameserver b\noptions rotate timeout:1 attempts:99 ndots:x edns0\n",
			observe.Resolver{File: resolvConf, NameServers: []string{"192.0.2.1", "::1", "a"}, Search: []string{"example.com"}, NDots: 1, TimeoutSeconds: 1, Attempts: 5, Rotate: true}},
		{"escape sequences", "nameserver 192.0.2.\x1b[1m1\n", observe.Resolver{File: resolvConf, NameServers: []string{"192.0.2.[1m1"}, NDots: 1, TimeoutSeconds: 5, Attempts: 2}},
	} {
		got, err := parseResolver(enough(), c.text)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, *got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// A process's own file is read, through a symbolic link as the system has it.
func TestReadResolverInRoot(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"etc", "run"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "run/stub"), []byte("nameserver 192.0.2.9\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/run/stub", filepath.Join(root, "etc/resolv.conf")); err != nil {
		t.Fatal(err)
	}
	r, err := ReadResolver(enough(), root)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.NameServers) != 1 || r.NameServers[0] != "192.0.2.9" {
		t.Errorf("nameservers %v", r.NameServers)
	}
	if _, err := ReadResolver(enough(), t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without the file: %v", err)
	}
}

func enough() *budget.Budget {
	return budget.New(context.Background(), budget.Limits{Wall: time.Minute})
}

func FuzzParseResolver(f *testing.F) {
	f.Add([]byte("nameserver 10.96.0.10\nsearch a b\noptions ndots:5 timeout:1\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseResolver(enough(), string(b))
		if err != nil {
			return
		}
		if len(r.NameServers) > 3 || len(r.Search) > 32 || r.NDots > 15 || r.TimeoutSeconds > 30 || r.Attempts > 5 {
			t.Errorf("out of bounds: %+v", r)
		}
	})
}

func TestEndsInSearch(t *testing.T) {
	name := wire("api.example.com.shop.svc.Cluster.local")
	for _, c := range []struct {
		search string
		want   bool
	}{
		{"cluster.local", true}, {"svc.cluster.local", true}, {"uster.local", false}, {"example.com", false}, {"", false},
		{"api.example.com.shop.svc.cluster.local", true}, {"a-name-that-is-much-longer-than-what-is-kept.shop.svc.cluster.local", false},
	} {
		if got := endsInSearch(name, []string{c.search}); got != c.want {
			t.Errorf("%q: %v", c.search, got)
		}
	}
}

// query is a question for an address, with one label for each part of the name.
func query(id uint16, name string, kind byte) []byte {
	b := []byte{byte(id >> 8), byte(id), 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	return append(append(b, wire(name)...), 0, kind, 0, 1)
}

// onlyA is the code of a server to which questions for addresses of IPv6 are lost. It answers the
// other when both have come, as they do from a resolver that asks both at once.
const onlyA = -2

// nameServer answers at port 53 of an address, each time after a delay, with a
// code; a negative code is no answer.
func nameServer(t *testing.T, addr string, delay time.Duration, code int) {
	t.Helper()
	conn, err := net.ListenPacket("udp", net.JoinHostPort(addr, "53"))
	if err != nil {
		t.Skipf("SKIP: port 53 of %s: %v", addr, err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		b := make([]byte, 512)
		var held []byte
		for {
			n, from, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			if code == onlyA && n >= 12 {
				if b[n-3] == 1 {
					held = slices.Clone(b[:n])
					continue
				}
				n = copy(b, held)
			} else if code < 0 {
				n = 0
			}
			if n < 12 {
				continue
			}
			time.Sleep(delay)
			b[2], b[3] = 0x81, 0x80|byte(max(code, 0))
			conn.WriteTo(b[:n], from)
		}
	}()
}

func start(t testing.TB) *Watcher {
	t.Helper()
	root, err := host.Default().CgroupV2Root()
	if err != nil {
		t.Skipf("SKIP: %v", err)
	}
	w, err := Start(root, nil, nil)
	if errors.Is(err, bpf.ErrNotPermitted) {
		t.Skipf("SKIP: %v", err)
	}
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(w.Close)
	return w
}

// ask sends queries from a socket of their own and reads as many answers as
// come in time.
func ask(t *testing.T, addr string, wait time.Duration, queries ...[]byte) {
	t.Helper()
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(addr), 53)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, q := range queries {
		if _, err := conn.Write(q); err != nil {
			t.Fatal(err)
		}
	}
	conn.SetReadDeadline(time.Now().Add(wait))
	for range queries {
		if _, err := conn.Read(make([]byte, 512)); err != nil {
			return
		}
	}
}

// onOneThread does what a resolver of the C library does: a lookup is one
// thread's.
func onOneThread(do func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	do()
}

func TestLookups(t *testing.T) {
	w := start(t)
	const good, deaf, none, refuses = "127.53.53.1", "127.53.53.2", "127.53.53.3", "127.53.53.5"
	const half = "127.53.53.6"
	nameServer(t, half, 0, onlyA)
	nameServer(t, refuses, 0, 5)
	nameServer(t, good, 20*time.Millisecond, 0)
	nameServer(t, deaf, 0, -1)
	nameServer(t, none, 0, 3)

	onOneThread(func() {
		// Both families at once, from a nameserver that takes 20 ms.
		ask(t, good, time.Second, query(1, "db.example.com", 1), query(2, "db.example.com", 28))
		// A name that is not found under a search domain.
		ask(t, none, time.Second, query(3, "db.shop.test", 1))
		// One that does not answer, then one that does.
		ask(t, deaf, 200*time.Millisecond, query(4, "www.example.com", 1))
		ask(t, good, time.Second, query(4, "WWW.example.com", 1))
	})
	// An address of one family only: the other query is refused.
	onOneThread(func() { ask(t, refuses, time.Second, query(5, "v4.example.com", 1), query(6, "v4.example.com", 28)) })
	// The query for one of two families is lost, and both are asked again.
	onOneThread(func() {
		ask(t, half, 200*time.Millisecond, query(7, "half.example.com", 1), query(8, "half.example.com", 28))
		ask(t, good, time.Second, query(7, "half.example.com", 1), query(8, "half.example.com", 28))
	})
	time.Sleep(20 * time.Millisecond)
	found, losses, err := w.Read(func(int) *observe.Resolver { return &observe.Resolver{Search: []string{"shop.test"}} })
	if err != nil || len(losses) > 0 {
		t.Fatalf("losses %v, error %v", losses, err)
	}
	var mine *observe.DNS
	for i := range found {
		if found[i].PID == os.Getpid() {
			mine = &found[i]
		}
	}
	if mine == nil {
		t.Fatalf("nothing of this process in %+v", found)
	}
	by := map[string]observe.DNSServer{}
	for _, s := range mine.Servers {
		by[s.Addr] = s
	}
	if s := by[good]; s.Queries != 5 || s.Answered != 5 || s.Unanswered != 0 || s.AnswerMaxNS < 20e6 {
		t.Errorf("good server: %+v", s)
	}
	if s := by[deaf]; s.Queries != 1 || s.Answered != 0 || s.Unanswered != 1 || s.Halves != 0 || s.LostNS < 190e6 || s.LostNS > 900e6 {
		t.Errorf("deaf server: %+v", s)
	}
	if s := by[half]; s.Queries != 2 || s.Answered != 1 || s.Unanswered != 1 || s.Halves != 1 {
		t.Errorf("server that answers half: %+v", s)
	}
	if s := by[none]; s.NotFound != 1 {
		t.Errorf("server that finds nothing: %+v", s)
	}
	if s := by[refuses]; s.Failed != 2 || s.Answered != 2 || s.Unanswered != 0 {
		t.Errorf("server that refuses: %+v", s)
	}
	if mine.Lookups != 4 || mine.NotFound != 1 || mine.Sampled != 1 || mine.Searched != 1 || mine.LookupMaxNS < 200e6 {
		t.Errorf("lookups: %+v", mine)
	}
}

func TestOpenLookup(t *testing.T) {
	w := start(t)
	const deaf = "127.53.53.4"
	nameServer(t, deaf, 0, -1)
	onOneThread(func() { ask(t, deaf, 1200*time.Millisecond, query(9, "never.example.com", 1)) })
	found, _, err := w.Read(func(int) *observe.Resolver { return nil })
	if err != nil {
		t.Fatal(err)
	}
	for i := range found {
		if d := &found[i]; d.PID == os.Getpid() {
			if d.Open != 1 || d.OpenNS < 1e9 || d.Servers[0].Unanswered != 1 || d.Servers[0].LostNS < 1e9 {
				t.Errorf("open lookup: %+v", d)
			}
			return
		}
	}
	t.Errorf("nothing of this process in %+v", found)
}
