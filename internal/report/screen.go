package report

import (
	"cmp"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
	"github.com/slowray/slowray/internal/shell"
)

// How much of a report is on the first screen; -v prints the rest.
const (
	screenCauses  = 3 // with their evidence; the others have a line each
	screenLines   = 8 // of a cause
	screenServed  = 5 // services
	screenCalled  = 3 // services that they call
	screenChanges = 3
	screenSights  = 2
	screenFix     = 3 // commands; of more of them the first, and what they are for
)

// screen writes what a person needs within seconds: the verdict, the causes with the
// evidence that convinces and the command that fixes them, the services, and one line each
// about the rest. The verdict comes again at the end, where a terminal has scrolled to.
func (p *printer) screen(r *diagnose.Report) {
	p.verdict(r)
	p.source(r)
	p.line("")
	roots := causesOf(r)
	for i, f := range roots {
		if i < screenCauses {
			p.onScreen(i+1, r, f)
			p.line("")
		} else {
			p.line("%s", p.shortened(fmt.Sprintf("%d. %s  [%s]  %s", i+1, p.title(f), f.Cause, printable.Text(p.subject(&f.Subject))), 0))
		}
	}
	if len(roots) > screenCauses {
		p.line("")
	}
	p.shortAccount(r)
	p.endpoints(r)
	p.shortChanges(r)
	p.unfinished(r)
	p.sights(r)
	p.rest(r)
	if len(roots) > 0 {
		p.line("")
		p.verdict(r)
	}
}

// causesOf are the findings that follow from no other.
func causesOf(r *diagnose.Report) (roots []*cause.Finding) {
	for i := range r.Findings {
		if r.Findings[i].Role == cause.RoleCause {
			roots = append(roots, &r.Findings[i])
		}
	}
	return roots
}

// consequencesOf are the findings that follow from f: with the first of its kind.
func consequencesOf(r *diagnose.Report, f *cause.Finding) (list []*cause.Finding) {
	if &r.Findings[firstOf(r.Findings, f.Cause)] != f {
		return nil
	}
	for i := range r.Findings {
		if c := &r.Findings[i]; c.ConsequenceOf != nil && *c.ConsequenceOf == f.Cause {
			list = append(list, c)
		}
	}
	return list
}

// verdict writes one line: whether there is a problem, of which service, and how bad it is.
func (p *printer) verdict(r *diagnose.Report) {
	word, c, text := judged(r)
	word = p.text(word)
	p.line("%s  %s", p.paint(c, word), p.cut(text, ansi.StringWidth(word)+2))
}

// Verdict is the first line of the text, as a program reads it.
func Verdict(r *diagnose.Report) string {
	word, _, text := judged(r)
	return word + " " + text
}

// judged is the word of the verdict, in its colour, and what it says.
func judged(r *diagnose.Report) (word string, c color, text string) {
	switch {
	case len(causesOf(r)) > 0:
		return "PROBLEM", red, harmText(r)
	case r.CutShort != "":
		return "UNKNOWN", yellow, "not judged in full: " + r.CutShort
	case Undecided(r):
		return "UNKNOWN", yellow, fmt.Sprintf("%d of %d causes could not be checked%s: %s", r.Unchecked(), r.Unchecked()+len(r.RuledOut), asRoot(r), commonest(r.NotChecked))
	}
	return "OK", green, healthText(r)
}

// Undecided says that nothing was found, and that most of what there is to find could not be
// checked. A capture never tells what happens inside of hosts: that is not counted.
func Undecided(r *diagnose.Report) bool {
	return len(r.Findings) == 0 && r.Capture == nil && len(r.RuledOut) < r.Unchecked()
}

// asRoot says what to do where rights are missing.
func asRoot(r *diagnose.Report) string {
	if r.NotPermitted() {
		return " (run as root)"
	}
	return ""
}

