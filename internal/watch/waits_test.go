package watch

import (
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
)

func slowOne(pid, tid int, seq uint32, flags observe.RequestFlags, l observe.Ledger) *observe.Request {
	return &observe.Request{
		Side: observe.Served, StartNS: 1e18, NetNS: 1, PID: pid, TID: tid, Seq: seq, Flags: flags, Ledger: l,
		Local: netip.MustParseAddrPort("10.0.0.1:80"), Peer: netip.MustParseAddrPort("10.0.0.2:4000"),
	}
}

func atWork(d time.Duration) observe.Ledger {
	return observe.Ledger{observe.Server: d.Nanoseconds()}
}

func unread(d time.Duration) observe.Ledger {
	return observe.Ledger{observe.RecvWait: d.Nanoseconds()}
}

// TestSlowRequestsAreKept: those that waited for the process, and each once.
func TestSlowRequestsAreKept(t *testing.T) {
	q := newSlowRequests()
	s := &session{out: &observe.Observation{Window: observe.Window{Start: time.Unix(0, 1e18)}, Namespaces: []observe.NetNS{
		{Inode: 1, Listeners: []observe.Listener{{Port: 80, PID: 7}}},
	}}}
	second := time.Second
	q.note(slowOne(5, 51, 1, 0, atWork(time.Millisecond)))                              // quick
	q.note(slowOne(5, 51, 2, 0, atWork(second)))                                        // slow
	q.note(slowOne(5, 51, 3, 0, observe.Ledger{observe.Network: second.Nanoseconds()})) // slow, by the network
	q.note(slowOne(5, 51, 4, observe.FlagUnfinished, atWork(second)))                   // seen under way,
	q.note(slowOne(5, 51, 4, observe.FlagUnfinished, atWork(2*second)))                 // again,
	q.note(slowOne(5, 51, 4, 0, atWork(3*second)))                                      // and at its end
	q.note(slowOne(5, 52, 5, observe.FlagUnfinished, atWork(second)))                   // never answered
	q.note(slowOne(0, 0, 6, observe.FlagUnfinished, unread(second)))                    // read by nobody
	q.note(slowOne(5, 51, 2, observe.FlagAmended, atWork(5*second)))                    // told before
	called := slowOne(9, 91, 1, 0, atWork(second))
	called.Side = observe.Called
	q.note(called)

	list, answered := q.list(s)
	if len(list) != 4 {
		t.Fatalf("%d requests: %+v", len(list), list)
	}
	if a, b := list[0], list[1]; a.Busy != second || b.Busy != 3*second || a.Unfinished || b.Unfinished || a.TID != 51 {
		t.Errorf("%+v %+v", a, b)
	}
	var never, nobody int
	for _, r := range list[2:] {
		switch {
		case r.PID == 5 && r.TID == 52 && r.Unfinished && !r.Unread:
			never++
		case r.PID == 7 && r.TID == 0 && r.Unfinished && r.Unread: // of who listens there
			nobody++
		}
	}
	if never != 1 || nobody != 1 {
		t.Errorf("%+v", list[2:])
	}
	if got := answered(5).UnixNano(); got != 1e18+3*second.Nanoseconds() {
		t.Errorf("answered last at %d", got)
	}
	var seen []int
	q.readers(func(pid int) { seen = append(seen, pid) })
	q.readers(func(int) { t.Error("told twice") })
	if len(seen) != 1 || seen[0] != 5 {
		t.Errorf("readers %v", seen)
	}
}

// TestSlowRequestsAreBounded: of very many a part is kept, spread over the
// window, and the rest is counted.
func TestSlowRequestsAreBounded(t *testing.T) {
	q := newSlowRequests()
	const n = 10 * maxSlowRequests
	for i := range n {
		r := slowOne(5, 51, uint32(i), 0, atWork(time.Second))
		r.StartNS += int64(i)
		q.note(r)
		q.note(slowOne(5, 51, uint32(n+i), observe.FlagUnfinished, atWork(time.Second)))
	}
	if len(q.finished) > 2*maxSlowRequests || len(q.finished) < maxSlowRequests || len(q.open) != maxSlowRequests {
		t.Errorf("%d finished, %d open", len(q.finished), len(q.open))
	}
	if want := int64(2*n - len(q.finished) - len(q.open)); q.lost != want {
		t.Errorf("lost %d, want %d", q.lost, want)
	}
	if all := q.every * len(q.finished); all < n-q.every || all > n {
		t.Errorf("%d stand for %d each, of %d", len(q.finished), q.every, n)
	}
	for i := range q.finished[1:] {
		if apart := q.finished[i+1].start - q.finished[i].start; apart != int64(q.every) {
			t.Fatalf("%d and %d are %d apart, want %d: the sample is fair", i, i+1, apart, q.every)
		}
	}
}

// TestRecorderIsNotWatched: the recorder waits for the kernel now and then, and is in
// nobody's way.
func TestRecorderIsNotWatched(t *testing.T) {
	self, parent := os.Getpid(), os.Getppid()
	for _, c := range []struct {
		but  int
		want []int
	}{{0, []int{self, parent}}, {self, []int{parent}}} {
		q := newSlowRequests()
		q.note(slowOne(self, self, 1, 0, atWork(time.Millisecond))) // it reads requests, too
		w := &waits{slow: q, interval: 1, self: c.but}
		w.start(host.Default(), []int{self, parent})
		w.stop(nil)
		if slices.Sort(w.pids); !slices.Equal(w.pids, slices.Sorted(slices.Values(c.want))) {
			t.Errorf("without %d: %v are looked at, want %v", c.but, w.pids, c.want)
		}
	}
}
