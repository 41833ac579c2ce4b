package kerneltest

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/request"
)

// grain is what times of the recorder may be off by.
const grain = 100 * time.Microsecond

// start starts the recorder, or skips the test where the kernel lacks what it
// needs, and fails where the kernel should have it.
func start(t *testing.T, opt request.Options) *request.Recorder {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("SKIP: needs root, to load BPF programs: the recorder is NOT tested")
	}
	r, err := request.Start(opt)
	if errors.Is(err, ebpf.ErrNotSupported) {
		needs := regexp.MustCompile(`needs Linux (\d+)\.(\d+)`).FindStringSubmatch(err.Error())
		if needs == nil {
			t.Fatalf("%v: does not tell which Linux is needed", err)
		}
		if kernelHas(t, needs[1]+"."+needs[2]) {
			t.Fatalf("%v: but this is %s", err, release(t))
		}
		t.Skipf("SKIP: %v: the recorder is NOT tested", err)
	}
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(r.Close)
	return r
}

func release(t *testing.T) string {
	t.Helper()
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	return unix.ByteSliceToString(u.Release[:])
}

// kernelHas says whether the running kernel is of version, "5.12", or later.
func kernelHas(t *testing.T, version string) bool {
	t.Helper()
	var major, minor, wantMajor, wantMinor int
	if _, err := fmt.Sscanf(release(t), "%d.%d", &major, &minor); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(version, "%d.%d", &wantMajor, &wantMinor); err != nil {
		t.Fatal(err)
	}
	return major > wantMajor || major == wantMajor && minor >= wantMinor
}

