package cause

import "github.com/slowray/slowray/internal/observe"

// times are what the requests of an endpoint spend in each part, as
// observe.Endpoint has it in maps: every check asks for it.
type times struct {
	sum, slow    [observe.NumParts]float64 // ns: of all requests, of one of the slowest
	all, slowAll float64                   // without AckDelay
}

func timesOf(e *observe.Endpoint) times {
	t := times{all: e.TimeNS(), slowAll: e.SlowTotalNS()}
	for p := range observe.NumParts {
		t.sum[p], t.slow[p] = e.SumNS(p), e.SlowNS(p)
	}
	return t
}

// The methods of observe.Endpoint, without a look into its maps.

func (l *ledger) SumNS(p observe.Part) float64     { return l.times.sum[p] }
func (l *ledger) TimeNS() float64                  { return l.times.all }
func (l *ledger) Share(p observe.Part) float64     { return ratio(l.times.sum[p], l.times.all) }
func (l *ledger) SlowNS(p observe.Part) float64    { return l.times.slow[p] }
func (l *ledger) SlowTotalNS() float64             { return l.times.slowAll }
func (l *ledger) SlowShare(p observe.Part) float64 { return ratio(l.times.slow[p], l.times.slowAll) }

func (l *ledger) MeanNS(p observe.Part) float64 {
	if l.Requests == 0 {
		return 0
	}
	return l.times.sum[p] / float64(l.Requests)
}
