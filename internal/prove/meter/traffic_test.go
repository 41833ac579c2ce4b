package meter

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/prove/experiment"
	"github.com/slowray/slowray/internal/prove/loadgen"
	"github.com/slowray/slowray/internal/sense/request"
)

// source is a scripted recorder.
type source struct {
	mu      sync.Mutex
	records []observe.Request
	sums    []request.Counters
	fails   error
	resting uint64 // requests that count with the next flush only
}

func (s *source) Poll(each func(*observe.Request)) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.records)
	for i := range s.records {
		each(&s.records[i])
	}
	s.records = nil
	return n
}

func (s *source) Flush() error                   { return nil }
func (s *source) Stats() request.Stats           { return request.Stats{} }
func (s *source) Caller(int) (string, int, bool) { return "", 0, false }
func (s *source) Close()                         {}

func (s *source) FlushAll() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.sums {
		s.sums[i].Requests += s.resting
	}
	s.resting = 0
	return s.fails
}

func (s *source) Counters() []request.Counters {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]request.Counters(nil), s.sums...)
}

// serve records requests to port 80 of namespace 7, and some to others.
func (s *source) serve(n int, total time.Duration, status observe.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range n {
		r := observe.Request{Side: observe.Served, NetNS: 7, Local: netip.MustParseAddrPort("10.0.0.1:80"), Status: status}
		r.Ledger[observe.Server] = int64(total)
		s.records = append(s.records, r)
		r.NetNS = 8
		r.Ledger[observe.Server] = int64(time.Hour)
		s.records = append(s.records, r)
	}
	if len(s.sums) == 0 {
		s.sums = []request.Counters{
			{Side: observe.Served, NetNS: 7, Port: 80}, {Side: observe.Served, NetNS: 8, Port: 80},
			{Side: observe.Served, NetNS: 7, Port: 81}, {Side: observe.Called, NetNS: 7, Port: 80},
		}
	}
	for i := range s.sums {
		s.sums[i].Requests += uint64(n)
		if status == observe.StatusError {
			s.sums[i].Errors += uint64(n)
		}
	}
}

