package diagnose

import (
	"slices"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
)

// Across says which findings of windows next to each other follow from which, where the windows
// themselves could not: one that has only the beginning of a service, or its end, may not have
// what tells the cause. The cause of the first declares that it may follow from the other's, or
// is not known, and both are about one service; near says that their windows are such. roots has
// the place of what each follows from, the heaviest, or -1.
func Across[T any](list []T, of func(T) *cause.Finding, near func(f, p T) bool) (roots []int) {
	known := declared(cause.Catalogue())
	roots = make([]int, len(list))
	for i, x := range list {
		roots[i] = -1
		f := of(x)
		if !mayFollow(f, known) {
			continue
		}
		for j, y := range list {
			if p := of(y); follows(f, p, known) && near(x, y) && (roots[i] < 0 || before(p, of(list[roots[i]]), known) < 0) {
				roots[i] = j
			}
		}
	}
	for i := range roots { // of what follows from each other, the first is a cause
		if j := roots[i]; j >= 0 && roots[j] >= 0 {
			roots[j] = -1
		}
	}
	return roots
}

// mayFollow says of a finding that is a cause of its window whether it may follow from something.
func mayFollow(f *cause.Finding, known declarations) bool {
	c := known[f.Cause]
	return f.Role == cause.RoleCause && f.Subject.Port != 0 && (c != nil && c.Folds || f.Cause == cause.Unexplained)
}

// follows says whether it may follow from p, a cause of another window.
func follows(f, p *cause.Finding, known declarations) bool {
	c, d := known[f.Cause], known[p.Cause]
	switch {
	case d == nil || p.Role != cause.RoleCause:
		return false
	case f.Cause == cause.Unexplained:
		return p.Cause != f.Cause && p.Spoils(&f.Subject)
	}
	a, b := &f.Subject, &p.Subject
	same := p.Spoils(a) || a.Port == b.Port && (a.NetNS == b.NetNS || a.Addr != "" && a.Addr == b.Addr)
	return same && c.FollowsFrom(d) && f.MayComeOf(d)
}

// Unfolded says that something was found that a window next to this one may name the cause of.
func (r *Report) Unfolded() bool {
	known := declared(cause.Catalogue())
	return slices.ContainsFunc(r.Findings, func(f cause.Finding) bool { return mayFollow(&f, known) })
}

// Explain adds to the report of a window what a window next to it names as the cause of what was
// found, with the figures of that one, and says so. Both are reports of one window.
func (r *Report) Explain(next *Report) {
	type found struct {
		*cause.Finding
		next bool
	}
	var list []found
	have := map[Identity]bool{}
	for i := range r.Findings {
		list = append(list, found{&r.Findings[i], false})
		have[IdentityOf(&r.Findings[i])] = true
	}
	for i := range next.Findings {
		if f := next.Findings[i]; !have[IdentityOf(&f)] {
			list = append(list, found{&f, true})
		}
	}
	roots := Across(list, func(x found) *cause.Finding { return x.Finding }, func(f, p found) bool { return !f.next && p.next })
	named := map[string]bool{}
	for i, j := range roots {
		if j < 0 {
			continue
		}
		f, p := list[i].Finding, list[j].Finding
		if p.Over == nil { // what it cost in this window is what follows from it did
			onset, known := Onset(f, r.Window.Start)
			end := next.end()
			if at, told := Onset(p, next.Window.Start); at.Before(onset) {
				onset, known, end = at, told, r.end()
			}
			p.Weight, p.Impact.Cost = f.Weight, f.Impact.Cost
			p.Over = &observe.Over{Onset: onset, Before: !known, End: end, Windows: 1, Of: 2, Worst: next.Window.Start}
			named[string(p.Cause)] = true
		}
		p.Weight = max(p.Weight, f.Weight)
		id := p.Cause
		f.Role, f.ConsequenceOf = cause.RoleConsequence, &id
	}
	for _, x := range list {
		if x.next && x.Over != nil {
			r.Findings = append(r.Findings, *x.Finding)
		}
	}
	unnamed := func(e Excluded) bool { return named[e.Cause] }
	r.RuledOut, r.NotChecked = slices.DeleteFunc(r.RuledOut, unnamed), slices.DeleteFunc(r.NotChecked, unnamed)
	r.settle()
	r.Findings = rank(r.Findings, cause.Catalogue())
}

// settle ends what a cause that another window tells changes: what suffered from an unknown cause
// no longer does, and what followed from a consequence follows from its root.
func (r *Report) settle() {
	known := func(f cause.Finding) bool { return f.Cause == cause.Unexplained && f.Role == cause.RoleConsequence }
	r.Account.Victims = slices.Clone(r.Account.Victims)
	for i := range r.Findings {
		f := &r.Findings[i]
		if !known(*f) || f.Impact.Cost == nil {
			continue
		}
		for j := range r.Account.Victims {
			if x := &r.Account.Victims[j]; x.NetNS == f.Subject.NetNS && x.Port == f.Subject.Port {
				more := min(*f.Impact.Cost, x.Lost-x.Explained)
				x.Explained, r.Account.Explained = x.Explained+more, r.Account.Explained+more
			}
		}
	}
	r.Findings = slices.DeleteFunc(r.Findings, known)
	rooted(r.Findings)
}

// end is when the window of a report ended.
func (r *Report) end() time.Time {
	return r.Window.Start.Add(time.Duration(r.Window.Seconds * float64(time.Second)))
}
