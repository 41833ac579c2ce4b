package compare

import (
	"cmp"
	"slices"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/prove/experiment"
)

// Endpoint is what is served at, or called at, one port by one program.
type Endpoint struct {
	Side string `json:"side"`
	Addr string `json:"addr,omitempty"` // of what is called
	Port int    `json:"port"`
	Comm string `json:"comm,omitempty"`

	Figures []Figure `json:"figures"` // requests, errors, times
	// Parts are means per request: they add up to the mean total, so that what
	// moved tells where the time went.
	Parts []Figure `json:"parts"`
}

// name is what makes two endpoints the same in both: process ids, namespaces and
// the local address differ after every restart.
type name struct {
	side, addr string
	port       int
	comm       string
}

// gathered is all endpoints of a name in one Observation.
type gathered struct {
	requests, ok, errors, unanswered uint64
	total                            observe.Histogram
	parts                            map[string]int64
	rates                            []float64 // requests in each second
	seconds                          float64
}

// most endpoints that are reported: those with most requests.
const most = 20

func endpoints(a, b *observe.Observation) []Endpoint {
	in, out := gather(a), gather(b)
	names := map[name]bool{}
	for n := range in {
		names[n] = true
	}
	for n := range out {
		names[n] = true
	}
	list := make([]name, 0, len(names))
	for n := range names {
		list = append(list, n)
	}
	weight := func(n name) uint64 {
		var w uint64
		for _, g := range []*gathered{in[n], out[n]} {
			if g != nil {
				w = max(w, g.requests)
			}
		}
		return w
	}
	slices.SortFunc(list, func(x, y name) int {
		return cmp.Or(-cmp.Compare(x.side, y.side), -cmp.Compare(weight(x), weight(y)), cmp.Compare(x.port, y.port), cmp.Compare(x.comm, y.comm), cmp.Compare(x.addr, y.addr))
	})
	var all []Endpoint
	for _, n := range list[:min(len(list), most)] {
		all = append(all, endpoint(n, in[n], out[n]))
	}
	return nonNil(all)
}

func gather(o *observe.Observation) map[name]*gathered {
	all := map[name]*gathered{}
	for i := range o.Endpoints {
		e := &o.Endpoints[i]
		if e.Requests == 0 {
			continue
		}
		n := name{side: e.Side, port: e.Port, comm: e.Comm}
		if e.Side == observe.Called.String() {
			n.addr = e.Addr
		}
		g := all[n]
		if g == nil {
			g = &gathered{parts: map[string]int64{}, seconds: o.Window.Seconds}
			all[n] = g
		}
		g.requests += e.Requests
		g.ok += e.OK
		g.errors += e.Errors
		g.unanswered += e.Unanswered
		g.total.Merge(&e.Total)
		for p, s := range e.Parts {
			g.parts[p] += s.SumNS
		}
		g.course(e.Arrivals)
	}
	return all
}

// slots of Arrivals in a second.
const slots = 10

// course adds requests in each whole second.
func (g *gathered) course(arrivals []uint32) {
	for i := range len(arrivals) / slots {
		if i >= len(g.rates) {
			g.rates = append(g.rates, 0)
		}
		for _, n := range arrivals[i*slots : (i+1)*slots] {
			g.rates[i] += float64(n)
		}
	}
}

func endpoint(n name, a, b *gathered) Endpoint {
	e := Endpoint{Side: n.side, Addr: n.addr, Port: n.port, Comm: n.comm, Parts: []Figure{}}
	of := func(what, unit string, read func(*gathered) float64) Figure {
		f := Figure{Name: what, Unit: unit, Judgement: Unknown}
		if a != nil {
			f.A = some(read(a))
		}
		if b != nil {
			f.B = some(read(b))
		}
		return f
	}
	rate := of("requests", "1/s", func(g *gathered) float64 { return per(float64(g.requests), g.seconds) })
	if a != nil && b != nil {
		rate.Judgement = judge(a.rates, b.rates)
	}
	e.Figures = []Figure{
		rate,
		of("errors", "share", func(g *gathered) float64 { return per(float64(g.errors+g.unanswered), float64(g.requests)) }),
		of("p50", "us", func(g *gathered) float64 { return float64(g.total.Quantile(0.5)) / 1e3 }),
		of("p99", "us", func(g *gathered) float64 { return float64(g.total.Quantile(0.99)) / 1e3 }),
	}
	for p := range observe.AckDelay {
		part := of(p.String(), "us", func(g *gathered) float64 { return per(float64(g.parts[p.String()]), float64(g.requests)) / 1e3 })
		if part.A != nil && *part.A > 0 || part.B != nil && *part.B > 0 {
			e.Parts = append(e.Parts, part)
		}
	}
	return e
}

func per(a, b float64) float64 {
	if b <= 0 {
		return 0
	}
	return a / b
}

// Two courses differ when the rank test says so by this much: neighbouring
// seconds are alike, so that it must be far below the usual.
const (
	surely   = 0.001
	leastRun = 5   // values on each side
	leastOf  = 1.1 // factor
)

// judge says whether two courses differ beyond their spread.
func judge(a, b []float64) Judgement {
	if len(a) < leastRun || len(b) < leastRun {
		return Unknown
	}
	ma, mb := experiment.Median(a), experiment.Median(b)
	low, high := min(ma, mb), max(ma, mb)
	apart := min(experiment.RankP(a, b), experiment.RankP(b, a)) <= max(surely, floor(len(a), len(b)))
	if apart && high > leastOf*low {
		return Moved
	}
	return Within
}

// floor is the least P that so few values can have.
func floor(na, nb int) float64 {
	ways := 1.0
	for i := range na {
		ways = ways * float64(nb+i+1) / float64(i+1)
	}
	return 1 / ways
}
