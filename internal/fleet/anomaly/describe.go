package anomaly

import (
	"cmp"
	"math"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
)

func compareKeys(a, b fleet.Key) int {
	return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Service, b.Service), cmp.Compare(a.Side, b.Side),
		cmp.Compare(a.Addr, b.Addr), cmp.Compare(a.Port, b.Port))
}

// describe tells what is abnormal of an endpoint now, by the fast window, or by the middle
// one where that is what it is abnormal by.
func (m *Model) describe(e *endpoint) (a Anomaly, w int) {
	now, minute := e.now.all(), e.minute.all()
	if e.win[fast].box.n < fewest || now.nlp() < m.cut && minute.nlp() >= m.cut {
		w = mid
	}
	return m.in(e, w), w
}

// in tells what is abnormal of an endpoint in a window.
func (m *Model) in(e *endpoint, w int) Anomaly {
	g := m.group[e.group]
	p := e.episode
	a := Anomaly{Key: e.Key, Since: p.since, P: math.Exp(-e.nlp), Alarm: p.alarm, Sure: e.sure()}
	f := &e.win[w].box
	usual := e.usual(g)
	n := max(float64(f.n), fewest)
	mean := float64(f.v[Total]) / n
	a.AddedUS, a.PerSecond = mean-usual, float64(f.n)/max(float64(f.seconds), 1)
	a.Part, a.Network = Total, false
	added := func(sig Signal) float64 {
		expected := math.Expm1(float64(e.Track[sig].Base)) * partUnit * usual
		return float64(f.v[sig])/n - expected
	}
	a.OwnUS = a.AddedUS
	if e.called() {
		a.OwnUS -= added(PartSignal(observe.Server)) + added(PartSignal(observe.Stall))
	} else {
		a.OwnUS -= added(SplitSignal(observe.ServerCall))
	}
	way := added(PartSignal(observe.Network)) + added(PartSignal(observe.Retrans)) + added(PartSignal(observe.SendWait)) + added(PartSignal(observe.Upload))
	a.wayUS, a.mattersUS = way, m.opt.Time*usual
	a.Network = way >= a.AddedUS/2 && a.AddedUS > 0
	a.rest = m.without(e, g, w, way)
	// What a service does itself is known where its threads were followed: what is left of its
	// time without calls is not, for calls may be in it.
	work := 0.0
	for p := range observe.NumServerParts {
		if p != observe.ServerCall && p != observe.ServerHandoff && p != observe.ServerNet {
			work += added(SplitSignal(p))
		}
	}
	if !e.called() && work >= max(a.mattersUS, a.AddedUS/4) {
		a.own = m.without(e, g, w, a.AddedUS-work) >= m.cut
	}
	most := a.AddedUS / 2
	for sig := firstPart; sig < firstSplit; sig++ {
		if d := added(sig); d >= most && a.AddedUS > 0 {
			a.Part, most = sig, d
		}
	}
	if a.Part == PartSignal(observe.Server) {
		most = a.AddedUS / 2
		for sig := firstSplit; sig < Loss; sig++ {
			if d := added(sig); d >= most {
				a.Part, most = sig, d
			}
		}
	}
	m.choose(e, g, &a, f, usual, mean)
	return a
}

// without is how rare the mean time would be, as -ln P, if requests took that many µs less.
func (m *Model) without(e *endpoint, g *group, w int, us float64) float64 {
	t, f := &e.Track[Total], &e.win[w].box
	n := max(float64(f.n), fewest)
	r := math.Log(max(float64(f.v[Total])/n-us, 1)) - math.Log(e.usual(g))
	matters := math.Log1p(m.opt.Time)
	if r <= matters {
		return 0
	}
	sd := math.Sqrt(float64(t.B[w]) + float64(t.A[w])/n)
	class := 0
	if n > many {
		class = 1
	}
	return m.tails[class][Total][w].rarity((r - max(matters/2, matters-allowed*sd)) / sd)
}

// choose says in what ways it is abnormal, which signal tells most, and how large the
// effect is.
func (m *Model) choose(e *endpoint, g *group, a *Anomaly, f *sums, usual, mean float64) {
	o := &m.opt
	n := max(float64(f.n), fewest)
	failed := float64(f.v[Errors])/n - float64(e.Track[Errors].Base)
	a.failed = failed
	again := float64(f.v[Again])/n - float64(e.Track[Again].Base)
	time := a.AddedUS / usual
	p50 := math.Exp(float64(f.v[P50]) / n)
	wasP50 := math.Exp(float64(e.Track[P50].Base) + g.mean(P50))
	wasTail := float64(e.Track[P99].Base) + g.mean(P99)
	tail := wasTail
	if f.tailed > 0 {
		tail = float64(f.v[P99] / f.tailed)
	}
	p99, wasP99 := p50*math.Exp(tail*spread(100)), wasP50*math.Exp(wasTail*spread(100))
	slowest := (p99 - wasP99) / usual * o.Share
	slow := &a.views[slower]
	switch {
	case again/o.Share > max(time, slowest, 0)/o.Time:
		slow.Wrong = Wrong{Again, again + float64(e.Track[Again].Base), float64(e.Track[Again].Base), again}
	case (p50-wasP50)/usual < o.Time/2 && p99 > 1.2*wasP99:
		slow.Wrong = Wrong{P99, p99, wasP99, max(time, slowest)}
	default:
		slow.Wrong = Wrong{Total, mean, usual, time}
	}
	a.views[failing].Wrong = Wrong{Errors, failed + float64(e.Track[Errors].Base), float64(e.Track[Errors].Base), failed}
	a.views[starved].Wrong = e.starved(g)
	for l := slower; l <= failing; l++ {
		v := &a.views[l]
		rare := e.now.with(&e.minute, l)
		v.joined = e.episode.in[l]
		v.in, v.faint = v.joined || rare.nlp() >= unusualFrom, !v.joined || rare.nlp() < unusualFrom
	}
	// Where requests take longer, and fewer come for no more than that, they are slow.
	lacks := &a.views[starved]
	lacks.in = e.episode.rate && (!slow.joined || slow.faint || lacks.beyond(time))
	lacks.joined, lacks.faint = lacks.in, lacks.Effect < o.Time

	main := slower
	switch {
	case lacks.in:
		main = starved
	case failed/o.Share > max(time, slowest, 0)/o.Time && failed >= again, !slow.joined && a.views[failing].joined:
		main = failing
	}
	if v := &a.views[main]; !v.in {
		v.in, v.joined, v.faint = true, true, e.nlp < unusualFrom
	}
	a.Signal, a.Value, a.Expected, a.Effect, a.faint = a.views[main].Signal, a.views[main].Value, a.views[main].Expected, a.views[main].Effect, a.views[main].faint
	a.Network = a.Network || slow.Signal == Again && slow.in
	a.tellBesides()
}

// starved is how many requests are missing in the fast window.
func (e *endpoint) starved(g *group) Wrong {
	f := &e.win[fast].box
	seconds := max(float64(f.seconds), 1)
	w := Wrong{Rate, float64(f.n) / seconds, e.rate(g), e.lacks(g)}
	if e.whole {
		w.Expected = float64(f.v[Rate]) / seconds
	}
	return w
}

// sure is how well the endpoint is known.
func (e *endpoint) sure() float64 {
	return 0.5*min(e.Seen/300, 1) + 0.4*min(e.Known/daySeconds, 1) + 0.1*min(e.Known/(14*daySeconds), 1)
}
