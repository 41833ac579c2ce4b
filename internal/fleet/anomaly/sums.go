package anomaly

import (
	"math"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
)

// sums are what an endpoint did in some time.
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

// add adds what was done besides, in the same time.
func (s *sums) add(o *sums) {
	s.n += o.n
	s.segs += o.segs
	s.tailed += o.tailed
	s.timed += o.timed
	for i := range s.v {
		s.v[i] += o.v[i]
	}
}

// weight is what a signal is averaged over.
func (s *sums) weight(sig Signal) float32 {
	switch sig {
	case P99:
		return s.tailed
	case Loss:
		return s.segs
	case MinRTT:
		return s.timed
	case Rate:
		return s.seconds
	}
	return s.n
}

// value is a signal's sum and what it is averaged over. Of Rate it is the requests
// that were to be expected, and those that came.
func (s *sums) value(sig Signal) (v, n float64) {
	if sig == Rate {
		return float64(s.v[Rate]), float64(s.n)
	}
	return float64(s.v[sig]), float64(s.weight(sig))
}

// pieces is how many pieces of time a window consists of, and worst how many of them
// are left out where a signal is worst: whatever happens in no more than two of five
// pieces is no anomaly, as a pause or a lost segment.
const (
	pieces = 5
	worst  = 2
)

// window is what an endpoint did in the last pieces of time.
type window struct {
	ring [pieces]sums
	next uint8
	full uint8
	box  sums // of all pieces
}

// push adds a piece, and forgets the oldest.
func (w *window) push(s *sums) {
	w.ring[w.next] = *s
	w.next = (w.next + 1) % pieces
	w.full = min(w.full+1, pieces)
	w.box = w.ring[0]
	for i := 1; i < pieces; i++ {
		w.box.seconds += w.ring[i].seconds
		w.box.add(&w.ring[i])
	}
}

// trimmed is the value of a signal without the pieces in which it is worst. It is
// false when no piece would be left.
func (w *window) trimmed(sig Signal) (v, n float64, ok bool) {
	if w.box.v[sig] == 0 && sig.isPart() {
		return w.trimmedNothing()
	}
	return w.trimmedWorst(sig)
}

func (w *window) trimmedWorst(sig Signal) (v, n float64, ok bool) {
	var vs, ns, ratio [pieces]float64
	k := 0
	for i := range w.ring {
		s := &w.ring[i]
		v, n := s.value(sig)
		if s.seconds == 0 || n <= 0 && sig != Rate || sig == P99 && n < 4 {
			continue
		}
		vs[k], ns[k] = v, n
		if sig == Rate {
			n += 0.1
		}
		ratio[k] = v / n
		k++
	}
	if k <= worst {
		return 0, 0, false
	}
	for i := range k {
		higher := 0
		for j := range k {
			if ratio[j] > ratio[i] || ratio[j] == ratio[i] && j < i {
				higher++
			}
		}
		if higher >= worst {
			v += vs[i]
			n += ns[i]
		}
	}
	return v, n, true
}

// trimmedNothing is trimmed of a part that is 0 in all pieces, as most parts of most endpoints
// are: none is worse than another, and the first ones are left out.
func (w *window) trimmedNothing() (v, n float64, ok bool) {
	k := 0
	for i := range w.ring {
		if s := &w.ring[i]; s.seconds != 0 && s.n > 0 {
			if k >= worst {
				n += float64(s.n)
			}
			k++
		}
	}
	return 0, n, k > worst
}

// fewest is how little of a request in a window still tells of its times.
const fewest = 0.25

// y is the form in which a signal of times is judged, of its value: larger is worse,
// and noise is about as large whatever the value. usual is the usual time of a
// request, µs.
func y(sig Signal, v, n, usual float64) float64 {
	switch {
	case sig == Total:
		return math.Log(max(v/n, 1))
	case sig.isPart():
		return math.Log1p(max(v/n, 0) / (partUnit * usual))
	}
	return v / n
}

// rarely is the form in which the number of requests is judged.
func rarely(n, seconds float64) float64 { return -math.Log(n/seconds + 0.1) }

// partUnit is the share of the usual request latency below which a part counts
// little: its logarithm is taken of the part plus this share.
const partUnit = 0.1

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
