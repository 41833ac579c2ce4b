package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/observe"
)

// SchemaWait identifies the JSON form of wait chains.
const SchemaWait = "slowray.wait/1"

// shownChains is how many chains fit on a screen; more with Style.All.
const shownChains = 4

// Wait writes what the threads of a process wait for, for a person: chains that
// somebody or something has to be mended for first, then in a line each what
// moves, and what is ready for work.
func Wait(w io.Writer, o *observe.Waits, style Style) error {
	if style.Width <= 0 {
		style.Width = 100
	}
	p := &printer{Style: style, w: w}
	p.waitHead(o)
	told := map[int]int{} // threads that a chain shown leads through: its number
	shown, more := 0, 0
	var rest []*observe.WaitChain
	for i := range o.Chains {
		c := &o.Chains[i]
		switch {
		case !c.Culprit() && !style.All:
			rest = append(rest, c)
		case !style.All && (c.Branch > 0 || told[hopKey(&c.Hops[0])] > 0):
			more++
		case !style.All && shown == shownChains:
			more++
		default:
			shown++
			p.chain(shown, o, c, told)
		}
	}
	if more > 0 {
		p.line("%s more %s, to the same or other ends: --all shows them.\n", figure.Count(more), plural(more, "chain"))
	}
	if !slices.ContainsFunc(o.Chains, func(c observe.WaitChain) bool { return c.Culprit() }) {
		p.line("%s\n", p.paint(green, "Nobody holds it up."))
	}
	p.others(rest)
	if len(o.Unseen) > 0 {
		p.line("%s", p.paint(bold, "Not seen"))
		for _, s := range o.Unseen {
			p.wrapped("  ", 2, clean(s))
		}
	}
	return p.err
}

func (p *printer) waitHead(o *observe.Waits) {
	what := fmt.Sprintf("%s %s", figure.Count(o.Threads), plural(o.Threads, "thread"))
	if o.Goroutines > 0 {
		what = fmt.Sprintf("%s %s on %s", figure.Count(o.Goroutines), plural(o.Goroutines, "goroutine"), what)
	}
	if o.TID != 0 {
		what = fmt.Sprintf("thread %d", o.TID)
	}
	where := ""
	switch {
	case o.Process.Container != "":
		where = ", container " + containerText(&o.Process)
	case o.Process.Unit != "":
		where = ", " + o.Process.Unit
	}
	p.line("%s (pid %d%s): %s, looked at twice within %s\n",
		clean(o.Process.Comm), o.Process.PID, clean(where), what, figure.Seconds(float64(o.WindowNS)/1e9))
}

func plural(n int, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}

// chain tells one chain, in full unless it comes to a thread from which another
// one was told.
func (p *printer) chain(n int, o *observe.Waits, c *observe.WaitChain, told map[int]int) {
	color := red
	if !c.Culprit() {
		color = bold
	}
	p.wrappedIn(color, fmt.Sprintf("%d. %s", n, clean(waitTitle(c))))
	width := 0
	for i := range c.Hops {
		width = max(width, utf8.RuneCountInString(whoText(&c.Hops[i])))
	}
	width = min(width, 32)
	before := o.Process
	as := 0 // the chain that goes on like this one
	for i := range c.Hops {
		h := &c.Hops[i]
		head := fmt.Sprintf("   %-*s  ", width, whoText(h))
		if i > 0 {
			p.wrapped(head, width+5, clean(linkText(h, &before)))
			head = strings.Repeat(" ", width+5)
		}
		if i > 0 && told[hopKey(h)] > 0 && !p.All {
			p.wrapped(head, width+5, fmt.Sprintf("and so on as in %d", told[hopKey(h)]))
			as = told[hopKey(h)]
			break
		}
		p.wrapped(head, width+5, clean(waitsText(h)))
		if stack := callersText(h); stack != "" {
			p.wrapped(strings.Repeat(" ", width+5), width+5, clean(stack))
		}
		before = h.Process
	}
	for i := range c.Hops {
		if key := hopKey(&c.Hops[i]); told[key] == 0 {
			told[key] = n
		}
	}
	label := func(name, text string) {
		p.wrapped(fmt.Sprintf("   %-*s  ", width, name), width+5, clean(text))
	}
	if as == 0 {
		label("end", c.Text)
		advice, command := waitFix(c)
		if advice != "" {
			label("do this", advice)
		}
		if command != "" {
			p.line("   %*s  %s", width, "", p.paint(bold, clean(command)))
		}
	}
	switch {
	case c.Count > 1 && c.Hops[0].Goroutine != 0:
		label("goroutines", fmt.Sprintf("%s wait like this", figure.Count(c.Count)))
	case c.Count > 1:
		label("threads", fmt.Sprintf("%s wait like this: %s", figure.Count(c.Count), listText(c.Threads, c.Count)))
	}
	if c.Cut != "" {
		label("not shown", c.Cut)
	}
	p.line("")
}

