package wait

import (
	"slices"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
)

// maxListed is how many threads of a chain are listed by number.
const maxListed = 64

// second is what the second look at a thread tells.
type second struct {
	moved      bool // it ran in between, or is gone
	known      bool // whether moved is
	run, delay int64
}

// compare looks at a thread again.
func (l *look) compare(t *thread) second {
	now := &thread{p: t.p, tid: t.tid}
	if _, ok := l.sample(l.taskDir(t.p), now); !ok {
		return second{moved: true, known: true}
	}
	s := second{moved: now.state != t.state || now.call != t.call, known: true}
	if !s.moved {
		s.known = now.known && t.known
		s.moved = s.known && now.use.switches != t.use.switches
	}
	if now.known && t.known {
		s.run, s.delay = now.use.run-t.use.run, now.use.delay-t.use.delay
	}
	return s
}

// chains takes the second look and puts what was followed into words. Threads
// of a group that moved are distinguished from those that did not.
func (l *look) chains(groups []group, window int64) []observe.WaitChain {
	seconds := map[*thread]second{}
	of := func(t *thread) second {
		s, ok := seconds[t]
		if !ok {
			s = l.compare(t)
			if k := l.linkOf(t); s.moved && k.wakes && k.same != nil && k.same() {
				s.moved = false
			}
			seconds[t] = s
		}
		return s
	}
	var all [][]observe.WaitChain // by group; branches stay together
	for _, g := range groups {
		var stuck, moving []*thread
		for _, t := range g.threads {
			if s := of(t); s.moved && l.linkOf(t).end != observe.EndRunning {
				moving = append(moving, t)
			} else {
				stuck = append(stuck, t)
			}
		}
		for _, threads := range [][]*thread{stuck, moving} {
			if len(threads) == 0 {
				continue
			}
			var branches []observe.WaitChain
			for i := range g.chains {
				branches = append(branches, l.chain(&g.chains[i], i, threads, of, window))
			}
			all = append(all, branches)
		}
	}
	slices.SortStableFunc(all, func(a, b []observe.WaitChain) int { return order(&a[0]) - order(&b[0]) })
	out := []observe.WaitChain{}
	for _, branches := range all {
		out = append(out, branches...)
	}
	return out
}

// order puts chains to be fixed before those that move, and what is ready for
// work last; among equals those of more threads come first.
func order(c *observe.WaitChain) int {
	class := 4
	switch {
	case c.Deadlock():
		class = 0
	case c.Culprit():
		class = 1
	case len(c.Hops) > 1:
		class = 2
	case c.End != observe.EndIdle && c.End != observe.EndNoOwner && c.End != observe.EndSleep:
		class = 3
	}
	if c.BackTo > 0 {
		return class<<21 - min(c.Count, 1<<19) // those in the circle come before those that only wait for it
	}
	return class<<21 - 1<<20 - min(c.Count, 1<<19)
}

// chain is one trail of a group's threads.
func (l *look) chain(tr *trail, branch int, threads []*thread, of func(*thread) second, window int64) observe.WaitChain {
	c := observe.WaitChain{Count: len(threads), Branch: branch, BackTo: tr.backTo, Cut: tr.cut}
	for _, t := range threads[:min(len(threads), maxListed)] {
		c.Threads = append(c.Threads, t.tid)
	}
	for i, s := range tr.steps {
		t := s.t
		if i == 0 {
			t = threads[0] // it waits like the one that was followed
		}
		c.Hops = append(c.Hops, l.hop(t, s, i, of(t), window))
	}
	last := tr.steps[len(tr.steps)-1].link
	c.End, c.Text, c.Actor, c.Path = last.end, last.text, last.actor, last.path
	if tr.backTo >= 0 {
		c.Sure = tr.sure
	}
	return c
}

// hop is one step of a trail.
func (l *look) hop(t *thread, s step, i int, now second, window int64) observe.WaitHop {
	k := s.link
	if own := l.linkOf(t); i == 0 && t != s.t && len(own.object) > 0 {
		// The same wait, on a descriptor of its own.
		copied := *k
		copied.object, copied.detail, copied.quiet = own.object, own.detail, own.quiet
		k = &copied
	}
	h := observe.WaitHop{
		Process: l.who(t.p), TID: t.tid, Comm: t.comm, State: string(rune(t.state)),
		Syscall: k.name, Wchan: l.wchanOf(t),
		Kind: k.kind, Wants: k.wants, Object: printable.Name(k.object, 1024), Detail: k.detail, Datagram: k.dgram, Remote: k.remote, Inside: k.inside, QuietNS: k.quiet.Nanoseconds(),
		Mount: k.mount,
	}
	h.Stack = k.stack
	if k.end == observe.EndSleep {
		l.pythonOf(t.p)
	}
	if py := l.pythons[t.p]; len(h.Stack) == 0 && py != nil {
		for j := range py.stacks[t][:min(len(py.stacks[t]), maxGoStack)] {
			h.Stack = append(h.Stack, py.stacks[t][j].String())
		}
	}
	if i > 0 {
		h.How, h.Why = s.by.how, s.by.why
	}
	switch {
	case k.kind == observe.WaitRunnable:
		h.RunNS, h.DelayNS = max(now.run, 0), max(now.delay, 0)
	case now.moved:
		h.Moving = true
	case now.known:
		h.ForNS = window
	}
	if k.same != nil && !now.moved && !k.same() {
		h.Detail = join(h.Detail, "the owner changed between the looks")
	}
	return h
}
