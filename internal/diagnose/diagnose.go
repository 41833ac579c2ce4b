package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
)

// Diagnose judges o.
func Diagnose(o *observe.Observation) Report {
	v := cause.NewView(o)
	r := Report{
		Schema:     SchemaReport,
		Host:       ReportHost{Name: o.Host.Name, Kernel: o.Host.Kernel, CPUs: o.Host.CPUs, BootID: o.Host.BootID},
		Window:     ReportWindow{Start: o.Window.Start, Seconds: o.Window.Seconds},
		Endpoints:  endpoints(v),
		Findings:   []cause.Finding{},
		RuledOut:   []Excluded{},
		NotChecked: []Excluded{},
		Losses:     append([]observe.Loss{}, o.Losses...),
		Capture:    o.Capture,
	}
	catalogue := cause.Catalogue()
	for i := range catalogue {
		c := &catalogue[i]
		because := Unreadable(o, c.Needs)
		if because == "" {
			because = untold(o.Capture, c)
		}
		if because != "" {
			r.NotChecked = append(r.NotChecked, Excluded{c.ID, because})
			continue
		}
		result := c.Check(v)
		switch {
		case len(result.Findings) > 0:
		case result.NotChecked != "":
			r.NotChecked = append(r.NotChecked, Excluded{c.ID, result.NotChecked})
		default:
			r.RuledOut = append(r.RuledOut, Excluded{c.ID, result.RuledOut})
		}
		r.Findings = append(r.Findings, result.Findings...)
	}
	// A partial gap leaves every cause of its kind checked but for one subject:
	// it is told once, under the kind.
	for _, g := range o.Gaps {
		if g.Partial {
			r.NotChecked = append(r.NotChecked, Excluded{string(g.Kind), gapText(g)})
		}
	}
	r.NotChecked = append(r.NotChecked, overlapping(o)...)
	for i := range r.Findings {
		r.Findings[i].Subject.Container = v.SubjectContainer(&r.Findings[i].Subject)
		v.Price(&r.Findings[i])
		r.Findings[i].Began = v.Began(&r.Findings[i])
	}
	fold(v, r.Findings, catalogue)
	r.Findings = rank(r.Findings, catalogue)
	for i := range r.Findings {
		plan(v, &r.Findings[i], catalogue)
	}
	r.Changes = changes(v, len(r.Findings) > 0)
	return r
}

// untold says why a file does not tell a cause; empty when it does, and where a
// host was watched.
func untold(from *observe.Capture, c *cause.Cause) string {
	switch {
	case from == nil:
	case from.Lines > 0 && !c.InTCPRT:
		return "a log of TCPRT does not tell"
	case !c.OnWire:
		return "a capture of packets does not tell"
	}
	return ""
}

// Unreadable says why a cause that needs these kinds cannot be checked; empty when
// it can.
func Unreadable(o *observe.Observation, needs []observe.Kind) string {
	for _, kind := range needs {
		for _, g := range o.Gaps {
			if g.Kind == kind && !g.Partial {
				return gapText(g)
			}
		}
	}
	return ""
}

func gapText(g observe.Gap) string {
	if g.Subject == "" {
		return g.Because
	}
	return g.Subject + ": " + g.Because
}

// fold marks findings that follow from another finding. A cause declares what
// it may follow from; a check may have named its parent by itself, from
// evidence; and what was measured may rule a parent out.
func fold(v *cause.View, findings []cause.Finding, catalogue []cause.Cause) {
	parents := make([]int, len(findings)) // -1 where there is none
	for i := range findings {
		f := &findings[i]
		parents[i] = -1
		c := lookup(catalogue, f.Cause)
		switch {
		case f.ConsequenceOf != nil:
			parents[i] = named(f, findings)
		case c != nil && c.Folds:
			parents[i] = parentFor(v, i, c, findings, catalogue)
		}
		f.ConsequenceOf = nil
	}
	uncircle(parents, findings, catalogue)
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
	}
}

// named is the finding that f itself names as its parent: the one in its place,
// or the heaviest; -1 when that cause was not found.
func named(f *cause.Finding, findings []cause.Finding) int {
	best := -1
	for i := range findings {
		p := &findings[i]
		if p == f || p.Cause != *f.ConsequenceOf {
			continue
		}
		if best < 0 || cmp.Or(cmp.Compare(inPlace(f, p), inPlace(f, &findings[best])), cmp.Compare(p.Weight, findings[best].Weight)) > 0 {
			best = i
		}
	}
	return best
}

// inPlace is 1 for findings about the same network namespace.
func inPlace(f, p *cause.Finding) int {
	if f.Subject.NetNS == p.Subject.NetNS {
		return 1
	}
	return 0
}

// uncircle sees to it that no finding follows from itself: of those that seem to
// follow from each other, the one that is told first is a cause.
func uncircle(parents []int, findings []cause.Finding, catalogue []cause.Cause) {
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
			if before(&findings[next], &findings[first], catalogue) < 0 {
				first = next
			}
		}
		parents[first] = -1
	}
}

// parentFor picks the heaviest cause that a finding may follow from: one that its
// declaration, and the finding itself, allow, that was found where it was, and
// that what was measured does not rule out. -1 when there is none.
func parentFor(v *cause.View, of int, c *cause.Cause, findings []cause.Finding, catalogue []cause.Cause) int {
	f, best := &findings[of], -1
	may := v.Reasons(f)
	for i := range findings {
		p := &findings[i]
		if i == of || !slices.Contains(c.ConsequenceOf, p.Cause) || f.Parents != nil && !slices.Contains(f.Parents, p.Cause) {
			continue
		}
		if f.MayFollow != nil && !f.MayFollow(p) || f.MayFollow == nil && !samePlace(f, p, catalogue) || !may(p) {
			continue
		}
		if best < 0 || before(p, &findings[best], catalogue) < 0 {
			best = i
		}
	}
	return best
}

// samePlace says whether two findings concern the same network namespace, or
// the second one the whole machine.
func samePlace(f, p *cause.Finding, catalogue []cause.Cause) bool {
	c := lookup(catalogue, p.Cause)
	return c != nil && c.Layer == cause.LayerMachine || f.Subject.NetNS == p.Subject.NetNS
}

func lookup(catalogue []cause.Cause, id string) *cause.Cause {
	for i := range catalogue {
		if catalogue[i].ID == id {
			return &catalogue[i]
		}
	}
	return nil
}

// Summary says in one sentence what came out.
func (r *Report) Summary() string {
	var causes []string
	for _, f := range r.Findings {
		if f.Role == cause.RoleCause && !slices.Contains(causes, f.Cause) {
			causes = append(causes, f.Cause)
		}
	}
	if len(causes) == 0 {
		return "nothing found"
	}
	return fmt.Sprintf("%d found: %s", len(causes), strings.Join(causes, ", "))
}
