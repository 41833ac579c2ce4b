package lab

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/slowray/slowray/lab/incident"
	"github.com/slowray/slowray/lab/load"
)

const (
	// tunedShare is the part of the healthy stack's good answers that a fixed one
	// gives at least: the limits that slowray proposes need not be the lab's.
	tunedShare = 0.5
	// undoneShare is the part of the fixed stack's good answers that are left at
	// most once everything is undone.
	undoneShare = 0.5
)

// judge compares what slowray tune came to with what was injected.
func (t *TuneResult) judge(i incident.Incident, opt TuneOptions) {
	wrong := func(format string, args ...any) { t.Reasons = append(t.Reasons, fmt.Sprintf(format, args...)) }
	if t.Seconds > opt.For.Seconds() {
		wrong("slowray tune took %.0f s, and may take %.0f s", t.Seconds, opt.For.Seconds())
	}
	if t.Report.Ending != "healthy" && t.Report.Ending != "stuck" {
		wrong("slowray tune ended with %q: %s", t.Report.Ending, t.Report.Text)
	}
	if bad := errorsOf(t.End); t.End.Bad() > 0 {
		wrong("at the end the load generator still sees %s", bad)
	}
	start, end, healthy := t.Start.GoodRate(), t.End.GoodRate(), t.Healthy.GoodRate()
	if i.Gain > 0 && end < i.Gain*start {
		wrong("%.0f good answers/s at the end are not %g times the %.1f at the start", end, i.Gain, start)
	}
	well := end >= tunedShare*healthy && t.End.Bad() == 0
	if end < tunedShare*healthy {
		wrong("%.0f good answers/s at the end are less than %g of the healthy stack's %.0f", end, tunedShare, healthy)
	}
	for _, f := range i.Faults {
		t.Faults = append(t.Faults, t.fault(f))
		switch became := &t.Faults[len(t.Faults)-1]; {
		case f.Decoy && t.touched(f.RuledOut):
			wrong("%s is a decoy, and was changed", f.Name)
		case !f.Decoy && became.Verdict == "" && !well:
			wrong("%s was not fixed", f.Name)
		case !f.Decoy && became.Verdict == "":
			t.Notes = append(t.Notes, fmt.Sprintf("%s was not fixed; with it the service is as good as without, so it does not matter here", f.Name))
		}
	}
	for _, s := range t.Report.Steps {
		if s.Kept && s.Verdict != "proved" {
			wrong("%s was kept with the verdict %q", s.Cause, s.Verdict)
		}
	}
	if undone := t.Undone.GoodRate(); undone > undoneShare*end && start < undoneShare*end {
		wrong("after slowray undo there are still %.0f good answers/s: something is not undone", undone)
	}
	t.OK = len(t.Reasons) == 0
}

// fault says which step fixed an injected fault.
func (t *TuneResult) fault(f incident.Fault) TuneFault {
	became := TuneFault{Name: f.Name, Cause: f.Cause, Decoy: f.Decoy}
	for n, s := range t.Report.Steps {
		if !f.Decoy && s.Kept && slices.ContainsFunc(append([]string{s.Cause}, s.Also...), func(id string) bool { return id == f.Cause || slices.Contains(f.Or, id) }) {
			became.Verdict = fmt.Sprintf("%s, step %d", s.Verdict, n+1)
			break
		}
	}
	return became
}

// touched says that a setting of this name was tried, or differs at the end.
func (t *TuneResult) touched(name string) bool {
	if name == "" {
		return false
	}
	for _, s := range t.Report.Steps {
		for _, c := range s.Changes {
			if strings.Contains(c.Name+" "+c.Text, name) {
				return true
			}
		}
	}
	return slices.ContainsFunc(t.Set, func(s string) bool { return strings.Contains(s, name) })
}

// errorsOf are the errors of a load in words.
func errorsOf(o load.Outcome) string {
	var list []string
	for _, kind := range []struct {
		name string
		n    int64
	}{{"answers that are not 2xx", o.Non2xx}, {"connect errors", o.Connect}, {"read errors", o.Read}, {"write errors", o.Write}, {"timeouts", o.Timeout}} {
		if kind.n > 0 {
			list = append(list, fmt.Sprintf("%d %s", kind.n, kind.name))
		}
	}
	if list == nil {
		return "no errors"
	}
	return strings.Join(list, ", ")
}

// note prints a line of slowray's that comes while it works.
func (p *printer) note(line string) {
	p.printf("  %s\n", line)
}

// tuned prints what slowray tune did, and what the load generator says of it.
func (p *printer) tuned(t TuneResult) {
	p.printf("\n")
	w := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "step\tcause\tgood/s before\twith\tundone\tverdict")
	for n, s := range t.Report.Steps {
		verdict := s.Verdict
		if s.Kept {
			verdict += ", kept"
		}
		if s.Again != "" {
			verdict += " (second trial)"
		}
		fmt.Fprintf(w, "%d\t%s\t%.0f\t%.0f\t%.0f\t%s\n", n+1, strings.Join(append([]string{s.Cause}, s.Also...), " + "), s.Before.Good, s.With.Good, s.After.Good, verdict)
	}
	w.Flush()
	p.printf("  slowray  %s (%.0f s)\n\n", t.Report.Text, t.Seconds)
	w = tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "load generator\tgood/s\tp50\tp99\terrors")
	for _, row := range []struct {
		name string
		o    load.Outcome
	}{{"healthy stack", t.Healthy}, {"as injected", t.Start}, {"as slowray left it", t.End}, {"after slowray undo", t.Undone}} {
		fmt.Fprintf(w, "%s\t%.0f\t%s\t%s\t%s\n", row.name, row.o.GoodRate(), short(row.o.P50), short(row.o.P99), errorsOf(row.o))
	}
	w.Flush()
	p.printf("\n")
	for _, f := range t.Faults {
		became := f.Verdict
		switch {
		case f.Decoy:
			became = "a decoy, not touched"
			if t.touched(f.Name) {
				became = "a decoy, and changed"
			}
		case became == "":
			became = "not fixed"
		}
		p.printf("  fault    %-20s %s\n", f.Name, became)
	}
	for _, s := range t.Set {
		p.printf("  set      %s\n", s)
	}
	for _, n := range t.Notes {
		p.printf("  note     %s\n", n)
	}
	for _, r := range t.Reasons {
		p.printf("  %s %s\n", p.paint(false, "MISMATCH"), r)
	}
	verdict := p.paint(true, "ok")
	if !t.OK {
		verdict = p.paint(false, "MISMATCH")
	}
	p.printf("%s: %s, fixed in %.0f s and undone (seed %d)\n", t.Incident, verdict, t.Seconds, t.Seed)
}
