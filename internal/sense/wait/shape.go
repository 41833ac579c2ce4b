package wait

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
)

// seenHop is a thread that a chain leads to.
type seenHop struct {
	switches uint64
	since    time.Time
}

// shape is a chain of waits, and how much of it there was.
type shape struct {
	key     string
	master  int
	chain   observe.WaitChain
	samples int
	tids    map[int]bool
	now     int // in the look under way
	most    int
	time    time.Duration
	longest time.Duration
	first   time.Time
	last    time.Time
}

// follow follows threads and sorts their chains by shape.
func (s *Sampler) follow(l *look, threads []*thread, now time.Time) {
	defer func(before time.Duration) { s.spent += host.ThreadCPU() - before }(host.ThreadCPU())
	s.followed++
	groups := l.follow(threads)
	age := func(t *thread) second { return s.age(t, now) }
	for _, g := range groups {
		if len(g.chains) == 0 {
			continue
		}
		tr := &g.chains[0]
		if !holdsUp(tr) {
			for _, t := range g.threads {
				s.atRest(s.threads[t.tid])
			}
			continue
		}
		c := l.chain(tr, 0, g.threads, age, 0)
		for i := range c.Hops {
			s.ageHop(&c.Hops[i], g.threads, i, now)
		}
		sh := s.shapeOf(&c)
		if oldest := s.oldest(g.threads); sh != nil && now.Sub(oldest) >= sh.longest {
			sh.longest, sh.chain = now.Sub(oldest), c
		}
		for _, t := range g.threads {
			s.charge(s.threads[t.tid], sh, now)
		}
	}
	for _, what := range l.unseenText() {
		if len(s.unseen) < 16 && !slices.Contains(s.unseen, what) {
			s.unseen = append(s.unseen, what)
		}
	}
}

// charge counts a wait of a thread to a shape. What it waited before it was
// followed counts too.
func (s *Sampler) charge(w *watched, sh *shape, now time.Time) {
	if w == nil || w.wait == nil || sh == nil {
		return
	}
	w.followed = now
	i := w.wait
	if i.shape == sh {
		return
	}
	sh.count(i)
	sh.now++
	// Of other calls the short ones are something else: a read that is answered.
	if first := &sh.chain.Hops[0]; i.call != (callKey{}) && (first.Wants == observe.WantsRoom || first.Kind == observe.WaitFileLock) {
		s.byCall[i.call] = sh
	}
	// A call on a file system in user space is short for its server, and each is on
	// a descriptor of its own: those like it that are not followed are known by where
	// the thread sleeps.
	if first := &sh.chain.Hops[0]; first.Kind == observe.WaitFuse && i.call != (callKey{}) {
		s.served[i.pid] = true
		s.byCall[callKey{pid: i.pid, nr: i.call.nr, wchan: first.Wchan}] = sh
	}
}

// asleep says that its threads sleep of their own will.
func (sh *shape) asleep() bool {
	return len(sh.chain.Hops) == 1 && sh.chain.End == observe.EndSleep
}

// count adds a wait to a shape.
func (sh *shape) count(i *interval) {
	i.shape = sh
	sh.samples += i.samples
	sh.time += i.to.Sub(i.from)
	if len(sh.tids) < maxThreadIDs {
		sh.tids[i.tid] = true
	}
	if sh.first.IsZero() || i.from.Before(sh.first) {
		sh.first = i.from
	}
	if i.to.After(sh.last) {
		sh.last = i.to
	}
}

// oldest is since when the longest of some threads was seen to wait.
func (s *Sampler) oldest(threads []*thread) time.Time {
	var oldest time.Time
	for _, t := range threads {
		if w := s.threads[t.tid]; w != nil && (oldest.IsZero() || w.first.Before(oldest)) {
			oldest = w.first
		}
	}
	return oldest
}

