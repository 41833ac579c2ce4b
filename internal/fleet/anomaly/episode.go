package anomaly

import (
	"cmp"
	"math"
	"slices"
)

// episode is an anomaly while it lasts. Nothing is learned from its endpoint
// meanwhile.
type episode struct {
	since int64
	alarm bool
	rate  bool         // requests are missing
	in    [layers]bool // in what ways it was abnormal by that alone
	peak  float64      // the largest effect
	quiet int64        // seconds that it has been less than half of that
}

// ranked is an endpoint with an unusual second.
type ranked struct {
	nlp float64
	e   *endpoint
}

const (
	// quietFor is how many seconds an anomaly must be gone until it is over.
	quietFor = 10
	// among is how many windows of time the endpoints are tested in while an alarm is
	// on, as far as their number is corrected for: those of an hour.
	among = 720
	// falselyAbnormal is the share of the abnormal endpoints that are so by chance.
	falselyAbnormal = 0.01
)

// threshold is the -ln P of an alarm: of n that are judged and all steps of a day there
// are to be no more than a third of FalsePerDay. The endpoints of hosts have one third, the
// services as a whole, which are far fewer, another, and all endpoints together the last.
func (m *Model) threshold(n int) float64 {
	return math.Log(3 * float64(max(n, 1)) * daySeconds / float64(max(m.step, 1)) / m.opt.FalsePerDay)
}

// follow begins, keeps and ends episodes.
func (m *Model) follow(at int64, judged, wholes int) Judgement {
	j := Judgement{At: at, Judged: judged}
	m.judged = judged
	single, whole := m.threshold(judged-wholes), m.threshold(wholes)
	slices.SortFunc(m.list, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(b.nlp, a.nlp), compareKeys(a.e.Key, b.e.Key))
	})
	before := len(m.active)
	alarm := m.allAtOnce(at, before > 0) || before > 0
	for _, r := range m.list {
		if r.nlp >= single || r.e.whole && r.nlp >= whole {
			alarm = true
			m.start(r.e, at, true)
		}
	}
	if alarm {
		found := m.list[:discoveries(m.list, judged)]
		for _, r := range found {
			m.start(r.e, at, false)
		}
		m.cut = discovered(max(len(found), 1), judged)
		m.within(at)
		m.join()
	}
	j.Changed = len(m.active) > before
	m.goOn(at, &j)
	return j
}

// discoveries is how many of the first are abnormal, by the procedure of Benjamini
// and Hochberg (1995), of n that were tested in each window of an hour.
func discoveries(list []ranked, n int) int {
	for k := len(list); k > 0; k-- {
		if list[k-1].nlp >= discovered(k, n) {
			return k
		}
	}
	return 0
}

// discovered is the -ln P that the last of k of n must have.
func discovered(k, n int) float64 {
	return -math.Log(falselyAbnormal * float64(k) / (float64(max(n, 1)) * among))
}

// join notes in what ways the abnormal endpoints are so: each by that alone, as if there
// were no others; but the one that says most of it goes without saying.
func (m *Model) join() {
	for _, e := range m.active {
		p := e.episode
		most, any := slower, false
		for l := range layers {
			if l == starved && !e.whole {
				continue
			}
			mix := e.now.with(&e.minute, l)
			p.in[l] = p.in[l] || mix.nlp() >= m.cut
			any = any || p.in[l]
			if mix.sum > e.now.with(&e.minute, most).sum {
				most = l
			}
		}
		if !any && !p.rate {
			p.in[most] = true
		}
	}
}