// harmText names the service that is harmed most, and how.
func harmText(r *diagnose.Report) string {
	var parts []string
	who := ""
	if len(r.Account.Victims) > 0 {
		x := &r.Account.Victims[0]
		who = fmt.Sprintf("%s :%d", x.Comm, x.Port)
		if x.Comm == "" {
			who = joinHostPort(x.Addr, x.Port)
		}
		for i := range r.Endpoints {
			e := &r.Endpoints[i]
			if e.Side == x.Side && e.NetNS == x.NetNS && e.Port == x.Port && (e.Addr == x.Addr || x.Side == observe.Served.String()) {
				parts = append(parts, stateOf(e)...)
				break
			}
		}
		for _, h := range x.Harms {
			if h.Kind == cause.HarmNotConnected {
				parts = append(parts, figure.Count(h.Requests)+" connections failed")
			}
		}
	} else {
		who = shortSubject(&causesOf(r)[0].Subject)
	}
	if len(parts) == 0 {
		parts = []string{causesOf(r)[0].Title}
	}
	text := who + "  " + strings.Join(parts, ", ")
	text += since(r)
	if more := len(r.Account.Victims) - 1; more > 0 {
		text += fmt.Sprintf("; and %s", figure.Counted(more, "more service"))
	}
	return text
}

// shortSubject names what a finding is about in a few words.
func shortSubject(s *cause.Subject) string {
	switch {
	case s.Comm != "" && s.Port != 0 && s.Kind != "destination":
		return fmt.Sprintf("%s :%d", s.Comm, s.Port)
	case s.Comm != "":
		return s.Comm
	}
	return subjectText(s)
}

// leastShown is the share of requests from which errors are worth a word.
const leastShown = 0.005

// stateOf is how an endpoint answers.
func stateOf(e *diagnose.Endpoint) (parts []string) {
	if e.Total != nil {
		parts = append(parts, "p99 "+duration(e.Total.P99))
	}
	if e.Requests != nil && e.Errors != nil && *e.Requests > 0 {
		if share := float64(*e.Errors) / float64(*e.Requests); share >= leastShown {
			parts = append(parts, figure.Percent(share)+" errors")
		}
	}
	if e.Unanswered > 0 {
		parts = append(parts, figure.Count(e.Unanswered)+" without an answer")
	}
	if e.Unfinished > 0 {
		parts = append(parts, figure.Count(e.Unfinished)+" hang")
	}
	return parts
}

// since says when the harm began, where that is known.
func since(r *diagnose.Report) string {
	f := causesOf(r)[0]
	s := f.Since
	switch {
	case s != nil:
	case f.Over != nil:
		s = &observe.Since{At: f.Over.Onset, Before: f.Over.Before}
	case f.Began != nil && !r.Window.Start.IsZero():
		s = &observe.Since{At: r.Window.Start.Add(time.Duration(*f.Began * float64(time.Second)))}
	default:
		return ""
	}
	at := s.At.Local().Format("15:04:05")
	if s.Before {
		return " since before " + at
	}
	return " since " + at
}

// healthText sums up the services of a host on which nothing was found.
func healthText(r *diagnose.Report) string {
	services, rate, p99 := 0, 0.0, 0.0
	for i := range r.Endpoints {
		e := &r.Endpoints[i]
		if e.Side != observe.Served.String() {
			continue
		}
		services++
		if e.RPS != nil {
			rate += *e.RPS
		}
		if e.Total != nil {
			p99 = max(p99, e.Total.P99)
		}
	}
	if services == 0 {
		return "no TCP service had traffic"
	}
	text := fmt.Sprintf("%s, %s req/s", figure.Counted(services, "service"), figure.Count(int64(math.Round(rate))))
	if p99 > 0 {
		text += ", p99 " + duration(p99)
		if services > 1 {
			text += " at most"
		}
	}
	return text
}