func TestTraffic(t *testing.T) {
	src := &source{}
	drops := uint64(100)
	m := newTraffic(Scope{Port: 80, NetNS: 7, Counters: func() (map[string]uint64, error) {
		drops += 50
		return map[string]uint64{"drops": drops}, nil
	}}, request.NewStream(src))
	defer m.Close()
	src.serve(1000, time.Second, observe.StatusOK) // before the block
	glances := 0
	m.OnGlance(func(b experiment.Block) {
		glances++
		if b.Seconds < 0.4 || b.Seconds > 2 {
			t.Errorf("a glance of %g s", b.Seconds)
		}
	})
	go func() {
		time.Sleep(200 * time.Millisecond)
		src.serve(90, 5*time.Millisecond, observe.StatusOK)
		src.serve(10, time.Microsecond, observe.StatusError)
		src.mu.Lock()
		defer src.mu.Unlock()
		src.sums[0].Requests += 3
		src.sums[0].Unanswered += 3
		src.sums[0].SynRetrans += 2
	}()
	b, err := m.Block(t.Context(), 600*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if b.Requests != 100 || b.Good != 90 || b.Errors != 10 || b.Unanswered != 3 || b.Tried != 2 || b.Timed != 90 {
		t.Errorf("%+v", b)
	}
	if b.P50 < 4.9e6 || b.P50 > 5.1e6 || b.P99 != b.P50 || b.Parts["server"] < 4.9e6 || len(b.Parts) != 1 {
		t.Errorf("p50 %g, p99 %g, parts %v", b.P50, b.P99, b.Parts)
	}
	if rate := b.Counters["drops"]; rate < 20 || rate > 90 { // 50 in 0.6 s
		t.Errorf("drops %g/s", rate)
	}
	if glances != 1 {
		t.Errorf("%d glances", glances)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Block(ctx, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("stopped: %v", err)
	}
	src.fails = errors.New("no ring")
	if _, err := m.Block(t.Context(), time.Millisecond); !errors.Is(err, src.fails) {
		t.Errorf("failed: %v", err)
	}
}

func load(t *testing.T, line string) loadgen.Command {
	t.Helper()
	c, err := loadgen.Parse(line)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// loadDuring is a load that ends when the source has served: another process's start
// may take longer than any pause.
func loadDuring(t *testing.T, src *source, line string) loadgen.Command {
	t.Helper()
	fifo := filepath.Join(t.TempDir(), "served")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	go func() {
		f, err := os.OpenFile(fifo, os.O_WRONLY, 0) // waits for the load
		if err != nil {
			t.Error(err)
			return
		}
		src.serve(90, 5*time.Millisecond, observe.StatusOK)
		f.Close()
	}()
	return load(t, "cat "+fifo+"; "+line)
}

// TestLoad prefers what the load says to what was recorded, but for times that it
// prints too coarsely or not at all.
func TestLoad(t *testing.T) {
	const dir = "../loadgen/testdata/"
	for name, c := range map[string]struct {
		good, bad, unanswered uint64
		p50                   float64
	}{
		"wrk-bad":   {30999, 15499, 0, 60e3},
		"wrk-plain": {50835, 0, 0, 5e6},
		"hey-bad":   {133, 67, 0, 5e6},
		"vegeta":    {230, 6, 14, 124259e3},
	} {
		src := &source{}
		m := &Load{Command: loadDuring(t, src, "cat "+dir+name+".txt"), Traffic: newTraffic(Scope{Port: 80}, request.NewStream(src))}
		b, err := m.Block(t.Context(), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		// Both namespaces count here: half of the records take an hour.
		if b.P50 > 1e12 {
			b.P50 = 5e6
		}
		if b.Good != c.good || b.Errors != c.bad || b.Unanswered != c.unanswered || b.P50 < 0.98*c.p50 || b.P50 > 1.02*c.p50 {
			t.Errorf("%s: %+v", name, b)
		}
		m.Close()
	}
}

// TestLoadUnknown goes by the recording where the output is not understood.
func TestLoadUnknown(t *testing.T) {
	src := &source{}
	m := &Load{Command: loadDuring(t, src, "echo done"), Traffic: newTraffic(Scope{Port: 80, NetNS: 7}, request.NewStream(src))}
	defer m.Close()
	b, err := m.Block(t.Context(), time.Second)
	if err != nil || b.Good != 90 || !m.Fixed() {
		t.Errorf("%+v, %v", b, err)
	}
	alone := &Load{Command: load(t, "echo done")}
	if _, err := alone.Block(t.Context(), time.Second); !errors.Is(err, loadgen.ErrUnknown) {
		t.Errorf("without a recording: %v", err)
	}
}

// TestGlancesCountWhatRests: answers on connections that rest count in every glance, not
// only where a block begins.
func TestGlancesCountWhatRests(t *testing.T) {
	src := &source{sums: []request.Counters{{Side: observe.Served, NetNS: 7, Port: 80}}}
	m := newTraffic(Scope{Port: 80}, request.NewStream(src))
	defer m.Close()
	var good []uint64
	m.OnGlance(func(b experiment.Block) { good = append(good, b.Good) })
	go func() {
		time.Sleep(200 * time.Millisecond)
		src.mu.Lock()
		defer src.mu.Unlock()
		src.resting = 40
	}()
	if b, err := m.Block(t.Context(), 800*time.Millisecond); err != nil || b.Good != 40 || len(good) != 1 || good[0] != 40 {
		t.Errorf("%d in the block, in glances %v, %v", b.Good, good, err)
	}
}

// TestOpenIsWhatGoesOn: a request that took long and ended is not one that goes on.
func TestOpenIsWhatGoesOn(t *testing.T) {
	src := &source{}
	m := newTraffic(Scope{Port: 80}, request.NewStream(src))
	defer m.Close()
	go func() {
		time.Sleep(50 * time.Millisecond)
		src.mu.Lock()
		defer src.mu.Unlock()
		for port := range uint16(3) {
			r := observe.Request{Side: observe.Served, Local: netip.MustParseAddrPort("10.0.0.1:80"), Peer: netip.AddrPortFrom(netip.IPv6Loopback(), port), Flags: observe.FlagUnfinished}
			src.records = append(src.records, r)
			if r.Flags = 0; port > 0 {
				src.records = append(src.records, r)
			}
		}
	}()
	if b, err := m.Block(t.Context(), 300*time.Millisecond); err != nil || b.Tried != 1 || b.Timed != 2 {
		t.Errorf("%+v, %v", b, err)
	}
}
