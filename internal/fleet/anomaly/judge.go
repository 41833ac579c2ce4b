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

// While members of a service begin anew or are silent, and mixedFor seconds after that,
// the service as a whole is not judged but by its rate: its requests are of other hosts
// than usual. silentFor is after how many seconds a silent one is no member any more.
const (
	mixedFor  = 60
	silentFor = 300
)

// heldFor is how many seconds the usual value of an endpoint that is unusual stays as it was.
const heldFor = 1800

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
	for _, g := range m.group {
		g.present, g.should, g.abnormal = 0, 0, 0
	}
	for _, e := range m.ends {
		if !e.whole {
			m.pass(e, at)
		}
	}
	for _, g := range m.group {
		m.passWhole(m.ends[g.whole], g, at)
	}
	judged, wholes := 0, 0
	m.list = m.list[:0]
	for i, e := range m.ends {
		learn := (at+int64(i))%learnEvery < int64(m.step)
		e.nlp = 0
		g := m.group[e.group]
		if e.win[fast].box.seconds == 0 || e.last < at && !e.whole && m.hosts[e.Key.Host] < at {
			continue
		}
		e.nlp = m.score(e, g, learn)
		judged++
		if e.whole {
			wholes++
		}
		if e.nlp < unusualFrom {
			e.unusual = 0
			continue
		}
		if e.unusual == 0 {
			e.unusual = at
		}
		m.list = append(m.list, ranked{e.nlp, e})
	}
	j := m.follow(at, judged, wholes)
	m.step = 0
	return j
}

// pass lets the step pass at an endpoint.
func (m *Model) pass(e *endpoint, at int64) {
	g := m.group[e.group]
	if !e.has {
		e.cur = sums{}
		if m.hosts[e.Key.Host] < at || e.Known == 0 {
			return // the host is not there
		}
		if silent := at - e.last; silent < silentFor && float64(silent)*e.rate(g) > 10 {
			g.changed = at
		}
		e.cur.seconds = float32(m.step)
	} else {
		e.cur.seconds = float32(m.step)
		if gap := at - e.last; gap >= 3*int64(m.step) && float64(gap)*e.rate(g) > 20 {
			e.start = at
			g.changed = at
			e.win, e.piece = [2]window{}, sums{}
			e.minute, e.rareMid = mixtures{}, 0
		}
		e.last = at
	}
	e.has = false
	e.push()
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

// push adds the step to the windows.
func (e *endpoint) push() {
	e.win[fast].push(&e.cur)
	e.piece.seconds += e.cur.seconds
	e.piece.add(&e.cur)
}

// passWhole does so for all of a service together: its Rate is what was to be
// expected of the hosts that are there.
func (m *Model) passWhole(e *endpoint, g *group, at int64) {
	g.missing = 0
	if g.present == 0 {
		return
	}
	e.cur.seconds = float32(m.step)
	e.cur.v[Rate] = float32(g.should)
	e.last = at
	e.push()
	f := &e.win[fast].box
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
	s := scoring{m: m, e: e, g: g, usual: e.usual(g), judge: judge, learn: learn && !frozen, young: m.at-e.start < young}
	s.lasting = e.unusual > 0 && m.at-e.unusual >= 2*learnEvery
	s.held = s.lasting && m.at-e.unusual < heldFor
	s.doubt = 0.09 / (1 + e.Seen/15)
	s.gain = max(baseGain, learnEvery/(e.Seen+learnEvery))
	s.spread = max(spreadGain, min(1.5*learnEvery/(e.Seen+learnEvery), 0.3))
	if s.lasting {
		s.spread = 0
	}
	s.look(fast)
	e.now = s.mix
	best, rarest := s.best, s.rarest
	if e.piece.seconds >= midPiece {
		e.win[mid].push(&e.piece)
		e.piece = sums{}
		s.learn = !frozen
		s.mix, s.rarest = mixtures{}, 0
		s.look(mid)
		e.minute, e.bestMid, e.rareMid = s.mix, s.best, s.rarest
	}
	quick, minute := e.now.all(), e.minute.all()
	e.quick = quick.nlp()
	e.best = best
	if e.rareMid > rarest {
		e.best = e.bestMid
	}
	if learn && !frozen {
		e.Seen += float64(max(m.step, learnEvery))
		e.Known += float64(max(m.step, learnEvery))
	}
	quick.sum += minute.sum
	return quick.nlp()
}

// begin takes the first values of an endpoint that nothing is known of.
func (m *Model) begin(e *endpoint, g *group) {
	f := &e.win[fast].box
	if f.n < fewest {
		return
	}
	whole := m.ends[g.whole]
	if !e.whole && whole.Known > 60 {
		e.Known = 1
		return
	}
	for _, sig := range [...]Signal{Rate, Total, P50, P99, MinRTT} {
		t := &e.Track[sig]
		if v, n := f.value(sig); n > 0 && !(e.whole && sig == Rate) {
			t.Base = float32(y(sig, v, n, 0) - g.mean(sig))
			if sig == Rate {
				t.Base = float32(rarely(n, float64(f.seconds)) - g.mean(Rate))
			}
			t.Anchor = t.Base
		}
	}
	for _, sig := range [...]Signal{Errors, Again, Loss} {
		k, n := f.value(sig)
		e.Track[sig].Base = float32(k / (n + 100))
	}
	usual := e.usual(g)
	for sig := firstPart; sig < Loss; sig++ {
		v, n := f.value(sig)
		e.Track[sig].Base = float32(y(sig, v, n, usual))
		e.Track[sig].limit = float32(math.Exp(float64(e.Track[sig].Base)))
	}
	e.Known = 1
}

// called says whether the endpoint is called from its host.
func (e *endpoint) called() bool { return e.Key.Side == observe.Called }
