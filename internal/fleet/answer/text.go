package answer

import (
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
	"github.com/slowray/slowray/internal/shell"
)

// JSON writes the report for programs, in lines that a terminal bears too.
func (r *Report) JSON(w io.Writer) error { return printable.WriteJSON(w, r) }

// printer writes lines in which nothing that came from a host can drive a terminal.
type printer struct {
	w     io.Writer
	width int // columns
	err   error
}

// line writes a text, over several lines where it is too long: those that follow stand
// further in.
func (p *printer) line(format string, args ...any) {
	text := printable.Text(fmt.Sprintf(format, args...))
	body := strings.TrimLeft(text, " ")
	in := text[:len(text)-len(body)]
	for i, l := range printable.Wrap(body, max(p.width-len(in)-2, 20)) {
		if i > 0 {
			l = "  " + l
		}
		p.write(in + l)
	}
}

// command writes a command on a line of its own, whole: it is copied.
func (p *printer) command(indent string, c shell.Command) {
	p.write(indent + printable.Text(c.String()))
}

func (p *printer) write(line string) {
	if p.err == nil {
		_, p.err = io.WriteString(p.w, line+"\n")
	}
}

// verdict writes one line: whether there is a problem in the fleet, and which.
func (p *printer) verdict(r *Report) {
	word, text := "OK", r.healthy()
	switch {
	case len(r.Causes) > 0:
		word = "PROBLEM"
		text, _ = r.Causes[0].said()
		if more := len(r.Causes) - 1; more > 0 {
			text = fmt.Sprintf("%s: %s", count(len(r.Causes), "cause"), text)
		}
	case len(r.Abnormal) > 0:
		word, text = "PROBLEM", r.Abnormal[0].text()
		if more := len(r.Abnormal) - 1; more > 0 {
			text = fmt.Sprintf("%s abnormal, sharing no cause: %s", count(len(r.Abnormal), "endpoint"), text)
		}
	case len(r.Findings) > 0:
		f := &r.Findings[0]
		word, text = "PROBLEM", fmt.Sprintf("%s: %s", f.Host, title(f))
		if more := len(r.Findings) - 1; more > 0 {
			text += fmt.Sprintf("; and %s of hosts", count(more, "more finding"))
		}
	case r.Blind() != "":
		word, text = "UNKNOWN", r.Blind()
	}
	p.write(printable.Cut(printable.Text(word+"  "+text), p.width))
}

// Text writes the report for a person, in so many columns: the verdict first, and again
// last where something was found.
func (r *Report) Text(w io.Writer, width int) error {
	p := &printer{w: w, width: max(width, 40)}
	p.verdict(r)
	p.line("%s", r.head())
	if about := r.Question.text(); about != "" {
		p.line("Only %s.", about)
	}
	for i := range r.Causes {
		p.line("")
		p.cause(i+1, &r.Causes[i])
	}
	p.alone(r)
	if related := r.related(); len(related) > 0 {
		p.line("")
		p.line("Findings of hosts%s", r.alongside())
		p.findings(related)
	}
	if n := len(r.Findings) - len(r.related()); n > 0 {
		p.line("")
		p.line("%s of hosts, older or not about what is affected: --json", count(n, "more finding"))
	}
	if len(r.Clocks) > 0 {
		p.line("")
		p.line("Clocks")
		for i := range r.Clocks {
			p.line("  %s", r.Clocks[i].text())
		}
	}
	if len(r.NotTested) > 0 {
		p.line("")
		p.line("Not checked")
		for _, u := range r.NotTested {
			p.line("  %s: %s", u.What, u.Because)
		}
	}
	if r.Found() { // where a terminal has scrolled to
		p.line("")
		if len(r.Causes) > 0 && len(r.Causes[0].Next) > 0 {
			p.command("Next: ", r.Causes[0].Next[0])
		}
		p.verdict(r)
	}
	return p.err
}

// head is what was looked at.
func (r *Report) head() string {
	f := &r.Fleet
	text := fmt.Sprintf("%s to %s UTC: %s, %s, %s requests", r.From.Format(time.DateTime), r.To.Format(time.TimeOnly),
		count(f.Hosts, "host"), count(f.Endpoints, "endpoint"), figure.Count(f.Requests))
	if f.Joined > 0 {
		text += fmt.Sprintf(", %s of them seen at both ends", figure.Count(f.Joined))
	}
	return text
}

// unseen says that nothing of what was asked about was there.
func (r *Report) unseen() bool {
	return r.Question.Service != "" && slices.ContainsFunc(r.NotTested, func(u Unchecked) bool { return u.What == "the service "+r.Question.Service })
}

// related are the findings of hosts that may have to do with the causes: those about what is
// affected, that were not there before. Where there is no cause, all.
func (r *Report) related() (list []Finding) {
	if len(r.Causes) == 0 {
		return r.Findings
	}
	for i := range r.Findings {
		f := &r.Findings[i]
		about := func(e Endpoint) bool {
			return e.Host == f.Host && near(&f.Finding, &Origin{Service: e.Service, Port: e.Port, Comm: program(e.Service)})
		}
		if !f.Before && slices.ContainsFunc(r.Causes, func(c Cause) bool {
			return slices.ContainsFunc(c.Affected, about) || slices.ContainsFunc(c.Chain, about)
		}) {
			list = append(list, *f)
		}
	}
	return list
}

