package lab

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/slowray/slowray/internal/commandline"
	"github.com/slowray/slowray/internal/printable"
	"github.com/slowray/slowray/lab/incident"
	"github.com/slowray/slowray/lab/server"
)

// printer writes what people read. It is silent when the result is to be JSON.
type printer struct {
	out      io.Writer
	colour   bool
	terminal bool
	verbose  bool
	columns  int // 0: any
	begun    time.Time
}

func newPrinter(opt Options) *printer {
	p := &printer{out: opt.Out, verbose: opt.Verbose, columns: commandline.Columns(opt.Out), begun: time.Now()}
	if opt.JSON {
		p.out = io.Discard
	}
	if f, ok := p.out.(*os.File); ok {
		st, err := f.Stat()
		p.terminal = err == nil && st.Mode()&os.ModeCharDevice != 0
		p.colour = p.terminal && os.Getenv("NO_COLOR") == ""
	}
	return p
}

func (p *printer) printf(format string, args ...any) {
	p.clear()
	fmt.Fprintf(p.out, format, args...)
}

// folded is printf for sentences, which are broken at words.
func (p *printer) folded(format string, args ...any) {
	p.printf("%s", printable.Fold(fmt.Sprintf(format, args...), p.columns))
}

// clear removes the progress line.
func (p *printer) clear() {
	if p.terminal {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}

// progress says what takes its time: over and over on one line of a terminal,
// and otherwise only if asked to be verbose.
func (p *printer) progress(what string) {
	switch {
	case p.terminal:
		p.clear()
		fmt.Fprintf(p.out, "  … %3.0f s  %s", time.Since(p.begun).Seconds(), what)
	case p.verbose:
		fmt.Fprintf(p.out, "  … %3.0f s  %s\n", time.Since(p.begun).Seconds(), what)
	}
}

func (p *printer) paint(good bool, s string) string {
	switch {
	case !p.colour:
		return s
	case good:
		return "\x1b[32m" + s + "\x1b[0m"
	default:
		return "\x1b[1;31m" + s + "\x1b[0m"
	}
}

func (p *printer) heading(i incident.Incident, seed int64) {
	p.folded("%s: %s\n  load: %s   seed: %d\n", i.Name, i.Summary, i.Load.Describe(), seed)
}

func (p *printer) step(s injectedSet) {
	p.printf("\n%s\n", s.name)
	if len(s.faults) == 0 {
		p.printf("  injected  nothing\n")
	}
	var rows [][]string
	label := "  injected"
	for _, f := range s.faults {
		rows = append(rows, []string{label, f.Name, f.Text})
		label = ""
	}
	p.printf("%s", printable.Table(rows, p.columns))
}

// hostWide says what no network namespace keeps to itself.
func (p *printer) hostWide(s server.Setup) {
	if name, value := s.HostWide(); name != "" {
		p.folded("  of the whole host, until this ends: %s = %s\n", name, value)
	}
}

// result prints truth and findings of a step.
func (p *printer) result(s StepResult, set injectedSet) {
	p.clear()
	p.truth(s.Truth)
	if s.Found != nil {
		p.found(*s.Found)
	}
	for _, n := range s.Notes {
		p.folded("  note     %s\n", n)
	}
	for _, r := range s.Reasons {
		p.folded("  %s %s\n", p.paint(false, "MISMATCH"), r)
	}
	if s.Found != nil && s.OK {
		p.printf("  %s\n", p.paint(true, "ok"))
	}
}

func (p *printer) truth(t Truth) {
	if len(t.Base.Samples) == 0 {
		return
	}
	w := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  measured\t\tgood/s\trange\terrors\tp50\tp99\t")
	fmt.Fprintf(w, "  \tas injected\t%s\t\n", t.Base)
	for _, r := range t.Removals {
		verdict := "no harm"
		if r.Hurts {
			verdict = "hurts: " + strings.Join(r.Why, ", ")
		}
		if r.Best {
			verdict += " (best)"
		}
		fmt.Fprintf(w, "  \twithout %s\t%s\t%s\n", r.Fault, r.Measure, verdict)
	}
	w.Flush()
	p.wires(t.Base.Samples[0].Wires)
}

// String is the figures of a measurement as columns.
func (m Measure) String() string {
	others := ""
	if m.disturbed() {
		others = fmt.Sprintf("disturbed: other programs took %.0f %% of the CPUs", 100*m.calm()[0].Others)
	}
	return fmt.Sprintf("%.0f\t%.0f–%.0f\t%.1f %%\t%s\t%s\t%s", m.Median(), m.low(), m.high(), 100*m.BadShare(), short(m.P50()), short(m.P99()), others)
}

// wires tells what was done to packets in the first trial of a set of faults.
func (p *printer) wires(w wires) {
	for n, name := range slices.Sorted(maps.Keys(w)) {
		label := "lost"
		if n > 0 {
			label = ""
		}
		p.printf("  %-8s %-16s %v\n", label, name, w[name])
	}
}

func (p *printer) found(r Report) {
	if len(r.Findings) == 0 {
		p.printf("  found    nothing\n")
	}
	for n, f := range r.Findings {
		label := "found"
		if n > 0 {
			label = ""
		}
		p.printf("  %-8s %d. %-28s %-11s %s\n", label, n+1, f.Cause, f.Role, f.Title)
	}
}

// summary sets injected against found, one line for each step.
func (p *printer) summary(r Result) {
	p.printf("\n")
	w := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "step\thurts\thelps most\tfound\t")
	for _, s := range r.Steps {
		verdict := ""
		if s.Found != nil {
			verdict = "ok"
			if !s.OK {
				verdict = "MISMATCH"
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", s.Name, orNone(s.Truth.hurting()), orNone(s.Truth.best()), orNone(s.foundCauses()), verdict)
	}
	w.Flush()
	p.verdict(r, len(r.Steps) > 0 && r.Steps[0].Found == nil)
}

func (p *printer) verdict(r Result, measuredOnly bool) {
	switch {
	case measuredOnly:
		p.printf("%s: measured only, %.0f s\n", r.Incident, r.Seconds)
	case r.OK:
		p.printf("%s: %s, %.0f s\n", r.Incident, p.paint(true, "ok"), r.Seconds)
	default:
		p.printf("%s: %s, %.0f s (again with the same addresses and ports: --seed %d)\n", r.Incident, p.paint(false, "MISMATCH"), r.Seconds, r.Seed)
	}
}

func (t Truth) hurting() []string {
	var names []string
	for _, r := range t.Removals {
		if r.Hurts {
			names = append(names, r.Fault)
		}
	}
	return names
}

func (s StepResult) foundCauses() []string {
	var names []string
	if s.Found != nil {
		for _, f := range s.Found.Findings {
			if f.Role == "cause" {
				names = append(names, f.Cause)
			}
		}
	}
	return names
}

func orNone(s []string) string {
	if len(s) == 0 {
		return "-"
	}
	return strings.Join(s, " ")
}

// short is a duration in two or three digits.
func short(d time.Duration) string {
	switch {
	case d == 0: // of no answer at all
		return "-"
	case d >= time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d >= time.Millisecond:
		return fmt.Sprintf("%.0f ms", float64(d)/1e6)
	default:
		return fmt.Sprintf("%.0f µs", float64(d)/1e3)
	}
}

// times is a gain as people say it.
func times(gain float64) string {
	if gain >= 2 {
		return fmt.Sprintf("× %.3g", gain)
	}
	return fmt.Sprintf("%+.0f %%", 100*(gain-1))
}
