package record

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

var start = time.Unix(1_800_000_000, 0)

func testKeeper(slow time.Duration) *keeper { return newKeeper(slow, start) }

// lastSeq numbers the requests of took, which are of one connection.
var lastSeq uint32

// took is a request at an endpoint that took so long.
func took(port uint16, total time.Duration) *observe.Request {
	lastSeq++
	r := &observe.Request{Side: observe.Served, Local: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), port), Seq: lastSeq, Weight: 1}
	r.Ledger[observe.Server] = int64(total)
	return r
}

// kept is what a keeper did with some requests.
type kept struct {
	n      [3]int
	weight [3]uint64
}

func (c *kept) add(k *keeper, r *observe.Request) {
	if why, weight := k.keep(r); weight > 0 {
		c.n[why]++
		c.weight[why] += uint64(weight)
	}
}

func TestEverySlowAndFailedRequestIsKept(t *testing.T) {
	k := testKeeper(0)
	r := rand.New(rand.NewPCG(3, 4))
	usual := func() time.Duration { return time.Millisecond + time.Duration(r.IntN(int(time.Millisecond))) }
	for range 1000 {
		k.keep(took(80, usual()))
	}
	k.tick(start.Add(time.Second))
	var c kept
	for i := range 2000 {
		c.add(k, took(80, usual()))
		if i%20 == 0 { // one of twenty: the slowest hundredth are not all of them
			c.add(k, took(80, 100*time.Millisecond))
		}
		if i%50 == 0 {
			f := took(80, usual())
			f.Status = observe.StatusError
			c.add(k, f)
		}
		if i%500 == 499 {
			k.tick(start.Add(time.Duration(2+i/500) * time.Second))
		}
	}
	if c.n[store.Slow] < 100 || c.n[store.Slow] > 130 || c.weight[store.Slow] != uint64(c.n[store.Slow]) {
		t.Errorf("%d slow ones kept, for %d; 100 were and some are in the slowest hundredth", c.n[store.Slow], c.weight[store.Slow])
	}
	if c.n[store.Failed] != 40 || c.weight[store.Failed] != 40 {
		t.Errorf("%d failed ones kept, for %d; there were 40", c.n[store.Failed], c.weight[store.Failed])
	}
	if n := c.n[store.Sampled]; n < 10 || n > 100 {
		t.Errorf("%d others kept in 4 s, want about %d a second", n, sampledRate)
	}
}

// TestUniformRequestsAreNotSlow: where all take the same time none is slow.
func TestUniformRequestsAreNotSlow(t *testing.T) {
	for _, each := range []time.Duration{800 * time.Nanosecond, 10 * time.Millisecond, 10*time.Millisecond + 123*time.Microsecond} {
		k := testKeeper(0)
		var c kept
		for second := range 5 {
			for range 300 {
				c.add(k, took(80, each))
			}
			k.tick(start.Add(time.Duration(second+1) * time.Second))
		}
		if c.n[store.Slow] != 0 {
			t.Errorf("%s each: %d are slow", each, c.n[store.Slow])
		}
	}
}

func TestWeightsAddUp(t *testing.T) {
	for _, rate := range []int{3, 40, 1_000, 60_000} {
		k := testKeeper(0)
		var c kept
		const seconds = 20
		for second := range seconds {
			for range rate {
				c.add(k, took(80, time.Millisecond))
			}
			k.tick(start.Add(time.Duration(second+1) * time.Second))
		}
		got, want := float64(c.weight[store.Sampled]), float64(seconds*rate)
		// Of n kept requests the sum is off by about 1/√n.
		if got < 0.6*want || got > 1.4*want {
			t.Errorf("%d a second: the kept ones stand for %.0f, there were %.0f", rate, got, want)
		}
		if most := seconds*3*sampledRate + 100; c.n[store.Sampled] > most {
			t.Errorf("%d a second: %d kept, more than %d", rate, c.n[store.Sampled], most)
		}
	}
}

