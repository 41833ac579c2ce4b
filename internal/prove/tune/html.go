package tune

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html"
	"io"
	"math"
	"strings"

	"github.com/slowray/slowray/internal/figure"
)

//go:embed page/page.css
var pageCSS string

// policy lets the page use its own style, run nothing and load nothing (W3C CSP3).
func policy() string {
	sum := sha256.Sum256([]byte(pageCSS))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'"
}

// page is a page that is being written. Its markup is in formats only; what is put into
// them is text between tags, or the value of an attribute in double quotes. It is not
// made by html/template: that finds methods by name, and then the linker has to keep
// every exported method of every type.
type page struct{ strings.Builder }

// add writes a format. Arguments are numbers, and text that is escaped; a NUL, which no
// document may have, is replaced as a parser of HTML would replace it.
func (p *page) add(format string, args ...any) {
	for i, a := range args {
		switch a.(type) {
		case int, float64:
		default:
			args[i] = html.EscapeString(strings.ReplaceAll(fmt.Sprint(a), "\x00", "\uFFFD"))
		}
	}
	fmt.Fprintf(p, format, args...)
}

// HTML writes r as one page, to be opened from a file: it needs no network and
// no script. The error is w's.
func HTML(w io.Writer, r *Report) error {
	p := &page{}
	p.head(r)
	p.figures(r)
	if r.Applied && len(r.Steps) > 0 {
		p.table(r)
	}
	for i := range r.Steps {
		p.step(&r.Steps[i], i+1, r.Applied)
	}
	p.foot(r)
	_, err := io.WriteString(w, p.String())
	return err
}

func (p *page) head(r *Report) {
	service := clean(r.Service)
	p.add(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="%s">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="slowray tune">
<title>slowray tune: %s</title>
`, policy(), service)
	p.WriteString("<style>" + pageCSS + "</style>")
	host := fmt.Sprintf("%s, Linux %s, %s; %s, for %s", clean(r.Host.Name), clean(r.Host.Kernel), plural(r.Host.CPUs, "CPU"),
		r.Start.UTC().Format("2006-01-02 15:04:05 UTC"), figure.Seconds(math.Round(r.Seconds)))
	p.add(`
</head>
<body>
<header>
<h1>slowray tune: %s</h1>
<p class="soft">%s</p>`, service, host)
	if load := clean(r.Load); load != "" {
		p.add(`<p class="soft">load: <code>%s</code></p>`, load)
	}
	p.add("\n<p><strong>%s</strong></p>\n</header>", clean(r.Text))
}

// figures are what the service did at first and at last.
func (p *page) figures(r *Report) {
	f, l := r.First, r.Last
	if f == nil || l == nil {
		return
	}
	p.add("\n<dl class=\"figures\">")
	for _, figure := range [][2]string{
		{"good responses/s", move(rate(f.Good), rate(l.Good))},
		{"p50", moveOf(f.P50, l.P50, milliseconds)},
		{"p99", moveOf(f.P99, l.P99, milliseconds)},
		{"errors/s", moveOf(f.Errors, l.Errors, rate)},
		{"changes kept", fmt.Sprintf("%d of %d", len(r.kept()), len(r.Steps))},
	} {
		p.add("\n<div><dt>%s</dt><dd>%s</dd></div>", figure[0], figure[1])
	}
	p.add("\n</dl>")
}

func (p *page) table(r *Report) {
	p.add(`
<h2>Steps</h2>
<div class="scroll" tabindex="0" role="region" aria-label="Table of steps">
<table>
<thead><tr>`)
	for _, name := range columns {
		p.add(`<th scope="col">%s</th>`, name)
	}
	p.add("</tr></thead>\n<tbody>")
	for i := range r.Steps {
		p.add("\n<tr>")
		for _, cell := range r.Steps[i].row(i + 1) {
			p.add(`<td class="n">%s</td>`, cell)
		}
		p.add("</tr>")
	}
	p.add("\n</tbody>\n</table>\n</div>")
}

func (p *page) step(s *Step, n int, applied bool) {
	result, class := s.result(), ""
	if !applied {
		result = "not made: a dry run"
	}
	switch {
	case s.Kept:
		class = "kept"
	case s.Verdict == Worse:
		class = "worse"
	}
	p.add(`
<section class="step">
<h3>%d. %s: <span class="verdict %s">%s</span></h3>
<p>%s</p>
<dl class="facts">`, n, clean(s.causes()), class, result, clean(s.Title))
	fact := func(name, text string) {
		if text != "" {
			p.add("\n<dt>%s</dt><dd>%s</dd>", name, clean(text))
		}
	}
	fact("seen", s.Seen)
	for _, c := range s.Changes {
		fact("change", c.Text)
	}
	for _, c := range s.Do {
		fact("by hand", c.String())
	}
	for _, c := range s.Undo {
		fact("undo", c.String())
	}
	fact("again", s.Again)
	fact("verdict", s.Text)
	p.add("\n</dl>")
	if charts := s.charts(); len(charts) > 0 {
		p.add("\n<div class=\"charts\">")
		for i := range charts {
			p.chart(&charts[i])
		}
		p.add("\n</div>")
	}
	p.add("\n</section>")
}

func (p *page) chart(c *chart) {
	p.add(`
<figure>
<figcaption>%s</figcaption>
<svg viewBox="0 0 %d %d" role="img" aria-label="%s">`, c.Title, c.Width, c.Height, c.Label)
	for _, l := range c.Lines {
		p.add("\n"+`<line class="%s" x1="%v" y1="%v" x2="%v" y2="%v"/>`, l.Class, l.X1, l.Y1, l.X2, l.Y2)
	}
	for _, b := range c.Bars {
		p.add("\n"+`<rect class="%s" x="%v" y="%v" width="%v" height="%v"><title>%s</title></rect>`, b.Class, b.X, b.Y, b.W, b.H, b.Tip)
	}
	for _, l := range c.Paths {
		p.add("\n"+`<polyline class="%s" points="%s"/>`, l.Class, l.Points)
	}
	for _, d := range c.Dots {
		p.add("\n"+`<circle class="%s" cx="%v" cy="%v" r="2.6"><title>%s</title></circle>`, d.Class, d.X, d.Y, d.Tip)
	}
	for _, w := range c.Words {
		p.add("\n"+`<text class="%s" x="%v" y="%v" text-anchor="%s">%s</text>`, w.Class, w.X, w.Y, w.Anchor, w.Text)
	}
	p.add("\n</svg>\n</figure>")
}

// foot is what is left, how to keep what helped, and how to take it back.
func (p *page) foot(r *Report) {
	if len(r.Left) > 0 {
		p.add("\n<h2>Still found at the last look</h2>\n<ul>")
		for _, l := range r.Left {
			p.add("\n<li><strong>%s</strong>: %s</li>", clean(l.Cause), clean(fmt.Sprintf("%s (%s) %s", l.Title, l.Because, l.Fix)))
		}
		p.add("\n</ul>")
	}
	if len(r.Lasting) > 0 {
		p.add("\n<h2>To make it permanent</h2>\n<pre>")
		for _, command := range r.Lasting {
			p.add("%s\n", clean(command.String()))
		}
		p.add("</pre>")
	}
	if undo := clean(r.Undo.String()); undo != "" {
		p.add("\n<p>To take back everything that was kept: <code>%s</code></p>", undo)
	}
	if r.Undone {
		p.add("\n<p>Everything that was kept has been taken back.</p>")
	}
	p.add("\n</body>\n</html>\n")
}
