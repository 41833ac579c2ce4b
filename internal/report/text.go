package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
)

// Style says how text is dressed.
type Style struct {
	Color bool // ANSI colours: only for a terminal
	Width int  // columns; 0 = 100
	All   bool // every endpoint, and why each cause is ruled out
}

type printer struct {
	Style
	w   io.Writer
	err error
}

// Text writes r for a person: the findings first, worst first, then what was
// watched, what was ruled out and what could not be checked.
func Text(w io.Writer, r *diagnose.Report, style Style) error {
	if style.Width <= 0 {
		style.Width = 100
	}
	p := &printer{Style: style, w: w}
	p.head(r)
	p.findings(r)
	p.account(r)
	p.changes(r)
	p.endpoints(r)
	p.ruledOut(r.RuledOut)
	p.excluded("Not checked", r.NotChecked)
	for _, l := range r.Losses {
		p.line("%s %s: %s", p.paint(yellow, "Not counted:"), printable.Text(l.What), figure.Count(l.Count))
	}
	return p.err
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

func (p *printer) head(r *diagnose.Report) {
	if c := r.Capture; c != nil && c.Lines > 0 {
		p.line("%s: %s lines of TCPRT's log over %.3g s", printable.Text(c.File), figure.Count(uint64(c.Lines)), r.Window.Seconds)
	} else if c != nil {
		p.line("%s: %s packets in %.3g s, %s TCP connections", printable.Text(c.File), figure.Count(uint64(c.Packets)), r.Window.Seconds, figure.Count(uint64(c.Connections)))
	} else if h := r.History; h != nil {
		p.line("%s from %s to %s: %d windows, %.3g s watched (Linux %s, %d CPUs)", printable.Text(r.Host.Name), figure.Moment(h.From), figure.Until(h.To, h.From), h.Windows, h.Seconds, printable.Text(r.Host.Kernel), r.Host.CPUs)
	} else {
		p.line("%s watched for %.3g s%s (Linux %s, %d CPUs)", printable.Text(r.Host.Name), r.Window.Seconds, whenText(&r.Window), printable.Text(r.Host.Kernel), r.Host.CPUs)
	}
	if r.Window.Seconds < 1 {
		p.line("%s", p.paint(yellow, "Ended early: what is ruled out after so short a time is not sure."))
	}
	p.line("")
}

// whenText says when a window was: a report is read later too, and one of the history
// is of another time than now.
func whenText(w *diagnose.ReportWindow) string {
	if w.Start.IsZero() {
		return ""
	}
	return fmt.Sprintf(", from %s to %s", figure.Moment(w.Start), figure.Until(w.Start.Add(time.Duration(w.Seconds*float64(time.Second))), w.Start))
}

func (p *printer) findings(r *diagnose.Report) {
	n := 0
	for i := range r.Findings {
		f := &r.Findings[i]
		if f.Role != cause.RoleCause {
			continue
		}
		n++
		p.finding(n, f)
		for j := range r.Findings {
			if c := &r.Findings[j]; c.ConsequenceOf != nil && *c.ConsequenceOf == f.Cause && firstOf(r.Findings, f.Cause) == i {
				p.field("so also", fmt.Sprintf("%s: %s (%s)", c.Cause, c.Title, c.Impact.Text))
			}
		}
		p.line("")
	}
	switch {
	case n > 0 && r.CutShort != "":
		p.line("%s", p.paint(yellow, fmt.Sprintf("Not judged in full: %s. There may be more than this: see below what was not.", printable.Text(r.CutShort))))
		p.line("")
		return
	case n > 0:
		return
	case r.CutShort != "":
		p.line("%s", p.paint(yellow, fmt.Sprintf("Not judged in full: %s. Nothing was found in what was judged, which says little: see below what was not.", printable.Text(r.CutShort))))
	case r.Capture != nil && r.Capture.Lines > 0:
		p.line("%s", p.paint(green, "Nothing found in what TCPRT's log tells; what happens inside of the hosts it does not."))
	case r.Capture != nil:
		p.line("%s", p.paint(green, "Nothing found in what packets tell; what happens inside of the hosts they do not."))
	case len(r.RuledOut) < len(r.NotChecked):
		p.line("%s", p.paint(yellow, "Nothing found, but most could not be checked: see the reasons below (run as root)."))
	case len(r.NotChecked) > 0:
		p.line("%s", p.paint(green, "Nothing found in what could be checked; see below what could not."))
	default:
		p.line("%s", p.paint(green, "Nothing found: no request was seen to fail or wait for a cause that slowray knows."))
	}
	p.line("")
}

// sightsShown is how many signs of trouble are listed that no finding is about.
const sightsShown = 5

// account says how much was lost, how much of it the findings explain, and what may be
// harm, or not.
func (p *printer) account(r *diagnose.Report) {
	a := &r.Account
	if a.Lost > 0 {
		p.line("Requests lost %s in this window; the findings explain %s of it.", figure.Seconds(a.Lost), figure.Percent(a.Explained/a.Lost))
		p.line("")
	}
	if len(r.Unlinked) > 0 {
		p.line("Seen, and not linked to any slow request:")
		most := sightsShown
		if p.All {
			most = len(r.Unlinked)
		}
		for i, s := range r.Unlinked {
			if i == most {
				p.line("  and %s more: --all lists them", figure.Count(len(r.Unlinked)-most))
				break
			}
			p.wrapped("    ", 4, printable.Text(s.Text))
		}
		p.line("")
	}
	for _, e := range r.Endpoints {
		known := slices.ContainsFunc(a.Victims, func(x cause.Victim) bool { return x.NetNS == e.NetNS && x.Port == e.Port })
		if e.Side != observe.Served.String() || e.Unfinished == 0 || known || len(r.Findings) > 0 {
			continue
		}
		who := "a process"
		if e.Process != nil {
			who = e.Process.Comm
		}
		p.wrapped("", 0, printable.Text(fmt.Sprintf("But some requests (%s) waited for an answer of %s on %s when the window ended, for over a second: unless that is how it works (long polls, streams), they hang. \"slowray requests --port %d\" shows them.",
			figure.Count(e.Unfinished), who, joinHostPort(e.Addr, e.Port), e.Port)))
		p.line("")
	}
}

// firstOf is the index of the first finding of a cause.
func firstOf(findings []cause.Finding, id cause.ID) int {
	for i := range findings {
		if findings[i].Cause == id {
			return i
		}
	}
	return -1
}

func (p *printer) finding(n int, f *cause.Finding) {
	sure := ""
	if f.Confidence > 0 { // what an older slowray said has none
		sure = fmt.Sprintf("  confidence %.2f", f.Confidence)
	}
	p.line("%s %s", p.paint(red, fmt.Sprintf("%d. %s", n, printable.Text(f.Title))), p.paint(dim, "["+string(f.Cause)+"]"+sure))
	p.field("where", subjectText(&f.Subject))
	if o := f.Over; o != nil {
		p.field("when", fmt.Sprintf("%s to %s, in %d of %d windows; the figures are of the one at %s, the share of all", figure.Moment(o.Onset), figure.Until(o.End, o.Onset), o.Windows, o.Of, figure.Until(o.Worst, o.Onset)))
	}
	p.field("how bad", fmt.Sprintf("%s of %s: %s", figure.Percent(f.Impact.Share), f.Impact.Of, f.Impact.Text))
	p.hops(f)
	p.field("do this", f.Fix.Text)
	for _, c := range f.Fix.Commands {
		p.raw("", p.paint(bold, printable.Text(c.String())))
	}
	for i, c := range f.Fix.Persist {
		label := ""
		if i == 0 {
			label = "to keep"
		}
		p.raw(label, printable.Text(c.String()))
	}
	if f.Prove != nil {
		p.raw("prove", printable.Text(f.Prove.Command.String()))
	}
	for i, e := range f.Evidence {
		label := ""
		if i == 0 {
			label = "seen"
		}
		p.field(label, evidenceText(&e))
	}
}

// hops prints a finding's chain of waits, one thread under the other.
func (p *printer) hops(f *cause.Finding) {
	width := 0
	for i := range f.Chain {
		width = max(width, utf8.RuneCountInString(whoText(&f.Chain[i])))
	}
	indent := labelWidth + width + 2
	for i := range f.Chain {
		h := &f.Chain[i]
		label := ""
		if i == 0 {
			label = "chain"
		}
		head := fmt.Sprintf("   %-*s%-*s  ", labelWidth-3, label, width, whoText(h))
		if i > 0 {
			p.wrapped(head, indent, printable.Text(linkText(h, &f.Chain[i-1].Process)))
			head = strings.Repeat(" ", indent)
		}
		p.wrapped(head, indent, printable.Text(waitsText(h)))
	}
	if f.ChainEnd != "" {
		p.wrapped(fmt.Sprintf("%*s%-*s  ", labelWidth, "", width, "end"), indent, printable.Text(f.ChainEnd))
	}
}

func evidenceText(e *cause.Evidence) string {
	return fmt.Sprintf("%s: %s  (%s)", e.Fact, figure.Evidence(e.Value, e.Limit, e.Unit), e.Source)
}

// SubjectText names what a finding is about, on one line that is fit for a terminal.
func SubjectText(s *cause.Subject) string { return printable.Text(subjectText(s)) }

func subjectText(s *cause.Subject) string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if s.Comm != "" && s.PID != 0 {
		add("%s (pid %d)", s.Comm, s.PID)
	}
	if s.Container != "" {
		add("container %s", s.Container)
	}
	switch {
	case s.Kind == "destination" && s.Addr != "":
		add("calls to %s", joinHostPort(s.Addr, s.Port))
	case s.Port != 0:
		add("port %d", s.Port)
	case strings.HasPrefix(s.Addr, "unix:"):
		add("%s", s.Addr)
	}
	if s.Path != "" {
		add("%s", s.Path)
	}
	if s.NetNS != 0 {
		add("network namespace %d", s.NetNS)
	}
	if len(parts) == 0 {
		return s.Kind
	}
	return strings.Join(parts, ", ")
}

