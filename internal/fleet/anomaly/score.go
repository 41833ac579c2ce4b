package anomaly

import (
	"math"

	"github.com/slowray/slowray/internal/observe"
)

// many requests in a window are more than this.
const many = 50

// allowed is by how many spreads the effect is taken to be smaller than what matters.
const allowed = 3

// perRequest is the most that a single request says, as -ln P: 5 %. However long it
// takes, it takes several of them to be abnormal.
const perRequest = 3

// scoring judges one endpoint at one step.
type scoring struct {
	m     *Model
	e     *endpoint
	g     *group
	usual float64 // request latency, µs
	judge bool
	learn bool
	// lasting says that it has been unusual for some time: how it scatters is not learned,
	// and what is usual neither for the first half hour, lest it follows what grows slowly.
	lasting, held bool
	young         bool    // it has begun anew
	doubt         float64 // variance of what is not known well yet
	gain          float64
	spread        float64
	mix           mixtures
	best          Signal // that is rarest
	rarest        float64
	few           float64 // the most that so few requests can say, 0 for what the window's can
}

// look judges a window.
func (s *scoring) look(w int) {
	s.rate(w)
	if s.e.whole && s.m.at-s.g.changed < mixedFor {
		return
	}
	s.shares(w)
	s.times(w)
	s.parts(w)
}

// judged adds what one signal says in one window: r is the deviation from the usual,
// matters the smallest deviation that matters, worse how much worse than usual it may
// be at this time of the day, n the requests that it comes from. burst is a deviation
// in spreads that recurs at this time of the day.
//
// What is seen must matter in full. P is the probability of such a deviation if the
// effect were smaller than that by a few spreads, but at least half of it: to take all
// of it off would make little of what is seen where the spread is large.
func (s *scoring) judged(sig Signal, w int, r, matters, worse, n, burst, weight float64) {
	if !s.judge {
		return
	}
	t := &s.e.Track[sig]
	variance := float64(t.B[w])
	if w < slow {
		variance += float64(t.A[w]) / max(n, fewest)
	}
	r -= worse
	sd := math.Sqrt(variance + s.doubt)
	s.rare(sig, w, (r-max(matters/2, matters-allowed*sd))/sd-max(burst-4, 0), r > matters, n, n, weight)
}

// rare looks up how rare a deviation is, if it counts: those of windows with few
// requests scatter otherwise than those with many, and so do those of endpoints that
// have begun anew. told is how many of the n requests it comes from tell of it.
func (s *scoring) rare(sig Signal, w int, z float64, counts bool, n, told, weight float64) {
	class := 0
	switch {
	case s.young:
		class = 2
	case n > many:
		class = 1
	}
	t := &s.m.tails[class][sig][w]
	if s.learn && !s.lasting {
		t.add(z)
	}
	if z <= least || !counts {
		return
	}
	nlp := min(t.rarity(z), perRequest*told)
	if s.few > 0 {
		nlp = min(nlp, s.few)
	}
	s.mix[layerOf(sig)].add(weight, nlp)
	if nlp > s.rarest {
		s.best, s.rarest = sig, nlp
	}
}

// rate judges whether requests are missing at a service as a whole; its endpoints are
// looked at when they are.
func (s *scoring) rate(w int) {
	t := &s.e.Track[Rate]
	x := &s.g.expected[0]
	box := &s.e.win[w].box
	if !s.e.whole {
		if s.learn {
			r := rarely(float64(box.n), float64(box.seconds)) - float64(t.Base) - x.mean
			t.learn(w, r, s.e.rate(s.g)*float64(box.seconds), s.gain, s.spread, w == fast && !s.held)
		}
		return
	}
	should, came, ok := s.e.win[w].trimmed(Rate)
	if !ok || should < 1 {
		return
	}
	r := math.Log((should+0.5)/(came+0.5)) - float64(t.Base)
	s.judged(Rate, w, r, -math.Log(1-s.m.opt.Time), x.worse, should, x.burst, mainWeight)
	if s.learn {
		variance := float64(t.B[w]) + float64(t.A[w])/max(should, 1)
		t.learn(w, r, should, s.gain, s.spread, w == fast && !s.held)
		if w == fast {
			s.season(0, rarely(float64(box.n)/float64(max(s.g.present, 1)), float64(box.seconds)), r/math.Sqrt(variance))
		}
	}
}

// season learns what a service does at this time of the day.
func (s *scoring) season(i int, y, z float64) { s.g.Seasons[i].see(s.m.at, y, z) }