// age is what is known of a thread on the way from earlier looks.
func (s *Sampler) age(t *thread, now time.Time) second {
	if !t.known {
		return second{}
	}
	h, ok := s.hops[t.tid]
	if !ok || h.switches != t.use.switches {
		h = seenHop{switches: t.use.switches, since: now}
		if w := s.threads[t.tid]; w != nil && w.switches == t.use.switches {
			h.since = w.first
		}
	}
	if len(s.hops) >= maxWatched {
		clear(s.hops)
	}
	s.hops[t.tid] = h
	return second{}
}

// ageHop says for how long the thread of a hop has not run, as far as known.
func (s *Sampler) ageHop(h *observe.WaitHop, threads []*thread, i int, now time.Time) {
	since, ok := s.hops[h.TID]
	if i == 0 {
		h.ForNS = now.Sub(s.oldest(threads)).Nanoseconds()
		return
	}
	if ok && h.Kind != observe.WaitRunnable {
		h.ForNS = now.Sub(since.since).Nanoseconds()
	}
}

// holdsUp says whether a trail leads to somebody, or something, that a thread
// is held up by: not one that is ready for work. Who is asleep of its own will holds
// up the request that it has in hand, if it has one.
func holdsUp(tr *trail) bool {
	first := tr.steps[0].link
	if tr.backTo >= 0 {
		// Threads of an event loop wake each other through pipes: only who wants
		// something that the next one withholds is held up.
		return !slices.ContainsFunc(tr.steps[tr.backTo:], func(s step) bool { return !s.link.wants.Demands() })
	}
	if len(first.targets) > 0 || len(tr.steps) > 1 {
		return first.wants.Demands() || first.end == observe.EndGone ||
			len(tr.steps) > 1 && culprit(tr.steps[len(tr.steps)-1].link.end)
	}
	switch first.end {
	case observe.EndIdle, observe.EndEnded:
		return false
	case observe.EndSleep:
		return first.kind == observe.WaitSleep
	case observe.EndNoOwner, observe.EndUnseen, observe.EndRunning:
		return first.wants.Demands()
	}
	return true
}

// culprit says whether an end is something to be fixed, whatever was wanted.
func culprit(e observe.WaitEnd) bool {
	switch e {
	case observe.EndStopped, observe.EndTraced, observe.EndFrozen, observe.EndDisk, observe.EndFuse, observe.EndKernel, observe.EndGone, observe.EndCycle:
		return true
	}
	return false
}

// shapeOf finds the shape of a chain; nil when there are too many.
func (s *Sampler) shapeOf(c *observe.WaitChain) *shape {
	master, _ := s.names.Master(c.Hops[0].Process.PID)
	key := shapeKey(master, c)
	sh := s.byKey[key]
	if sh == nil {
		if len(s.shapes) >= maxShapes {
			s.lost++
			return nil
		}
		sh = &shape{key: key, master: master, chain: *c, tids: map[int]bool{}}
		s.byKey[key] = sh
		s.shapes = append(s.shapes, sh)
	}
	return sh
}

// shapeKey is what chains of one shape have in common. A descriptor's number,
// and which of the threads of a process holds a lock, differ from wait to wait.
func shapeKey(master int, c *observe.WaitChain) string {
	var b strings.Builder
	for i := range c.Hops {
		h := &c.Hops[i]
		who := h.Process.PID
		if i == 0 {
			who = master
		}
		_, object, found := strings.Cut(h.Object, " → ")
		if !found {
			object = h.Object
		}
		switch h.Kind {
		case observe.WaitThread, observe.WaitChild, observe.WaitSleep:
			object = ""
		case observe.WaitRunnable:
			object = "" // on a CPU
		}
		if h.Kind == observe.WaitSleep && len(c.Hops) == 1 && len(h.Stack) > 0 {
			object = h.Stack[0]
		}
		b.WriteString(strings.Join([]string{strconv.Itoa(who), string(h.Kind), string(h.Wants), object, h.Syscall, string(h.Inside)}, "|"))
		b.WriteByte('\n')
	}
	b.WriteString(string(c.End))
	return b.String()
}
