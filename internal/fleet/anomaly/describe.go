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

// describe tells what is abnormal of an endpoint now.
func (m *Model) describe(e *endpoint) Anomaly {
	g := m.group[e.group]
	p := e.episode
	a := Anomaly{Key: e.Key, Since: p.since, P: math.Exp(-e.nlp), Alarm: p.alarm, Sure: e.sure()}
	f := &e.win[fast].box
	if f.n < fewest {
		f = &e.win[mid].box
	}
	usual := e.usual(g)
	n := max(float64(f.n), fewest)
	mean := float64(f.v[Total]) / n
	a.AddedUS = mean - usual
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
	a.rest = m.without(e, g, f, way)
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
func (m *Model) without(e *endpoint, g *group, f *sums, us float64) float64 {
	t := &e.Track[Total]
	n := max(float64(f.n), fewest)
	r := math.Log(max(float64(f.v[Total])/n-us, 1)) - math.Log(e.usual(g))
	matters := math.Log1p(m.opt.Time)
	if r <= matters {
		return 0
	}
	sd := math.Sqrt(float64(t.B[fast]) + float64(t.A[fast])/n)
	class := 0
	if n > many {
		class = 1
	}
	return m.tails[class][Total][fast].rarity((r - max(matters/2, matters-allowed*sd)) / sd)
}

// choose says which signal tells most, and how large the effect is.
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
	switch {
	case e.episode.rate && (e.nlp < unusualFrom || -math.Log1p(-min(e.lacks(g), 0.999)) >= math.Log1p(max(time, 0))):
		// Where requests came again, and take longer now than before, they are slow.
		a.Signal, a.Effect = Rate, e.lacks(g)
		a.Expected = e.rate(g)
		if e.whole {
			a.Expected = float64(e.win[fast].box.v[Rate] / max(e.win[fast].box.seconds, 1))
		}
		a.Value = float64(e.win[fast].box.n / max(e.win[fast].box.seconds, 1))
	case failed/o.Share > max(time, slowest, 0)/o.Time && failed >= again:
		a.Signal, a.Effect, a.Value, a.Expected = Errors, failed, failed+float64(e.Track[Errors].Base), float64(e.Track[Errors].Base)
	case again/o.Share > max(time, slowest, 0)/o.Time:
		a.Signal, a.Effect, a.Value, a.Expected = Again, again, again+float64(e.Track[Again].Base), float64(e.Track[Again].Base)
		a.Network = true
	case (p50-wasP50)/usual < o.Time/2 && p99 > 1.2*wasP99:
		a.Signal, a.Value, a.Expected = P99, p99, wasP99
		a.Effect = max(time, slowest)
	default:
		a.Signal, a.Effect, a.Value, a.Expected = Total, time, mean, usual
	}
	if a.Signal == Rate {
		a.faint = a.Effect < o.Time
	} else {
		a.faint = e.nlp < unusualFrom
	}
}

// sure is how well the endpoint is known.
func (e *endpoint) sure() float64 {
	return 0.5*min(e.Seen/300, 1) + 0.4*min(e.Known/daySeconds, 1) + 0.1*min(e.Known/(14*daySeconds), 1)
}