// onScreen writes a cause in at most screenLines lines. What harm it does comes first: the
// fix, the proof, the evidence and what else it explains share the lines that are left.
func (p *printer) onScreen(n int, r *diagnose.Report, f *cause.Finding) {
	room := screenLines - 1 - p.heading(n, f)
	p.translated("where", p.shortened(printable.Text(p.subject(&f.Subject)), labelWidth))
	take := func(lines []string) []string {
		room -= len(lines)
		return lines
	}
	when := take(p.when(r, f))
	impact := take(p.firstLines(p.impact(f), max(2, room-1))) // of 80 columns that is all of it

	fix, look := p.shortFix(&f.Fix, max(0, room))
	take(fix)
	take(look)
	var prove, evidence, explains []string
	if f.Prove != nil && room > 0 {
		prove = take(p.commands("", []shell.Command{f.Prove.Command}))
	}
	if len(f.Chain) > 0 {
		evidence = append(evidence, p.cut(chainText(f), labelWidth))
	}
	for i := range f.Evidence {
		evidence = append(evidence, p.shortened(printable.Text(p.fact(&f.Evidence[i])), labelWidth))
	}
	if consequences := consequencesOf(r, f); len(consequences) > 0 && room > 1 {
		explains = take([]string{p.alsoExplains(consequences)})
	}
	p.listed("when", when)
	p.listed("impact", impact)
	p.listed("evidence", evidence[:max(0, min(room, 2, len(evidence)))])
	p.listed("fix", fix)
	p.listed("look", look)
	p.listed("prove", prove)
	p.listed("explains", explains)
}

// shortFix is a fix in at most so many lines: its commands, without what explains them where
// that has no room; or what it says, as far as there is room, the first command, where that
// has a line, and where the others are. Commands that change nothing are no fix: what it says
// is, and the first of them is a look.
func (p *printer) shortFix(f *cause.Fix, most int) (fix, look []string) {
	n := len(f.Commands)
	if n > 0 && most > 1 && !slices.ContainsFunc(f.Commands, func(c shell.Command) bool { return !c.Reads() }) {
		fix = p.firstLines(f.Text, min(2, most-1))
		if look = p.commands(bold, f.Commands[:1]); len(look) > 1 {
			look = p.commands(bold, bare(f.Commands[:1]))
		}
		return fix, look[:min(len(look), most-len(fix))]
	}
	return p.changingFix(f, most), nil
}

// changingFix is a fix of which a command changes something.
func (p *printer) changingFix(f *cause.Fix, most int) []string {
	n := len(f.Commands)
	for _, lines := range [][]string{p.commands(bold, f.Commands), p.commands(bold, bare(f.Commands))} {
		if n > 0 && n <= screenFix && len(lines) <= min(screenFix, most) {
			return lines
		}
	}
	if n == 0 || most < 2 {
		return p.firstLines(f.Text, min(2, most))
	}
	if first := p.commands(bold, bare(f.Commands[:1])); n > 1 && most > 2 && len(first) == 1 && !f.Commands[0].IsNote() {
		return append(p.firstLines(f.Text, min(2, most-2)), first[0], p.paint(dim, p.say("-v prints %d more", n-1)))
	}
	return append(p.firstLines(f.Text, min(2, most-1)), p.paint(dim, p.say("-v prints the %d commands", n)))
}

// bare are commands without the notes that explain them. What is nothing but a note stays.
func bare(list []shell.Command) (lines []shell.Command) {
	for i := range list {
		lines = append(lines, list[i].Bare())
	}
	return lines
}

// when says in which windows of a history f was found: in full where that has room on a line.
func (p *printer) when(r *diagnose.Report, f *cause.Finding) []string {
	o := f.Over
	if o == nil {
		return nil
	}
	text := p.text(overText(o))
	if ansi.StringWidth(text) > p.Width-labelWidth {
		day := o.End // which the second line of the report names
		if r.History != nil {
			day = r.History.From
		}
		form := "%s to %s, in %d of %d windows; figures of %s"
		if o.Before {
			form = "before %s to %s, in %d of %d windows; figures of %s"
		}
		text = p.say(form, figure.Until(o.Onset, day), figure.Until(o.End, o.Onset), o.Windows, o.Of, figure.Until(o.Worst, o.Onset))
	}
	return p.broken(text)
}

// alsoExplains names consequences on one line.
func (p *printer) alsoExplains(consequences []*cause.Finding) string {
	var ids []string
	for _, c := range consequences {
		if !slices.Contains(ids, string(c.Cause)) {
			ids = append(ids, string(c.Cause))
		}
	}
	return p.cut("also "+strings.Join(ids, ", "), labelWidth)
}

