package diagnose

import (
	"cmp"
	"fmt"
	"math"
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
	}
	catalogue := cause.Catalogue()
	for i := range catalogue {
		c := &catalogue[i]
		if because := Unreadable(o, c.Needs); because != "" {
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
	for i := range r.Findings {
		r.Findings[i].Subject.Container = v.SubjectContainer(&r.Findings[i].Subject)
	}
	fold(r.Findings, catalogue)
	r.Findings = rank(r.Findings, catalogue)
	r.Changes = changes(v, len(r.Findings) > 0)
	return r
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
// evidence.
func fold(findings []cause.Finding, catalogue []cause.Cause) {
	found := map[string]float64{}
	for _, f := range findings {
		found[f.Cause] = max(found[f.Cause], f.Weight, math.SmallestNonzeroFloat64)
	}
	for i := range findings {
		f := &findings[i]
		if f.ConsequenceOf != nil {
			if found[*f.ConsequenceOf] > 0 {
				f.Role = cause.RoleConsequence
			} else {
				f.ConsequenceOf = nil
			}
			continue
		}
		c := lookup(catalogue, f.Cause)
		if c == nil || !c.Folds {
			continue
		}
		if parent := parentFor(f, c, findings, catalogue); parent != "" {
			f.Role, f.ConsequenceOf = cause.RoleConsequence, &parent
		}
	}
	// A parent that turned out to be a consequence itself: point to the root.
	for i := range findings {
		f := &findings[i]
		for range findings {
			if f.ConsequenceOf == nil {
				break
			}
			up := parentOf(findings, *f.ConsequenceOf)
			if up == nil || *up == f.Cause {
				break
			}
			f.ConsequenceOf = up
		}
	}
}

// parentFor picks the heaviest cause that f may follow from: one that its
// declaration, and the finding itself, allow, and that was found where f was.
func parentFor(f *cause.Finding, c *cause.Cause, findings []cause.Finding, catalogue []cause.Cause) string {
	var best *cause.Finding
	for i := range findings {
		p := &findings[i]
		if !slices.Contains(c.ConsequenceOf, p.Cause) || f.Parents != nil && !slices.Contains(f.Parents, p.Cause) {
			continue
		}
		if f.MayFollow != nil && !f.MayFollow(p) || f.MayFollow == nil && !samePlace(f, p, catalogue) {
			continue
		}
		if best == nil || cmp.Or(cmp.Compare(p.Weight, best.Weight), cmp.Compare(layer(best, catalogue), layer(p, catalogue)), cmp.Compare(best.Cause, p.Cause)) > 0 {
			best = p
		}
	}
	if best == nil {
		return ""
	}
	return best.Cause
}

// layer is where on a request's way a finding's cause sits.
func layer(f *cause.Finding, catalogue []cause.Cause) int {
	if c := lookup(catalogue, f.Cause); c != nil {
		return int(c.Layer)
	}
	return math.MaxInt
}

// samePlace says whether two findings concern the same network namespace, or
// the second one the whole machine.
func samePlace(f, p *cause.Finding, catalogue []cause.Cause) bool {
	c := lookup(catalogue, p.Cause)
	return c != nil && c.Layer == cause.LayerMachine || f.Subject.NetNS == p.Subject.NetNS
}

// parentOf returns what all findings of a cause follow from, or nil.
func parentOf(findings []cause.Finding, id string) *string {
	var parent *string
	for i := range findings {
		if findings[i].Cause == id {
			if findings[i].ConsequenceOf == nil {
				return nil
			}
			parent = findings[i].ConsequenceOf
		}
	}
	return parent
}

func lookup(catalogue []cause.Cause, id string) *cause.Cause {
	for i := range catalogue {
		if catalogue[i].ID == id {
			return &catalogue[i]
		}
	}
	return nil
}

// rank orders causes by weight, then by the layer a request meets first, and
// puts the consequences behind all causes.
func rank(findings []cause.Finding, catalogue []cause.Cause) []cause.Finding {
	slices.SortStableFunc(findings, func(a, b cause.Finding) int {
		return cmp.Or(
			cmp.Compare(a.Role, b.Role), // "cause" < "consequence"
			cmp.Compare(b.Weight, a.Weight),
			cmp.Compare(layer(&a, catalogue), layer(&b, catalogue)),
			cmp.Compare(a.Cause, b.Cause),
			cmp.Compare(a.Subject.NetNS, b.Subject.NetNS),
			cmp.Compare(a.Subject.Port, b.Subject.Port),
			cmp.Compare(a.Subject.PID, b.Subject.PID),
		)
	})
	return findings
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
