package cause

import (
	"slices"
	"testing"

	"github.com/slowray/slowray/internal/observe"
)

// besideHogs is a service whose dependency sleeps 80 ms on a timer, or 2 ms at times, next
// to processes that take all CPUs; its threads wait for one as long as delay, s, in all.
func besideHogs(delay float64, usual parts) *observe.Observation {
	o := healthy()
	slow := parts{observe.Server: 280 * ms}
	quiet(nginxServed().add(640, ms, ms, 0, usual).add(40, ms, ms, 0, slow), fpmCalled().add(640, ms, ms, 0, usual).add(40, ms, ms, 0, slow),
		fpmServed().add(640, ms, ms, 0, usual).add(40, ms, ms, 0, slow))(o)
	full(o)
	process(o, hog).UserSeconds = 14
	for _, pid := range []int{nginxMaster, nginxWorker1, nginxWorker2, fpmMaster, fpmChild1, fpmChild2} {
		p := process(o, pid)
		p.UserSeconds, p.SystemSeconds, p.RunDelaySeconds, p.Busiest = 0.04, 0.04, delay/6, nil
	}
	return o
}

// TestCPUExplainsWhatItCost: full CPUs account for no more than the delay of the threads can have
// held up, though these wait most of what they could run; the rest has no known cause.
func TestCPUExplainsWhatItCost(t *testing.T) {
	for _, c := range []struct {
		name         string
		delay        float64
		most         float64 // s that it may cost
		least        float64
		left, enough bool
	}{
		{"1.2 s in all", 1.2, 3, 0.05, true, false},
		{"as long as requests are in hand", 40, 60, 8, false, true},
	} {
		v := NewView(besideHogs(c.delay, parts{observe.Server: 80 * ms}))
		r := cpuSaturated.Judge(v)
		if len(r.Findings) != 1 {
			t.Fatalf("%s: %+v", c.name, r)
		}
		v.Price(&r.Findings[0])
		if cost := *r.Findings[0].Impact.Cost; cost > c.most || cost < c.least {
			t.Errorf("%s: it cost %g s, want %g to %g", c.name, cost, c.least, c.most)
		}
		a := v.Account()
		if !c.enough && len(a.Victims) == 0 {
			t.Fatalf("%s: nobody lost anything", c.name)
		}
		v.Explain(&a, r.Findings)
		left := slices.ContainsFunc(a.Victims, func(x Victim) bool { _, left := v.Unexplained(&x); return left })
		if left != c.left {
			t.Errorf("%s: unexplained %t, of %+v", c.name, left, a)
		}
	}
}