func (r *Report) alongside() string {
	if len(r.Causes) > 0 {
		return ", next to these"
	}
	return ""
}

func (a *Asked) text() string {
	var of []string
	if a.Service != "" {
		of = append(of, "the service "+a.Service)
	}
	if a.Host != "" {
		of = append(of, "the host "+a.Host)
	}
	return strings.Join(of, " on ")
}

// well says that something was judged, of what was asked about.
func (r *Report) well() bool { return r.Fleet.Judged > 0 && r.Fleet.Endpoints > 0 && !r.unseen() }

// healthy is what there is to say where nothing is abnormal.
func (r *Report) healthy() string {
	if r.Question.text() != "" {
		return "Nothing of it is abnormal."
	}
	if r.inPart {
		return fmt.Sprintf("Nothing is abnormal where the archive answers, which some of it does not: %s are as they usually are.", count(r.Fleet.Judged, "endpoint"))
	}
	return fmt.Sprintf("Nothing is abnormal: %s are as they usually are.", count(r.Fleet.Judged, "endpoint"))
}

func (p *printer) alone(r *Report) {
	switch {
	case r.Blind() != "":
		p.line("")
		p.line("Nothing could be judged.")
	case len(r.Abnormal) == 0 && len(r.Findings) > 0 && r.Question.text() == "" && r.well():
		p.line("")
		p.line("%s slow or failing beyond what is usual; hosts found the following by themselves.", none(r.Fleet.Judged))
	case len(r.Abnormal) == 0 && r.well():
		p.line("")
		p.line("%s", r.healthy())
	case len(r.Alone) > 0:
		p.line("")
		p.line("Abnormal, and sharing nothing that others have not")
		p.endpoints(r.Alone)
	}
}

// none says that nothing of n endpoints is so.
func none(n int) string {
	if n == 1 {
		return "The one endpoint that is known is not"
	}
	return fmt.Sprintf("None of %s is", count(n, "endpoint"))
}

// said is what is at fault, and what else is said of it.
func (c *Cause) said() (fault, more string) {
	fault, more, _ = strings.Cut(c.Text, ". ")
	return strings.TrimSuffix(fault, "."), more
}

func (p *printer) cause(n int, c *Cause) {
	fault, more := c.said()
	p.line("%d. %s", n, fault)
	if more != "" {
		p.line("   %s", more)
	}
	p.line("   %s", c.extent())
	for i := range c.Findings {
		p.finding("   ", &c.Findings[i])
	}
	if len(c.Next) > 0 {
		p.line("   next")
		for _, next := range c.Next {
			p.command("     ", next)
		}
	}
	if len(c.Chain) > 1 {
		p.line("   the way there")
		for i := range c.Chain {
			e := &c.Chain[i]
			p.line("     %s%s", strings.Repeat(" ", min(i, 8)), e.text())
		}
	}
	if len(c.Evidence) > 0 {
		p.line("   evidence")
		for i := range c.Evidence {
			p.line("     %s", c.Evidence[i].text())
		}
	}
	if len(c.RuledOut) > 0 {
		p.line("   ruled out")
		for _, u := range c.RuledOut {
			p.line("     %s: %s", u.What, u.Because)
		}
	}
	if len(c.Affected) > len(c.Chain) {
		p.line("   affected")
		p.endpoints(c.Affected)
	}
}

// extent is when it was, how much it affects, and how likely it is by chance.
func (c *Cause) extent() string {
	when := "since " + c.Since.Format(time.TimeOnly)
	if c.Until != nil {
		when = "from " + c.Since.Format(time.TimeOnly) + " to " + c.Until.Format(time.TimeOnly)
	}
	// Of one or two endpoints it says nothing: they are reported by how abnormal they are.
	chance := ""
	if c.P < 0.05 {
		chance = fmt.Sprintf("; by chance with a probability of %.1g", c.P)
	}
	return fmt.Sprintf("%s; %s affected%s", when, count(len(c.Affected), "endpoint"), chance)
}

// mostEndpoints are shown of a list.
const mostEndpoints = 8

func (p *printer) endpoints(list []Endpoint) {
	for i := range list {
		if i == mostEndpoints {
			p.line("     … and %s more", figure.Count(len(list)-i))
			return
		}
		p.line("     %s", list[i].text())
	}
}

// text is an abnormal endpoint on a line.
// Who names the endpoint and its host.
func (e Endpoint) Who() string {
	if e.Host == "" {
		e.Host = "all its hosts together"
	}
	text := e.Service + " on " + e.Host
	if e.Side == "called" {
		text = fmt.Sprintf("%s on %s calls %s", e.Service, e.Host, net.JoinHostPort(e.Addr, strconv.Itoa(e.Port)))
	}
	return text
}

