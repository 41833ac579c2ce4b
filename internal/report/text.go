package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/language"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
	"github.com/slowray/slowray/internal/shell"
)

// Style says how text is dressed.
type Style struct {
	Color bool // ANSI colours: only for a terminal
	Width int  // columns; 0 = 100
	// Program is how slowray was called, where the shell does not find it by its name: its
	// commands are to be pasted.
	Program string
	All     bool // everything: all evidence, every endpoint, why each cause is ruled out
	// Language is that of the reader; nil is English.
	Language *language.Language
}

type printer struct {
	Style
	w   io.Writer
	err error
}

// Text writes r for a person: the verdict and one screen, or everything with style.All.
func Text(w io.Writer, r *diagnose.Report, style Style) error {
	if style.Width <= 0 {
		style.Width = 100
	}
	p := &printer{Style: style, w: w}
	if style.All {
		p.everything(r)
	} else {
		p.screen(r)
	}
	return p.err
}

// everything writes the whole report.
func (p *printer) everything(r *diagnose.Report) {
	p.verdict(r)
	p.source(r)
	p.line("")
	p.findings(r)
	p.account(r)
	p.changes(r)
	p.endpoints(r)
	p.excluded("Ruled out", r.RuledOut)
	p.excluded("Not checked", r.NotChecked)
	for i := range r.Losses {
		p.loss(&r.Losses[i])
	}
	if len(r.Losses) > 0 {
		p.line("")
	}
	p.verdict(r)
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

// say is fmt.Sprintf in the language of the reader, who also reads the arguments in it.
func (p *printer) say(format string, args ...any) string { return p.Language.Sprintf(format, args...) }

// text is what a finding says, in the language of the reader.
func (p *printer) text(english string) string { return p.Language.Text(english) }

// source says what was watched, when, and what that leaves open.
func (p *printer) source(r *diagnose.Report) {
	if c := r.Capture; c != nil && c.Lines > 0 {
		p.paragraph(p.say("%s: %s lines of TCPRT's log over %.3g s", printable.Text(c.File), figure.Count(uint64(c.Lines)), r.Window.Seconds))
	} else if c != nil {
		p.paragraph(p.say("%s: %s packets in %.3g s, %s TCP connections", printable.Text(c.File), figure.Count(uint64(c.Packets)), r.Window.Seconds, figure.Count(uint64(c.Connections))))
	} else if h := r.History; h != nil {
		p.paragraph(p.say("%s from %s to %s: %d windows, %.3g s watched (Linux %s, %d CPUs)", printable.Text(r.Host.Name), figure.Moment(h.From), figure.Until(h.To, h.From), h.Windows, h.Seconds, printable.Text(r.Host.Kernel), r.Host.CPUs))
	} else {
		p.paragraph(p.say("%s watched for %.3g s%s (Linux %s, %d CPUs)", printable.Text(r.Host.Name), r.Window.Seconds, whenText(&r.Window), printable.Text(r.Host.Kernel), r.Host.CPUs))
	}
	if r.Window.Seconds < 1 {
		p.colored(yellow, p.say("The window was cut short: causes may be ruled out for lack of requests."))
	}
	switch {
	case r.CutShort != "" && len(r.Findings) > 0:
		p.colored(yellow, p.say("Not judged in full: %s. There may be other causes: see those not checked.", printable.Text(r.CutShort)))
	case r.CutShort != "":
		p.colored(yellow, p.say("Nothing was found in what was judged, which says little: see the causes not checked."))
	case r.Capture != nil && len(r.Findings) == 0:
		p.paragraph(p.say("Nothing found in it. It cannot show what happens inside the hosts."))
	}
}

// whenText says when a window was: a report is read later too, and one of the history
// is of another time than now.
func whenText(w *diagnose.ReportWindow) string {
	if w.Start.IsZero() {
		return ""
	}
	return fmt.Sprintf(", from %s to %s", figure.Moment(w.Start), figure.Until(w.Start.Add(time.Duration(w.Seconds*float64(time.Second))), w.Start))
}

// findings writes each cause in full, and under it what follows from it.
func (p *printer) findings(r *diagnose.Report) {
	for i, f := range causesOf(r) {
		p.finding(i+1, f)
		for _, c := range consequencesOf(r, f) {
			p.field("explains", p.say("also %s: %s (%s)", c.Cause, c.Title, c.Impact.Text))
		}
		p.line("")
	}
}

// account says how much was lost, how much of it the findings explain, and what may be
// harm, or not.
func (p *printer) account(r *diagnose.Report) {
	p.shortAccount(r)
	if len(r.Unlinked) > 0 {
		p.line("%s", p.say("Not the cause: linked to no slow request"))
		for _, s := range r.Unlinked {
			p.wrapped("    ", 4, p.text(printable.Text(s.Text)))
		}
		p.line("")
	}
	p.unfinished(r)
}

// unfinished lists services with requests that had no answer when the window ended, where no
// finding says so: they may be meant to take long.
func (p *printer) unfinished(r *diagnose.Report) {
	for _, e := range r.Endpoints {
		known := slices.ContainsFunc(r.Account.Victims, func(x cause.Victim) bool { return x.NetNS == e.NetNS && x.Port == e.Port })
		if e.Side != observe.Served.String() || e.Unfinished == 0 || known || len(r.Findings) > 0 {
			continue
		}
		who := "a process"
		if e.Process != nil {
			who = e.Process.Comm
		}
		p.line("%s", p.cut(fmt.Sprintf("%s of %s :%d had no answer after 1 s: do they hang? slowray requests --port %d",
			figure.Counted(e.Unfinished, "request"), who, e.Port, e.Port), 0))
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
	p.heading(n, f)
	p.translated("where", p.subject(&f.Subject))
	if o := f.Over; o != nil {
		p.field("when", overText(o))
	}
	p.field("impact", p.impact(f))
	p.hops(f)
	p.field("fix", f.Fix.Text)
	p.listed("", p.commands(bold, f.Fix.Commands))
	p.listed("permanent", p.commands("", f.Fix.Persist))
	if f.Prove != nil {
		p.listed("prove", p.commands("", []shell.Command{f.Prove.Command}))
	}
	for i, e := range f.Evidence {
		label := ""
		if i == 0 {
			label = "evidence"
		}
		p.translated(label, fmt.Sprintf("%s  (%s)", p.fact(&e), e.Source))
	}
}

// overText says in which windows a finding was made.
func overText(o *observe.Over) string {
	form := "%s to %s, in %d of %d windows; the figures are of the one at %s, the share of all"
	if o.Before {
		form = "before " + form
	}
	return fmt.Sprintf(form, figure.Moment(o.Onset), figure.Until(o.End, o.Onset), o.Windows, o.Of, figure.Until(o.Worst, o.Onset))
}

func (p *printer) impact(f *cause.Finding) string {
	return p.say("%s of %s: %s", figure.Percent(f.Impact.Share), f.Impact.Of, f.Impact.Text)
}

// hops prints a finding's chain of waits, one thread under the other.
func (p *printer) hops(f *cause.Finding) {
	width := 0
	for i := range f.Chain {
		width = max(width, ansi.StringWidth(whoText(&f.Chain[i])))
	}
	indent := labelWidth + width + 2
	for i := range f.Chain {
		h := &f.Chain[i]
		label := ""
		if i == 0 {
			label = "chain"
		}
		head := p.label(label) + printable.Pad(whoText(h), width) + "  "
		if i > 0 {
			p.wrapped(head, indent, p.text(printable.Text(linkText(h, &f.Chain[i-1].Process))))
			head = strings.Repeat(" ", indent)
		}
		p.wrapped(head, indent, p.text(printable.Text(waitsText(h))))
	}
	if f.ChainEnd != "" {
		p.wrapped(p.label("")+printable.Pad(p.say("end"), width)+"  ", indent, p.text(printable.Text(f.ChainEnd)))
	}
}

func (p *printer) fact(e *cause.Evidence) string {
	return p.say("%s: %s", e.Fact, figure.Evidence(e.Value, e.Limit, e.Unit))
}

// SubjectText names what a finding is about, on one line that is fit for a terminal.
func SubjectText(s *cause.Subject) string { return printable.Text(subjectText(s)) }

func subjectText(s *cause.Subject) string { return strings.Join(subjectParts(s), ", ") }

// subject is subjectText in the language of the reader.
func (p *printer) subject(s *cause.Subject) string {
	parts := subjectParts(s)
	text := p.text(parts[0])
	for _, more := range parts[1:] {
		text = p.say("%s, %s", text, more)
	}
	return text
}

func subjectParts(s *cause.Subject) (parts []string) {
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if s.Comm != "" && s.PID != 0 {
		add("%s (pid %d)", s.Comm, s.PID)
	}
	switch {
	case s.Workload != observe.Workload{}:
		add("%s", s.Workload.ContainerText())
	case s.Container != "":
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
		return []string{s.Kind}
	}
	return parts
}

// excluded lists causes with the reason; those that share one stand together.
func (p *printer) excluded(title string, list []diagnose.Excluded) {
	if len(list) == 0 {
		return
	}
	p.line("%s", p.paint(bold, p.text(title)))
	listed := map[string]bool{}
	for i, e := range list {
		if listed[e.Because] {
			continue
		}
		listed[e.Because] = true
		var same []string
		for _, other := range list[i+1:] {
			if other.Because == e.Because {
				same = append(same, other.Cause)
			}
		}
		because := e.Because
		if len(same) > 0 {
			because += "; the same for " + strings.Join(same, ", ")
		}
		p.wrapped(fmt.Sprintf("  %-31s", e.Cause), 33, p.text(printable.Text(because)))
	}
	p.line("")
}

const labelWidth = 13

// field prints a labelled sentence, wrapped.
func (p *printer) field(label, text string) { p.translated(label, p.text(printable.Text(text))) }

// translated is field for text that is in the language of the reader already.
func (p *printer) translated(label, text string) {
	p.wrapped(p.label(label), labelWidth, printable.Text(text))
}

// label is what stands before a text of a finding.
func (p *printer) label(name string) string { return "   " + printable.Pad(p.text(name), labelWidth-3) }

// called is a command as the shell finds it.
func (p *printer) called(command string) string {
	if rest, ok := strings.CutPrefix(command, "slowray "); ok && p.Program != "" {
		return p.Program + " " + rest
	}
	return command
}

// commands are lines under a label: each command whole, for it is copied, and what it notes
// next to it, or above it where both have no room.
func (p *printer) commands(c color, list []shell.Command) (lines []string) {
	for i := range list {
		room := max(p.Width-labelWidth, 20)
		command, note := list[i].Parts()
		text := p.called(printable.Text(list[i].String()))
		if said := p.note(printable.Text(note)); note != "" {
			text = strings.TrimSuffix(text, printable.Text(note)) + said
			note = said
		}
		if note != "" && ansi.StringWidth(text) > room {
			for _, l := range printable.Wrap(printable.Text(note), room-2) {
				lines = append(lines, p.paint(c, "# "+l))
			}
			if text = p.called(printable.Text(command)); text == "" {
				continue
			}
		}
		lines = append(lines, p.paint(c, text))
	}
	return lines
}

// note is what a command notes, in the language of the reader, unless that would change what
// is quoted in it: a setting, which is copied.
func (p *printer) note(english string) string {
	said := p.text(english)
	if i := strings.IndexByte(english, '\''); i >= 0 && !strings.Contains(said, english[i:]) {
		return english
	}
	return said
}

// paragraph writes text that is printable and in the reader's language, wrapped.
func (p *printer) paragraph(text string) { p.colored("", text) }

func (p *printer) colored(c color, text string) {
	for line := range strings.SplitSeq(printable.Fold(text, p.Width), "\n") {
		p.line("%s", p.paint(c, line))
	}
}

// loss says what is missing, and whether that was lost.
func (p *printer) loss(l *observe.Loss) {
	p.colored(yellow, p.text(l.Label())+p.say(": %s: %s", printable.Text(l.What), figure.Count(l.Count)))
}

// wrapped prints text in the reader's language under and next to a head.
func (p *printer) wrapped(head string, indent int, text string) {
	room := max(p.Width-indent, 20)
	for i, l := range printable.Wrap(text, room) {
		if i == 0 {
			p.line("%s%s", p.paint(dim, head), l)
		} else {
			p.line("%*s%s", indent, "", l)
		}
	}
}
