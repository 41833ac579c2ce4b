package tune

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"math"

	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/shell"
)

//go:embed page/page.html
var pageHTML string

//go:embed page/page.css
var pageCSS string

// The template escapes every name by the place it is put in.
var page = template.Must(template.New("tune").Parse(pageHTML))

// policy lets the page use its own style, run nothing and load nothing (W3C CSP3).
func policy() string {
	sum := sha256.Sum256([]byte(pageCSS))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'"
}

// pair is a name with what belongs to it.
type pair struct{ Name, Value string }

// view is what the page shows.
type view struct {
	Policy, Service, Host, Load, Text string
	Style                             template.CSS
	Figures                           []pair
	Columns                           []string
	Rows                              [][]string
	Steps                             []stepView
	Left                              []pair
	Lasting                           []string
	Undo                              string
	Undone                            bool
}

type stepView struct {
	N                           int
	Cause, Title, Result, Class string
	Facts                       []pair
	Charts                      []chart
}

// HTML writes r as one page, to be opened from a file: it needs no network and
// no script. The error is w's.
func HTML(w io.Writer, r *Report) error {
	v := view{
		Policy: policy(), Style: template.CSS(pageCSS), Service: clean(r.Service), Load: clean(r.Load), Text: clean(r.Text),
		Host: fmt.Sprintf("%s, Linux %s, %s; %s, for %s", clean(r.Host.Name), clean(r.Host.Kernel), plural(r.Host.CPUs, "CPU"),
			r.Start.UTC().Format("2006-01-02 15:04:05 UTC"), figure.Seconds(math.Round(r.Seconds))),
		Lasting: cleaned(r.Lasting), Undo: clean(r.Undo.String()), Undone: r.Undone,
	}
	if f, l := r.First, r.Last; f != nil && l != nil {
		v.Figures = []pair{
			{"good responses/s", move(rate(f.Good), rate(l.Good))},
			{"p50", moveOf(f.P50, l.P50, milliseconds)},
			{"p99", moveOf(f.P99, l.P99, milliseconds)},
			{"errors/s", moveOf(f.Errors, l.Errors, rate)},
			{"changes kept", fmt.Sprintf("%d of %d", len(r.kept()), len(r.Steps))},
		}
	}
	for i := range r.Steps {
		if r.Applied {
			v.Columns = columns
			v.Rows = append(v.Rows, r.Steps[i].row(i+1))
		}
		v.Steps = append(v.Steps, r.Steps[i].view(i+1, r.Applied))
	}
	for _, l := range r.Left {
		v.Left = append(v.Left, pair{clean(l.Cause), clean(fmt.Sprintf("%s (%s) %s", l.Title, l.Because, l.Fix))})
	}
	return page.Execute(w, v)
}

func cleaned(commands []shell.Command) []string {
	var list []string
	for _, c := range commands {
		list = append(list, clean(c.String()))
	}
	return list
}

func (s *Step) view(n int, applied bool) stepView {
	v := stepView{N: n, Cause: clean(s.causes()), Title: clean(s.Title), Result: s.result()}
	if !applied {
		v.Result = "not made: a dry run"
	}
	switch {
	case s.Kept:
		v.Class = "kept"
	case s.Verdict == Worse:
		v.Class = "worse"
	}
	add := func(name, text string) {
		if text != "" {
			v.Facts = append(v.Facts, pair{name, clean(text)})
		}
	}
	add("seen", s.Seen)
	for _, c := range s.Changes {
		add("change", c.Text)
	}
	for _, c := range s.Do {
		add("by hand", c.String())
	}
	for _, c := range s.Undo {
		add("undo", c.String())
	}
	add("again", s.Again)
	add("verdict", s.Text)
	v.Charts = s.charts()
	return v
}