func (e Endpoint) text() string {
	if e.Signal == "" {
		return e.Who() + ", as usual"
	}
	return e.Who() + ": " + e.What()
}

// What says what is wrong with it.
func (e Endpoint) What() string {
	text := wrongText(e.Signal, e.Unit, e.Value, e.Expected)
	if e.Unit == "us" && e.Part != "" {
		text += ", most of it " + observe.PartName(e.Part)
	}
	if e.Network {
		text += ", on the way"
	}
	for _, w := range e.Besides {
		text += "; " + wrongText(w.Signal, w.Unit, w.Value, w.Expected)
	}
	return text
}

// wrongText is what a signal is, and what it usually is.
func wrongText(signal, unit string, value, expected float64) string {
	switch unit {
	case "us":
		return fmt.Sprintf("%s %s, usually %s", signal, figure.Seconds(value/1e6), figure.Seconds(expected/1e6))
	case "1/s":
		return fmt.Sprintf("%s requests a second, usually %s", short(value), short(expected))
	}
	return fmt.Sprintf("%s %s, usually %s", signal, figure.Percent(value), figure.Percent(expected))
}

func (f *Fact) text() string {
	write := func(v float64) string {
		switch f.Unit {
		case "us":
			return figure.Seconds(v / 1e6)
		case "share":
			return figure.Percent(v)
		case "1/s":
			return short(v) + " a second"
		}
		return short(v)
	}
	text := f.Fact + ": " + write(f.Value)
	if f.Usual != nil {
		text += ", before " + write(*f.Usual)
	}
	return text + "  [" + f.Source + "]"
}

func (p *printer) finding(indent string, f *Finding) {
	host := f.Host
	if f.Hosts > 1 {
		host += fmt.Sprintf(" and %s like it", count(f.Hosts-1, "other"))
	}
	text := fmt.Sprintf("%s%s: %s [%s]", indent, host, title(f), f.Finding.Cause)
	if on := subjectText(&f.Finding.Subject, &Origin{}); on != "" {
		text += ", " + on
	}
	if f.Finding.Impact.Text != "" {
		text += ": " + f.Finding.Impact.Text
	}
	if f.Before {
		text += "; it was there before"
	}
	if f.Windows > 1 {
		text += fmt.Sprintf("; figures of %s, the worst of %d windows", f.Figures.Format(time.TimeOnly), f.Windows)
	}
	p.line("%s", text)
	for i := range f.Finding.Evidence {
		if i == 3 {
			break
		}
		e := &f.Finding.Evidence[i]
		p.line("%s  %s: %s", indent, e.Fact, figure.Evidence(e.Value, e.Limit, e.Unit))
	}
	if f.Finding.Fix.Text != "" {
		p.line("%s  fix: %s", indent, f.Finding.Fix.Text)
	}
	for _, c := range f.Finding.Fix.Commands {
		p.command(indent+"    ", c)
	}
}

// findings tells each cause once, with the hosts that have it.
func (p *printer) findings(list []Finding) {
	var order []string
	byCause := map[string][]*Finding{}
	for i := range list {
		id := list[i].Finding.Cause
		if byCause[string(id)] == nil {
			order = append(order, string(id))
		}
		byCause[string(id)] = append(byCause[string(id)], &list[i])
	}
	for i, id := range order {
		if i == mostCauses {
			p.line("  … and %s more (--json tells all)", figure.Count(len(order)-i))
			return
		}
		of := byCause[id]
		p.finding("  ", of[0])
		p.command("    next: ", next(&Cause{Findings: []Finding{*of[0]}})[0])
		hosts := []string{}
		for _, f := range of[1:] {
			if f.Host != of[0].Host && !slices.Contains(hosts, f.Host) {
				hosts = append(hosts, f.Host)
			}
		}
		if n := len(hosts); n > 0 {
			text := strings.Join(hosts[:min(n, mostEndpoints)], ", ")
			if n > mostEndpoints {
				text += fmt.Sprintf(" and %s more", figure.Count(n-mostEndpoints))
			}
			p.line("    also on %s: %s", count(n, "other host"), text)
		}
	}
}

// mostCauses are shown of the findings that belong to no cause.
const mostCauses = 20

func (c *Clock) text() string {
	if math.Abs(c.OffsetUS) <= c.UncertaintyUS && c.DriftPPM == 0 {
		return fmt.Sprintf("%s and %s differ by no more than %s  [%s seen at both]", c.A, c.B,
			figure.Seconds((math.Abs(c.OffsetUS)+c.UncertaintyUS)/1e6), count(c.Requests, "request"))
	}
	way := "ahead of"
	offset := c.OffsetUS
	if offset < 0 {
		way, offset = "behind", -offset
	}
	text := fmt.Sprintf("%s is %s %s %s, ± %s", c.B, figure.Seconds(offset/1e6), way, c.A, figure.Seconds(c.UncertaintyUS/1e6))
	if c.DriftPPM != 0 {
		text += fmt.Sprintf(", and drifts by %.1f ppm", c.DriftPPM)
	}
	return text + fmt.Sprintf("  [%s seen at both]", count(c.Requests, "request"))
}
