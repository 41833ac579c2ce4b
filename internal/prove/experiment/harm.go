package experiment

import (
	"math"
	"sync/atomic"
)

// Harm is judged by glances of about half a second: by two in a row, or by as
// many more as it takes to expect ten good responses.
const (
	glancesLeast = 2
	glancesMost  = 8
	glanceEnough = 20

	harmRate   = 0.5  // of the lowest rate of good responses seen before
	harmErrors = 0.25 // share of errors above the highest seen before
	harmTimes  = 5.0  // times the highest 99th percentile seen before …
	harmLonger = 50e6 // … and longer by this, ns
	harmFewer  = 0.8  // of the usual good responses: in a closed loop only with fewer than this
)

// guard knows what the service did before the change, and sees at once when it
// does much worse.
type guard struct {
	before []Block
	recent []Block // the latest glances
	n      int     // glances that are judged together
	bound  window  // the worst that was seen before
	usual  float64 // good responses per second, before
	armed  bool
	closed bool // the load is a closed loop: times grow when more clients are let in
	harmed atomic.Bool
	alarm  func() // called once, on harm
}

// window is a few glances together.
type window struct {
	good, errors float64 // per second, share
	p99          float64 // ns; 0 = not known
}

// note takes a glance, from before the change or with it.
func (g *guard) note(b Block) {
	if b.Seconds <= 0 {
		return
	}
	if !g.armed {
		if g.n > 0 {
			return // what is usual is known
		}
		g.before = append(g.before, b)
		return
	}
	g.recent = append(g.recent, b)
	if len(g.recent) < g.n || g.harmed.Load() {
		return
	}
	g.recent = g.recent[len(g.recent)-g.n:]
	if g.bad(together(g.recent, math.Min)) {
		g.harmed.Store(true)
		if g.alarm != nil {
			g.alarm()
		}
	}
}

// arm takes what was noted so far as what is usual. It is called when the change
// is about to be made.
func (g *guard) arm() {
	g.armed, g.recent = true, nil
	if g.n > 0 {
		return // from an earlier round
	}
	g.usual, g.n = together(g.before, math.Min).good, glancesLeast
	if len(g.before) > 0 {
		each := g.usual * seconds(g.before) / float64(len(g.before))
		for g.n < glancesMost && float64(g.n)*each < glanceEnough {
			g.n++
		}
	}
	g.bound = window{good: math.Inf(1)}
	for i := 0; i+g.n <= len(g.before); i++ {
		w := together(g.before[i:i+g.n], math.Max)
		g.bound.good = min(g.bound.good, w.good)
		g.bound.errors = max(g.bound.errors, w.errors)
		g.bound.p99 = max(g.bound.p99, w.p99)
	}
}

// disarm ends the watch, until the next change.
func (g *guard) disarm() { g.armed, g.recent = false, nil }

// bad says whether w is beyond what was seen before, by a bound.
func (g *guard) bad(w window) bool {
	if math.IsInf(g.bound.good, 1) || g.usual*seconds(g.recent) < glanceEnough {
		return false // too little is known
	}
	if w.good < harmRate*g.bound.good {
		return true
	}
	if w.good > g.usual {
		return false // more good responses: they may cost errors and time
	}
	if w.errors > g.bound.errors+harmErrors {
		return true
	}
	return (!g.closed || w.good < harmFewer*g.usual) &&
		g.bound.p99 > 0 && w.p99 > harmTimes*g.bound.p99 && w.p99 > g.bound.p99+harmLonger
}

func seconds(blocks []Block) float64 {
	var s float64
	for i := range blocks {
		s += blocks[i].Seconds
	}
	return s
}

// together sums glances up; of their quantiles it takes the one that pick does.
func together(blocks []Block, pick func(a, b float64) float64) window {
	var w window
	var good, bad, all, time float64
	for i := range blocks {
		b := &blocks[i]
		good += float64(b.Good)
		bad += float64(b.Errors + b.Unanswered)
		all += float64(b.Requests + b.Unanswered)
		time += b.Seconds
		if i == 0 {
			w.p99 = b.P99
		} else {
			w.p99 = pick(w.p99, b.P99)
		}
	}
	w.good, w.errors = ratio(good, time), ratio(bad, all)
	return w
}
