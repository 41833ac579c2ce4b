package cause

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/slowray/slowray/internal/observe"
)

// Recurs adds to a finding when the slow requests that it is about were hit, where that
// was for a short time only: once, or again and again. Whoever looks for what else
// happens then needs the clock, and the interval.
func (v *View) Recurs(f *Finding) {
	var of *ledger
	for _, l := range v.stake(f) {
		if of == nil || l.SlowTotalNS()*float64(l.SlowCount) > of.SlowTotalNS()*float64(of.SlowCount) {
			of = l
		}
	}
	if of == nil {
		return
	}
	if text := of.bursts(v.Window.Start.UnixNano(), v.Window.Seconds); text != "" {
		f.Evidence = append(f.Evidence, Evidence{Fact: "when the slow requests on " + of.name() + " were in progress", Value: text, Source: recorded})
	}
}

// burst is a time in which slow requests were in progress, ns since 1970.
type burst struct{ from, to int64 }

func burstOf(s *observe.RequestSample) burst { return burst{s.StartNS, s.StartNS + s.TotalNS} }

// joined makes one of bursts that are no more than gap ns apart, in their order.
func joined(all []burst, gap int64) (list []burst) {
	slices.SortFunc(all, func(a, b burst) int { return cmp.Compare(a.from, b.from) })
	for _, b := range all {
		if n := len(list); n > 0 && b.from <= list[n-1].to+gap {
			list[n-1].to = max(list[n-1].to, b.to)
			continue
		}
		list = append(list, b)
	}
	return list
}

// bursts tells when the slowest requests of an endpoint were in progress; empty where they
// are spread over the window, or where more requests are slow than came then.
func (l *ledger) bursts(start int64, window float64) string {
	usual := l.Total.Quantile(0.5)
	least := max(int64(slowerThan*float64(usual)), usual+int64(threadFloor.slow))
	var all []burst
	seen := 0
	for i := range l.Slowest {
		if s := &l.Slowest[i]; s.TotalNS > least && len(l.LongestUS) == 0 {
			all = append(all, burstOf(s))
			seen++
		}
	}
	for i, us := range l.LongestUS { // of all slow requests, not of the slowest
		if ns := int64(us) * 1000; ns > least {
			from := start + int64(float64(i)*arrivalSlot*1e9)
			all = append(all, burst{from, from + ns})
			seen = int(l.Total.Above(least))
		}
	}
	list := joined(all, burstGap)
	var taken float64
	var longest int64
	came := 0.0
	for _, b := range list {
		came += l.came(b.from-start, b.to-start)
		taken += float64(b.to-b.from) / 1e9
		longest = max(longest, b.to-b.from)
	}
	if float64(l.Total.Above(least)) > came || seen < fewInBursts || seen < 2*len(list) || taken > burstShare*window || l.arriving() < 2*burstShare {
		return ""
	}
	into := nanoseconds(float64(max(list[0].from-start, 0)))
	if len(list) == 1 {
		return fmt.Sprintf("within %s only, %s into the window", nanoseconds(float64(longest)), into)
	}
	text := fmt.Sprintf("%d times, for up to %s each", len(list), nanoseconds(float64(longest)))
	if between, regular := interval(list); regular {
		text += ", once each " + nanoseconds(between)
	}
	return text + ", the first " + into + " into the window"
}

// came is how many requests began in a part of the window, in ns of it.
func (l *ledger) came(from, to int64) float64 {
	n := 0.0
	for i, requests := range l.Arrivals {
		if at := int64(float64(i) * arrivalSlot * 1e9); at+int64(arrivalSlot*1e9) > from && at <= to {
			n += float64(requests)
		}
	}
	return n
}

// interval is the time from one burst to the next, and whether it is always about the same.
func interval(list []burst) (mean float64, regular bool) {
	var least, most int64
	for i := 1; i < len(list); i++ {
		gap := list[i].from - list[i-1].from
		if i == 1 {
			least = gap
		}
		least, most = min(least, gap), max(most, gap)
	}
	mean = float64(list[len(list)-1].from-list[0].from) / float64(len(list)-1)
	return mean, len(list) > 2 && float64(most-least) <= burstRegular*mean
}

// arriving is the share of the window in which requests began, 0 to 1.
func (l *ledger) arriving() float64 {
	n := 0
	for i := 0; i < len(l.Arrivals); i += arrivalsEach {
		if slices.ContainsFunc(l.Arrivals[i:min(i+arrivalsEach, len(l.Arrivals))], func(n uint32) bool { return n > 0 }) {
			n += arrivalsEach
		}
	}
	return ratio(n, len(l.Arrivals))
}
