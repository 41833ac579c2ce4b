package simulate

import (
	"math"

	"github.com/slowray/slowray/internal/observe"
)

// fault is what a scenario does to an endpoint.
type fault struct {
	us     [observe.NumServerParts]float64 // added to a request
	factor float64                         // of own time, less 1
	share  float64                         // of the requests; 0 stands for all
	errors float64                         // share of requests that fail
	lost   float64                         // share of the requests that do not come
	way    way                             // to its clients
	cold   bool                            // what it starts with takes long to become warm
	again  float64                         // how often callers ask again for what failed, and make it slower
}

// round is how long a round trip takes within a zone and between zones, µs.
func round(a, b *Host) float64 {
	if a.zone == b.zone {
		return 150
	}
	return 700
}

const (
	clientRTT = 12_000  // of clients that are none of the fleet, µs
	timeout   = 210_000 // until a lost segment is retransmitted, µs
	patience  = 1e6     // of a caller of a host that does not answer, µs
	segments  = 3.0     // of an answer
)

// step makes a second.
func (f *Fleet) step(at int64) {
	if f.scenario != nil {
		f.scenario.at(f, at)
	}
	r := f.rng
	demand := f.demandAt(at)
	burst := math.Exp(f.demand.step(r))
	for _, s := range f.services {
		s.wander.step(r)
		if !f.opt.Quiet {
			s.roll(at)
		}
	}
	for _, e := range f.all {
		e.n, e.callersLoss, e.callersUS = 0, 0, 0
	}
	for i := len(f.all) - 1; i >= 0; i-- {
		f.arrive(f.all[i], at, demand, burst)
	}
	for _, e := range f.all {
		f.answer(e, at, demand)
	}
}

// arrive draws the requests of an endpoint, those that callers made being there, and
// the calls that they make.
func (f *Fleet) arrive(e *served, at int64, demand, burst float64) {
	r, s := f.rng, e.svc
	if e.host.removed || e.down > at {
		e.n = 0
	} else if s.tier == 3 || s.tier == 0 && e.key.Port >= 9000 {
		rate := s.shape.Rate * e.weight * (1 - e.fault.lost)
		if !s.flat {
			rate *= demand * burst
		}
		if s.tier == 3 {
			up := 0
			for _, o := range s.hosts {
				if !o.host.removed && o.down <= at {
					up++
				}
			}
			rate *= float64(len(s.hosts)) / float64(max(up, 1))
		}
		e.n = poisson(r, rate)
	}
	if e.host.dead {
		for _, c := range e.calls {
			c.n = 0
		}
		return
	}
	for i := 0; i < len(e.calls); {
		j := i
		up := 0
		for ; j < len(e.calls) && e.calls[j].dep == e.calls[i].dep; j++ {
			if t := e.calls[j].to; !t.host.removed && t.down <= at {
				up++
			}
		}
		for ; i < j; i++ {
			c := e.calls[i]
			c.n = 0
			if t := c.to; up > 0 && !t.host.removed && t.down <= at {
				c.n = poisson(r, e.n*c.dep.perReq/float64(up)*(1-t.fault.lost)*(1+t.fault.again*t.fault.errors))
				t.n += c.n
				t.callersLoss += c.n * (c.from.host.way.loss + c.way.loss + c.lostBack())
				t.callersUS += c.n * (c.from.host.way.us + c.way.us)
			}
		}
	}
}

// noise is a factor of mean 1: that of the mean of n requests, of which single ones
// scatter by sigma.
func (f *Fleet) noise(sigma, n float64) float64 {
	v := math.Log1p(math.Expm1(sigma*sigma) / max(n, 1))
	return math.Exp(math.Sqrt(v)*f.rng.NormFloat64() - v/2)
}