// hopKey tells the thread or goroutine of a hop from others.
func hopKey(h *observe.WaitHop) int {
	if h.Goroutine != 0 {
		return -int(h.Goroutine)
	}
	return h.TID
}

// callersText is who called what a hop is in, as far as that is not told already.
func callersText(h *observe.WaitHop) string {
	stack := h.Stack
	if len(stack) > 0 && strings.Contains(h.Object, stack[0]) {
		stack = stack[1:]
	}
	if len(stack) == 0 {
		return ""
	}
	return "called by " + strings.Join(stack, " ← ")
}

// wrappedIn prints a heading over several lines in one colour.
func (p *printer) wrappedIn(c color, text string) {
	for i, l := range wrap(text, max(p.Width-3, 20)) {
		if i > 0 {
			l = "   " + l
		}
		p.line("%s", p.paint(c, l))
	}
}

// listText is the first few of a list of threads.
func listText(tids []int, count int) string {
	const most = 8
	var b strings.Builder
	for i, tid := range tids[:min(len(tids), most)] {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(strconv.Itoa(tid))
	}
	if count > most {
		b.WriteString("…")
	}
	return b.String()
}

// whoText is a thread in a column: its process's name and number, its own too
// when it is another.
func whoText(h *observe.WaitHop) string {
	name := clean(h.Process.Comm)
	if utf8.RuneCountInString(name) > 16 {
		name = string([]rune(name)[:16])
	}
	if h.Goroutine != 0 {
		return fmt.Sprintf("%s goroutine %d", name, h.Goroutine)
	}
	if h.TID == h.Process.PID {
		return fmt.Sprintf("%s %d", name, h.TID)
	}
	return fmt.Sprintf("%s %d/%d", name, h.Process.PID, h.TID)
}

// containerText names the container that a process is in.
func containerText(p *observe.WaitProcess) string {
	if p.ContainerName == "" {
		return p.Container
	}
	return fmt.Sprintf("%s (%s)", p.ContainerName, p.Container)
}

// linkText is why the hop before waits for this one.
func linkText(h *observe.WaitHop, before *observe.WaitProcess) string {
	s := h.Why + " [" + string(h.How) + "]"
	if h.Process.Container != before.Container && h.Process.Container != "" {
		s += ", in container " + containerText(&h.Process)
	} else if h.Process.Unit != before.Unit && h.Process.Unit != "" {
		s += ", in " + h.Process.Unit
	}
	return s
}

// waitsText is what a thread waits for itself, and how long.
func waitsText(h *observe.WaitHop) string {
	s := doing(h)
	if h.Comm != h.Process.Comm && h.TID != h.Process.PID {
		s = h.Comm + ": " + s
	}
	if h.Object != "" {
		s += " " + h.Object
	}
	switch {
	case h.Kind == observe.WaitRunnable && h.Goroutine != 0:
	case h.Kind == observe.WaitRunnable:
		s += fmt.Sprintf(" (%s on a CPU, %s waiting for one)", figure.Seconds(float64(h.RunNS)/1e9), figure.Seconds(float64(h.DelayNS)/1e9))
	case h.Moving:
		s += ", now and then"
	case h.ForNS > 0:
		s += ", at least " + figure.Seconds(float64(h.ForNS)/1e9)
	}
	if h.Detail != "" {
		s += "; " + h.Detail
	}
	if h.QuietNS > h.ForNS && h.QuietNS > 0 {
		s += "; nothing has passed for " + figure.Seconds(float64(h.QuietNS)/1e9)
	}
	return s
}