// heading writes the first line of a cause, or two where that is wider than the terminal, and
// says how many.
func (p *printer) heading(n int, f *cause.Finding) int {
	title, id := fmt.Sprintf("%d. %s", n, p.title(f)), "["+string(f.Cause)+"]"
	if f.Confidence > 0 { // reports of older versions have none
		// On the first screen it gives way to when a finding of a history was made.
		sure := "  " + p.say("confidence %.2f", f.Confidence)
		if free := p.Width - ansi.StringWidth(title+id) - 2; p.All || f.Over == nil || free < 0 || free >= ansi.StringWidth(sure) {
			id += sure
		}
	}
	lines := []string{title}
	if ansi.StringWidth(title+id)+2 > p.Width {
		lines = printable.Wrap(title, p.Width-3)
	}
	for i, l := range lines {
		if i > 0 {
			l = "   " + l
		}
		lines[i] = p.paint(red, l)
		if last := len(lines) - 1; i == last && ansi.StringWidth(l+id)+2 <= p.Width {
			lines[last] += "  " + p.paint(dim, id)
		} else if i == last {
			lines = append(lines, "   "+p.paint(dim, id))
		}
	}
	for _, l := range lines {
		p.line("%s", l)
	}
	return len(lines)
}

// title is a finding's, in the language of the reader.
func (p *printer) title(f *cause.Finding) string { return p.text(printable.Text(f.Title)) }

// chainText names who waits for whom, on one line.
func chainText(f *cause.Finding) string {
	names := make([]string, len(f.Chain))
	for i := range f.Chain {
		names[i] = whoText(&f.Chain[i])
	}
	text := strings.Join(names, " → ")
	if f.ChainEnd != "" {
		text += ": " + f.ChainEnd
	}
	return text
}

// listed prints lines that are printable already under one label.
func (p *printer) listed(label string, lines []string) {
	for i, l := range lines {
		if i > 0 {
			label = ""
		}
		p.line("%s%s", p.paint(dim, p.label(label)), l)
	}
}

// broken is text in the reader's language in the lines that it takes next to a label.
func (p *printer) broken(text string) []string {
	return printable.Wrap(printable.Text(text), max(p.Width-labelWidth, 20))
}

// firstLines are the first lines of a text that has room next to a label; the last one ends
// with … where more follows.
func (p *printer) firstLines(text string, most int) []string {
	lines := p.broken(p.text(text))
	if len(lines) > most {
		if lines = lines[:max(0, most)]; most > 0 {
			lines[most-1] = p.shortened(lines[most-1]+" …", labelWidth)
		}
	}
	return lines
}

// cut makes text, in the reader's language, fit for one line on which indent columns are
// taken.
func (p *printer) cut(text string, indent int) string {
	return p.shortened(p.text(printable.Text(text)), indent)
}

// shortened is cut for text that is in the reader's language already.
func (p *printer) shortened(text string, indent int) string {
	return printable.Cut(text, max(p.Width-indent, 20))
}

// shortAccount says how much of what requests lost the causes explain.
func (p *printer) shortAccount(r *diagnose.Report) {
	a := &r.Account
	if a.Lost <= 0 {
		return
	}
	lost, explained := figure.Seconds(a.Lost), figure.Percent(a.Explained/a.Lost)
	if p.narrow() {
		p.paragraph(p.say("Known causes explain %s of %s that requests lost.", explained, lost))
	} else {
		p.paragraph(p.say("All requests together lost %s in this window; known causes explain %s of it.", lost, explained))
	}
	if failed, s := failedIn(a); s >= 0.1*a.Lost {
		p.paragraph(p.say("A failure counts 1 s, the least time until a client asks again: %s failed.", figure.Count(failed)))
	}
	p.line("")
}

// failedIn counts what failed, and what that is worth: no time is known that it took.
func failedIn(a *cause.Account) (n uint64, seconds float64) {
	for i := range a.Victims {
		for _, h := range a.Victims[i].Harms {
			if h.Kind == cause.HarmFailed || h.Kind == cause.HarmUnanswered || h.Kind == cause.HarmNotConnected {
				n, seconds = n+h.Requests, seconds+h.Seconds
			}
		}
	}
	return n, seconds
}