// answer works out how long the requests of an endpoint take.
func (f *Fleet) answer(e *served, at int64, demand float64) {
	r, s := f.rng, e.svc
	e.split = [observe.NumServerParts]float64{}
	e.waits, e.stalls, e.paused, e.pauseUS = 0, 0, 0, 0
	slow := math.Exp(s.wander.x + e.wander.step(r))
	if !s.flat {
		slow *= 1 + s.load*(demand-1)/2
	}
	if since := at - e.fresh; e.fresh > 0 && since < warmFor {
		slow *= 1 + 0.4*(1-float64(since)/warmFor)
	}
	if e.fault.cold && e.fresh > 0 && at >= e.fresh {
		slow *= 1 + 3*math.Exp(-float64(at-e.fresh)/200)
	}
	if !f.opt.Quiet {
		if s.backup > 0 && at%day >= s.backup && at%day < s.backup+600 {
			slow *= 1.25
		}
		if sec := at % hour; sec >= e.job && sec < e.job+15 {
			slow *= 1.05
		}
	}
	if e.n == 0 {
		return
	}
	if e.host.dead {
		e.own, e.errors = patience, e.n
		return
	}
	e.callersLoss /= e.n
	e.callersUS /= e.n
	all := e.fault.share == 0 || e.fault.share >= 1
	own := s.shape.OwnUS * e.host.speed * slow
	if all {
		own *= 1 + e.fault.factor + e.fault.again*e.fault.errors
	}
	own *= f.noise(s.shape.Sigma, e.n)
	for p, share := range s.shape.Split {
		e.split[p] = own * share
	}
	if all {
		for p, us := range e.fault.us {
			e.split[p] += us * f.noise(0.5, e.n)
			own += us
		}
	}
	failed := s.shape.Errors + e.fault.errors
	for _, c := range e.calls {
		if c.n == 0 {
			continue
		}
		t := c.to
		c.us = (t.own + t.waits) * f.noise(t.svc.shape.Sigma, c.n)
		e.waits += c.n * c.us / e.n
		if t.paused > e.paused {
			e.paused, e.pauseUS = t.paused*c.part, t.pauseUS
		}
		if t.n > 0 {
			failed += 0.7 * c.part * t.errors / t.n
		}
		// The way to it is waited for, too.
		e.waits += c.n * c.wayUS() / e.n
	}
	if !all {
		k := poisson(r, e.n*e.fault.share)
		var us float64
		for p, add := range e.fault.us {
			add += e.fault.factor * s.shape.OwnUS * s.shape.Split[p]
			us += add
			e.split[p] += k / e.n * add
		}
		own += k / e.n * us
		e.paused, e.pauseUS = max(e.paused, e.fault.share), max(e.pauseUS, us)
	}
	if s.gc > 0 && !f.opt.Quiet && r.Float64() < 1/s.gc {
		share := min(s.pause/1e6, 1)
		own += share * s.pause / 2
		e.split[observe.ServerLock] += share * s.pause / 2
		e.paused, e.pauseUS = max(e.paused, share), max(e.pauseUS, s.pause/2)
	}
	e.own = own
	e.errors = poisson(r, e.n*min(failed, 1))
	e.errors = min(e.errors, e.n)
}

// lostThere and lostBack are the shares of segments that are lost on one way only, of a
// call and of its answer.
func (c *call) lostThere() float64 { return oneWay(c.from.host, c.to.host) }
func (c *call) lostBack() float64  { return oneWay(c.to.host, c.from.host) }

func oneWay(from, to *Host) float64 {
	if from.zone == to.zone {
		return 0
	}
	return from.way.out
}

// loss is the share of segments that are lost between the two ends, whoever sends them.
func (c *call) loss() float64 { return c.from.host.way.loss + c.to.host.way.loss + c.way.loss + 2e-6 }

// rtt is the round trip between the two ends, µs.
func (c *call) rtt() float64 {
	return round(c.from.host, c.to.host) + c.from.host.way.us + c.to.host.way.us + c.way.us
}

// wayUS is what a call waits for the network, µs.
func (c *call) wayUS() float64 {
	return c.rtt() + (segments*(c.loss()+c.lostBack())+c.lostThere())*timeout
}
