package proof

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/language"
	"github.com/slowray/slowray/internal/printable"
	"github.com/slowray/slowray/internal/prove/experiment"
	"github.com/slowray/slowray/internal/shell"
)

type printer struct {
	w      io.Writer
	width  int // columns
	reader *language.Language
	err    error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

// say is fmt.Sprintf in the language of the reader.
func (p *printer) say(format string, args ...any) string { return p.reader.Sprintf(format, args...) }

// head is the name of a field, which begins a line.
func (p *printer) head(name string) string {
	return "  " + printable.Pad(p.reader.Text(name), indent-2)
}

const indent = 12

// field prints a name and a text, broken into lines.
func (p *printer) field(name, text string) {
	for _, line := range printable.Wrap(p.reader.Text(printable.Text(text)), p.width-indent) {
		p.line("%s%s", p.head(name), line)
		name = ""
	}
}

// paragraph prints a text, broken into lines.
func (p *printer) paragraph(text string) {
	for _, line := range printable.Wrap(p.reader.Text(printable.Text(text)), p.width) {
		p.line("%s", line)
	}
}

// Text writes the document for a person, in so many columns: the verdict first, and again
// last, where a terminal has scrolled to.
func (d *Document) Text(w io.Writer, width int, reader *language.Language) error {
	p := &printer{w: w, width: max(width, 40), reader: reader}
	p.verdict(d)
	p.line("")
	p.line("%s  [%s]", p.reader.Text(printable.Text(d.Title)), printable.Text(d.Cause))
	p.field("where", d.measured())
	switch {
	case d.Found:
		p.field("impact", d.Finding.Impact.Text)
	case !d.Applied:
		p.field("impact", "not found in the look; --apply tries it all the same")
	default:
		p.field("impact", "not found in the look; it is tried all the same")
	}
	for _, s := range d.Steps {
		p.field("change", s.Change.Text)
		p.field("now", s.Was)
		p.commands("fix", s.Do)
		p.commands("undo", s.Undo)
	}
	p.line("")
	if d.Result == nil {
		text := "Nothing was changed. With --apply it is changed, measured and put back"
		if d.Takes != "" {
			text += "; slowray " + d.Takes
		}
		p.paragraph(text + ".")
		return p.err
	}
	p.result(d.Result)
	p.ending(d)
	p.line("")
	p.verdict(d)
	return p.err
}

// verdict writes a line, or two: what the proof came to; of a change that did something, which one
// and the figure before and with it, else of which service and why.
func (p *printer) verdict(d *Document) {
	word, text := "NOT TRIED", "nothing was changed (--apply tries it)"
	if r := d.Result; r != nil {
		word, text = strings.ToUpper(string(r.Verdict)), r.Why
		if e := decisive(r); e != nil && len(d.Steps) > 0 {
			head, figures := p.reader.Text(word)+"  ", fmt.Sprintf(": %s %s → %s", p.reader.Text(e.Metric.Words()), p.reader.Text(e.Figure(e.Before.Median)), p.reader.Text(figureOf(e, &e.With)))
			what := p.reader.Text(printable.Text(d.Steps[0].Change.Text))
			p.line("%s", head+d.shortened(what, p.width-ansi.StringWidth(head+figures))+figures)
			return
		}
	}
	who := d.Cause
	if d.Service.Port != 0 {
		who = p.say("%s on %s :%d", d.Cause, d.comm(), d.Service.Port)
	}
	p.line("%s", printable.Fold(printable.Text(p.reader.Text(word)+"  "+who+": "+p.reader.Text(printable.Text(text))), p.width))
}

// shortened is what was changed in at most width columns, with the whole name of the service
// where it is part of that: "TCP_NODELAY on app" for "TCP_NODELAY on the connections of app".
func (d *Document) shortened(what string, width int) string {
	if ansi.StringWidth(what) <= width {
		return what
	}
	name := printable.Text(d.comm())
	setting, _, named := strings.Cut(what, name)
	setting, _, _ = strings.Cut(setting, " on ")
	if room := width - ansi.StringWidth(name) - len(" on "); named && room > 0 {
		return printable.Clause(setting, room) + " on " + name
	}
	return printable.Cut(what, width)
}

// comm is the name of the service's process, "port" where it is not known.
func (d *Document) comm() string {
	if c := d.Service.Comm; c != "" && c != "?" {
		return c
	}
	return "port"
}

// decisive is the first effect that the verdict is about; nil where it is about none.
func decisive(r *experiment.Result) *experiment.Effect {
	of, known := map[experiment.Verdict]experiment.Outcome{experiment.Proved: experiment.Better, experiment.Worse: experiment.Poorer}[r.Verdict]
	for i := range r.Effects {
		if known && r.Effects[i].Outcome == of {
			return &r.Effects[i]
		}
	}
	return nil
}

func (d *Document) measured() string {
	var what string
	switch s := &d.Service; {
	case s.Port == 0:
		what = "no service on TCP was seen"
	case d.comm() == "port":
		what = fmt.Sprintf("requests to port %d", s.Port)
	default:
		what = fmt.Sprintf("requests to port %d (%s)", s.Port, s.Comm)
	}
	if d.Load != "" {
		return what + ", under " + d.Load
	}
	if d.Service.Port != 0 {
		what += fmt.Sprintf(", %s/s in the look", figure.Count(int64(d.Service.Requests+0.5)))
	}
	return what
}

// commands prints each on a line of its own, whole, so that it can be copied.
func (p *printer) commands(name string, list []shell.Command) {
	for _, c := range list {
		p.line("%s%s", p.head(name), printable.Text(c.String()))
		name = ""
	}
}

// result prints the verdict in full and the table of effects.
func (p *printer) result(r *experiment.Result) {
	p.paragraph(p.say("%s: %s", strings.ToUpper(string(r.Verdict)), printable.Text(r.Why)))
	if len(r.Effects) == 0 {
		return
	}
	p.line("")
	rows := [][]string{{"", p.say("before"), p.say("with"), p.say("after"), p.say("with ÷ without"), ""}}
	for i := range r.Effects {
		e := &r.Effects[i]
		if e.Outcome == experiment.Shown && !moved(e) {
			continue
		}
		rows = append(rows, []string{p.reader.Text(e.Metric.Words()), p.reader.Text(e.Figure(e.Before.Median)), p.reader.Text(figureOf(e, &e.With)), p.reader.Text(figureOf(e, &e.After)), p.ratio(e), p.reader.Text(outcome(e))})
	}
	p.table(rows)
	p.line("")
	p.paragraph(measurements(r))
}

// table prints rows: the first and the last column begin, the others end in line.
func (p *printer) table(rows [][]string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], ansi.StringWidth(cell))
		}
	}
	for _, row := range rows {
		line := " "
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-ansi.StringWidth(cell))
			if i == 0 || i == len(row)-1 {
				line += " " + cell + pad
			} else {
				line += "  " + pad + cell
			}
		}
		p.line("%s", strings.TrimRight(printable.Text(line), " "))
	}
}

