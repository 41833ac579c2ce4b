package anomaly

import (
	"math"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
)

// sums are what an endpoint did in a window. Older seconds count less: what is in it
// is multiplied with a number below 1 for each second that passes.
type sums struct {
	seconds float32
	n       float32 // requests
	segs    float32 // segments
	tailed  float32 // requests, as far as they tell of the tail
	timed   float32 // seconds with a round trip time
	v       [NumSignals]float32
}

// spread is the quantile of the normal distribution that the 99th percentile of n
// requests stands for: of few requests it is hardly more than the largest of them.
func spread(n float64) float64 {
	if n >= 100 {
		return 2.326
	}
	// -1 + ln is within 4 % of the normal quantile of n/(n+1) from 4 to 100.
	return 0.31 + 0.437*math.Log(n)
}

// set takes a point.
func (s *sums) set(p *fleet.Point) {
	*s = sums{seconds: float32(max(p.Seconds, 1)), n: float32(p.Requests), segs: float32(p.Segments)}
	s.v[Errors], s.v[Again], s.v[Loss] = float32(p.Errors), float32(p.SynAgain), float32(p.Retrans)
	if p.MinRTTUS > 0 {
		s.timed = s.seconds
		s.v[MinRTT] = s.seconds * float32(math.Log(float64(p.MinRTTUS)))
	}
	if p.Requests == 0 {
		return
	}
	s.v[Total] = float32(p.TotalUS)
	p50 := max(float64(p.P50US), 1)
	s.v[P50] = s.n * float32(math.Log(p50))
	if p.Requests >= 4 {
		s.tailed = min(s.n, 100)
		s.v[P99] = s.tailed * float32(math.Log(max(float64(p.P99US)/p50, 1))/spread(float64(p.Requests)))
	}
	for part := range observe.AckDelay {
		s.v[PartSignal(part)] = float32(p.PartsUS[part])
	}
	for part := range observe.NumServerParts {
		s.v[SplitSignal(part)] = float32(p.SplitUS[part])
	}
}

// age lets time pass, and adds what was done in it.
func (s *sums) age(keep float32, o *sums) {
	s.seconds = s.seconds*keep + o.seconds
	s.n = s.n*keep + o.n
	s.segs = s.segs*keep + o.segs
	s.tailed = s.tailed*keep + o.tailed
	s.timed = s.timed*keep + o.timed
	for i := range s.v {
		s.v[i] = s.v[i]*keep + o.v[i]
	}
}

func (s *sums) add(o *sums) {
	s.n += o.n
	s.segs += o.segs
	s.tailed += o.tailed
	s.timed += o.timed
	for i := range s.v {
		s.v[i] += o.v[i]
	}
}

// scale makes the window as long as if it had lasted so many seconds.
func (s *sums) scale(seconds float32) {
	if s.seconds <= 0 {
		return
	}
	k := seconds / s.seconds
	s.seconds *= k
	s.n *= k
	s.segs *= k
	s.tailed *= k
	s.timed *= k
	for i := range s.v {
		s.v[i] *= k
	}
}

// fewest is how little of a request in a window still tells of its times.
const fewest = 0.25

// y is the value of a signal of times in the form in which it is judged: larger is
// worse, and noise is about as large whatever the value. usual is the usual time of
// a request, µs. It is false when the window does not tell.
func (s *sums) y(sig Signal, usual float64) (float64, bool) {
	switch {
	case sig == Rate:
		return -math.Log(float64(s.n/s.seconds) + 0.1), true
	case sig == Total:
		return math.Log(max(float64(s.v[Total]/s.n), 1)), s.n >= fewest
	case sig == P50:
		return float64(s.v[P50] / s.n), s.n >= fewest
	case sig == P99:
		return float64(s.v[P99] / s.tailed), s.tailed >= 4
	case sig == MinRTT:
		return float64(s.v[MinRTT] / s.timed), s.timed > 0.1
	case sig.isPart():
		return math.Log1p(max(float64(s.v[sig]/s.n), 0) / (partUnit * usual)), s.n >= fewest
	}
	return 0, false
}

// partUnit is the share of the usual time of a request below which a part counts
// little: its logarithm is taken of the part plus this share.
const partUnit = 0.1

// count is a signal that counts events among trials: how many, of how many.
func (s *sums) count(sig Signal) (k, n float64) {
	switch sig {
	case Loss:
		return float64(s.v[Loss]), float64(s.segs)
	}
	return float64(s.v[sig]), float64(s.n)
}

// deviance is the signed root of the likelihood ratio of k events where mu were to be
// expected, in standard deviations: near those of the normal distribution also for few.
func deviance(k, mu float64) float64 {
	if mu <= 0 {
		mu = 1e-9
	}
	d := mu - k
	if k > 0 {
		d += k * math.Log(k/mu)
	}
	d = math.Sqrt(max(2*d, 0))
	if k < mu {
		return -d
	}
	return d
}