// shortChanges names what was changed last.
func (p *printer) shortChanges(r *diagnose.Report) {
	if len(r.Changes) == 0 || len(r.Findings) == 0 {
		return
	}
	line, rest := p.say("Recent changes: %s", ""), ""
	for i, n := 0, 0; i < len(r.Changes) && n < screenChanges; n++ {
		text, next := changeText(r.Changes, i)
		text = printable.Text(text)
		before := beforeText(&r.Changes[i])
		more := ""
		if next < len(r.Changes) {
			more = "; " + p.say("%d more: -v", len(r.Changes)-next)
		}
		item := p.say("%s (%s)", text, before)
		switch room := p.Width - ansi.StringWidth(line+more); {
		case n > 0 && ansi.StringWidth(item)+2 > room:
			p.line("%s", line+rest)
			return
		case n > 0:
			item = "; " + item
		case ansi.StringWidth(item) > room:
			if file := printable.Text(r.Changes[i].Path); file != "" {
				text = strings.Replace(text, file, "…/"+path.Base(file), 1)
			}
			text = p.text(text)
			taken := ansi.StringWidth(p.say("%s (%s)", text, before)) - ansi.StringWidth(text)
			item = p.say("%s (%s)", printable.Clause(text, room-taken), before)
		}
		line, rest, i = line+item, more, next
	}
	p.line("%s", line+rest)
}

// sights names trouble that is linked to no slow request: it is found elsewhere, too, and
// suspected.
func (p *printer) sights(r *diagnose.Report) {
	for i, s := range r.Unlinked {
		if i == screenSights {
			p.line("%s", p.paint(dim, p.say("… and %d more that are linked to no slow request: -v", len(r.Unlinked)-i)))
			break
		}
		p.line("%s", printable.Clause(p.say("Not the cause: %s", printable.Text(s.Text)), p.Width))
	}
}

// rest counts what -v lists.
func (p *printer) rest(r *diagnose.Report) {
	text, all := p.text(fmt.Sprintf("%s ruled out", figure.Counted(len(r.RuledOut), "cause"))), " · "+p.say("-v lists all")
	if n := cmp.Or(r.Unchecked(), len(r.NotChecked)); n > 0 {
		because := printable.Text(commonest(r.NotChecked))
		if one := text + p.say(", %d not checked (%s)", n, because); ansi.StringWidth(one+all) <= p.Width {
			text = one
		} else {
			p.twoLines(dim, p.say("%d not checked: %s", n, because))
		}
	}
	p.line("%s", p.paint(dim, text+all))
	losses := slices.DeleteFunc(slices.Clone(r.Losses), func(l observe.Loss) bool { return l.What == observe.LossOldChanges || l.Small() })
	if len(losses) == 0 {
		return
	}
	slices.SortStableFunc(losses, func(a, b observe.Loss) int { return lostFirst(&a) - lostFirst(&b) })
	more := ""
	if n := len(losses) - 1; n > 0 {
		more = "; " + p.say("%d more: -v", n)
	}
	l := &losses[0]
	p.line("%s", p.paint(yellow, printable.Clause(p.text(l.Label())+p.say(": %s %s", figure.Count(l.Count), printable.Text(p.numbered(l))), p.Width-ansi.StringWidth(more))+more))
}

// twoLines writes a text that may take as many, and is cut where it needs more.
func (p *printer) twoLines(c color, text string) {
	lines := printable.Wrap(text, p.Width)
	if len(lines) > 2 {
		lines = []string{lines[0], printable.Clause(strings.Join(lines[1:], " "), p.Width)}
	}
	for _, l := range lines {
		p.line("%s", p.paint(c, l))
	}
}

// numbered is what is missing, in the singular where it is one: "stack of CPU samples …".
func (p *printer) numbered(l *observe.Loss) string {
	if first, rest, _ := strings.Cut(l.What, " "); l.Count == 1 && p.Language == nil { // others have their own rules
		return strings.TrimSuffix(first, "s") + " " + rest
	}
	return l.What
}

// lostFirst orders what is missing: what was lost before what was left out on purpose.
func lostFirst(l *observe.Loss) int {
	return slices.Index([]string{"Lost events", "Left out", "Sampled"}, l.Label())
}

// commonest is the reason that most have.
func commonest(list []diagnose.Excluded) string {
	counts := map[string]int{}
	for _, e := range list {
		counts[e.Because]++
	}
	best := list[0].Because
	for _, e := range list {
		if counts[e.Because] > counts[best] {
			best = e.Because
		}
	}
	if len(counts) > 1 {
		return best + ", …"
	}
	return best
}