// doing is what a thread is in, in a word or two.
func doing(h *observe.WaitHop) string {
	switch h.Kind {
	case observe.WaitStopped:
		return "stopped"
	case observe.WaitRunnable:
		return "running"
	case observe.WaitEnded:
		return "ended"
	}
	if h.Goroutine != 0 && h.Syscall == "" {
		return "waits for"
	}
	if h.Syscall != "" {
		return h.Syscall
	}
	if h.Wchan != "" {
		return "in the kernel (" + h.Wchan + ")"
	}
	return "waits"
}

// waitTitle says a chain in one line.
func waitTitle(c *observe.WaitChain) string {
	last := &c.Hops[len(c.Hops)-1]
	who := fmt.Sprintf("%s (pid %d)", last.Process.Comm, last.Process.PID)
	alone := len(c.Hops) == 1
	if c.Hops[0].Goroutine != 0 && c.End != observe.EndCycle {
		return goTitle(c)
	}
	switch c.End {
	case observe.EndCycle:
		n := len(c.Hops) - c.BackTo
		name, one := "Deadlock", "thread"
		if !c.Sure {
			name = "Perhaps a deadlock"
		}
		if last.Goroutine != 0 {
			one = "goroutine"
		}
		switch {
		case n == 1:
			return fmt.Sprintf("%s: a %s waits for itself", name, one)
		case c.BackTo > 0:
			return fmt.Sprintf("%s further on: %d %ss wait for each other", name, n, one)
		}
		return fmt.Sprintf("%s: %d %ss wait for each other", name, n, one)
	case observe.EndRemote:
		return "Waits for " + last.Remote + ", which is not on this host"
	case observe.EndMutual:
		return fmt.Sprintf("Waits for %s, which waits for it", who)
	case observe.EndNoHolder, observe.EndGone:
		return "Waits for somebody who is not there"
	}
	if alone {
		switch c.End {
		case observe.EndStopped:
			return "Stopped by a signal"
		case observe.EndTraced:
			return "Stopped by its tracer"
		case observe.EndFrozen:
			return "Frozen with its control group"
		case observe.EndDisk:
			return "Waits for storage"
		case observe.EndFuse:
			return "Waits for a file system in user space"
		case observe.EndKernel:
			return "Cannot be interrupted inside the kernel"
		}
		return "Waits: " + c.Text
	}
	return "Waits for " + who + ", " + endText(c.End)
}

// goTitle says a chain of goroutines in one line.
func goTitle(c *observe.WaitChain) string {
	title := "A goroutine waits for " + c.Hops[0].Object
	if c.Count > 1 {
		title = fmt.Sprintf("%s goroutines wait for %s", figure.Count(c.Count), c.Hops[0].Object)
	}
	last := &c.Hops[len(c.Hops)-1]
	switch {
	case len(c.Hops) == 1:
		return title
	case last.Goroutine == 0:
		return title + fmt.Sprintf(", and in the end for %s (pid %d), %s", last.Process.Comm, last.Process.PID, endText(c.End))
	}
	return title + fmt.Sprintf(", and in the end for goroutine %d, %s", last.Goroutine, endText(c.End))
}

// endText is an end as a clause on the last process of a chain.
func endText(e observe.WaitEnd) string {
	switch e {
	case observe.EndStopped:
		return "which is stopped by a signal"
	case observe.EndTraced:
		return "which is stopped by its tracer"
	case observe.EndFrozen:
		return "which is frozen with its control group"
	case observe.EndDisk:
		return "which waits for storage"
	case observe.EndFuse:
		return "which waits for a file system in user space"
	case observe.EndKernel:
		return "which cannot be interrupted inside the kernel"
	case observe.EndRunning:
		return "which is running"
	case observe.EndSleep:
		return "which sleeps"
	case observe.EndIdle:
		return "which is ready for work and does not come round to it"
	case observe.EndNoOwner:
		return "which waits to be woken"
	case observe.EndEnded:
		return "which has ended"
	case observe.EndTooLong:
		return "and there is more"
	}
	return "of which no more can be seen"
}

