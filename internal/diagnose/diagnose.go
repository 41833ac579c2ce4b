package diagnose

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
)

// Diagnose judges o, until ctx is done or the bound is reached. What was not judged
// by then is listed under NotChecked, and the report says so (Report.CutShort).
func Diagnose(ctx context.Context, o *observe.Observation, b Bound) Report {
	j := begin(ctx, b)
	defer j.done()
	return j.judge(o)
}

func (j *judging) judge(o *observe.Observation) Report {
	r := Report{
		Schema:     SchemaReport,
		Host:       ReportHost{Name: o.Host.Name, Kernel: o.Host.Kernel, CPUs: o.Host.CPUs, BootID: o.Host.BootID},
		Window:     ReportWindow{Start: o.Window.Start, Seconds: o.Window.Seconds},
		Endpoints:  []Endpoint{},
		Findings:   []cause.Finding{},
		Account:    cause.Account{Victims: []cause.Victim{}},
		RuledOut:   []Excluded{},
		NotChecked: []Excluded{},
		Losses:     append([]observe.Loss{}, o.Losses...),
		Capture:    o.Capture,
	}
	var v *cause.View
	j.do(func() { v = cause.NewViewUntil(o, func() error { return j.stop() }) })
	j.do(func() { r.Endpoints = endpoints(v) })
	catalogue := cause.Catalogue()
	for i := range catalogue {
		c := &catalogue[i]
		because := Unreadable(o, c.Needs)
		if because == "" {
			because = untold(o.Capture, c)
		}
		if because != "" {
			r.NotChecked = append(r.NotChecked, Excluded{string(c.ID), because})
			continue
		}
		var result cause.Result
		switch whole := j.do(func() { result = c.Judge(v) }); {
		case !whole:
			r.NotChecked = append(r.NotChecked, Excluded{string(c.ID), j.ended})
		case len(result.Findings) > 0:
		case result.NotChecked != "":
			r.NotChecked = append(r.NotChecked, Excluded{string(c.ID), result.NotChecked})
		default:
			r.RuledOut = append(r.RuledOut, Excluded{string(c.ID), result.RuledOut})
		}
		r.Findings = append(r.Findings, result.Findings...)
	}
	// A partial gap leaves every cause of its kind checked but for one subject:
	// it is reported once, under the kind.
	for _, g := range o.Gaps {
		if g.Partial {
			r.NotChecked = append(r.NotChecked, Excluded{string(g.Kind), gapText(g)})
		}
	}
	r.NotChecked = append(r.NotChecked, overlapping(o)...)
	r.CutShort = j.ended
	if v != nil {
		*j = *j.spare()
		j.conclude(v, &r, catalogue)
	}
	confide(&r)
	return r
}

// conclude puts the findings in order. Where there is no time for it they stand as
// they were found.
func (j *judging) conclude(v *cause.View, r *Report, catalogue []cause.Cause) {
	known := declared(catalogue)
	j.do(func() {
		for i := range r.Findings {
			v.Step()
			s := &r.Findings[i].Subject
			s.Workload, s.Container = v.SubjectWorkload(s), v.SubjectContainer(s)
			v.Price(&r.Findings[i])
			r.Findings[i].Began, r.Findings[i].Asked = v.Began(&r.Findings[i]), v.Asked(&r.Findings[i])
			v.Recurs(&r.Findings[i])
		}
	})
	if !j.do(func() { fold(v, r.Findings, catalogue) }) {
		for i := range r.Findings {
			r.Findings[i].ConsequenceOf = nil
		}
	}
	r.Findings = rank(r.Findings, catalogue)
	j.do(func() { account(v, r) })
	r.Findings = rank(r.Findings, catalogue)
	j.do(func() { r.Unlinked = v.Unlinked(&r.Account, r.Findings) })
	j.do(func() {
		for i := range r.Findings {
			v.Step()
			plan(v, &r.Findings[i], known)
			v.LeaveOutDead(&r.Findings[i])
		}
	})
	j.do(func() { r.Findings = rank(joinReplicas(r.Findings), catalogue) })
	j.do(func() { r.Changes = changes(v, len(r.Findings) > 0) })
	if j.ended != "" {
		r.NotChecked = append(r.NotChecked, Excluded{"consequences", "what the findings cost, which follows from which and what they are proved by may be missing: " + j.ended})
		r.CutShort = cmp.Or(r.CutShort, j.ended)
	}
}

// account says what was lost, and makes a finding of what no cause accounts for, where
// all of them were asked.
func account(v *cause.View, r *Report) {
	a := v.Account()
	v.Explain(&a, r.Findings)
	var left []cause.Finding
	for i := range a.Victims {
		if f, ok := v.Unexplained(&a.Victims[i]); ok {
			v.Price(&f)
			f.Began, f.Asked = v.Began(&f), v.Asked(&f)
			left = append(left, f)
		}
	}
	r.Account = a
	if len(left) == 0 || r.CutShort != "" {
		return
	}
	r.Findings = append(r.Findings, left...)
	r.RuledOut = slices.DeleteFunc(r.RuledOut, func(u Excluded) bool { return u.Cause == string(cause.Unexplained) })
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

// Summary says in one sentence what came out.
func (r *Report) Summary() string {
	var causes []string
	for _, f := range r.Findings {
		if f.Role == cause.RoleCause && !slices.Contains(causes, string(f.Cause)) {
			causes = append(causes, string(f.Cause))
		}
	}
	switch {
	case len(causes) == 0 && r.CutShort != "":
		return "not judged in full"
	case len(causes) == 0:
		return "nothing found"
	}
	return fmt.Sprintf("%d found: %s", len(causes), strings.Join(causes, ", "))
}
