package compare

import (
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/printable"
)

type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

// Text writes the document for a person.
func (d *Document) Text(w io.Writer) error {
	p := &printer{w: w}
	for _, s := range []struct {
		name string
		side *Side
	}{{"A", &d.A}, {"B", &d.B}} {
		p.line("%s  %s, Linux %s, %s for %s", s.name, printable.Text(s.side.Host), printable.Text(s.side.Kernel),
			figure.Moment(s.side.Start), figure.Seconds(math.Round(10*s.side.Seconds)/10))
	}
	p.findings(d.Findings)
	for i := range d.Endpoints {
		p.endpoint(&d.Endpoints[i])
	}
	p.figures("Host", d.Host, false)
	p.figures("Counters that changed much", d.Counters, false)
	p.figures("Functions, by share of their program's CPU time", d.Functions, false)
	p.settings(d.Settings)
	p.line("")
	for _, n := range d.Notes {
		p.line("%s", printable.Text(n))
	}
	return p.err
}

func (p *printer) findings(list []Finding) {
	p.line("")
	if len(list) == 0 {
		p.line("Findings: none in both")
		return
	}
	p.line("Findings")
	rows := [][]string{{"", "", "A", "B", ""}}
	for i := range list {
		f := &list[i]
		rows = append(rows, []string{string(f.Change), strings.TrimSpace(f.Cause + " " + f.On), share(f.A), share(f.B), "of " + f.Of})
	}
	p.table(rows, 2)
}

func share(v *float64) string {
	if v == nil {
		return "-"
	}
	return figure.Percent(*v)
}

func (p *printer) endpoint(e *Endpoint) {
	where := fmt.Sprintf(":%d", e.Port)
	if e.Addr != "" {
		where = e.Addr + where
	}
	title := strings.TrimSpace(fmt.Sprintf("%s %s %s", e.Side, where, e.Comm))
	figures := append([]Figure(nil), e.Figures...)
	total, grew := 0.0, 0.0
	for _, f := range e.Parts {
		if f.A != nil && f.B != nil {
			total += math.Abs(*f.B - *f.A)
		}
	}
	most := -1
	for i, f := range e.Parts {
		f.Name = "  " + strings.ReplaceAll(f.Name, "_", " ") + ", mean"
		figures = append(figures, f)
		if f.A != nil && f.B != nil && math.Abs(*f.B-*f.A) > math.Abs(grew) {
			most, grew = i, *f.B-*f.A
		}
	}
	p.figures(title, figures, true)
	if most >= 0 && math.Abs(grew) > 0.5*total && math.Abs(grew) >= 10 {
		way := "longer"
		if grew < 0 {
			way = "shorter"
		}
		p.line("  what moved: %s, %s %s per request", e.Parts[most].Name, figure.Seconds(math.Abs(grew)/1e6), way)
	}
}

// figures prints a table; all of them, or those that differ.
func (p *printer) figures(title string, list []Figure, all bool) {
	rows := [][]string{{"", "A", "B", ""}}
	for i := range list {
		f := &list[i]
		if !all && f.Judgement != Moved && !f.Large() {
			continue
		}
		rows = append(rows, []string{f.Name, f.text(f.A), f.text(f.B), f.remark()})
	}
	if len(rows) == 1 {
		return
	}
	p.line("")
	p.line("%s", printable.Text(title))
	p.table(rows, 1)
}

func (f *Figure) text(v *float64) string {
	if v == nil {
		return "-"
	}
	switch f.Unit {
	case "1/s":
		if *v >= 99.5 {
			return figure.Count(int64(math.Round(*v))) + "/s"
		}
		return fmt.Sprintf("%.3g/s", *v)
	case "share":
		return figure.Percent(*v)
	case "us":
		return figure.Seconds(*v / 1e6)
	}
	return fmt.Sprintf("%.4g", *v)
}

// remark says how large a difference is, and whether it is beyond the spread.
func (f *Figure) remark() string {
	if f.A == nil || f.B == nil {
		return ""
	}
	factor := ""
	if *f.A > 0 && *f.B > 0 && f.Large() {
		factor = fmt.Sprintf("× %.3g", *f.B / *f.A)
	}
	switch f.Judgement {
	case Moved:
		return strings.TrimSpace(factor + " beyond the spread")
	case Within:
		return "within the spread"
	}
	return factor
}

func (p *printer) settings(list []Setting) {
	if len(list) == 0 {
		return
	}
	p.line("")
	p.line("Settings that differ")
	rows := [][]string{{"", "", "A", "B"}}
	for _, s := range list {
		rows = append(rows, []string{s.Where, s.Name, s.A, s.B})
	}
	p.table(rows, 2)
}

// table prints rows, of which the first columns begin in line and the others end.
func (p *printer) table(rows [][]string, left int) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i := range row {
			row[i] = printable.Text(row[i])
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	for _, row := range rows {
		line := "  "
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i < left || i == len(row)-1 && i > left+1 {
				line += cell + pad + "  "
			} else {
				line += pad + cell + "  "
			}
		}
		p.line("%s", strings.TrimRight(line, " "))
	}
}
