package anomaly

import "math"

// scoring judges one endpoint at one step.
type scoring struct {
	m      *Model
	e      *endpoint
	g      *group
	usual  float64 // time of a request, µs
	judge  bool
	learn  bool
	class  int     // of tails: 1 when the endpoint has begun anew
	doubt  float64 // variance of what is not known well yet
	gain   float64
	spread float64
	mix    mixture
	best   Signal // that is rarest
	rarest float64
}

// judged adds what one signal says in one window: r is the deviation from the usual,
// matters the smallest deviation that matters, n the requests that it comes from.
// burst is a deviation in spreads that recurs at this time of the day.
func (s *scoring) judged(sig Signal, w int, r, matters, n, burst, weight float64) {
	t := &s.e.Track[sig]
	variance := float64(t.B[w])
	if w < slow {
		variance += float64(t.A[w]) / max(n, fewest)
	}
	tail := &s.m.tails[s.class][sig][w]
	if s.learn && s.judge {
		tail.add(r / math.Sqrt(variance))
	}
	if !s.judge || r <= matters {
		return
	}
	z := (r-matters)/math.Sqrt(variance+s.doubt) - max(burst-4, 0)
	if z > 1 {
		s.rare(sig, weight, tail.rarity(z))
	}
}

func (s *scoring) rare(sig Signal, weight, nlp float64) {
	s.mix.add(weight, nlp)
	if nlp > s.rarest {
		s.best, s.rarest = sig, nlp
	}
}

// rate judges whether requests are missing: at a service as a whole, and then at
// those of its endpoints where they are.
func (s *scoring) rate() {
	t := &s.e.Track[Rate]
	matters := -math.Log(1 - s.m.opt.Time)
	for w := fast; w <= mid; w++ {
		win := &s.e.win[w]
		x := &s.g.expected[0]
		var r, n float64
		if s.e.whole {
			n = float64(win.v[Rate])
			if n < 1 {
				continue
			}
			r = math.Log(float64(win.v[Rate]+0.1*win.seconds)/float64(win.n+0.1*win.seconds)) - float64(t.Base)
		} else {
			y, _ := win.y(Rate, 0)
			r = y - float64(t.Base) - x.mean
			n = s.e.rate(s.g) * float64(win.seconds)
		}
		if s.e.whole {
			s.judged(Rate, w, r, matters+x.worse, n, x.burst, mainWeight)
		}
		if s.learn {
			t.learn(w, r, n, s.gain, s.spread, w == fast)
			if s.e.whole && w == fast {
				s.season(0, -math.Log(float64(s.e.win[mid].n/s.e.win[mid].seconds)/float64(max(s.g.members, 1))+0.1), r/math.Sqrt(float64(t.B[w])+float64(t.A[w])/max(n, 1)))
			}
		}
	}
}

// season learns what a service does at this time of the day.
func (s *scoring) season(i int, y, z float64) { s.g.Seasons[i].see(s.m.at, y, z) }

// shares judges failed requests, lost SYNs and lost segments.
func (s *scoring) shares() {
	for _, sig := range [...]Signal{Errors, Again, Loss} {
		t := &s.e.Track[sig]
		for w := fast; w <= mid; w++ {
			k, n := s.e.win[w].count(sig)
			if n < fewest {
				continue
			}
			base := float64(t.Base)
			sd := math.Sqrt(float64(t.B[w]))
			if sig != Loss {
				tail := &s.m.tails[s.class][sig][w]
				if s.learn && s.judge {
					tail.add(deviance(k, n*base) / sd)
				}
				if over := n * (base + s.m.opt.Share); s.judge && k > over {
					if z := deviance(k, over) / sd; z > 1 {
						s.rare(sig, mainWeight, tail.rarity(z))
					}
				}
			}
			if s.learn && w == mid {
				t.learnShare(k, n, s.gain)
			}
		}
	}
}

// times judges the mean, the median and the slowest hundredth of the requests' times.
func (s *scoring) times() {
	for i, sig := range seasonal[1:] {
		t := &s.e.Track[sig]
		x := &s.g.expected[i+1]
		matters := s.matters(sig)
		for w := fast; w <= mid; w++ {
			win := &s.e.win[w]
			y, ok := win.y(sig, s.usual)
			if !ok {
				continue
			}
			n := float64(win.n)
			if sig == P99 {
				n = float64(win.tailed)
			}
			if sig == Total {
				// The mean of few requests, of which some take very long, is mostly
				// less than that of many.
				y += min(float64(t.A[w])/(2*max(n, fewest)), 0.7)
			}
			y -= x.mean
			r := y - float64(t.Base)
			s.judged(sig, w, r, matters+x.worse, n, x.burst, mainWeight)
			if s.learn {
				t.learn(w, r, n, s.gain, s.spread, w == fast)
				if s.e.whole && w == fast {
					s.season(i+1, y+x.mean, r/math.Sqrt(float64(t.B[w])+float64(t.A[w])/max(n, 1)))
				}
			}
			if w == mid {
				if s.g.Seasons[i+1].Days >= enoughDays && s.e.Known > enoughDays*daySeconds {
					s.judged(sig, slow, y-float64(t.Anchor), matters+x.worse, n, 0, mainWeight)
				}
				if s.learn {
					t.learnSlow(y, 1, s.e.Known <= 1)
				}
			}
		}
	}
	if s.learn {
		t := &s.e.Track[MinRTT]
		if y, ok := s.e.win[fast].y(MinRTT, 0); ok {
			t.learn(fast, y-float64(t.Base), 1, s.gain, s.spread, true)
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
func (s *scoring) parts() {
	unit := 1 / (partUnit * s.usual)
	lift := s.m.opt.Time / partUnit // the smallest effect, in units of partUnit of the usual time
	for sig := firstPart; sig < Loss; sig++ {
		t := &s.e.Track[sig]
		for w := fast; w <= mid; w++ {
			win := &s.e.win[w]
			if win.n < fewest {
				continue
			}
			x := max(float64(win.v[sig]/win.n)*unit, 0)
			above := 1+x > float64(t.limit)+lift
			if !above && !s.learn {
				continue
			}
			r := math.Log1p(x) - float64(t.Base)
			s.judged(sig, w, r, math.Log1p(lift*math.Exp(-float64(t.Base))), float64(win.n), 0, partWeight)
			if s.learn {
				t.learn(w, r, float64(win.n), s.gain, s.spread, w == fast)
			}
		}
		if s.learn {
			t.limit = float32(math.Exp(float64(t.Base)))
		}
	}
}
