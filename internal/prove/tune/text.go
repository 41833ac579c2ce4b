package tune

import (
	"fmt"
	"io"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/printable"
	"github.com/slowray/slowray/internal/shell"
)

// clean takes control characters out of names: what a process calls itself must
// not move the cursor.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		if unicode.IsControl(r) || r == utf8.RuneError {
			return '·'
		}
		return r
	}, s)
}

// rate writes a number per second.
func rate(v float64) string {
	if v > 0 && v < 9.95 {
		return fmt.Sprintf("%.1f", v)
	}
	return figure.Count(int64(math.Round(v)))
}

func orDash(v *float64, write func(float64) string) string {
	if v == nil {
		return "-"
	}
	return write(*v)
}

func milliseconds(v float64) string { return figure.Seconds(v / 1000) }

// move writes what a figure was and became; one dash where neither is known.
func move(a, b string) string {
	if a == "-" && b == "-" {
		return "-"
	}
	return a + " → " + b
}

func moveOf(a, b *float64, write func(float64) string) string {
	return move(orDash(a, write), orDash(b, write))
}

// result is a step's verdict with what was done about it.
func (s *Step) result() string {
	if s.Kept {
		return s.Verdict.words() + ", kept"
	}
	if s.Verdict == Proved || s.Verdict == Unclear {
		return s.Verdict.words() + ", undone"
	}
	return s.Verdict.words()
}

// columns are the table of steps, as incident reports have it.
var columns = []string{"step", "cause", "good/s", "undone", "p50", "p99", "errors/s", "verdict"}

func (s *Step) row(n int) []string {
	if s.Before.Blocks == 0 {
		return []string{fmt.Sprint(n), clean(s.causes()), "-", "-", "-", "-", "-", s.result()}
	}
	with, after := "-", "-"
	if s.With.Blocks > 0 {
		with = rate(s.With.Good)
	}
	if s.After.Blocks > 0 {
		after = rate(s.After.Good)
	}
	return []string{fmt.Sprint(n), clean(s.causes()), move(rate(s.Before.Good), with), after,
		moveOf(s.Before.P50, s.With.P50, milliseconds), moveOf(s.Before.P99, s.With.P99, milliseconds),
		moveOf(s.Before.Errors, s.With.Errors, rate), s.result()}
}

type printer struct {
	w     io.Writer
	width int // columns
	err   error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

// Text writes r for a person, in so many columns: the verdict, the table of steps, each
// step, what is left, what to make permanent, and the verdict again, where a terminal has
// scrolled to. The error is w's.
func Text(w io.Writer, r *Report, width int) error {
	p := &printer{w: w, width: max(width, 40)}
	p.verdict(r)
	p.line("")
	if len(r.Steps) > 0 && r.Applied {
		p.table(r)
	}
	for i := range r.Steps {
		p.step(i+1, &r.Steps[i], r.Applied)
	}
	p.summary(r)
	p.left(r)
	p.lasting(r)
	if len(r.Steps) > 0 {
		p.line("")
		p.verdict(r)
	}
	return p.err
}

// verdict writes a line, or two: how the run ended.
func (p *printer) verdict(r *Report) {
	word := "PROBLEM" // findings are left
	switch r.Ending {
	case Healthy:
		word = "OK"
	case DryRun:
		word = "NOT TRIED"
	case Failed, Interrupted:
		word = "UNKNOWN"
	}
	text := r.Text
	if gain := r.gain(); gain != "" {
		text = gain
	} else if r.Ending == DryRun && len(r.Steps) > 0 {
		text = r.Steps[0].causes() + " would be tried first (--apply)"
	}
	p.line("%s", printable.Fold(clean(word+"  "+r.Service+"  "+text), p.width))
}

func (p *printer) table(r *Report) {
	rows := [][]string{columns}
	for i := range r.Steps {
		rows = append(rows, r.Steps[i].row(i+1))
	}
	widths := make([]int, len(columns))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		var b strings.Builder
		for i, cell := range row {
			b.WriteString(cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
		}
		p.line("%s", strings.TrimRight(b.String(), " "))
	}
	p.line("")
}

func (p *printer) step(n int, s *Step, applied bool) {
	p.line("%d. %s  [%s]", n, clean(s.Title), clean(s.causes()))
	p.field("impact", s.Seen)
	change := "change"
	if !applied {
		change = "would"
	}
	for _, c := range s.Changes {
		p.field(change, c.Text)
	}
	if !applied {
		for _, c := range s.Do {
			p.command("fix", c)
		}
		for _, c := range s.Undo {
			p.command("undo", c)
		}
	}
	if s.Again != "" {
		p.field("again", s.Again)
	}
	if s.Verdict != Untried || applied {
		text := s.result()
		if s.Text != "" {
			text += ": " + s.Text
		}
		p.field("verdict", text)
	}
	p.line("")
}

func (p *printer) field(name, text string) {
	if text == "" {
		return
	}
	const indent = 13
	for _, line := range printable.Wrap(clean(text), p.width-indent) {
		p.line("   %-*s%s", indent-3, name, line)
		name = ""
	}
}

// command is on one line, however long: so it can be copied.
func (p *printer) command(name string, c shell.Command) {
	p.line("   %-10s%s", name, clean(c.String()))
}

// paragraph writes a text over several lines.
func (p *printer) paragraph(text string) {
	for _, line := range printable.Wrap(text, p.width) {
		p.line("%s", line)
	}
}

func (p *printer) summary(r *Report) {
	if len(r.Steps) > 0 { // else the verdict above has said it
		p.paragraph(clean(r.Service) + ": " + clean(r.Text))
	}
	if line := r.gain(); line != "" {
		p.paragraph(line)
	}
	if r.Applied {
		p.line("%d of %s kept, in %s.", len(r.kept()), plural(len(r.Steps), "change"), figure.Seconds(math.Round(r.Seconds)))
	}
}

// gain is the figures at the beginning and at the end, in words.
func (r *Report) gain() string {
	if r.First == nil || r.Last == nil || r.First == r.Last || len(r.Steps) == 0 {
		return ""
	}
	return fmt.Sprintf("good responses/s %s, p50 %s, p99 %s, errors/s %s", move(rate(r.First.Good), rate(r.Last.Good)),
		moveOf(r.First.P50, r.Last.P50, milliseconds), moveOf(r.First.P99, r.Last.P99, milliseconds), moveOf(r.First.Errors, r.Last.Errors, rate))
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func (p *printer) left(r *Report) {
	if len(r.Left) == 0 || !r.Applied && r.Ending != Stuck {
		return
	}
	p.line("")
	p.line("Still found at the last look:")
	for _, l := range r.Left {
		p.field("", fmt.Sprintf("%s: %s (%s)", l.Cause, l.Title, l.Because))
	}
}

func (p *printer) lasting(r *Report) {
	if r.Undone {
		p.line("Everything that was kept has been taken back (--undo-at-end).")
	}
	if len(r.Lasting) > 0 {
		p.line("")
		p.line("To make it permanent:")
		for _, l := range r.Lasting {
			p.line("   %s", clean(l.String()))
		}
	}
	if !r.Undo.IsZero() {
		p.line("")
		p.paragraph("What was kept stays until the next start of what holds it. To take all of it back:")
		p.line("   %s", r.Undo)
	}
}