// waitFix is what would end a chain, and the command for it where there is one.
func waitFix(c *observe.WaitChain) (advice, command string) {
	last := &c.Hops[len(c.Hops)-1]
	switch c.End {
	case observe.EndStopped:
		return "Let it go on:", fmt.Sprintf("kill -CONT %d", last.Process.PID)
	case observe.EndTraced:
		if c.Actor != 0 {
			return fmt.Sprintf("Let the tracer (pid %d) continue it, or end the tracer.", c.Actor), ""
		}
		return "Let its tracer continue it, or end the tracer.", ""
	case observe.EndFrozen:
		state := "0"
		if strings.HasSuffix(c.Path, "freezer.state") {
			state = "THAWED"
		}
		return "Thaw the control group:", fmt.Sprintf("echo %s > %s", state, shellQuote(c.Path))
	case observe.EndCycle:
		if !c.Sure {
			return "", ""
		}
		return "They cannot go on by themselves: restart what can be restarted. It will not come back when all take these in the same order.", ""
	case observe.EndRemote:
		if c.Culprit() {
			return "Look at the service at " + last.Remote + ", and at the way there.", ""
		}
	case observe.EndDisk:
		return "Look at the device and at who else uses it; slowray why tells whether it is busy.", ""
	}
	return "", ""
}

// shellQuote quotes a path for a command that is copied.
func shellQuote(s string) string {
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("/._-:@+,=", r)
	}) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// others tells in a line each of threads that nobody holds up: those that lead
// to somebody, then those that are ready for work.
func (p *printer) others(chains []*observe.WaitChain) {
	var moving, idle []*observe.WaitChain
	for _, c := range chains {
		switch {
		case c.Branch > 0:
		case c.Moving() || len(c.Hops) > 1:
			moving = append(moving, c)
		default:
			idle = append(idle, c)
		}
	}
	p.otherList("Waits of other kinds, and those that come and go", moving)
	p.otherList("Not held up by anybody", idle)
}

func (p *printer) otherList(title string, chains []*observe.WaitChain) {
	if len(chains) == 0 {
		return
	}
	p.line("%s", p.paint(bold, title))
	const most = 8
	for i, c := range chains {
		if i == most {
			n := 0
			for _, left := range chains[i:] {
				n += left.Count
			}
			noun := "thread"
			if h := &chains[i].Hops[0]; h.Goroutine != 0 {
				noun = "goroutine"
			}
			p.line("  %s more %s: --all shows them", figure.Count(n), plural(n, noun))
			break
		}
		h := &c.Hops[0]
		count := fmt.Sprintf("  %5s  ", figure.Count(c.Count))
		text := waitsText(h)
		if len(c.Hops) > 1 && c.Hops[0].Goroutine == 0 {
			last := &c.Hops[len(c.Hops)-1]
			text += fmt.Sprintf(" → %s (pid %d)", last.Process.Comm, last.Process.PID)
		}
		p.wrapped(count, len(count), clean(text+": "+c.Text))
	}
	p.line("")
}

// waitChainJSON is a chain with what follows from it.
type waitChainJSON struct {
	Culprit  bool `json:"culprit"`
	Deadlock bool `json:"deadlock"`
	observe.WaitChain
	Advice  string `json:"advice,omitempty"`
	Command string `json:"command,omitempty"`
}

// WaitJSON writes o in the form of schema/wait.schema.json.
func WaitJSON(w io.Writer, o *observe.Waits) error {
	chains := make([]waitChainJSON, len(o.Chains))
	for i := range o.Chains {
		c := &o.Chains[i]
		advice, command := waitFix(c)
		chains[i] = waitChainJSON{Culprit: c.Culprit(), Deadlock: c.Deadlock(), WaitChain: *c, Advice: advice, Command: command}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(struct {
		Schema string `json:"schema"`
		*observe.Waits
		Chains []waitChainJSON `json:"chains"`
	}{SchemaWait, o, chains})
	if err != nil {
		return err
	}
	_, err = w.Write(escapeInvisible(b.Bytes()))
	return err
}

// escapeInvisible escapes in JSON what must not reach a terminal as it is and
// what the encoder leaves: control characters beyond ASCII, and invisible ones.
// Outside of strings there are none.
func escapeInvisible(b []byte) []byte {
	out := make([]byte, 0, len(b))
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		switch {
		case r == '\n' || !unicode.IsControl(r) && !unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp):
			out = append(out, b[:size]...)
		case r < 0x10000:
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		}
		b = b[size:]
	}
	return out
}
