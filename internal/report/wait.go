package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/language"
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
	if !slices.ContainsFunc(o.Chains, func(c observe.WaitChain) bool { return c.Culprit() }) {
		if len(o.Brief) == 0 {
			p.line("%s\n", p.paint(green, "Nobody holds it up."))
		} else {
			p.brief(o)
		}
	}
	p.others(rest)
	if len(o.Unseen) > 0 {
		p.line("%s", p.paint(bold, "Not seen"))
		for _, s := range o.Unseen {
			p.wrapped("  ", 2, printable.Text(s))
		}
	}
	return p.err
}

// brief tells what threads wait for over and over, each time for moments.
func (p *printer) brief(o *observe.Waits) {
	p.line("%s", p.paint(bold, "Nobody holds it up for long. Brief waits, over and over:"))
	for i := range o.Brief {
		s := &o.Brief[i]
		h, last := &s.Chain.Hops[0], &s.Chain.Hops[len(s.Chain.Hops)-1]
		text := strings.TrimSpace(h.Syscall + " " + h.Object)
		if _, object, ok := strings.Cut(h.Object, " → "); ok {
			text = h.Syscall + " " + object
		}
		if len(s.Chain.Hops) > 1 {
			text += fmt.Sprintf(" → %s (pid %d)", last.Process.Comm, last.Process.PID)
		}
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
	where := ""
	switch {
	case o.Process.Container != "":
		where = ", container " + containerText(&o.Process)
	case o.Process.Unit != "":
		where = ", " + o.Process.Unit
	}
	p.line("%s (pid %d%s): %s, looked at twice within %s\n",
		printable.Text(o.Process.Comm), o.Process.PID, printable.Text(where), what, figure.Seconds(float64(o.WindowNS)/1e9))
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
			label("do this", advice)
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
	for i, l := range language.Wrap(text, max(p.Width-3, 20)) {
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
		p.wrapped(count, len(count), printable.Text(text+": "+c.Text))
	}
	p.line("")
}
