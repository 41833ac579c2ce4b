package wait

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/goroutine"
)

const (
	// maxGoHops bounds a chain of goroutines.
	maxGoHops = 16
	// maxGoStack is how many functions of a goroutine's stack are told.
	maxGoStack = 6
	// goQueue is how many goroutines wait for a lock that is short, at both looks.
	goQueue = 3
	// semaphoreIn is where in a sync.Mutex its semaphore is.
	semaphoreIn = 4
	// lockWithin is how far in a structure its lock may lie, in bytes, for the
	// address of the one to tell of the other.
	lockWithin = 1024
)

// goListing is the goroutines of a process at one moment.
type goListing struct {
	program *goroutine.Program
	list    []goroutine.Goroutine
	waiters map[uint64][]*goroutine.Goroutine // by the lock that they wait for
	now     int64                             // CLOCK_MONOTONIC, ns
	left    int                               // goroutines whose stacks were not read, for their number
}

// openGo is the Go program that a process executes; nil when it executes none,
// or when its goroutines cannot be read, which is noted.
func (r *Reader) openGo(pid int, miss func(string)) *goroutine.Program {
	p, err := goroutine.Open(r.fs.Proc, pid, r.memory)
	switch {
	case errors.Is(err, goroutine.ErrNotGo), vanished(err):
		return nil
	case err != nil:
		miss(fmt.Sprintf("goroutines of process %d: %v", pid, err))
		return nil
	}
	return p
}

func listGo(p *goroutine.Program) (*goListing, error) {
	l := &goListing{program: p, waiters: map[uint64][]*goroutine.Goroutine{}}
	var err error
	if l.list, l.left, err = p.All(); err != nil {
		return nil, err
	}
	for i := range l.list {
		if g := &l.list[i]; g.Object != 0 && g.State == goroutine.Waiting {
			l.waiters[g.Object] = append(l.waiters[g.Object], g)
		}
	}
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) == nil {
		l.now = now.Nano()
	}
	return l, nil
}

// goGroup is goroutines that wait alike.
type goGroup struct {
	key     string
	members []*goroutine.Goroutine
}

// groups sorts the goroutines by what they wait for and where.
func (l *goListing) groups() []*goGroup {
	var out []*goGroup
	byKey := map[string]*goGroup{}
	for i := range l.list {
		g := &l.list[i]
		key := fmt.Sprint(g.State, "|", g.Wait, "|", g.Object, "|", l.program.Place(g), "|", g.Serves())
		if g.Wait == goroutine.Idle && g.State == goroutine.Waiting {
			key = "idle"
		}
		group := byKey[key]
		if group == nil {
			group = &goGroup{key: key}
			byKey[key] = group
			out = append(out, group)
		}
		group.members = append(group.members, g)
	}
	for _, group := range out {
		// Who has waited longest is told, then who is oldest.
		slices.SortStableFunc(group.members, func(a, b *goroutine.Goroutine) int {
			return cmp.Or(cmp.Compare(since(a), since(b)), cmp.Compare(a.ID, b.ID))
		})
	}
	return out
}

// since orders goroutines by how long they have waited, those first of which it
// is known.
func since(g *goroutine.Goroutine) int64 {
	if g.Since > 0 {
		return g.Since
	}
	return 1<<63 - 1
}

// heldUpGo says that a goroutine is held up, or that a request is with it: not
// one that is ready for work.
func heldUpGo(g *goroutine.Goroutine) bool {
	if g.State != goroutine.Waiting {
		return false
	}
	if g.Wait.Lock() {
		return true
	}
	switch g.Wait {
	case goroutine.Receive, goroutine.Send, goroutine.Select, goroutine.Cond, goroutine.Group, goroutine.Forever, goroutine.Semaphore:
		return g.Serves()
	}
	return false
}

// goStep is a goroutine of a chain, and how it came in.
type goStep struct {
	g   *goroutine.Goroutine
	why string
}

// chainOf follows a goroutine that waits for a lock to who seems to hold it, and
// so on. back is the index of the step that the last one waits for, or -1.
func (l *goListing) chainOf(g *goroutine.Goroutine) (steps []goStep, back int) {
	steps = []goStep{{g: g}}
	for len(steps) < maxGoHops {
		last := steps[len(steps)-1].g
		holder, why := l.holderOf(last)
		if holder == nil {
			return steps, -1
		}
		if i := slices.IndexFunc(steps, func(s goStep) bool { return s.g == holder }); i >= 0 {
			return steps, i
		}
		steps = append(steps, goStep{holder, why})
	}
	return steps, -1
}

// holderOf is who seems to hold the lock that a goroutine waits for. Go writes
// that down nowhere. Who holds a lock has been where the others wait for it and
// is further on in the same function, or in what that calls; and what the lock
// is a part of is named on its stack. Nil when several fit equally well, or none.
func (l *goListing) holderOf(waiter *goroutine.Goroutine) (holder *goroutine.Goroutine, why string) {
	waiting := l.waiters[waiter.Object]
	if waiter.Object == 0 || len(waiting) == 0 {
		return nil, ""
	}
	// Where it is asked for, and by what the functions that ask know it.
	places := map[string]*goroutine.Frame{} // the first line of each function
	var distances []uint64
	for i, w := range waiting {
		if place := l.program.Place(w); place != nil {
			if first := places[place.Function]; first == nil || place.Line < first.Line {
				places[place.Function] = place
			}
		}
		if i < 8 {
			for _, d := range l.program.Distances(w, waiter.Object, lockWithin) {
				if !slices.Contains(distances, d) {
					distances = append(distances, d)
				}
			}
		}
	}
	type candidate struct {
		g            *goroutine.Goroutine
		after, names bool
		line         int
	}
	var best []candidate
	order := func(a, b candidate) int {
		score := func(c candidate) int {
			n := 0
			if c.after {
				n += 2
			}
			if c.names {
				n++
			}
			return n
		}
		return cmp.Or(cmp.Compare(score(b), score(a)), cmp.Compare(b.line, a.line))
	}
	for i := range l.list {
		c := candidate{g: &l.list[i]}
		if c.g.Object == waiter.Object || len(c.g.Stack) == 0 {
			continue
		}
		for j := range c.g.Stack {
			f := &c.g.Stack[j]
			if place := places[f.Function]; place != nil {
				c.line = f.Line
				c.after = f.Line > place.Line && f.File == place.File
				break
			}
		}
		c.names = slices.ContainsFunc(l.program.Distances(c.g, waiter.Object, lockWithin), func(d uint64) bool { return slices.Contains(distances, d) })
		if c.after || c.names {
			best = append(best, c)
		}
	}
	if len(best) == 0 {
		return nil, ""
	}
	slices.SortStableFunc(best, order)
	c := best[0]
	if len(best) > 1 && order(c, best[1]) == 0 && since(c.g) == since(best[1].g) && (!c.after || !c.names) {
		return nil, ""
	}
	switch {
	case c.after && c.names:
		why = "is in the same function, behind the line where it is locked, and has it on its stack"
	case c.after:
		why = "is in the same function, behind the line where it is locked"
	default:
		why = "has what the lock belongs to on its stack"
	}
	return c.g, "seems to hold it: it " + why
}

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
	program := l.openGo(p.pid, l.miss)
	if program == nil {
		return nil
	}
	listing, err := listGo(program)
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
	listing, err := listGo(now.program)
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
