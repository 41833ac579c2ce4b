package request

import (
	"cmp"
	"testing"
	"time"
)

// TestDuty: whatever watching costs while it lasts, it takes no more than its part of the
// budget in the long run, and what costs little is watched always.
func TestDuty(t *testing.T) {
	for _, c := range []struct {
		over float64
		open int64
	}{{0.5, 1}, {0.99, 1}, {1.5, 1}, {5, 1}, {20, 1}, {0.99, 0}, {1.5, 0}, {5, 0}, {20, 0}} {
		over := c.over
		var d duty
		now := time.Unix(1000, 0)
		d.since, d.burst = now, now
		var on, begin, all time.Duration // watched; requests begin; in all
		weighed := 0.0                   // time for which what begins stands
		attached := true
		// A hit takes a thousandth of what probes may take in the same time.
		var hits uint64
		cost := func(since uint64, in time.Duration) (float64, uint64) {
			return float64(hits-since) / 1e3 / in.Seconds(), hits
		}
		var rested, began time.Duration // first; they are 0 as long as there was none
		var burst, stood time.Duration  // when the latest began, and for how long what begins in it stands
		const step = 25 * time.Millisecond
		for range 40 * 60 * 4 {
			now = now.Add(step)
			if attached {
				hits += uint64(over * 1e3 * step.Seconds())
			}
			all += step
			switch d.look(now, c.open, cost) {
			case dutyRests:
				attached = false
				rested = cmp.Or(rested, all)
			case dutyBegins:
				attached = true
				// What began in the burst before stood for the time up to now.
				if round := all - burst; burst > 0 && (round < stood || round > max(stood, dutyBurst+dutyEnd)+4*step) {
					t.Errorf("at %g times: a burst that stands for %v has the next one after %v", over, stood, round)
				}
				burst, stood = all, dutyBurst<<d.share
				began = cmp.Or(began, all)
				d.since, d.burst, d.hits = now, now, hits
			}
			if attached {
				on += step
				if d.state == dutyOn {
					begin += step
					weighed += step.Seconds() * float64(uint(1)<<d.share)
				}
			}
		}
		took := over * on.Seconds() / all.Seconds()
		if took > 1.1 {
			t.Errorf("what costs %g times its part takes %g of it", over, took)
		}
		// What may be taken in a second is spent at once, and no more until it is over.
		spent := time.Duration(float64(dutyLook)/over) + time.Duration(c.open)*dutyEnd
		if over > 1 && (rested > spent+3*step || began > rested+dutyLook+step) {
			t.Errorf("at %g times: watched for %v at first, where %v are enough, and again after %v", over, rested, spent, began)
		}
		if over < 1 && on != all {
			t.Errorf("what costs %g of its part is watched %v of %v", over, on, all)
		}
		if begin == 0 || weighed < 0.85*all.Seconds() || weighed > 1.15*all.Seconds() {
			t.Errorf("at %g times: what begins in %v stands for %.0f s of %v", over, begin, weighed, all)
		}
	}
}