// within looks for the abnormal among the endpoints of a service that is abnormal as
// a whole.
func (m *Model) within(at int64) {
	for _, r := range m.list {
		if !r.e.whole || r.e.episode == nil {
			continue
		}
		g := m.group[r.e.group]
		var own []ranked
		for _, o := range m.list {
			if o.e.group == r.e.group && !o.e.whole {
				own = append(own, o)
			}
		}
		for _, o := range own[:discoveries(own, g.members)] {
			m.start(o.e, at, false)
		}
		if r.e.best != Rate {
			continue
		}
		f := &r.e.win[fast].box
		share := g.missing * float64(f.seconds) / max(float64(f.v[Rate]), 1)
		for _, e := range m.ends {
			if e.group == r.e.group && !e.whole && e.win[fast].box.seconds > 0 && m.hosts[e.Key.Host] >= at && e.lacks(g) > share/2 {
				m.start(e, at, false)
				e.episode.rate = true
			}
		}
	}
}

// lacks is the share of the usual requests that is missing, 0 to 1.
func (e *endpoint) lacks(g *group) float64 {
	f := &e.win[fast].box
	should := e.rate(g) * float64(f.seconds)
	if e.whole {
		should = float64(f.v[Rate])
	}
	if should < 1 {
		return 0
	}
	return max(1-float64(f.n)/should, 0)
}

func (m *Model) start(e *endpoint, at int64, alarm bool) {
	if e.episode == nil {
		since := at
		if e.unusual > 0 {
			since = e.unusual
		}
		e.episode = &episode{since: since, rate: e.best == Rate && e.whole}
		m.active = append(m.active, e)
	}
	e.episode.alarm = e.episode.alarm || alarm
}

// goOn tells the episodes, and ends those that are over.
func (m *Model) goOn(at int64, j *Judgement) {
	active := m.active[:0]
	for _, e := range m.active {
		p := e.episode
		a, w := m.describe(e)
		now := a.Effect
		if w != fast {
			now = m.in(e, fast).Effect
		}
		p.peak = max(p.peak, now)
		if e.quick < unusualFrom && now < p.peak/2 || e.last < at-quietFor {
			p.quiet += int64(max(m.step, 1))
		} else {
			p.quiet = 0
		}
		lasted := at-p.since >= m.opt.Lasting
		if p.quiet < quietFor && !lasted {
			active = append(active, e)
			if !e.whole || !m.member(e) {
				j.Anomalies = append(j.Anomalies, a)
			}
			continue
		}
		a.Until = at
		if lasted {
			a.Accepted = at
			m.accept(e)
		}
		e.episode, e.unusual = nil, 0
		e.win[mid], e.piece = window{}, sums{}
		e.minute, e.rareMid = mixtures{}, 0
		j.Changed = true
		if !e.whole {
			j.Ended = append(j.Ended, a)
		}
	}
	clear(m.active[len(active):])
	m.active = active
}

// member says whether an endpoint of the service is abnormal by itself: then the
// service as a whole is not told.
func (m *Model) member(whole *endpoint) bool {
	for _, e := range m.active {
		if e.group == whole.group && !e.whole && e.episode != nil {
			return true
		}
	}
	return false
}

// accept takes what the endpoint does now for normal.
func (m *Model) accept(e *endpoint) {
	g := m.group[e.group]
	w := &e.win[mid].box
	set := func(sig Signal, base float64) {
		t := &e.Track[sig]
		t.Base = float32(base)
		t.Anchor, t.limit = t.Base, float32(math.Exp(base))
	}
	for _, sig := range [...]Signal{Total, P50, P99, MinRTT} {
		if v, n := w.value(sig); n > 0 {
			set(sig, y(sig, v, n, 0)-g.mean(sig))
		}
	}
	switch {
	case e.whole:
		e.Track[Rate].Base += float32(-math.Log(1 - min(e.lacks(g), 0.99)))
	case w.seconds > 0:
		set(Rate, rarely(float64(w.n), float64(w.seconds))-g.mean(Rate))
	}
	usual := e.usual(g)
	for sig := firstPart; sig < Loss && w.n > 0; sig++ {
		v, n := w.value(sig)
		set(sig, y(sig, v, n, usual))
	}
	for _, sig := range [...]Signal{Errors, Again, Loss} {
		if k, n := w.value(sig); n >= 1 {
			e.Track[sig].Base = float32(k / n)
		}
	}
}