// ruledOut tells why causes are ruled out. Of those that nothing was seen of
// only the names are told, unless all is asked for.
func (p *printer) ruledOut(list []diagnose.Excluded) {
	var told []diagnose.Excluded
	var rest []string
	for _, e := range list {
		if p.All || !e.Nothing() {
			told = append(told, e)
		} else {
			rest = append(rest, e.Cause)
		}
	}
	if len(rest) == 1 { // its reason is no longer than the words about it
		told, rest = list, nil
	}
	p.excluded("Ruled out", told)
	if len(rest) > 0 {
		p.line("%s", p.paint(bold, fmt.Sprintf("Ruled out, for there is nothing of the kind (%d; --all tells more)", len(rest))))
		p.wrapped("  ", 2, strings.Join(rest, ", "))
		p.line("")
	}
}

// maxAlso is how many causes are named that share the reason of another one,
// unless all are asked for.
const maxAlso = 20

func (p *printer) excluded(title string, list []diagnose.Excluded) {
	if len(list) == 0 {
		return
	}
	p.line("%s", p.paint(bold, title))
	told := map[string]bool{}
	for i, e := range list {
		if told[e.Because] {
			continue
		}
		told[e.Because] = true
		var also []string
		for _, same := range list[i+1:] {
			if same.Because == e.Because {
				also = append(also, same.Cause)
			}
		}
		because := e.Because
		if n := len(also); n > maxAlso && !p.All {
			because += fmt.Sprintf("; so also %d other causes (--all names them)", n)
		} else if n > 0 {
			because += "; so also " + strings.Join(also, ", ")
		}
		p.wrapped(fmt.Sprintf("  %-31s", e.Cause), 33, printable.Text(because))
	}
	p.line("")
}

const labelWidth = 12

// field prints a labelled sentence, wrapped.
func (p *printer) field(label, text string) {
	p.wrapped(fmt.Sprintf("   %-*s", labelWidth-3, label), labelWidth, printable.Text(text))
}

// raw prints a labelled command on one line, never wrapped: it is copied.
func (p *printer) raw(label, text string) {
	p.line("   %-*s%s", labelWidth-3, label, text)
}

func (p *printer) wrapped(head string, indent int, text string) {
	room := max(p.Width-indent, 20)
	for i, l := range wrap(text, room) {
		if i == 0 {
			p.line("%s%s", p.paint(dim, head), l)
		} else {
			p.line("%*s%s", indent, "", l)
		}
	}
}
