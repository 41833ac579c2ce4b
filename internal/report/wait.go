package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
)

// SchemaWait identifies the JSON form of wait chains.
const SchemaWait = "slowray.wait/1"

// shownChains is how many chains fit on a screen; more with Style.All.
const shownChains = 4

// Wait writes what the threads of a process wait for, for a person: chains that
// somebody or something has to be fixed for first, then in a line each what
// moves, and what is ready for work.
func Wait(w io.Writer, o *observe.Waits, style Style) error {
	if style.Width <= 0 {
		style.Width = 100
	}
	p := &printer{Style: style, w: w}
	p.waitVerdict(o)
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
		p.line("%s, to the same or other ends: --all shows them.\n", figure.Counted(more, "more chain"))
	}
	held := slices.ContainsFunc(o.Chains, func(c observe.WaitChain) bool { return c.Culprit() })
	p.heldLocks(o)
	if !held && len(o.Brief) > 0 {
		p.brief(o)
	}
	p.others(o, rest)
	if len(o.Unseen) > 0 {
		p.line("%s", p.paint(bold, "Not checked"))
		for _, s := range o.Unseen {
			p.wrapped("  ", 2, printable.Text(s))
		}
		if held {
			p.line("")
		}
	}
	if held { // where a terminal has scrolled to
		p.waitVerdict(o)
	}
	return p.err
}

// waitVerdict writes one line: whether the process is held up, and by whom.
func (p *printer) waitVerdict(o *observe.Waits) {
	var first *observe.WaitChain
	held, noun := 0, "thread"
	for i := range o.Chains {
		c := &o.Chains[i]
		if !c.Culprit() || c.Branch > 0 {
			continue
		}
		if held += c.Count; first == nil {
			first = c
		}
	}
	who := fmt.Sprintf("%s (pid %d)", o.Process.Comm, o.Process.PID)
	word, c, text := "OK", green, "nobody holds it up"
	switch {
	case first != nil:
		if first.Hops[0].Goroutine != 0 {
			noun = "goroutine"
		}
		title := waitTitle(first)
		word, c, text = "PROBLEM", red, fmt.Sprintf("%s held up: %s", figure.Counted(held, noun), strings.ToLower(title[:1])+title[1:])
	case o.Unfollowed() > 0:
		word, c, text = "UNKNOWN", yellow, figure.Counted(o.Unfollowed(), "thread")+" could not be followed in the time there is"
	case len(o.Brief) > 0:
		text = "nobody holds it up for long"
	}
	if first == nil {
		word, c, text = waitWithoutChain(o, word, c, text)
	}
	p.line("%s  %s", p.paint(c, word), p.cut(who+"  "+text, len(word)+2))
}

// brief tells what threads wait for over and over, each time for moments.
func (p *printer) brief(o *observe.Waits) {
	p.line("%s", p.paint(bold, "Brief waits, over and over"))
	for i := range o.Brief {
		s := &o.Brief[i]
		what, call := briefText(s)
		text := strings.TrimSpace(call + " " + what)
		p.wrapped("  ", 2, printable.Text(fmt.Sprintf("%s: %s at once at most, %.3g of them at a time on average: %s",
			text, figure.Counted(s.AtOnce, "thread"), float64(s.ThreadNS)/float64(o.WindowNS), s.Chain.Text)))
	}
	p.line("")
}

func (p *printer) waitHead(o *observe.Waits) {
	what := figure.Counted(o.Threads, "thread")
	if o.Goroutines > 0 {
		what = figure.Counted(o.Goroutines, "goroutine") + " on " + what
	}
	if o.TID != 0 {
		what = fmt.Sprintf("thread %d", o.TID)
	}
	if n := len(o.Workers); n > 0 {
		what += fmt.Sprintf(", and its %s (%s)", figure.Counted(n, "worker"), pidsText(o.Workers))
	}
	where := ""
	switch {
	case o.Process.Container != "":
		where = ", container " + containerText(&o.Process)
	case o.Process.Unit != "":
		where = ", " + o.Process.Unit
	}
	p.wrapped("", 0, printable.Text(fmt.Sprintf("%s (pid %d%s): %s, looked at twice within %s",
		o.Process.Comm, o.Process.PID, where, what, figure.Seconds(float64(o.WindowNS)/1e9))))
	p.line("")
}

// chain tells one chain, in full unless it comes to a thread from which another
// one was reported.
func (p *printer) chain(n int, o *observe.Waits, c *observe.WaitChain, told map[int]int) {
	color := red
	if !c.Culprit() {
		color = bold
	}
	p.wrappedIn(color, fmt.Sprintf("%d. %s", n, printable.Text(waitTitle(c))))
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
			p.wrapped(head, width+5, printable.Text(linkText(h, &before)))
			head = strings.Repeat(" ", width+5)
		}
		if i > 0 && told[hopKey(h)] > 0 && !p.All {
			p.wrapped(head, width+5, fmt.Sprintf("and so on as in %d", told[hopKey(h)]))
			as = told[hopKey(h)]
			break
		}
		p.wrapped(head, width+5, printable.Text(waitsText(h)))
		if stack := callersText(h); stack != "" {
			p.wrapped(strings.Repeat(" ", width+5), width+5, printable.Text(stack))
		}
		before = h.Process
	}
	for i := range c.Hops {
		if key := hopKey(&c.Hops[i]); told[key] == 0 {
			told[key] = n
		}
	}
	label := func(name, text string) {
		p.wrapped(fmt.Sprintf("   %-*s  ", width, name), width+5, printable.Text(text))
	}
	if as == 0 {
		label("end", c.Text)
		advice, command := waitFix(c)
		if advice != "" {
			label("fix", advice)
		}
		if !command.IsZero() {
			p.line("   %*s  %s", width, "", p.paint(bold, printable.Text(command.String())))
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
	for i, l := range printable.Wrap(text, max(p.Width-3, 20)) {
		if i > 0 {
			l = "   " + l
		}
		p.line("%s", p.paint(c, l))
	}
}

// pidsText is the first few pids of processes.
func pidsText(list []observe.WaitProcess) string {
	pids := make([]int, len(list))
	for i := range list {
		pids[i] = list[i].PID
	}
	word := "pid "
	if len(pids) > 1 {
		word = "pids "
	}
	return word + listText(pids, len(pids))
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

// others tells in a line each of threads that nobody holds up: those that lead
// to somebody, then those that are ready for work.
func (p *printer) others(o *observe.Waits, chains []*observe.WaitChain) {
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
	p.otherList("Waits of other kinds, and those that come and go", moving, len(o.Workers) > 0)
	p.otherList("Not held up by anybody", idle, len(o.Workers) > 0)
}

// otherList has a line for each of chains; with pids it tells which threads they are of.
func (p *printer) otherList(title string, chains []*observe.WaitChain, pids bool) {
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
			p.line("  %s: --all shows them", figure.Counted(n, "more "+noun))
			break
		}
		h := &c.Hops[0]
		count := fmt.Sprintf("  %5s  ", figure.Count(c.Count))
		text := waitsText(h)
		if len(c.Hops) > 1 && c.Hops[0].Goroutine == 0 {
			last := &c.Hops[len(c.Hops)-1]
			text += fmt.Sprintf(" → %s (pid %d)", last.Process.Comm, last.Process.PID)
		}
		if pids {
			text = fmt.Sprintf("%s %s: %s", h.Process.Comm, listText(c.Threads, c.Count), text)
		}
		p.wrapped(count, len(count), printable.Text(text+": "+c.Text))
	}
	p.line("")
}
