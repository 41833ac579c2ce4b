package diagnose

import (
	"cmp"
	"slices"
	"time"

	"github.com/slowray/slowray/internal/cause"
)

// Judged is a window and what was found in it.
type Judged struct {
	Start, End time.Time
	Findings   []cause.Finding
}

// Episode is a cause on a subject over windows next to each other: one finding.
type Episode struct {
	cause.Finding           // of the window where it weighs most
	Onset         time.Time // when it began in the first window that has it, or the beginning of that
	End           time.Time // the end of the last one
	Windows       int       // that have it
	Last          int       // which window was the last one, by its place in the list
}

// Identity says which findings of different windows are one: those of equal
// identity.
type Identity struct {
	cause   cause.ID
	subject cause.Subject
}

// IdentityOf is a finding's cause and subject. A service that is known by its
// port may have got another process, and a workload another pod.
func IdentityOf(f *cause.Finding) Identity {
	id := Identity{f.Cause, replicated(f.Subject)}
	if id.subject.Port != 0 {
		id.subject.PID = 0
	}
	return id
}

// Onset is when a finding of a window that begins at start began: no later than then where
// that is not known, and not before anybody asked.
func Onset(f *cause.Finding, start time.Time) time.Time {
	into := cmp.Or(f.Began, f.Asked)
	if into == nil {
		return start
	}
	return start.Add(time.Duration(*into * float64(time.Second)))
}

// Apart is how much time may pass between two windows that are next to each
// other: they take a moment to be put together. After more nobody knows what
// was in between.
const Apart = time.Minute

// Episodes joins the findings of windows, which are given in the order of time:
// the same cause on the same subject in windows next to each other is one. They
// are in the order of their onset, and then of their weight.
func Episodes(windows []Judged) []Episode {
	var all []Episode
	open := map[Identity]int{} // episode
	for w := range windows {
		if w > 0 && windows[w].Start.Sub(windows[w-1].End) > Apart {
			clear(open)
		}
		for i := range windows[w].Findings {
			f := &windows[w].Findings[i]
			at, known := open[IdentityOf(f)]
			if !known || all[at].Last < w-1 {
				open[IdentityOf(f)] = len(all)
				all = append(all, Episode{Finding: *f, Onset: Onset(f, windows[w].Start), End: windows[w].End, Windows: 1, Last: w})
				continue
			}
			e := &all[at]
			if e.Last < w {
				e.Windows, e.Last, e.End = e.Windows+1, w, windows[w].End
			}
			if f.Weight > e.Weight {
				e.Finding = *f
			}
		}
	}
	slices.SortStableFunc(all, func(a, b Episode) int {
		return cmp.Or(a.Onset.Compare(b.Onset), cmp.Compare(b.Weight, a.Weight))
	})
	return all
}
