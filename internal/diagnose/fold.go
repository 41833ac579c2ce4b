package diagnose

import (
	"cmp"
	"slices"

	"github.com/slowray/slowray/internal/cause"
)

// declarations are the catalogue by cause.
type declarations map[cause.ID]*cause.Cause

func declared(catalogue []cause.Cause) declarations {
	d := make(declarations, len(catalogue))
	for i := range catalogue {
		if c := &catalogue[i]; d[c.ID] == nil {
			d[c.ID] = c
		}
	}
	return d
}

// fold marks findings that follow from another finding. A cause declares what
// it may follow from; a check may have named its parent by itself, from
// evidence; and what was measured may rule a parent out.
func fold(v *cause.View, findings []cause.Finding, catalogue []cause.Cause) {
	known := declared(catalogue)
	all := sortFindings(findings, known)
	parents := make([]int, len(findings)) // -1 where there is none
	for i := range findings {
		v.Step()
		f := &findings[i]
		parents[i] = -1
		c := known[f.Cause]
		switch {
		case f.ConsequenceOf != nil:
			parents[i] = all.named(i)
		case c != nil && c.Folds:
			parents[i] = all.parentFor(v, i, c)
		}
	}
	for i := range findings {
		findings[i].ConsequenceOf = nil
	}
	uncircle(parents, findings, known)
	for i := range findings {
		if parents[i] < 0 {
			continue
		}
		root := parents[i]
		// A parent that is a consequence itself: point to the root.
		for parents[root] >= 0 && findings[parents[root]].Cause != findings[i].Cause {
			root = parents[root]
		}
		id := findings[root].Cause // not its address: the findings will be sorted
		findings[i].Role, findings[i].ConsequenceOf = cause.RoleConsequence, &id
		v.Gain(&findings[root], &findings[i])
	}
}

// sorted are findings by their cause, in the order in which they are reported where
// costs compare: of those that another one may follow from the first one counts.
type sorted struct {
	findings []cause.Finding
	known    declarations
	causes   []cause.ID         // that were found
	by       map[cause.ID][]int // by cause
	heaviest map[inPlace][]int  // by cause and network namespace, or by cause alone, the heaviest first
}

// inPlace is a cause in a network namespace, or anywhere.
type inPlace struct {
	cause    cause.ID
	netns    uint64
	anywhere bool
}

func sortFindings(findings []cause.Finding, known declarations) *sorted {
	s := &sorted{findings: findings, known: known, by: map[cause.ID][]int{}, heaviest: map[inPlace][]int{}}
	for i := range findings {
		f := &findings[i]
		if s.by[f.Cause] == nil {
			s.causes = append(s.causes, f.Cause)
		}
		s.by[f.Cause] = append(s.by[f.Cause], i)
		for _, at := range [...]inPlace{{f.Cause, f.Subject.NetNS, false}, {f.Cause, 0, true}} {
			s.heaviest[at] = append(s.heaviest[at], i)
		}
	}
	for _, list := range s.by {
		slices.SortStableFunc(list, func(a, b int) int { return before(&findings[a], &findings[b], known) })
	}
	for _, list := range s.heaviest {
		slices.SortStableFunc(list, func(a, b int) int { return cmp.Compare(findings[b].Weight, findings[a].Weight) })
	}
	return s
}

// named is the finding that one itself names as its parent: the heaviest in its
// place, or anywhere; -1 when that cause was not found.
func (s *sorted) named(of int) int {
	f := &s.findings[of]
	for _, at := range [...]inPlace{{*f.ConsequenceOf, f.Subject.NetNS, false}, {*f.ConsequenceOf, 0, true}} {
		for _, i := range s.heaviest[at] {
			if i != of {
				return i
			}
		}
	}
	return -1
}

// parentFor picks the heaviest cause that a finding may follow from: one that its
// declaration, and the finding itself, allow, that was found where it was, and
// that what was measured does not rule out. -1 when there is none.
func (s *sorted) parentFor(v *cause.View, of int, c *cause.Cause) int {
	f, best := &s.findings[of], -1
	may := v.Reasons(f)
	for _, id := range s.causes {
		if p := s.known[id]; p == nil || !c.FollowsFrom(p) || !f.MayComeOf(p) {
			continue
		}
		for _, i := range s.by[id] {
			v.Step()
			p := &s.findings[i]
			if best >= 0 && before(p, &s.findings[best], s.known) >= 0 {
				break // nor are those after it
			}
			if i != of && (f.MayFollow != nil && f.MayFollow(p) || f.MayFollow == nil && s.samePlace(f, p)) && may(p) {
				best = i
				break
			}
		}
	}
	return best
}

// samePlace says whether two findings concern the same network namespace, or
// the second one the whole machine.
func (s *sorted) samePlace(f, p *cause.Finding) bool {
	c := s.known[p.Cause]
	return c != nil && c.Layer == cause.LayerMachine || f.Subject.NetNS == p.Subject.NetNS
}

// uncircle sees to it that no finding follows from itself: of those that seem to
// follow from each other, the one that is reported first is a cause.
func uncircle(parents []int, findings []cause.Finding, known declarations) {
	for i := range parents {
		at, seen := i, map[int]bool{}
		for at >= 0 && !seen[at] {
			seen[at] = true
			at = parents[at]
		}
		if at < 0 {
			continue
		}
		first := at
		for next := parents[at]; next != at; next = parents[next] {
			if before(&findings[next], &findings[first], known) < 0 {
				first = next
			}
		}
		parents[first] = -1
	}
}