// acknowledged waits until all that was sent from a port of a network namespace is, which a
// client delays as long as the machine likes.
func acknowledged(t *testing.T, ns *os.File, port int) {
	t.Helper()
	local := fmt.Sprintf(":%04X", port)
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		sockets, waiting := 0, 0
		if err := inside(ns, func() error {
			for _, name := range []string{"tcp", "tcp6"} {
				data, err := os.ReadFile("/proc/thread-self/net/" + name)
				if err != nil && name == "tcp" { // there may be no IPv6
					return err
				}
				for line := range strings.Lines(string(data)) {
					if f := strings.Fields(line); len(f) > 4 && strings.HasSuffix(f[1], local) {
						sockets++
						if !strings.HasPrefix(f[4], "00000000:") {
							waiting++
						}
					}
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if sockets > 0 && waiting == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %d sockets of port %d wait for acknowledgements", waiting, sockets, port)
		}
	}
}

// collect waits until what is on its way is acknowledged and takes all records
// of the server's port.
func collect(t *testing.T, r *request.Recorder, ns *os.File, port int) (served, called []observe.Request) {
	t.Helper()
	acknowledged(t, ns, port)
	time.Sleep(20 * time.Millisecond) // after 5 ms of quiet FlushAll holds an answer to be complete
	if err := r.FlushAll(); err != nil {
		t.Fatal(err)
	}
	r.Poll(func(q *observe.Request) {
		switch {
		case q.Side == observe.Served && int(q.Local.Port()) == port:
			served = append(served, *q)
		case q.Side == observe.Called && int(q.Peer.Port()) == port:
			called = append(called, *q)
		}
	})
	if s := r.Stats(); s.Lost != 0 || s.Sampled != 0 || s.Connections != 0 || s.OtherEndpoints != 0 {
		t.Errorf("lost something: %+v", s)
	}
	return served, called
}

// of are the requests on a client's connection, in order.
func of(c *client, served, called []observe.Request) (s, d []observe.Request) {
	for _, q := range served {
		if q.Peer == c.addr {
			s = append(s, q)
		}
	}
	for _, q := range called {
		if q.Local == c.addr {
			d = append(d, q)
		}
	}
	for _, l := range [][]observe.Request{s, d} {
		slices.SortFunc(l, func(a, b observe.Request) int { return int(a.Seq) - int(b.Seq) })
	}
	return s, d
}

var addresses = map[string]string{"IPv4": "127.0.0.1:0", "IPv6": "[::1]:0"}

// TestRequests makes known requests on a connection that is older than the
// recorder, on one that is kept and on short ones, and expects exactly those,
// on both sides, with the server's time where it was spent.
func TestRequests(t *testing.T) {
	for name, addr := range addresses {
		t.Run(name, func(t *testing.T) {
			for i := 1; !makeRequests(t, addr, i == 5); i++ {
				t.Logf("attempt %d: the kernel kept events from the programs: once more", i)
			}
		})
	}
}

// makeRequests is one attempt; false where the kernel says that it kept events from the programs
// (Linux 7.0 and later may preempt them), unless it is the final one.
func makeRequests(t *testing.T, addr string, final bool) bool {
	t.Helper()
	const many, short = 6, 8
	s := listen(t, nil, addr)
	old := dial(t, nil, s)
	for range 3 {
		old.ask(t, asking)
	}
	old.asked, old.took = nil, nil
	acknowledged(t, nil, s.port) // the last one belongs to before

	r := start(t, request.Options{Ports: []int{s.port}, Budget: -1})
	kept := dial(t, nil, s)
	for range many {
		old.ask(t, asking)
		kept.ask(t, asking)
	}
	clients := []*client{old, kept}
	for range short {
		c := dial(t, nil, s)
		c.ask(t, last)
		c.Close()
		clients = append(clients, c)
	}
	served, called := collect(t, r, nil, s.port)
	tell(t, r)
	if r.Stats().Missed > 0 && !final {
		return false
	}

	if want := 2*many + short; len(served) != want || len(called) != want {
		t.Errorf("%d served, %d called requests recorded, want %d", len(served), len(called), want)
	}
	for _, c := range clients {
		sides := [2][]observe.Request{}
		sides[0], sides[1] = of(c, served, called)
		for _, list := range sides {
			checkConnection(t, c, list, c == old)
		}
	}
	checkCounters(t, r, observe.Served, served, short+1)
	checkCounters(t, r, observe.Called, called, short+1)
	checkStatus(t, r, served)
	checkStatus(t, r, called)
	return true
}

// tell logs what the kernel cannot show. script/kernels.sh prints these lines.
func tell(t *testing.T, r *request.Recorder) {
	t.Helper()
	for _, what := range r.Stats().Missing {
		t.Logf("missing: %s", what)
	}
}

// checkConnection compares the records of one side of a connection with what
// its client measured.
func checkConnection(t *testing.T, c *client, list []observe.Request, old bool) {
	t.Helper()
	if len(list) != len(c.took) {
		t.Errorf("%s: %d requests recorded, want %d", c.addr, len(list), len(c.took))
		return
	}
	for i := range list {
		q := &list[i]
		total, server := time.Duration(q.TotalNS()), time.Duration(q.Ledger[observe.Server])
		// The server sleeps for at least so long, and slowray's clock is the
		// kernel's: what it says can never be shorter. The first request of a
		// connection may have waited for accept() before it was sent.
		most := c.took[i]
		if i == 0 {
			most += time.Duration(q.Ledger[observe.AcceptWait])
		}
		if q.Side == observe.Called {
			server += time.Duration(q.MinRTTNS)
		}
		if server < sleeping-grain || server > most+grain || q.Side == observe.Called && total > most+grain {
			t.Errorf("%s %s request %d: server %s of %s, slept %s, the client waited %s: %s", q.Side, c.addr, q.Seq, server, total, sleeping, c.took[i], ledger(q))
		}
		if q.Ledger[observe.Unaccounted] != 0 {
			t.Errorf("%s %s request %d: unaccounted: %s", q.Side, c.addr, q.Seq, ledger(q))
		}
		in, out := uint64(len(c.asked[i])), uint64(len(answering))
		if q.Side == observe.Called {
			in, out = out, in
		}
		if int(q.Seq) != i+1 || q.Requests != 1 || q.Weight != 1 || q.PID != os.Getpid() || q.BytesIn != in || q.BytesOut != out || q.Status == observe.StatusError {
			t.Errorf("%s %s request %d: want number %d of this process (%d), %d bytes in, %d out: %+v", q.Side, c.addr, q.Seq, i+1, os.Getpid(), in, out, *q)
		}
		if was := q.Flags&observe.FlagPreexisting != 0; was != (old && i == 0) {
			t.Errorf("%s %s request %d: flags %v, connection older than the recorder: %t", q.Side, c.addr, q.Seq, q.Flags.Names(), old)
		}
		if bad := q.Flags & (observe.FlagUnanswered | observe.FlagTruncated | observe.FlagUnfinished | observe.FlagOverlapped | observe.FlagReset); bad != 0 {
			t.Errorf("%s %s request %d: flags %v", q.Side, c.addr, q.Seq, bad.Names())
		}
	}
}

func ledger(q *observe.Request) string {
	var parts []string
	for p, ns := range q.Ledger {
		if ns != 0 {
			parts = append(parts, fmt.Sprintf("%s %s", observe.Part(p), time.Duration(ns)))
		}
	}
	return strings.Join(parts, ", ")
}

// checkStatus: every answer is known to be a good one, unless the recorder says
// that this kernel does not let it know. The first call on a connection older
// than the recorder was not seen, and so not what protocol it spoke.
func checkStatus(t *testing.T, r *request.Recorder, list []observe.Request) {
	t.Helper()
	var known, want int
	for i := range list {
		if list[i].Flags&observe.FlagPreexisting == 0 || list[i].Side == observe.Served {
			want++
			if list[i].Status == observe.StatusOK && list[i].HTTP == 200 {
				known++
			}
		}
	}
	if known == want {
		return
	}
	told := func(what string) bool { return strings.HasPrefix(what, "status of answers") }
	if !slices.ContainsFunc(r.Stats().Missing, told) {
		t.Errorf("%s: the status of %d of %d answers is known, and Missing does not tell", list[0].Side, known, want)
	}
	t.Logf("missing: %s: the status of %d of %d answers is known", list[0].Side, known, want)
}

// checkCounters: what was counted in the kernel is what the records add up to.
func checkCounters(t *testing.T, r *request.Recorder, side observe.Side, list []observe.Request, connections uint64) {
	t.Helper()
	var want request.Counters
	for _, q := range list {
		want.Requests += uint64(q.Requests)
		want.BytesIn += q.BytesIn
		want.BytesOut += q.BytesOut
		if q.Status == observe.StatusOK {
			want.OK++
		}
		for p := range q.Ledger {
			want.PartNS[p] += q.Ledger[p]
		}
	}
	want.Connections = connections
	var got request.Counters
	for _, c := range r.Counters() {
		if c.Side == side {
			got.Requests += c.Requests
			got.OK += c.OK
			got.BytesIn += c.BytesIn
			got.BytesOut += c.BytesOut
			got.Connections += c.Connections
			got.Errors += c.Errors + c.Unanswered + c.Overlapped
			for p := range c.PartNS {
				got.PartNS[p] += c.PartNS[p]
			}
		}
	}
	if got != want {
		t.Errorf("%s counters: %+v, want the sums of the records: %+v", side, got, want)
	}
}
