package cause

import (
	"slices"

	"github.com/slowray/slowray/internal/observe"
)

// Began is when the requests that a finding is about began to suffer, in seconds
// into the window, as far as that tells: the first of the slowest or failed ones that are kept, or the
// first look that found threads waiting for what holds them up. It is nil where
// it began before the window or where that is not known.
func (v *View) Began(f *Finding) *float64 {
	at := v.stake(f)
	var first int64 // ns since 1970
	for _, l := range at {
		for i := range l.Slowest {
			if s := &l.Slowest[i]; s.TotalNS >= beganSlow*l.Total.Quantile(0.5) && s.StartNS > 0 && (first == 0 || s.StartNS < first) {
				first = s.StartNS
			}
		}
		for i := range l.Failed {
			if f.Impact.OfTime {
				break // what fails at once, now and then, is none of it
			}
			if s := &l.Failed[i]; s.StartNS > 0 && (first == 0 || s.StartNS < first) {
				first = s.StartNS
			}
		}
	}
	if f.firstNS > 0 && (first == 0 || v.Window.Start.UnixNano()+f.firstNS < first) {
		first = v.Window.Start.UnixNano() + f.firstNS
	}
	into := round(float64(first-v.Window.Start.UnixNano()) / 1e9)
	if first == 0 || into < beganAfter || into > v.Window.Seconds {
		return nil
	}
	var before, all uint64
	for _, l := range at {
		for i, n := range l.Arrivals {
			if all += uint64(n); float64(i)*arrivalSlot < into {
				before += uint64(n)
			}
		}
	}
	if before == 0 || float64(before) < beganBefore*float64(all) {
		return nil
	}
	return &into
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
