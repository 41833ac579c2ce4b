package diagnose

import (
	"cmp"
	"slices"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
)

// Judged is a window and what was found in it.
type Judged struct {
	Start, End time.Time
	Findings   []cause.Finding
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
func Onset(f *cause.Finding, start time.Time) (at time.Time, known bool) {
	into := cmp.Or(f.Began, f.Asked)
	if into == nil {
		return start, false
	}
	return start.Add(time.Duration(*into * float64(time.Second))), true
}

// Apart is how much time may pass between two windows that are next to each
// other: they take a moment to be put together. After more nobody knows what
// was in between.
const Apart = time.Minute

// Trace looks in windows that were judged before, in the order of time and no further from each other
// than apart, for when those findings of a report began of which its own windows do not tell.
func (r *Report) Trace(earlier []Judged, apart time.Duration) {
	for i := range r.Findings {
		f := &r.Findings[i]
		start, known := Onset(f, r.Window.Start)
		if o := f.Over; o != nil {
			start, known = o.Onset, !o.Before
		}
		if known {
			continue
		}
		since, seen := trace(f, start, earlier, apart)
		switch {
		case f.Over != nil:
			f.Over.Onset, f.Over.Before = since.At, since.Before
		case seen:
			f.Since = &since
		}
	}
}

// trace follows what was there when a window began, or what followed from it, back through those
// before it; seen is false where none of them has it: then it began at some time of its window.
func trace(f *cause.Finding, start time.Time, earlier []Judged, apart time.Duration) (since observe.Since, seen bool) {
	known := declared(cause.Catalogue())
	same := func(g cause.Finding) bool { return IdentityOf(&g) == IdentityOf(f) }
	from := func(g cause.Finding) bool { return mayFollow(&g, known) && follows(&g, f, known) }
	since = observe.Since{At: start, Before: true}
	for _, w := range slices.Backward(earlier) {
		if !w.Start.Before(start) {
			continue
		}
		if start.Sub(w.End) > apart || !since.Before {
			break
		}
		k := slices.IndexFunc(w.Findings, same)
		if k < 0 {
			k = slices.IndexFunc(w.Findings, from)
		}
		if k < 0 {
			since.Before = false
			break
		}
		seen, start = true, w.Start
		at, told := Onset(&w.Findings[k], w.Start)
		since = observe.Since{At: at, Before: !told}
	}
	return since, seen
}
