package record

import (
	"math"
	"net/netip"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/request"
	"github.com/slowray/slowray/internal/store"
)

const (
	// always is what is slow for any endpoint, as it is for the kernel side,
	// which then leaves a record whatever the sampling.
	always = time.Second
	// Slow for its endpoint is what is in its slowest hundredth lately, and what
	// takes far longer than the half of its requests: where one of twenty is
	// slow, the hundredth alone would not tell.
	slowShare = 0.01
	farFactor = 5
	farLeast  = 20 * time.Millisecond
	// habitLeast is how many requests make a habit. Before, only what is slow
	// for any endpoint is slow.
	habitLeast = 100
	// generation is how long one of the two histograms of a habit is filled:
	// the threshold is that of the last five to ten minutes, so that a fault is
	// not usual at once.
	generation = 5 * time.Minute

	// maxHabits bounds the endpoints that are distinguished; the others share one.
	maxHabits = 1024

	// What an endpoint may have kept in a second, of each kind, before one
	// stands for several.
	sampledRate = 5
	slowRate    = 500
	failedRate  = 500
	// allRate is that of the samples of all endpoints together.
	allRate = 500
)

// place is an endpoint, as far as what is usual there is concerned.
type place struct {
	side  observe.Side
	netns uint64
	addr  netip.AddrPort
}

// keeper decides which requests are kept in full: those that failed, those that
// are slow for their endpoint, and a sample of the rest, at a bounded rate. It
// is for one goroutine, and its memory is bounded.
type keeper struct {
	slow   time.Duration // what is slow, when the user says so; 0 = by habit
	habits map[place]*habit
	other  *habit
	rate   int       // of samples, for each endpoint
	turned time.Time // when the histograms were last turned
	merged observe.Histogram
}

// habit is what is usual at an endpoint.
type habit struct {
	now, before observe.Histogram // of the total
	threshold   int64             // ns: what takes longer is slow
	lanes       [3]lane           // by store.Why
}

// lane thins one kind of requests: one of every is kept.
type lane struct {
	every uint32 // a power of two, at least 1
	seen  int    // this second
	kept  int    // this second, since every last grew
}

func newKeeper(slow time.Duration, now time.Time) *keeper {
	k := &keeper{slow: slow, habits: map[place]*habit{}, rate: sampledRate, turned: now}
	k.other = k.newHabit()
	return k
}

func (k *keeper) newHabit() *habit {
	h := &habit{threshold: int64(always)}
	if k.slow > 0 {
		h.threshold = int64(k.slow)
	}
	for i := range h.lanes {
		h.lanes[i].every = 1
	}
	return h
}

// keep says why a request is kept and how many it stands for; 0 when it is not
// kept.
func (k *keeper) keep(r *observe.Request) (store.Why, uint32) {
	if r.Flags&observe.FlagUnfinished != 0 {
		return 0, 0 // it comes again when it is over
	}
	h := k.habitOf(r)
	total := r.TotalNS()
	why, rate := store.Sampled, k.rate
	switch {
	case request.Failed(r):
		why, rate = store.Failed, failedRate
	case total > h.threshold || k.slow > 0 && total == int64(k.slow):
		why, rate = store.Slow, slowRate
	case r.Flags&observe.FlagAmended != 0:
		return 0, 0 // it was counted when it came first
	}
	weight := max(r.Weight, 1)
	if r.Flags&observe.FlagAmended == 0 {
		h.now.AddN(total, uint64(weight))
	}
	l := &h.lanes[why]
	l.seen++
	if l.every > 1 && sampleHash(r)&uint64(l.every-1) != 0 {
		return why, 0
	}
	// As many again, and each stands for twice as many: a rush is not kept whole,
	// and counts whole.
	weight = uint32(min(uint64(weight)*uint64(l.every), math.MaxUint32))
	if l.kept++; l.kept >= rate {
		l.kept, l.every = 0, min(l.every*2, 1<<20)
	}
	return why, weight
}

func (k *keeper) habitOf(r *observe.Request) *habit {
	here := r.Local
	if r.Side == observe.Called {
		here = r.Peer
	}
	p := place{r.Side, r.NetNS, here}
	h := k.habits[p]
	if h == nil {
		if len(k.habits) >= maxHabits {
			return k.other
		}
		h = k.newHabit()
		k.habits[p] = h
	}
	return h
}

// tick begins the next second.
func (k *keeper) tick(now time.Time) {
	turn := now.Sub(k.turned) >= generation
	if turn {
		k.turned = now
	}
	samples := 0
	for p, h := range k.habits {
		if h.lanes[store.Sampled].seen > 0 {
			samples++
		}
		k.settle(h)
		if turn && !h.turn() {
			delete(k.habits, p)
		}
	}
	k.settle(k.other)
	if turn {
		k.other.turn()
	}
	k.rate = min(max(allRate/max(samples, 1), 1), sampledRate)
}

// settle takes the threshold and the rates of thinning from what was seen.
func (k *keeper) settle(h *habit) {
	busy := false
	for why := range h.lanes {
		l := &h.lanes[why]
		busy = busy || l.seen > 0
		rate := [...]int{store.Sampled: k.rate, store.Slow: slowRate, store.Failed: failedRate}[why]
		l.every = 1
		for int(l.every)*rate < l.seen && l.every < 1<<20 {
			l.every *= 2
		}
		l.seen, l.kept = 0, 0
	}
	if k.slow > 0 || !busy {
		return
	}
	k.merged.Reset()
	k.merged.Merge(&h.before)
	k.merged.Merge(&h.now)
	h.threshold = int64(always)
	if k.merged.Count() >= habitLeast {
		h.threshold = min(h.threshold, slowFrom(&k.merged))
	}
}

// slowFrom is what a request must exceed to be slow next to these, ns.
func slowFrom(h *observe.Histogram) int64 {
	half := upperEdge(h.Quantile(0.5))
	return min(upperEdge(h.Quantile(1-slowShare)), max(farFactor*half, half+int64(farLeast)))
}

// upperEdge is the greatest value that has this quantile: one stands for all of
// its bucket, which are within 1/64 of it, or 16 ns.
func upperEdge(quantile int64) int64 { return quantile + quantile/64 + 16 }

// turn begins a new histogram; false when nothing was seen in either.
func (h *habit) turn() bool {
	h.now, h.before = h.before, h.now
	h.now.Reset()
	return h.before.Count() > 0
}