// moved says that a figure that is not judged is worth a line: it is well apart.
func moved(e *experiment.Effect) bool {
	off := slices.Concat(e.Before.Blocks, e.After.Blocks)
	if len(off) == 0 || len(e.With.Blocks) == 0 {
		return true
	}
	return slices.Min(e.With.Blocks) > 1.2*slices.Max(off) || slices.Max(e.With.Blocks) < slices.Min(off)/1.2
}

func figureOf(e *experiment.Effect, s *experiment.Sample) string {
	if len(s.Blocks) == 0 {
		return "-"
	}
	return e.Figure(s.Median)
}

// ratio is the effect with its interval.
func (p *printer) ratio(e *experiment.Effect) string {
	if e.Outcome == experiment.Shown {
		if e.Ratio == 0 {
			return "-"
		}
		return factor(e.Ratio)
	}
	return p.say("%s (%s to %s)", factor(e.Ratio), factor(e.Low), factor(e.High))
}

func factor(v float64) string {
	switch {
	case v >= 99.5:
		return figure.Count(int64(v + 0.5))
	case v < 0.005:
		return "under 0.01"
	}
	return fmt.Sprintf("%.3g", v)
}

func outcome(e *experiment.Effect) string {
	if e.Outcome == experiment.Shown {
		return ""
	}
	return string(e.Outcome)
}

// measurements says what the table rests on.
func measurements(r *experiment.Result) string {
	off, on, seconds, blocks := 0, 0, 0.0, 0
	for i := range r.Phases {
		p := &r.Phases[i]
		for _, b := range p.Blocks {
			seconds += b.Seconds
			blocks++
		}
		if p.Applied() {
			on += len(p.Blocks)
		} else {
			off += len(p.Blocks)
		}
	}
	if blocks == 0 {
		return "Nothing was measured."
	}
	length := figure.Seconds(seconds / float64(blocks))
	if on == 0 {
		return fmt.Sprintf("Medians of %d blocks without the change, of %s each.", off, length)
	}
	times := "once"
	if r.Rounds > 1 {
		times = fmt.Sprintf("%d times", r.Rounds)
	}
	return fmt.Sprintf("Medians of %d blocks with the change, which was made %s, and %d without it, of %s each; ratios with intervals of at least 95 %%.",
		on, times, off, length)
}

// ending says how things are now.
func (p *printer) ending(d *Document) {
	switch {
	case d.Kept != "":
		p.line("%s", p.say("The change is kept (slowray undo %s takes it back).", d.Kept))
	case d.Result.Rounds == 0:
		p.line("%s", p.say("Nothing was changed."))
	case d.Result.Undone:
		p.line("%s", p.say("The change is undone."))
	case d.Result.InForce:
		p.line("%s", p.say("THE CHANGE IS NOT UNDONE (slowray undo tries again): %s", printable.Text(d.Result.Left)))
	default:
		p.line("%s", p.say("Nothing of the change is in force, but not all is as it was: %s", printable.Text(d.Result.Left)))
	}
	if d.Proved() && len(d.Persist) > 0 {
		p.line("%s", p.say("To make it permanent:"))
		for _, c := range d.Persist {
			p.line("  %s", printable.Text(c.String()))
		}
	}
}
