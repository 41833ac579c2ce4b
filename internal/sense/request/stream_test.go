package request

import (
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slowray/slowray/internal/observe"
)

// script is a Recorder whose requests a test writes.
type script struct {
	mu       sync.Mutex
	waiting  []observe.Request // for the next Poll
	open     []observe.Request // told of at each FlushAll
	counters []Counters
	stats    Stats
	closed   bool
}

func (s *script) Poll(each func(*observe.Request)) int {
	s.mu.Lock()
	now := s.waiting
	s.waiting = nil
	s.mu.Unlock()
	for i := range now {
		each(&now[i])
	}
	return len(now)
}

func (s *script) Flush() error { return nil }

func (s *script) FlushAll() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = append(s.waiting, s.open...)
	return nil
}

func (s *script) Counters() []Counters {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.counters)
}

func (s *script) Caller(int) (string, int, bool) { return "", 0, false }

func (s *script) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

func (s *script) Close() { s.closed = true }

// happen lets something happen.
func (s *script) happen(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

// heard are the numbers of the requests that a subscriber got.
type heard struct {
	mu   sync.Mutex
	seqs []uint32
}

func (h *heard) add(r *observe.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seqs = append(h.seqs, r.Seq)
}

func (h *heard) all() []uint32 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.seqs)
}

func (h *heard) wait(t *testing.T, want ...uint32) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); !slices.Equal(h.all(), want); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("told of %v, want %v", h.all(), want)
		}
	}
}

func sumsOf(s *Stream) (sums []Counters) {
	s.Moment(func(now []Counters) { sums = now })
	return sums
}

func TestStreamHandsEachItsOwnTime(t *testing.T) {
	at := Counters{Side: observe.Served, Addr: netip.MustParseAddr("10.0.0.1"), Port: 80}
	count := func(requests, connections uint64, handshake, longest int64) []Counters {
		c := at
		c.Requests, c.Connections, c.Handshake, c.HandshakeMax = requests, connections, handshake, longest
		return []Counters{c}
	}
	src := &script{stats: Stats{Lost: 3}, counters: count(100, 10, 900, 500)}
	s := NewStream(src)
	defer s.Close()
	var first, second heard
	a := s.Subscribe(first.add)
	src.happen(func() { src.waiting = []observe.Request{{Seq: 1}} })
	first.wait(t, 1)

	src.happen(func() {
		src.waiting = []observe.Request{{Seq: 2}} // over before the second comes
		src.open = []observe.Request{{Seq: 3, Flags: observe.FlagUnfinished}}
		src.stats.Lost = 5
	})
	b := s.Subscribe(second.add)
	first.wait(t, 1, 2, 3)
	second.wait(t, 3)
	src.happen(func() {
		src.waiting, src.open = []observe.Request{{Seq: 4}}, nil
		src.counters = count(130, 14, 1300, 500)
		src.stats.Lost = 9
	})
	if err := b.End(); err != nil {
		t.Fatal(err)
	}
	second.wait(t, 3, 4) // at once, without waiting for the next poll
	src.happen(func() { src.waiting = []observe.Request{{Seq: 5}} })
	first.wait(t, 1, 2, 3, 4, 5)
	if err := a.End(); err != nil {
		t.Fatal(err)
	}
	second.wait(t, 3, 4)
	if a, b := a.Stats().Lost, b.Stats().Lost; a != 6 || b != 4 {
		t.Errorf("lost %d and %d, want 6 and 4", a, b)
	}
	// Of the longest handshake so far nobody knows when it was: the mean counts.
	if diff := cmp.Diff(count(30, 4, 400, 100), b.Counters(), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("counted from the second's beginning to its end (-want +got):\n%s", diff)
	}
	if err := b.End(); err != nil {
		t.Errorf("ended again: %v", err)
	}
}

func TestStreamLeavesOutItsOwnPage(t *testing.T) {
	own, other := netip.MustParseAddrPort("127.0.0.1:7788"), netip.MustParseAddrPort("127.0.0.1:80")
	src := &script{counters: []Counters{
		{Side: observe.Served, NetNS: 7, Addr: own.Addr(), Port: own.Port(), Requests: 4},
		{Side: observe.Served, NetNS: 8, Addr: own.Addr(), Port: own.Port(), Requests: 5},
		{Side: observe.Called, NetNS: 7, Addr: own.Addr(), Port: own.Port(), Requests: 4},
	}}
	s := NewStream(src)
	s.LeaveOut(7, own.Port(), []netip.Addr{netip.MustParseAddr("192.0.2.7")})
	var h heard
	s.Subscribe(h.add)
	src.happen(func() {
		src.waiting = []observe.Request{
			{Seq: 1, Side: observe.Served, NetNS: 7, Local: own},
			{Seq: 2, Side: observe.Served, NetNS: 8, Local: own},              // another's, elsewhere
			{Seq: 3, Side: observe.Called, NetNS: 7, Local: other, Peer: own}, // a browser, or Prometheus
			{Seq: 4, Side: observe.Served, NetNS: 7, Local: other},
			{Seq: 5, Side: observe.Called, NetNS: 7, Local: other, Peer: netip.MustParseAddrPort("192.0.2.7:7788")},
			{Seq: 6, Side: observe.Called, NetNS: 7, Local: other, Peer: netip.MustParseAddrPort("192.0.2.8:7788")}, // another host's
			{Seq: 7, Side: observe.Called, NetNS: 8, Local: other, Peer: own},
		}
	})
	h.wait(t, 2, 4, 6, 7)
	if c := sumsOf(s); len(c) != 1 || c[0].NetNS != 8 {
		t.Errorf("counters %+v, want those of namespace 8 only", c)
	}
	src.happen(func() { src.counters = append(src.counters, Counters{Side: observe.Served, Requests: 9}) })
	if c := sumsOf(s); len(c) != 2 {
		t.Errorf("counters %+v, want those without an address too", c)
	}
	s.Lasting()
	if c := sumsOf(s); len(c) != 1 {
		t.Errorf("counters %+v, want none without an address: their records count", c)
	}
	s.Close()
	s.Close()
	if !src.closed {
		t.Error("the recorder was not closed")
	}
}

func TestStreamOfOneNamespace(t *testing.T) {
	at := netip.MustParseAddrPort("127.0.0.1:80")
	src := &script{counters: []Counters{
		{Side: observe.Served, NetNS: 7, Addr: at.Addr(), Port: at.Port(), Requests: 4},
		{Side: observe.Served, NetNS: 8, Addr: at.Addr(), Port: at.Port(), Requests: 5},
	}}
	s := NewStream(src)
	defer s.Close()
	s.Only(7)
	var h heard
	s.Subscribe(h.add)
	src.happen(func() {
		src.waiting = []observe.Request{{Seq: 1, Side: observe.Served, NetNS: 8, Local: at}, {Seq: 2, Side: observe.Served, NetNS: 7, Local: at}}
	})
	h.wait(t, 2)
	if c := sumsOf(s); len(c) != 1 || c[0].NetNS != 7 {
		t.Errorf("counters %+v, want those of namespace 7 only", c)
	}
}
