package anomaly

import (
	"math"

	"github.com/slowray/slowray/internal/fleet"
)

// Bounds of what is learned, and how fast.
const (
	leastVariance = 9e-6 // a spread of 0.3 %
	mostVariance  = 25
	baseGain      = 0.01 // of a spread, for each step of learning
	spreadGain    = 0.004
	slowGain      = 0.0005 // of the usual value of days
	half          = 0.6745 // half of all deviations of a normal distribution are smaller
)

// huber bounds the influence of an outlier.
func huber(z float64) float64 { return min(max(z, -1.5), 1.5) }

// learn moves the usual value towards y, and the spread so that half of all
// deviations are smaller than half of a spread's normal distribution.
func (t *track) learn(w int, r, n, gain, rate float64, move bool) {
	perRequest := float64(t.A[w]) / max(n, fewest)
	variance := perRequest + float64(t.B[w])
	sd := math.Sqrt(variance)
	if move {
		t.Base += float32(gain * sd * huber(r/sd))
	}
	up := rate
	if math.Abs(r) < half*sd {
		up = -rate
	}
	share := perRequest / variance
	t.A[w] = float32(min(max(float64(t.A[w])*(1+up*share), 1e-6), 100))
	t.B[w] = float32(min(max(float64(t.B[w])*(1+up*(1-share)), leastVariance), mostVariance))
}

// learnSlow moves the usual value of days; weight is how many steps it stands for.
func (t *track) learnSlow(y, weight float64, first bool) {
	if first {
		t.Anchor = float32(y)
		return
	}
	sd := math.Sqrt(float64(t.B[slow]))
	r := y - float64(t.Anchor)
	t.Anchor += float32(min(slowGain*weight, 0.5) * sd * min(max(r/sd, -3), 3))
	up := min(0.0003*weight, 0.2)
	if math.Abs(r) < half*sd {
		up = -up
	}
	t.B[slow] = float32(min(max(float64(t.B[slow])*(1+up), leastVariance), mostVariance))
}

// littleShare is up to which share of events a usual share of none is believed to have
// been too small, however many requests say so: a tenth of what matters.
const littleShare = 0.001

// learnShare moves the share of events, from k of n in a window.
func (t *track) learnShare(k, n, gain float64) {
	if n < 1 {
		return
	}
	share, base := k/n, float64(t.Base)
	t.Base += float32(gain * (min(share, 3*base+max(2/(n+100), littleShare)) - base))
	z := math.Abs(deviance(k, n*base))
	up := spreadGain
	if z < half*math.Sqrt(float64(t.B[mid])) {
		up = -up
	}
	t.B[mid] = float32(min(max(float64(t.B[mid])*(1+up), 1), 1000))
}

// Warm takes a point of the history, of 10 s, of five minutes or of any other step,
// in the order of time, before the first Add. From steps above a minute it is learned
// what is usual, by time of day and day of the week; how much seconds scatter is not
// in them.
func (m *Model) Warm(p *fleet.Point) {
	if p.Seconds <= 0 || p.Host == "" || p.Requests == 0 {
		return
	}
	if m.warm > 0 && p.At != m.warmAt {
		m.endWarm()
	}
	m.warmAt, m.warm = p.At, p.Seconds
	m.take(m.endpoint(p.Key, p.At), p)
}

// endWarm learns from a step of history that is complete.
func (m *Model) endWarm() {
	seconds := float64(m.warm)
	m.expect(m.warmAt + int64(m.warm)/2)
	for _, e := range m.ends {
		g := m.group[e.group]
		if e.whole || !e.has {
			continue
		}
		m.ends[g.whole].cur.add(&e.cur)
		g.present++
	}
	for _, e := range m.ends {
		g := m.group[e.group]
		if e.whole {
			e.has = g.present > 0
			e.cur.seconds = float32(m.warm)
		}
		if !e.has {
			continue
		}
		m.learnHistory(e, g, seconds)
		if e.whole {
			for i, sig := range seasonal {
				if sig == Rate {
					g.Seasons[i].see(m.warmAt+int64(m.warm)/2, rarely(float64(e.cur.n)/float64(g.present), seconds), 0)
				} else if v, n := e.cur.value(sig); n > 0 {
					g.Seasons[i].see(m.warmAt+int64(m.warm)/2, y(sig, v, n, 0), 0)
				}
			}
		}
		e.has, e.cur = false, sums{}
		e.last = m.warmAt
		g.present = 0
	}
	m.warm = 0
}

func (m *Model) learnHistory(e *endpoint, g *group, seconds float64) {
	first := e.Known == 0
	weight := seconds / learnEvery
	gain := min(max(baseGain*weight, learnEvery/(e.Known+learnEvery)), 0.3)
	usual := e.usual(g)
	for i := range NumSignals {
		t := &e.Track[i]
		switch {
		case i == Errors || i == Again || i == Loss:
			k, n := e.cur.value(i)
			t.learnShare(k, n, gain)
			continue
		case i == Rate && e.whole:
			continue
		}
		if i == P50 && first {
			usual = e.usual(g)
		}
		v, n := e.cur.value(i)
		if n <= 0 {
			continue
		}
		x := y(i, v, n, usual)
		if i == Rate {
			x = rarely(n, seconds)
		}
		x -= g.mean(i)
		if first {
			t.Base = float32(x)
		}
		if r := x - float64(t.Base); seconds <= 60 {
			w := mid
			if seconds <= 15 {
				w = fast
			}
			t.learn(w, r, float64(e.cur.n), gain, spreadGain, true)
		} else {
			sd := math.Sqrt(float64(t.B[slow]))
			t.Base += float32(gain * sd * huber(r/sd))
		}
		if i <= P99 {
			t.learnSlow(x, weight, first)
		}
		t.limit = float32(math.Exp(float64(t.Base)))
	}
	e.Known += seconds
	if seconds <= 15 {
		e.Seen += seconds
	}
}
