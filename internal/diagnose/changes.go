package diagnose

import (
	"slices"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
)

// Change is what was changed on the host lately. It is reported next to the
// findings, and is none.
type Change struct {
	Kind observe.ChangeKind `json:"kind"`
	What string             `json:"what"`
	Path string             `json:"path,omitempty"`
	PID  int                `json:"pid,omitempty"`
	Comm string             `json:"comm,omitempty"`
	// At and Before are missing where it is not known when it was changed. Before
	// is negative for what was changed afterwards.
	At         *time.Time `json:"at,omitempty"`
	Before     *float64   `json:"seconds_before,omitempty"`
	RelativeTo string     `json:"relative_to,omitempty"` // "onset": the first slow request of the window; "end" of the window
}

// changes puts times into relation to when the trouble began, or to the end of
// the window.
func changes(v *cause.View, found bool) []Change {
	out := make([]Change, 0, len(v.Changes))
	from, relative := v.Window.Start.Add(time.Duration(v.Window.Seconds*float64(time.Second))), "end"
	if onset, ok := onsetOf(v); ok && found {
		from, relative = onset, "onset"
	}
	for _, c := range v.Changes {
		if elsewhere(v, c.PID) {
			continue
		}
		change := Change{Kind: c.Kind, What: c.What, Path: c.Path, PID: c.PID, Comm: c.Comm}
		if !c.At.IsZero() {
			at, before := c.At, from.Sub(c.At).Round(time.Second).Seconds()
			change.At, change.Before, change.RelativeTo = &at, &before, relative
		}
		out = append(out, change)
	}
	return out
}

// elsewhere says that a process is in another network namespace than the services that were
// asked about, and those that they call.
func elsewhere(v *cause.View, pid int) bool {
	p := v.Process(pid)
	return v.Filter != observe.Filter{} && p != nil && p.NetNS != 0 && len(v.Services) > 0 &&
		!slices.ContainsFunc(v.Services, func(s *cause.Service) bool { return s.NS != nil && s.NS.Inode == p.NetNS })
}

const (
	onsetAfter  = time.Second // of the window: what was slow from its beginning began before
	onsetBefore = 0.1         // of the requests came before it, and were quick
	onsetSlow   = 2           // times the median
)

// onsetOf is when the first slow request of the window began, where a good part
// of the requests before it were quick.
func onsetOf(v *cause.View) (time.Time, bool) {
	var first time.Time
	for _, e := range v.Ledgers() {
		if e.Side != observe.Served.String() {
			continue
		}
		for i := range e.Slowest {
			s := &e.Slowest[i]
			if at := time.Unix(0, s.StartNS); s.TotalNS >= onsetSlow*e.Total.Quantile(0.5) && (first.IsZero() || at.Before(first)) {
				first = at
			}
		}
	}
	into := first.Sub(v.Window.Start)
	if first.IsZero() || into < onsetAfter || into.Seconds() > v.Window.Seconds {
		return first, false
	}
	const slot = 100 * time.Millisecond // of Endpoint.Arrivals
	var before, all uint64
	for _, e := range v.Ledgers() {
		for i, n := range e.Arrivals {
			if all += uint64(n); time.Duration(i)*slot < into {
				before += uint64(n)
			}
		}
	}
	return first, float64(before) >= onsetBefore*float64(all) && before > 0
}
