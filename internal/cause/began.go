package cause

import (
	"slices"

	"github.com/slowray/slowray/internal/observe"
)

// Began is when the requests that a finding is about began to suffer, in seconds
// into the window: the first slow or failed one, or the first look that found threads waiting
// for what holds them up. It is nil where it began before the window or where that is not known:
// quick requests must have come before it, for longer than any came later between two slow ones,
// and the slow ones have most of what it costs: where all requests suffer, some are slower by accident.
func (v *View) Began(f *Finding) *float64 {
	at, start := v.stake(f), v.Window.Start.UnixNano()
	var all []burst
	var hit uint64
	var ns float64
	for _, l := range at {
		least := l.slowFrom()
		slow, n, whole := l.slowTimes(start, least)
		ns += l.timeFrom(least)
		if !f.Impact.OfTime { // what fails at once, now and then, is none of what is slow
			whole, n = whole && l.failedRequests() <= uint64(len(l.Failed)), n+uint64(len(l.Failed))
			for i := range l.Failed {
				slow = append(slow, burstOf(&l.Failed[i]))
			}
		}
		if !whole {
			return nil
		}
		all, hit = append(all, slow...), hit+n
	}
	if c := f.Impact.Cost; c != nil && f.Impact.OfTime && ns < dominantShare**c*1e9 && len(all) > 0 {
		return nil
	}
	if f.firstNS > 0 {
		all = append(all, burst{start + f.firstNS, start + f.firstNS})
	}
	if all = joined(all, 0); len(all) == 0 || f.firstNS == 0 && hit < fewInBursts {
		return nil
	}
	into, quiet := round(float64(all[0].from-start)/1e9), 0.0
	for i := range all[1:] {
		quiet = max(quiet, float64(all[i+1].from-all[i].to)/1e9)
	}
	if into < max(beganAfter, beganQuiet*quiet) || into > v.Window.Seconds {
		return nil
	}
	var before, requests uint64
	for _, l := range at {
		for i, n := range l.Arrivals {
			if requests += uint64(n); float64(i+1)*arrivalSlot <= into {
				before += uint64(n)
			}
		}
	}
	if before == 0 || float64(before) < beganBefore*float64(requests) {
		return nil
	}
	return &into
}

// slowFrom is from when on a request is slow, in ns: like the slowest, and next to the quickest.
func (l *ledger) slowFrom() int64 {
	return max(int64(l.SlowTotalNS()/2), int64(beganSlow*l.Total.Quantile(beganBefore/2)))
}

// timeFrom is the time of all requests that took so long, in ns.
func (l *ledger) timeFrom(least int64) (ns float64) {
	for t, n := range l.Total.Buckets() {
		if t >= least {
			ns += float64(t) * float64(n)
		}
	}
	return ns * max(1, ratio(l.Requests, l.Total.Count())) // each record may stand for several
}

// slowTimes is when requests were in progress that took so long, and how many did; whole is false
// where only some of those are known.
func (l *ledger) slowTimes(start, least int64) (times []burst, n uint64, whole bool) {
	for i := range l.Slowest {
		if s := &l.Slowest[i]; s.TotalNS >= least && s.StartNS > 0 {
			times = append(times, burstOf(s))
		}
	}
	n = max(l.Total.Above(least), uint64(len(times)))
	if n == uint64(len(times)) {
		return times, n, true
	}
	for i, us := range l.LongestUS {
		if ns := int64(us) * 1000; ns >= least {
			from := start + int64(float64(i)*arrivalSlot*1e9)
			times = append(times, burst{from, from + ns})
		}
	}
	return times, n, len(l.LongestUS) > 0
}

// Asked is when the first request came to what a finding is about, in seconds into the
// window: nobody can have suffered before. It is nil where requests were in hand as the
// window began, or where that is not known.
func (v *View) Asked(f *Finding) *float64 {
	first := -1
	for _, l := range v.stake(f) {
		earlier := func(s observe.RequestSample) bool { return s.StartNS < v.Window.Start.UnixNano() }
		at := slices.IndexFunc(l.Arrivals, func(n uint32) bool { return n > 0 })
		if at < 0 || l.Earlier != nil || slices.ContainsFunc(l.Slowest, earlier) || slices.ContainsFunc(l.Failed, earlier) {
			return nil
		}
		if first < 0 || at < first {
			first = at
		}
	}
	into := float64(first) * arrivalSlot
	if into < beganAfter || into > v.Window.Seconds {
		return nil
	}
	into = round(into)
	return &into
}