func TestRushOfFailuresIsBoundedAndCounts(t *testing.T) {
	k := testKeeper(0)
	var c kept
	for second := range 5 {
		for range 40_000 {
			f := took(80, time.Millisecond)
			f.Flags = observe.FlagReset
			c.add(k, f)
		}
		k.tick(start.Add(time.Duration(second+1) * time.Second))
	}
	if n := c.n[store.Failed]; n > 5*8*failedRate {
		t.Errorf("%d kept", n)
	}
	if w := float64(c.weight[store.Failed]); w < 0.95*200_000 || w > 1.05*200_000 {
		t.Errorf("they stand for %.0f, there were 200,000", w)
	}
}

func TestThresholdFollowsTheEndpoint(t *testing.T) {
	k := testKeeper(0)
	second := 0
	run := func(port uint16, each time.Duration, seconds int) {
		for range seconds {
			for range 50 {
				k.keep(took(port, each))
			}
			second++
			k.tick(start.Add(time.Duration(second) * time.Second))
		}
	}
	is := func(port uint16, total time.Duration) store.Why {
		why, _ := k.keep(took(port, total))
		return why
	}
	if is(80, 900*time.Millisecond) != store.Sampled || is(80, 1100*time.Millisecond) != store.Slow {
		t.Error("before anything is usual, a second is slow and less is not")
	}
	run(80, time.Millisecond, 10)
	run(90, 200*time.Millisecond, 10)
	if is(80, 50*time.Millisecond) != store.Slow || is(90, 50*time.Millisecond) != store.Sampled {
		t.Error("50 ms are slow where 1 ms is usual, and not where 200 ms are")
	}
	// What lasts becomes usual, but not at once.
	run(80, 50*time.Millisecond, 5)
	if is(80, 60*time.Millisecond) != store.Slow {
		t.Error("a fault is usual after five seconds")
	}
	run(80, 50*time.Millisecond, 660)
	if is(80, 50*time.Millisecond) != store.Sampled {
		t.Error("a fault is not usual after eleven minutes")
	}
	if is(80, 1100*time.Millisecond) != store.Slow {
		t.Error("a second is not slow")
	}
	if len(k.habits) != 1 {
		t.Errorf("%d endpoints remembered; the other one was silent for ten minutes", len(k.habits))
	}
}

func TestSlowByTheUser(t *testing.T) {
	k := testKeeper(30 * time.Millisecond)
	for range 1000 {
		k.keep(took(80, time.Millisecond))
	}
	k.tick(start.Add(time.Second))
	for total, want := range map[time.Duration]store.Why{29 * time.Millisecond: store.Sampled, 30 * time.Millisecond: store.Slow} {
		if why, _ := k.keep(took(80, total)); why != want {
			t.Errorf("%s: kept as %d, want %d", total, why, want)
		}
	}
}

func TestInProgressAndAmended(t *testing.T) {
	k := testKeeper(0)
	open := took(80, 5*time.Second)
	open.Flags = observe.FlagUnfinished
	if _, weight := k.keep(open); weight != 0 {
		t.Error("a request in progress is kept, and will be once more when it is over")
	}
	again := took(80, time.Millisecond)
	again.Flags = observe.FlagAmended
	if _, weight := k.keep(again); weight != 0 {
		t.Error("a request that was kept is kept again")
	}
	again = took(80, 5*time.Second)
	again.Flags = observe.FlagAmended
	if why, weight := k.keep(again); weight != 1 || why != store.Slow {
		t.Error("a request that turned out slow is not kept")
	}
}

func TestEndpointsAreBounded(t *testing.T) {
	k := testKeeper(0)
	for port := range 3 * maxHabits {
		k.keep(took(uint16(port), time.Millisecond))
	}
	if len(k.habits) != maxHabits {
		t.Errorf("%d endpoints remembered, at most %d may be", len(k.habits), maxHabits)
	}
	k.tick(start.Add(generation))
	k.tick(start.Add(2 * generation))
	if len(k.habits) != 0 {
		t.Errorf("%d endpoints remembered after they were silent", len(k.habits))
	}
}