// shares judges failed requests and lost SYNs.
func (s *scoring) shares(w int) {
	for _, sig := range [...]Signal{Errors, Again} {
		t := &s.e.Track[sig]
		win := &s.e.win[w]
		if s.learn && w == mid {
			k, n := win.box.value(sig)
			t.learnShare(k, n, s.gain)
		}
		if !s.judge {
			continue
		}
		z, requests, events := 0.0, float64(win.box.n), 0.0
		if float64(win.box.v[sig]) > float64(win.box.n)*(float64(t.Base)+s.m.opt.Share) {
			k, of, ok := win.trimmed(sig)
			if over := of * (float64(t.Base) + s.m.opt.Share); ok && k > over {
				z, events = deviance(k, over)/math.Sqrt(float64(t.B[mid])), k
			}
		}
		s.rare(sig, w, z, z > 0, requests, events, mainWeight)
	}
}

// times judges the mean, the median and the slowest hundredth of the requests' times.
func (s *scoring) times(w int) {
	for i, sig := range seasonal[1:] {
		t := &s.e.Track[sig]
		x := &s.g.expected[i+1]
		v, n, ok := s.e.win[w].trimmed(sig)
		if !ok {
			continue
		}
		matters := s.matters(sig)
		value := y(sig, v, n, s.usual)
		if sig == Total {
			// The mean of few requests, of which some take very long, is mostly less
			// than that of many.
			value += min(float64(t.A[w])/(2*max(n, fewest)), 0.7)
		}
		value -= x.mean
		r := value - float64(t.Base)
		s.judged(sig, w, r, matters, x.worse, n, x.burst, mainWeight)
		if w == mid && s.g.Seasons[i+1].Days >= enoughDays && s.e.Known > enoughDays*daySeconds {
			s.judged(sig, slow, value-float64(t.Anchor), matters, x.worse, n, 0, mainWeight)
		}
		if !s.learn {
			continue
		}
		variance := float64(t.B[w]) + float64(t.A[w])/max(n, 1)
		t.learn(w, r, n, s.gain, s.spread, w == fast && !s.held)
		switch {
		case w == mid:
			t.learnSlow(value, midPiece/learnEvery, s.e.Known <= 1)
		case s.e.whole:
			s.season(i+1, value+x.mean, r/math.Sqrt(variance))
		}
	}
	if s.learn && w == fast {
		t := &s.e.Track[MinRTT]
		if v, n := s.e.win[w].box.value(MinRTT); n > 0 {
			t.learn(fast, v/n-float64(t.Base), 1, s.gain, s.spread, true)
		}
	}
}

// matters is the smallest deviation of a signal of times that matters, in the form
// in which it is judged. All of them stand for the same time that is added to the
// mean of all requests: the tail, which is but Share of the requests, must take as
// much longer as makes up for that.
func (s *scoring) matters(sig Signal) float64 {
	o := &s.m.opt
	t := &s.e.Track
	switch sig {
	case Total:
		return math.Log1p(o.Time)
	case P50:
		return math.Log1p(o.Time * s.usual / math.Exp(float64(t[P50].Base)+s.g.mean(P50)))
	}
	tail := float64(t[P99].Base) + s.g.mean(P99)
	p99 := math.Exp(float64(t[P50].Base) + s.g.mean(P50) + tail*spread(100))
	return math.Log1p(o.Time/o.Share*s.usual/p99) / spread(100)
}

// parts judges what the requests spend their time with.
func (s *scoring) parts(w int) {
	win := &s.e.win[w]
	if win.box.n < fewest {
		return
	}
	unit := 1 / (partUnit * s.usual)
	lift := s.m.opt.Time / partUnit // the smallest effect, in units of partUnit of the usual time
	ofNone := math.Log1p(lift)      // where there is usually nothing, as of most parts
	for sig := firstPart; sig < Loss; sig++ {
		t := &s.e.Track[sig]
		// Without its worst pieces it is less.
		if 1+float64(win.box.v[sig]/win.box.n)*unit <= float64(t.limit)+lift && !s.learn {
			continue
		}
		v, n, ok := win.trimmed(sig)
		if !ok {
			return
		}
		r := math.Log1p(max(v/n, 0)*unit) - float64(t.Base)
		told := n
		if sig == PartSignal(observe.Retrans) {
			told = float64(win.box.v[Loss]) // each tells of one request
		}
		s.few = max(perRequest*told, 0.01)
		matters := ofNone
		if t.Base != 0 {
			matters = math.Log1p(lift * math.Exp(-float64(t.Base)))
		}
		s.judged(sig, w, r, matters, 0, n, 0, partWeight)
		s.few = 0
		if s.learn {
			t.learn(w, r, n, s.gain, s.spread, w == fast && !s.held)
			switch {
			case w != fast:
			case t.Base == 0:
				t.limit = 1
			default:
				t.limit = float32(math.Exp(float64(t.Base)))
			}
		}
	}
}
