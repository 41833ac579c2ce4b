package cause

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// floor is the time in a part below which nobody cares, in ns a request.
type floor struct{ mean, slow float64 }

// A machine that is at work delays threads by some milliseconds now and then;
// on the wire nothing does so for no reason.
var (
	wireFloor   = floor{mean: 2e6, slow: 20e6}
	threadFloor = floor{mean: 10e6, slow: 50e6}
)

// cost is what some parts take of an endpoint's time.
type cost struct {
	share, slowShare float64 // of the time of all requests, of the slowest ones
	ns, slowNS       float64 // a request, one of the slowest
	usual            float64 // median, ns
}

// cost adds up what parts take, scaled to the fraction of them that is meant.
func (l *ledger) cost(fraction float64, parts ...observe.Part) cost {
	var c cost
	for _, p := range parts {
		stats := l.Parts[p.String()]
		c.ns += l.MeanNS(p) * fraction
		c.slowNS += l.SlowNS(p) * fraction
		c.usual += float64(stats.Hist.Quantile(0.5))
	}
	c.share = ratio(c.ns*float64(l.Requests), l.TimeNS())
	c.slowShare = ratio(c.slowNS, l.SlowTotalNS())
	return c
}

// always says that requests in general pay the cost, noticeably.
func (l *ledger) always(c cost, f floor) bool {
	return l.Requests >= fewRequests && c.share >= dominantShare && c.ns >= f.mean
}

// atTimes says that the slowest requests are slow because of the cost.
func (l *ledger) atTimes(c cost, f floor) bool {
	return l.records() >= tailRequests && c.slowShare >= dominantShare && c.slowNS >= f.slow &&
		l.SlowTotalNS() >= slowerThan*float64(l.Total.Quantile(0.5)) && c.slowNS >= unusual*c.usual
}

// wasted says that a part which does nobody any good takes time that could do
// so, in requests that each lose much by it. They need not be a hundredth.
func (l *ledger) wasted(c cost, f floor, p observe.Part) bool {
	stats := l.Parts[p.String()]
	return l.records() >= fewRequests && c.share >= wasteShare && l.enough(stats.Hist.Above(int64(f.slow)))
}

func (l *ledger) noticed(c cost, f floor) bool { return l.always(c, f) || l.atTimes(c, f) }

// records is how many requests have a record of their own: as many witnesses
// there are of what only records tell.
func (l *ledger) records() uint64 {
	if l.Recorded == 0 {
		return l.Requests
	}
	return min(l.Recorded, l.Requests)
}

// enough says that n requests are more than an accident. A record that stands
// for many requests is one witness.
func (l *ledger) enough(n uint64) bool {
	return n >= fewAffected && float64(n)*ratio(l.records(), l.Requests) >= fewAffected-0.5
}

// affected is how many requests carry one of these flags.
func (l *ledger) affected(flags ...observe.RequestFlags) uint64 {
	if len(l.Flags) == 0 {
		return 0
	}
	var n uint64
	for _, f := range flags {
		for _, name := range f.Names() {
			n += min(l.Flags[name], l.Requests)
		}
	}
	return min(n, l.Requests) // of sampled records the sum may be above the count
}

// whose is the fraction of the slowest requests' time in a part that was spent
// by requests with one of these flags; without examples of such requests, the
// fraction of the requests that have one of them among those with any flag of
// all.
func (l *ledger) whose(p observe.Part, all observe.RequestFlags, flags ...observe.RequestFlags) float64 {
	var names []string
	for _, f := range flags {
		names = append(names, f.Names()...)
	}
	var with, sum float64
	for i := range l.Slowest {
		s := &l.Slowest[i]
		ns := float64(max(s.Parts[p.String()], 0))
		sum += ns
		if slices.ContainsFunc(names, func(name string) bool { return slices.Contains(s.Flags, name) }) {
			with += ns
		}
	}
	if sum > 0 {
		return ratio(with, sum)
	}
	return ratio(l.affected(flags...), l.affected(all))
}

func hasFlag(s *observe.RequestSample, f observe.RequestFlags) bool {
	return slices.ContainsFunc(f.Names(), func(name string) bool { return slices.Contains(s.Flags, name) })
}

// flagged goes over the samples that have a flag.
func flagged(list []observe.RequestSample, f observe.RequestFlags) iter.Seq[*observe.RequestSample] {
	return func(yield func(*observe.RequestSample) bool) {
		for i := range list {
			if hasFlag(&list[i], f) && !yield(&list[i]) {
				return
			}
		}
	}
}

// greatest says whether a part is the greatest of a request.
func greatest(s *observe.RequestSample, p observe.Part) bool {
	for _, q := range observe.Parts() {
		if s.Parts[q.String()] > s.Parts[p.String()] {
			return false
		}
	}
	return s.Parts[p.String()] > 0
}

// whereTimeGoes tells an endpoint's slow time by part, the greatest first.
func (l *ledger) whereTimeGoes() string { return once(&l.words.where, l.timeByPart) }

func (l *ledger) timeByPart() string {
	parts := observe.Parts()
	slices.SortStableFunc(parts, func(a, b observe.Part) int { return cmp.Compare(l.SlowNS(b), l.SlowNS(a)) })
	var told []string
	for _, p := range parts[:3] {
		if s := l.SlowShare(p); s >= 0.05 {
			told = append(told, p.String()+" "+percent(s))
		}
	}
	if len(told) == 0 {
		return l.all()
	}
	return fmt.Sprintf("%s take %s: %s", l.slowest(), nanoseconds(l.SlowTotalNS()), strings.Join(told, ", "))
}

// slowest names the slowest requests.
func (l *ledger) slowest() string {
	return once(&l.words.slowest, func() string {
		if l.SlowCount*50 > l.Requests {
			return fmt.Sprintf("the slowest %s of %s", count(l.SlowCount), l.all())
		}
		return "the slowest 1 % of " + l.all()
	})
}
