package simulate

import "github.com/slowray/slowray/internal/fleet"

// sampled is how many seconds of a step of history are made, to stand for all of it.
const sampled = 3

// History gives what each endpoint did in steps of so many seconds, from until, as an
// archive would: some seconds of each step are made and stand for the others.
func (f *Fleet) History(from, until int64, seconds int, add func(*fleet.Point)) {
	sums := map[fleet.Key]*fleet.Point{}
	var order []*fleet.Point
	for at := from; at < until; at += int64(seconds) {
		for _, p := range order {
			*p = fleet.Point{Key: p.Key}
		}
		n := min(sampled, seconds)
		for i := range n {
			f.Second(at+int64(i*seconds/n), func(p *fleet.Point) {
				s := sums[p.Key]
				if s == nil {
					s = &fleet.Point{Key: p.Key}
					sums[p.Key] = s
					order = append(order, s)
				}
				addPoint(s, p)
			})
		}
		k := uint64(seconds / n)
		for _, p := range order {
			if p.Requests == 0 {
				continue
			}
			p.P50US /= int64(p.Requests)
			p.P99US /= int64(p.Requests)
			p.At, p.Seconds = at, seconds
			p.Requests *= k
			p.Errors *= k
			p.Segments *= k
			p.Retrans *= k
			p.SynAgain *= k
			p.TotalUS *= int64(k)
			for i := range p.PartsUS {
				p.PartsUS[i] *= int64(k)
			}
			for i := range p.SplitUS {
				p.SplitUS[i] *= int64(k)
			}
			add(p)
		}
	}
}

// addPoint adds a second; the quantiles are weighted with the requests.
func addPoint(s, p *fleet.Point) {
	s.Requests += p.Requests
	s.Errors += p.Errors
	s.Segments += p.Segments
	s.Retrans += p.Retrans
	s.SynAgain += p.SynAgain
	s.TotalUS += p.TotalUS
	for i := range p.PartsUS {
		s.PartsUS[i] += p.PartsUS[i]
	}
	for i := range p.SplitUS {
		s.SplitUS[i] += p.SplitUS[i]
	}
	s.P50US += p.P50US * int64(p.Requests)
	s.P99US += p.P99US * int64(p.Requests)
	if s.MinRTTUS == 0 || p.MinRTTUS < s.MinRTTUS {
		s.MinRTTUS = p.MinRTTUS
	}
}

// Resume goes on where another fleet of the same options is: with what wanders, not
// with what is injected.
func (f *Fleet) Resume(o *Fleet) {
	f.demand.x = o.demand.x
	for i, s := range f.services {
		s.wander.x = o.services[i].wander.x
	}
	for i, e := range f.all {
		e.wander.x = o.all[i].wander.x
	}
}
