package ship

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// numbered is a request that tells its number.
func numbered(n int, start int64) store.Request {
	r := store.Request{Process: observe.Identity{Comm: fmt.Sprintf("svc-%d", n%3), Unit: "svc.service"}}
	r.Side, r.StartNS, r.Seq, r.Weight, r.PID = observe.Served, start, uint32(n), 1, 1+n%3
	r.Ledger[observe.Server] = int64(n) * 1000
	return r
}

func numberedSecond(n int, at int64) store.Second {
	s := store.Second{At: at, Process: observe.Identity{Comm: "svc"}}
	s.Endpoint = observe.Endpoint{Side: "served", Addr: "10.0.0.1", Port: 80, PID: 1, Comm: "svc", Requests: uint64(n)}
	s.Endpoint.Total.AddN(int64(n)*1000+1000, uint64(n))
	return s
}

// arrival is a record at the target.
type arrival struct {
	at  fleet.Position
	seq int // as numbered
}

// fake is a target in memory, with faults. A batch that it has already, with the
// same bounds, it takes without storing it again, as ClickHouse does.
type fake struct {
	mu      sync.Mutex
	rng     *rand.Rand
	faults  bool
	down    bool
	got     map[fleet.Stream][]arrival
	batches map[fleet.Stream]map[[2]fleet.Position]bool
	wrong   []string
	sends   int
	again   int // batches that came twice
	lies    time.Time
	hosts   []fleet.Host
	noMark  bool
	largest int
	bound   int           // records of a batch that something between refuses; 0: none
	hold    chan struct{} // if set, Send waits for it before it stores anything
}

func newFake(seed uint64) *fake {
	return &fake{rng: rand.New(rand.NewPCG(seed, 7)), got: map[fleet.Stream][]arrival{}, batches: map[fleet.Stream]map[[2]fleet.Position]bool{}}
}

var errDown = errors.New("dial: connection refused")

func (f *fake) Send(ctx context.Context, b *fleet.Batch) error {
	var list []arrival
	day := b.Day
	var wrong []string
	add := func(p fleet.Position, seq int, us int64) {
		if dayOf(us) != day {
			wrong = append(wrong, fmt.Sprintf("%s: a record of day %d in a batch of day %d", b.Stream, dayOf(us), day))
		}
		list = append(list, arrival{p, seq})
	}
	for range 2 { // they may be read again
		list = list[:0]
		switch b.Stream {
		case fleet.Requests:
			for p, r := range b.Requests {
				add(p, int(r.Seq), r.StartNS/1000)
			}
		case fleet.Seconds:
			for p, s := range b.Seconds {
				add(p, int(s.Endpoint.Requests), s.At*1e6)
			}
		case fleet.Findings:
			for p, x := range b.Findings {
				add(p, int(x.Weight), x.Start.UnixMicro())
			}
		}
	}
	return f.take(ctx, b.Stream, b.First, b.Last, b.Count, list, wrong)
}

// take stores a batch, or fails in one of the ways there are.
func (f *fake) take(ctx context.Context, s fleet.Stream, first, last fleet.Position, n int, list []arrival, wrong []string) error {
	f.mu.Lock()
	fault := -1
	if f.faults {
		fault = f.rng.IntN(12)
	}
	if time.Now().Before(f.lies) {
		fault = 4
	}
	down := f.down
	hold := f.hold
	refused := f.bound != 0 && n > f.bound
	f.sends++
	f.wrong = append(f.wrong, wrong...)
	f.mu.Unlock()
	if hold != nil {
		<-hold
	}
	switch {
	case refused:
		return fleet.Permanent(fmt.Errorf("413: %w", fleet.ErrTooLarge))
	case down, fault == 0:
		return errDown
	case fault == 1: // hangs, and nothing is stored
		<-ctx.Done()
		return ctx.Err()
	case fault == 3:
		f.mu.Lock()
		f.lies = time.Now().Add(100 * time.Millisecond)
		f.mu.Unlock()
		fallthrough
	case fault == 4:
		return fleet.Permanent(errors.New("status 400: no such table"))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.largest = max(f.largest, n)
	key := [2]fleet.Position{first, last}
	if f.batches[s] == nil {
		f.batches[s] = map[[2]fleet.Position]bool{}
	}
	if f.batches[s][key] {
		f.again++
	} else {
		f.batches[s][key] = true
		if n != len(list) || n == 0 || list[0].at != first || list[n-1].at != last {
			f.wrong = append(f.wrong, fmt.Sprintf("%s: a batch of %d from %d to %d has %d records", s, n, first, last, len(list)))
		}
		f.got[s] = append(f.got[s], list...)
	}
	if fault == 2 || fault == 5 { // it fails after it stored
		return errors.New("connection reset by peer")
	}
	return nil
}

func (f *fake) Mark(_ context.Context, _ *fleet.Host, s fleet.Stream) (fleet.Position, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.noMark:
		return 0, fleet.ErrNoMark
	case f.down, f.faults && f.rng.IntN(5) == 0, time.Now().Before(f.lies):
		return 0, errDown
	}
	if list := f.got[s]; len(list) > 0 {
		return list[len(list)-1].at, nil
	}
	return 0, nil
}

func (f *fake) Hello(_ context.Context, h *fleet.Host, _ time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return errDown
	}
	f.hosts = append(f.hosts, *h)
	return nil
}

func (*fake) Close() error { return nil }

// set changes how the target behaves.
func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// count is how many records of a stream are there.
func (f *fake) count(s fleet.Stream) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.got[s])
}
