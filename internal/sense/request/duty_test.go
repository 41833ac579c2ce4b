package request

import (
	"testing"
	"time"
)

// TestDuty: whatever watching costs while it lasts, it takes no more than its part of the
// budget in the long run, and what costs little is watched always.
func TestDuty(t *testing.T) {
	for _, over := range []float64{0.5, 0.99, 1.5, 5, 20} {
		var d duty
		now := time.Unix(1000, 0)
		d.since, d.burst = now, now
		var on, begin, all time.Duration // watched; requests begin; in all
		weighed := 0.0                   // time for which what begins stands
		attached := true
		const step = 25 * time.Millisecond
		for range 40 * 60 * 4 {
			now = now.Add(step)
			switch d.look(now, 1, func(uint64, time.Duration) (float64, uint64) { return over, 0 }) {
			case dutyRests:
				attached = false
			case dutyBegins:
				attached = true
				d.since, d.burst = now, now
			}
			all += step
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
		if over < 1 && on != all {
			t.Errorf("what costs %g of its part is watched %v of %v", over, on, all)
		}
		if begin == 0 || weighed < 0.85*all.Seconds() || weighed > 1.15*all.Seconds() {
			t.Errorf("at %g times: what begins in %v stands for %.0f s of %v", over, begin, weighed, all)
		}
	}
}
