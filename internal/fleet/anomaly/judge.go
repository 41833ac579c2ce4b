package anomaly

import (
	"math"

	"github.com/slowray/slowray/internal/observe"
)

const (
	// enoughSeen is how many seconds must have been seen of an endpoint before it is
	// judged.
	enoughSeen = 60
	// enoughDays is how much history there must be before a minute is compared with
	// the days before: each day of the week must have been seen.
	enoughDays = 8
	// unusualFrom is the -ln P from which on a second counts as unusual: 2 %.
	unusualFrom = 4
)

// Weights of the signals in an endpoint's P: half for what users see, half for the
// parts that it is made of.
const (
	mainWeight = 0.5 / (5 * windows)
	partWeight = 0.5 / (float64(Loss-firstPart) * 2)
)

// Judge ends a step, which begins at the second at, of all points that were added
// since the last call, and says what is abnormal now. Steps are in the order of time
// and as long as their points. What an endpoint did whose host has no point at all is
// not known; where its host has some and the endpoint has none it did nothing.
func (m *Model) Judge(at int64) Judgement {
	if m.warm > 0 {
		m.endWarm()
	}
	m.step = max(m.step, 1)
	m.at = at
	m.expect(at)
	var decay [2]float32
	for w := range decay {
		decay[w] = float32(math.Pow(keep[w], float64(m.step)))
	}
	for _, g := range m.group {
		g.present, g.should, g.abnormal = 0, 0, 0
	}
	for _, e := range m.ends {
		if !e.whole {
			m.pass(e, at, decay)
		}
	}
	for _, g := range m.group {
		m.passWhole(m.ends[g.whole], g, at, decay)
	}
	judged := 0
	m.list = m.list[:0]
	for i, e := range m.ends {
		learn := (at+int64(i))%learnEvery < int64(m.step)
		e.nlp = 0
		g := m.group[e.group]
		if e.win[fast].seconds == 0 || e.last < at && !e.whole && m.hosts[e.Key.Host] < at {
			continue
		}
		e.nlp = m.score(e, g, learn)
		judged++
		if e.nlp < unusualFrom {
			e.unusual = 0
			continue
		}
		if e.unusual == 0 {
			e.unusual = at
		}
		m.list = append(m.list, ranked{e.nlp, e})
	}
	j := m.follow(at, judged)
	m.step = 0
	return j
}

// pass lets the step pass at an endpoint.
func (m *Model) pass(e *endpoint, at int64, decay [2]float32) {
	g := m.group[e.group]
	if !e.has {
		e.cur = sums{}
		if m.hosts[e.Key.Host] < at || e.Known == 0 {
			return // the host is not there
		}
		e.cur.seconds = float32(m.step)
	} else {
		e.cur.seconds = float32(m.step)
		if gap := at - e.last; gap >= 3*int64(m.step) && float64(gap)*e.rate(g) > 20 {
			e.start = at
			e.win = [2]sums{}
		}
		e.last = at
	}
	e.has = false
	for w := range e.win {
		e.win[w].age(decay[w], &e.cur)
	}
	g.present++
	if e.Seen >= enoughSeen {
		g.should += e.rate(g) * float64(m.step)
	} else {
		g.should += float64(e.cur.n)
	}
	m.ends[g.whole].cur.add(&e.cur)
	if e.episode != nil {
		g.abnormal++
	}
}

// passWhole does so for all of a service together: its Rate is what was to be
// expected of the hosts that are there.
func (m *Model) passWhole(e *endpoint, g *group, at int64, decay [2]float32) {
	g.missing = 0
	if g.present == 0 {
		return
	}
	e.cur.seconds = float32(m.step)
	e.cur.v[Rate] = float32(g.should)
	e.last = at
	for w := range e.win {
		e.win[w].age(decay[w], &e.cur)
	}
	f := &e.win[fast]
	g.missing = max(float64(f.v[Rate]-f.n)/float64(f.seconds), 0)
	if e.episode != nil {
		g.abnormal++
	}
	e.cur = sums{}
}

// score is how unusual the endpoint is now, as -ln P; it learns at times.
func (m *Model) score(e *endpoint, g *group, learn bool) float64 {
	frozen := e.episode != nil || e.whole && g.abnormal > 0
	judge := e.Seen >= enoughSeen
	if e.Known == 0 {
		m.begin(e, g)
	}
	if !judge && !learn {
		return 0
	}
	class := 0
	if m.at-e.start < young && e.Seen >= enoughSeen {
		class = 1
	}
	s := scoring{m: m, e: e, g: g, usual: e.usual(g), judge: judge, learn: learn && !frozen, class: class}
	s.doubt = 0.09 / (1 + e.Seen/15)
	s.gain = max(baseGain, learnEvery/(e.Seen+learnEvery))
	s.spread = max(spreadGain, 0.5*learnEvery/(e.Seen+learnEvery))
	s.rate()
	s.shares()
	s.times()
	s.parts()
	e.best = s.best
	if s.learn {
		e.Seen += float64(max(m.step, learnEvery))
		e.Known += float64(max(m.step, learnEvery))
	}
	return s.mix.nlp()
}

// begin takes the first values of an endpoint that nothing is known of.
func (m *Model) begin(e *endpoint, g *group) {
	f := &e.win[fast]
	if f.n < fewest {
		return
	}
	whole := m.ends[g.whole]
	if !e.whole && whole.Known > 60 {
		e.Known = 1
		return
	}
	for _, sig := range [...]Signal{Rate, Total, P50, P99, MinRTT} {
		if y, ok := f.y(sig, 0); ok && !(e.whole && sig == Rate) {
			e.Track[sig].Base = float32(y - g.mean(sig))
			e.Track[sig].Anchor = e.Track[sig].Base
		}
	}
	usual := e.usual(g)
	for sig := firstPart; sig < Loss; sig++ {
		if y, ok := f.y(sig, usual); ok {
			e.Track[sig].Base = float32(y)
			e.Track[sig].limit = float32(math.Exp(y))
		}
	}
	e.Known = 1
}

// called says whether the endpoint is called from here.
func (e *endpoint) called() bool { return e.Key.Side == observe.Called }
