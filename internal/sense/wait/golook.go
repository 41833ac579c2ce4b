package wait

import (
	"fmt"
	"slices"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/goroutine"
)

// goNow is the goroutines of a process at the first look of Look, for the second
// to be compared with.
type goNow struct {
	program *goroutine.Program
	first   map[uint64]uint64 // marks, by number
	queues  map[uint64]int    // goroutines that wait, by lock
}

// startGo looks at the goroutines of a process; nil when it has none.
func (l *look) startGo(p *process) *goNow {
	if l.mapLocked(p) {
		return nil
	}
	program := l.openGo(p.pid)
	if program == nil {
		return nil
	}
	listing, err := l.listGo(program)
	if err != nil {
		l.miss(fmt.Sprintf("goroutines of process %d: %v", p.pid, err))
		program.Close()
		return nil
	}
	now := &goNow{program: program, first: map[uint64]uint64{}, queues: map[uint64]int{}}
	for i := range listing.list {
		if g := &listing.list[i]; g.State == goroutine.Waiting {
			now.first[g.ID] = g.Mark
			if g.Object != 0 {
				now.queues[g.Object]++
			}
		}
	}
	return now
}

// chains looks again, and tells what the goroutines wait for: those that have
// not moved apart from those that have.
func (now *goNow) chains(l *look, p *process, window int64, threads []observe.WaitChain) []observe.WaitChain {
	defer now.program.Close()
	listing, err := l.listGo(now.program)
	if err != nil {
		l.miss(fmt.Sprintf("goroutines of process %d: %v", p.pid, err))
		return threads
	}
	if listing.left > 0 {
		l.miss(fmt.Sprintf("%d of the goroutines of process %d were not looked at: only the first %d, those that wait for a lock before others", listing.left, p.pid, len(listing.list)))
	}
	moved := func(g *goroutine.Goroutine) bool {
		mark, ok := now.first[g.ID]
		return !ok || mark != g.Mark
	}
	var out []observe.WaitChain
	executed := map[int]*goroutine.Goroutine{} // by thread
	for _, group := range listing.groups() {
		if group.members[0].State == goroutine.Syscall {
			for _, g := range group.members {
				if t := l.hostTID(p, g.TID); t != nil {
					executed[t.tid] = g
				}
			}
			continue // their threads tell
		}
		var stuck, moving []*goroutine.Goroutine
		for _, g := range group.members {
			if g.State == goroutine.Waiting && moved(g) && heldUpGo(g) {
				moving = append(moving, g)
			} else {
				stuck = append(stuck, g)
			}
		}
		for _, members := range [][]*goroutine.Goroutine{stuck, moving} {
			if len(members) == 0 {
				continue
			}
			c := l.goChain(p, listing, members)
			h := &c.Hops[0]
			before, after := now.queues[members[0].Object], len(listing.waiters[members[0].Object])
			switch {
			case h.Kind == observe.WaitRunnable:
			case !moved(members[0]):
				h.ForNS = max(h.ForNS, window)
			case members[0].Object != 0 && before >= goQueue && after >= goQueue:
				h.Detail = fmt.Sprintf("they get it one after the other: %d waited at the first look, %d at the second", before, after)
			default:
				h.Moving, h.ForNS = true, 0
			}
			out = append(out, c)
		}
	}
	for i := range threads {
		if g := executed[threads[i].Hops[0].TID]; g != nil {
			threads[i].Hops[0].Stack = stackText(listing.program, g)
		}
	}
	return append(out, withoutGo(threads, executed)...)
}

// withoutGo leaves out the threads of a Go program that wait for work, of which
// the goroutines tell more, but says how many they are.
func withoutGo(chains []observe.WaitChain, executed map[int]*goroutine.Goroutine) []observe.WaitChain {
	var out []observe.WaitChain
	var idle *observe.WaitChain
	for i := range chains {
		c := &chains[i]
		atRest := len(c.Hops) == 1 && (c.Count > 1 || executed[c.Threads[0]] == nil) && (c.End == observe.EndNoOwner || c.End == observe.EndIdle || c.End == observe.EndSleep)
		switch {
		case !atRest || c.Hops[0].Wants.Demands():
			out = append(out, *c)
		case idle == nil:
			idle = c
		default:
			idle.Count += c.Count
			idle.Threads = append(idle.Threads, c.Threads[:min(len(c.Threads), max(maxListed-len(idle.Threads), 0))]...)
		}
	}
	if idle != nil {
		slices.Sort(idle.Threads)
		idle.End, idle.Text = observe.EndIdle, "threads of Go's scheduler, without work"
		out = append(out, *idle)
	}
	return out
}
