package wait

import (
	"fmt"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/goroutine"
)

// goHop is one step of a chain of goroutines.
func (l *look) goHop(p *process, listing *goListing, s goStep) observe.WaitHop {
	g := s.g
	h := observe.WaitHop{
		Process: l.who(p), TID: p.pid, Comm: p.comm, State: "S", Goroutine: g.ID, Kind: observe.WaitCond,
		Stack: stackText(listing.program, g), Object: goObject(listing, g),
	}
	if g.TID != 0 && l.hostTID(p, g.TID) != nil {
		h.TID = l.hostTID(p, g.TID).tid
	}
	if s.why != "" {
		h.How, h.Why = observe.HowInferred, s.why
	}
	switch {
	case g.State == goroutine.Running || g.State == goroutine.Runnable:
		h.Kind, h.State = observe.WaitRunnable, "R"
	case g.State == goroutine.Syscall:
		h.Kind = observe.WaitEvent
		h.Syscall = "a system call"
	case g.Wait.Lock():
		h.Kind, h.Wants = observe.WaitLock, observe.WantsRelease
	case g.Wait == goroutine.Sleep:
		h.Kind = observe.WaitSleep
	case g.Wait == goroutine.IO:
		h.Kind = observe.WaitEvent
	case heldUpGo(g):
		h.Kind, h.Wants = observe.WaitChannel, observe.WantsRelease
	}
	if g.Since > 0 && listing.now > g.Since && g.State == goroutine.Waiting {
		h.ForNS = listing.now - g.Since
	}
	return h
}

// goObject is what a goroutine waits for, and where.
func goObject(l *goListing, g *goroutine.Goroutine) string {
	at := " at " + l.program.Place(g).String()
	switch g.State {
	case goroutine.Running, goroutine.Runnable, goroutine.Syscall:
		if len(g.Stack) == 0 {
			return ""
		}
		return strings.TrimPrefix(at, " ")
	}
	switch {
	case g.Wait == goroutine.Idle:
		return g.Wait.String()
	case g.Wait == goroutine.Mutex && g.Object != 0:
		return fmt.Sprintf("%s 0x%x%s", g.Wait, g.Object-semaphoreIn, at)
	case g.Object != 0:
		return fmt.Sprintf("%s, semaphore 0x%x,%s", g.Wait, g.Object, at)
	}
	return g.Wait.String() + at
}

// stackText is the program's own functions on a goroutine's stack, innermost
// first; of one that has none, where it is.
func stackText(p *goroutine.Program, g *goroutine.Goroutine) []string {
	own := p.Own(g)
	var out []string
	for i := range own[:min(len(own), maxGoStack)] {
		out = append(out, own[i].String())
	}
	if place := p.Place(g); len(out) == 0 && place != nil {
		out = append(out, place.String())
	}
	return out
}

// goChain puts a chain of goroutines into words.
func (l *look) goChain(p *process, listing *goListing, members []*goroutine.Goroutine) observe.WaitChain {
	first := members[0]
	steps, back := []goStep{{g: first}}, -1
	if first.Wait.Lock() {
		steps, back = listing.chainOf(first)
	}
	c := observe.WaitChain{Count: len(members), BackTo: back}
	for _, s := range steps {
		c.Hops = append(c.Hops, l.goHop(p, listing, s))
	}
	c.Threads = []int{c.Hops[0].TID}
	last := steps[len(steps)-1].g
	c.End, c.Text = goEnd(last)
	switch {
	case back >= 0:
		c.End = observe.EndCycle
		c.Text = goRound(steps[back:])
	case last.State == goroutine.Syscall && last.TID != 0:
		l.throughThread(p, last, &c)
	}
	return c
}

// throughThread goes on with what the thread waits for that executes a goroutine.
func (l *look) throughThread(p *process, g *goroutine.Goroutine, c *observe.WaitChain) {
	t := l.hostTID(p, g.TID)
	if t == nil || t.state == 'R' {
		return
	}
	groups := l.follow([]*thread{t})
	if len(groups) == 0 || len(groups[0].chains) == 0 {
		return
	}
	more := l.chain(&groups[0].chains[0], 0, []*thread{t}, func(*thread) second { return second{} }, 0)
	at := len(c.Hops) - 1
	before := c.Hops[at]
	c.Hops = append(c.Hops[:at], more.Hops...)
	h := &c.Hops[at]
	h.Goroutine, h.Stack, h.How, h.Why = before.Goroutine, before.Stack, before.How, before.Why
	c.End, c.Text, c.Actor, c.Path = more.End, more.Text, more.Actor, more.Path
	if more.BackTo >= 0 {
		c.BackTo, c.Sure = at+more.BackTo, more.Sure
	}
}

// goEnd is why a chain goes no further than a goroutine.
func goEnd(g *goroutine.Goroutine) (observe.WaitEnd, string) {
	name := fmt.Sprintf("goroutine %d", g.ID)
	switch {
	case g.State == goroutine.Running:
		return observe.EndRunning, name + " runs"
	case g.State == goroutine.Runnable:
		return observe.EndRunning, name + " is ready to run, and waits for its turn on a thread of Go's"
	case g.State == goroutine.Syscall:
		return observe.EndRunning, name + " is in a system call"
	case g.Wait.Lock():
		return observe.EndNoOwner, "who holds it is not known: Go writes that down nowhere, and no goroutine is seen behind the line where it is locked"
	case g.Wait == goroutine.Sleep:
		return observe.EndSleep, name + " sleeps for a time that it chose itself"
	case g.Wait == goroutine.Idle:
		return observe.EndIdle, "goroutines of the runtime's own, without work"
	case g.Wait == goroutine.IO && g.Serves():
		return observe.EndNoOwner, name + " has a request in hand and waits for the network: for a service that it calls, or for its client"
	case g.Wait == goroutine.IO:
		return observe.EndIdle, "ready for work: waits for a connection, or for what comes in on one"
	case heldUpGo(g):
		return observe.EndNoOwner, name + " has a request in hand and waits for what another goroutine has to do: which is written nowhere"
	}
	return observe.EndIdle, "waits for other goroutines: an idle worker, unless it is waited for"
}

// goRound names the goroutines of a circle.
func goRound(round []goStep) string {
	if len(round) == 1 {
		return fmt.Sprintf("goroutine %d waits for a lock that it holds itself, it seems", round[0].g.ID)
	}
	text := fmt.Sprintf("goroutine %d", round[0].g.ID)
	for _, s := range round[1:] {
		text += fmt.Sprintf(" waits for goroutine %d, which", s.g.ID)
	}
	return "a circle: " + text + fmt.Sprintf(" waits for goroutine %d. Go writes down nowhere who holds a lock: that is inferred from their stacks", round[0].g.ID)
}
