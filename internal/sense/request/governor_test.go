package request

import (
	"testing"
	"time"
)

// loaded is what slowray costs a simulated host at a load, by what is done of it.
type loaded struct{ split, conns, records, rest, requests float64 }

func (h loaded) at(l lessOf) costs {
	follow := float64(uint(1) << l.follow)
	return costs{
		split: h.split / follow / float64(uint(1)<<l.split), conns: h.conns / follow,
		records: h.records / follow / float64(uint(1)<<l.record), rest: h.rest,
		requests: h.requests / follow,
	}
}

func TestGovernor(t *testing.T) {
	busy := loaded{split: 0.02, conns: 0.08, records: 0.03, rest: 0.002, requests: 50_000}
	for _, c := range []struct {
		name   string
		budget float64
		loads  []loaded
		want   lessOf
		over   bool // nothing that can be done is enough
	}{
		{"calm", 0.01, []loaded{{rest: 0.004}, {rest: 0.004}}, lessOf{}, false},
		{"the split takes it", 0.01, []loaded{{split: 0.03, conns: 0.002, requests: 50_000}}, lessOf{split: 3}, false},
		{"records take it", 0.01, []loaded{{conns: 0.001, records: 0.03, requests: 50_000}}, lessOf{record: 3}, false},
		{"connections take it", 0.01, []loaded{{conns: 0.07, requests: 50_000}}, lessOf{follow: 4}, false},
		{"few requests of many segments", 0.01, []loaded{{conns: 0.07, requests: 20}}, lessOf{follow: 4}, false},
		{"being entered takes it", 0.01, []loaded{{split: 0.02, conns: 0.012, records: 0.002, rest: 0.005, requests: 6000}}, lessOf{split: 3, record: 3, follow: 2}, true},
		{"few requests, and being entered takes it", 0.01, []loaded{{split: 0.02, conns: 0.003, rest: 0.005, requests: 90}}, lessOf{}, true},
		{"what nothing lessens", 0.01, []loaded{{rest: 0.03}}, lessOf{}, true},
		{"a burst of its own", 0.01, []loaded{{split: 0.0005, conns: 0.001, records: 0.0002, rest: 0.2, requests: 50_000}}, lessOf{}, true},
		{"what nothing lessens, and connections", 0.01, []loaded{{conns: 0.015, rest: 0.03, requests: 50_000}}, lessOf{follow: 3}, true},
		{"no limit", -1, []loaded{busy, busy}, lessOf{}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := governor{budget: c.budget}
			for _, h := range c.loads {
				if g.budget >= 0 {
					g.decide(h.at(g.less))
				}
			}
			if last := c.loads[len(c.loads)-1]; g.less != c.want {
				t.Errorf("%+v, want %+v", g.less, c.want)
			} else if sum := last.at(g.less).sum(); !c.over && sum > c.budget {
				t.Errorf("%.4f is over the budget", sum)
			}
		})
	}
}

// TestGovernorHolds goes from one load to another: within one look it is within the
// budget, and does all again when the load is gone, without swinging.
func TestGovernorHolds(t *testing.T) {
	const budget = 0.01
	calm, busy := loaded{split: 0.0005, conns: 0.001, records: 0.0002, rest: 0.002, requests: 500},
		loaded{split: 0.05, conns: 0.09, records: 0.06, rest: 0.002, requests: 60_000}
	g := governor{budget: budget}
	changes := 0
	look := func(h loaded) float64 {
		if g.decide(h.at(g.less)) {
			changes++
		}
		return h.at(g.less).sum()
	}
	for range 10 {
		look(calm)
	}
	if changes != 0 || g.less != (lessOf{}) {
		t.Fatalf("%d changes while it is calm: %+v", changes, g.less)
	}
	if sum := look(busy); sum > budget {
		t.Errorf("%.4f after the first look at the load", sum)
	}
	changes = 0
	for range 30 {
		if sum := look(busy); sum > budget {
			t.Errorf("%.4f under a steady load, %+v", sum, g.less)
		}
	}
	if changes > 1 {
		t.Errorf("%d changes under a steady load", changes)
	}
	for range 40 * calmLooks {
		look(calm)
	}
	if g.less != (lessOf{}) {
		t.Errorf("the load is gone, and less is done: %+v", g.less)
	}
	// Nor does it hold back where what no request costs keeps it over its budget.
	look(busy)
	costly := calm
	costly.rest = 0.02
	for range 4 * calmLooks {
		look(costly)
	}
	if g.less.follow != 0 || g.less.record > 2 || g.less.split > 2 {
		t.Errorf("few requests, and they are left out: %+v", g.less)
	}
}

// TestGovernorLook sorts what was measured by what lessens it.
func TestGovernorLook(t *testing.T) {
	now := time.Unix(1000, 0)
	g := governor{budget: 0.01, at: now}
	// 3 % of two CPUs by this process, for 400,000 records.
	if !g.look(now.Add(time.Second), 60*time.Millisecond, 400_000, 400_000, kernelCosts{}, 2) || g.less.record == 0 || g.less.follow != 0 {
		t.Errorf("for records: %+v", g.less)
	}
	g = governor{budget: 0.01, at: now}
	// The same, drawing a picture.
	if g.look(now.Add(time.Second), 60*time.Millisecond, 50, 50, kernelCosts{}, 2) {
		t.Errorf("for something else: %+v", g.less)
	}
	g = governor{budget: 0.01, at: now}
	if !g.look(now.Add(time.Second), time.Millisecond, 50, 50_000, kernelCosts{priceConns: 0.2}, 2) || g.less.follow == 0 {
		t.Errorf("for connections: %+v", g.less)
	}
}
