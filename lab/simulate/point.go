package simulate

import (
	"math"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
)

// Second makes the second at, in the order of time, and gives what each endpoint did
// in it to f. What f is given is valid until it returns.
func (f *Fleet) Second(at int64, add func(*fleet.Point)) {
	f.step(at)
	var p fleet.Point
	for _, e := range f.all {
		if e.n == 0 || e.hidden || e.host.removed || e.host.dead {
			continue
		}
		f.servedPoint(e, &p)
		p.At, p.Seconds = at, 1
		add(&p)
	}
	for _, c := range f.calls {
		if c.n == 0 || c.from.hidden || c.from.host.removed || c.from.host.dead {
			continue
		}
		f.calledPoint(c, &p)
		p.At, p.Seconds = at, 1
		add(&p)
	}
}

// quantiles are the median and the 99th percentile of n requests of this mean, of
// which a share takes more.
func (f *Fleet) quantiles(p *fleet.Point, mean, sigma, n, share, more float64) {
	r := f.rng
	rest := max(mean-share*more, mean*0.05)
	median := rest * math.Exp(-sigma*sigma/2)
	if n < 2 {
		p.P50US, p.P99US = int64(mean), int64(mean)
		return
	}
	p50 := median * math.Exp(1.25*sigma/math.Sqrt(n)*r.NormFloat64())
	var p99 float64
	if n >= 100 {
		p99 = median * math.Exp(sigma*(2.326+3.7/math.Sqrt(n)*r.NormFloat64()))
	} else {
		// The largest of n: a Gumbel variable, in spreads.
		q := 0.31 + 0.437*math.Log(n)
		p99 = median * math.Exp(sigma*(q-0.2-0.4*math.Log(-math.Log(r.Float64()))))
	}
	if k := share * n; share > 0.01 || share > 0 && n < 100 && r.Float64() < k {
		p99 = max(p99, (median+more)*math.Exp(0.3*sigma*r.NormFloat64()))
	}
	p.P50US, p.P99US = int64(p50), int64(max(p99, p50))
}

// traffic sets the segments of n requests, and returns what those that were lost cost.
func (f *Fleet) traffic(p *fleet.Point, n, loss float64) float64 {
	segs := n * segments
	lost := poisson(f.rng, segs*loss)
	p.Segments, p.Retrans = uint64(segs+lost), uint64(lost)
	p.SynAgain = uint64(poisson(f.rng, n*0.05*loss))
	return lost * timeout * (0.9 + 0.2*f.rng.Float64())
}

func (f *Fleet) servedPoint(e *served, p *fleet.Point) {
	*p = fleet.Point{Key: e.key, Requests: uint64(e.n), Errors: uint64(e.errors)}
	rtt, loss := 0.0, 0.0
	if e.svc.tier == 3 {
		rtt, loss = clientRTT, 5e-6
	} else {
		rtt, loss = 300, 2e-6
	}
	rtt += e.host.way.us + e.fault.way.us
	loss += e.host.way.loss + e.fault.way.loss + e.callersLoss
	if e.svc.tier == 3 {
		loss += e.host.way.out // its clients are in no zone
	}
	rtt += e.callersUS
	split := e.split
	split[observe.ServerCall] += e.waits
	server := 0.0
	for i, us := range split {
		p.SplitUS[i] = int64(us * e.n)
		server += us
	}
	retrans := f.traffic(p, e.n, loss)
	net := rtt * (1 + 0.05*f.rng.NormFloat64()/math.Sqrt(e.n))
	recv := 20 + 0.01*e.own
	p.PartsUS[observe.Server] = int64(server * e.n)
	p.PartsUS[observe.RecvWait] = int64(recv * e.n)
	p.PartsUS[observe.Network] = int64(net * e.n)
	p.PartsUS[observe.Retrans] = int64(retrans)
	mean := server + recv + net + retrans/e.n
	p.TotalUS = int64(mean * e.n)
	p.MinRTTUS = int64(rtt * (0.9 + 0.02*math.Abs(f.rng.NormFloat64())))
	f.quantiles(p, mean, e.svc.shape.Sigma, e.n, max(e.paused, min(loss*segments, 1)), max(e.pauseUS, timeoutIf(loss)))
}

// timeoutIf is what a lost segment costs where segments are lost at all often.
func timeoutIf(loss float64) float64 {
	if loss > 1e-3 {
		return timeout
	}
	return 0
}

func (f *Fleet) calledPoint(c *call, p *fleet.Point) {
	t := c.to
	*p = fleet.Point{Key: c.key, Requests: uint64(c.n)}
	if t.n > 0 {
		p.Errors = uint64(min(poisson(f.rng, c.n*t.errors/t.n), c.n))
	}
	// A request is one segment, its answer three. What is lost on the way back is sent
	// again by the other end: here it is waited for, as for the server.
	loss, rtt := c.loss()+c.lostThere()/segments, c.rtt()
	retrans := f.traffic(p, c.n, loss)
	recv := 15 + 0.002*c.us
	us := c.us
	if back := c.lostBack(); back > 0 {
		us += poisson(f.rng, c.n*segments*back) / c.n * timeout
		loss += back
	}
	p.PartsUS[observe.Server] = int64(us * c.n)
	p.PartsUS[observe.Network] = int64(rtt * c.n)
	p.PartsUS[observe.RecvWait] = int64(recv * c.n)
	p.PartsUS[observe.Retrans] = int64(retrans)
	mean := us + rtt + recv + retrans/c.n
	p.TotalUS = int64(mean * c.n)
	p.MinRTTUS = int64(rtt * (0.9 + 0.02*math.Abs(f.rng.NormFloat64())))
	f.quantiles(p, mean, t.svc.shape.Sigma, c.n, max(t.paused, min(loss*segments, 1)), max(t.pauseUS, timeoutIf(loss)))
}
