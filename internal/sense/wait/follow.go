package wait

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

const (
	maxHops   = 64   // of one chain
	maxChains = 256  // groups of threads that are followed
	maxSteps  = 8192 // hops of all chains together
)

// group is threads that wait alike, and where the wait of the first leads.
type group struct {
	threads []*thread
	chains  []trail // most telling first
}

// trail is a chain under way.
type trail struct {
	steps  []step
	backTo int  // index of the step that the last one waits for; -1
	sure   bool // of one that comes back: it is a deadlock
	cut    string
}

// step is one hop: a thread, what it waits for, and how it came into the chain.
type step struct {
	t    *thread
	link *link
	by   target
	sure bool // only this thread can end the wait before, and only by going on itself
}

// follow finds out what each thread waits for. Threads that wait alike are
// followed once.
func (l *look) follow(threads []*thread) []group {
	var order []string
	groups := map[string]*group{}
	for _, t := range threads {
		key := l.linkOf(t).key()
		g := groups[key]
		if g == nil {
			g = &group{}
			groups[key] = g
			order = append(order, key)
		}
		g.threads = append(g.threads, t)
	}
	out := make([]group, 0, len(order))
	for i, key := range order {
		g := groups[key]
		slices.SortFunc(g.threads, func(a, b *thread) int { return a.tid - b.tid })
		if i < maxChains {
			first := g.threads[0]
			l.walk(trail{steps: []step{{t: first, link: l.linkOf(first), sure: true}}, backTo: -1}, &g.chains)
			slices.SortStableFunc(g.chains, func(a, b trail) int { return a.weight() - b.weight() })
			g.chains = g.chains[:min(len(g.chains), maxBranches)]
			out = append(out, *g)
		}
	}
	if len(order) > maxChains {
		l.miss(fmt.Sprintf("%d more kinds of waits of this process were not followed", len(order)-maxChains))
	}
	return out
}

// key is what threads that wait alike have in common.
func (k *link) key() string {
	var b strings.Builder
	fmt.Fprint(&b, k.name, "|", k.kind, "|", k.wants, "|", k.end, "|", k.remote, "|", k.path, "|", k.actor, "|", k.extra)
	for _, to := range k.targets {
		fmt.Fprint(&b, "|", to.pid, "/", to.tid, "/", to.object.inode)
	}
	return b.String()
}

// walk follows a trail from its last step to all ends, a bounded number of
// them.
func (l *look) walk(tr trail, out *[]trail) {
	last := &tr.steps[len(tr.steps)-1]
	if last.link.cut != "" {
		tr.cut = join(tr.cut, last.link.cut)
	}
	l.steps++
	switch {
	case len(last.link.targets) == 0:
		*out = append(*out, tr)
		return
	case l.budget.Err() != nil:
		tr.finish(ends(last.link.kind, observe.EndTooLong, "to follow it further takes too long (%v)", l.budget.Err()))
		*out = append(*out, tr)
		return
	case len(tr.steps) >= maxHops || l.steps > maxSteps:
		tr.finish(ends(last.link.kind, observe.EndTooLong, "there are more hops than are followed (%d in one chain, %d in all)", maxHops, maxSteps))
		*out = append(*out, tr)
		return
	}
	for _, to := range last.link.targets {
		if len(*out) >= 4*maxBranches {
			return
		}
		l.toward(tr, last, to, out)
	}
}

// finish ends a trail at its last step.
func (tr *trail) finish(end *link) {
	last := &tr.steps[len(tr.steps)-1]
	k := *last.link
	k.targets, k.end, k.text, k.actor, k.path = nil, end.end, end.text, end.actor, end.path
	tr.steps = slices.Clone(tr.steps)
	tr.steps[len(tr.steps)-1].link = &k
}

// toward follows one of the targets of the last step.
func (l *look) toward(tr trail, last *step, to target, out *[]trail) {
	next, cut := l.threadsOf(last, to)
	if cut != "" {
		tr.cut = join(tr.cut, cut)
	}
	if len(next) == 0 {
		p := l.process(to.pid)
		end := ends(last.link.kind, observe.EndGone, "process %d, which %s, has ended meanwhile", p.pid, to.why)
		if !p.gone && to.tid == 0 {
			end = ends(last.link.kind, observe.EndNoOwner, "%s %s, and passes it on within moments", label(p), to.why)
			end.actor = p.pid
		}
		tr.finish(end)
		*out = append(*out, tr)
		return
	}
	for _, s := range next {
		if i := slices.IndexFunc(tr.steps, func(seen step) bool { return seen.t == s.t }); i >= 0 {
			closed := tr
			closed.backTo = i
			closed.sure = sureRound(tr.steps[i:], s)
			closed.finish(cycle(tr.steps[i:], closed.sure))
			*out = append(*out, closed)
			continue
		}
		longer := tr
		longer.steps = append(slices.Clone(tr.steps), s)
		if l.mutual(last, &s) {
			longer.finish(ends(s.link.kind, observe.EndMutual, "both ends of the connection wait for the other to speak first"))
			*out = append(*out, longer)
			continue
		}
		l.walk(longer, out)
	}
}

// sureRound says that nobody outside a circle can end it: each of its waits is
// for one thread alone, and without a time limit.
func sureRound(round []step, closing step) bool {
	sure := closing.sure
	for i := range round {
		sure = sure && round[i].link.sure && (i == 0 || round[i].sure)
	}
	return sure
}

// cycle is the end of a trail that comes back to itself.
func cycle(round []step, sure bool) *link {
	if sure {
		return ends(observe.WaitLock, observe.EndCycle, "deadlock: %s", roundText(round))
	}
	return ends(observe.WaitLock, observe.EndCycle, "a circle: %s. It is a deadlock unless another thread, or a time limit, ends one of these waits", roundText(round))
}

// roundText names the threads of a circle, with their processes when those
// differ.
func roundText(round []step) string {
	if len(round) == 1 {
		return fmt.Sprintf("thread %d waits for itself", round[0].t.tid)
	}
	name := func(t *thread) string { return fmt.Sprintf("thread %d", t.tid) }
	if slices.ContainsFunc(round, func(s step) bool { return s.t.p != round[0].t.p }) {
		name = func(t *thread) string { return fmt.Sprintf("thread %d of %s", t.tid, label(t.p)) }
	}
	var b strings.Builder
	b.WriteString(name(round[0].t) + " waits for ")
	for _, s := range round[1:] {
		b.WriteString(name(s.t) + ", which waits for ")
	}
	return b.String() + name(round[0].t)
}

// mutual says whether a thread that waits for the other end to speak found one
// there that reads from the very same connection.
func (l *look) mutual(last *step, next *step) bool {
	if last.link.wants != observe.WantsAnswer && last.link.wants != observe.WantsData || last.link.reader != reading {
		return false
	}
	return next.by.how == observe.HowPeer && next.by.object.kind == socketObject && l.uses(next.t, next.by.object, reading)
}

// weight orders trails: those that lead to something to be fixed first.
func (tr *trail) weight() int {
	if tr.backTo >= 0 {
		return 0
	}
	last := tr.steps[len(tr.steps)-1]
	w := 10 * rank(last.link)
	for _, s := range tr.steps[:len(tr.steps)-1] {
		if !s.link.wants.Demands() {
			w += 5
		}
	}
	return w
}

// rank orders what threads of a process wait for, by how likely it is why the
// process does not do something else.
func rank(k *link) int {
	switch k.end {
	case observe.EndStopped, observe.EndTraced, observe.EndFrozen, observe.EndGone, observe.EndDisk, observe.EndFuse, observe.EndKernel, observe.EndMutual, observe.EndCycle:
		return 0
	case observe.EndIdle:
		return 6
	case observe.EndSleep, observe.EndEnded:
		return 5
	case observe.EndNoOwner:
		if k.wants.Demands() {
			return 1
		}
		return 4
	case observe.EndRunning:
		return 2
	}
	switch {
	case k.wants == observe.WantsRelease || k.wants == observe.WantsRoom || k.wants == observe.WantsAccept:
		return 0
	case k.wants == observe.WantsAnswer || len(k.targets) > 0:
		return 1
	}
	return 3
}

// likely is the last rank of threads that do something else, or wait for
// something else; what comes after is ready for work.
const likely = 3

// threadsOf picks the threads of a target that keep it from ending the wait.
func (l *look) threadsOf(last *step, to target) (next []step, cut string) {
	p := l.process(to.pid)
	if to.tid != 0 {
		if t := l.threadOf(p, to.tid); t != nil {
			return []step{{t: t, link: l.linkOf(t), by: to, sure: true}}, ""
		}
		return nil, ""
	}
	if p.gone || len(p.threads) == 0 {
		return nil, ""
	}
	l.complete(p)
	if len(p.threads) < p.total {
		cut = fmt.Sprintf("%d threads of %s were not looked at", p.total-len(p.threads), label(p))
	}
	if last.link.kind == observe.WaitFileLock && p.total > 1 {
		// Of another program that is at rest it is still known that it has the lock.
		if next, none := l.lockThreads(last, p, to); len(next) > 0 || none && l.related(p, last.t.p) {
			return next, cut
		}
	}
	single := p.total == 1
	main := p.threads[0]
	switch l.linkOf(main).end {
	case observe.EndStopped, observe.EndTraced, observe.EndFrozen: // all of it is
		return []step{{t: main, link: l.linkOf(main), by: to}}, cut
	}
	if single {
		k := l.linkOf(main)
		to.how = l.howOf(main, to)
		if k2 := l.stuckInstead(last, main, k); k2 != nil {
			k = k2
		}
		return []step{{t: main, link: k, by: to, sure: true}}, cut
	}
	if next = l.onTheObject(p, to); len(next) > 0 {
		return next, cut
	}
	if to.how == observe.HowPeer {
		to.how = observe.HowInferred
	}
	return l.likelyOf(last, p, to), cut
}

// related says that two processes belong to one service, as its workers do.
func (l *look) related(a, b *process) bool {
	of, _ := l.names.Master(a.pid)
	other, _ := l.names.Master(b.pid)
	return of == other
}

// howOf is how a target of one thread is known: that it is in a call on the
// other end, or only that it has it open.
func (l *look) howOf(t *thread, to target) observe.WaitHow {
	if to.how == observe.HowPeer && to.does != nothing && !l.uses(t, to.object, to.does) && !l.usesAny(t, to.object) {
		return observe.HowInferred
	}
	return to.how
}

func (l *look) usesAny(t *thread, o object) bool {
	return l.uses(t, o, reading) || l.uses(t, o, writing) || l.uses(t, o, accepting)
}

// onTheObject is the threads of a process that are in a call on the target's
// object, the expected one or, for lack of such, any.
func (l *look) onTheObject(p *process, to target) []step {
	if to.object.kind == noObject {
		return nil
	}
	var wanted, other []step
	for _, t := range p.threads {
		if l.linkOf(t).end == observe.EndIdle && l.linkOf(t).kind == observe.WaitEpoll {
			continue
		}
		s := step{t: t, link: l.linkOf(t), by: to}
		switch {
		case l.uses(t, to.object, to.does):
			wanted = append(wanted, s)
		case l.usesAny(t, to.object):
			other = append(other, s)
		}
	}
	if len(wanted) == 0 {
		// One that writes to a connection is the more likely reader of it too;
		// one that reads has nothing to do with what is not written.
		wanted = other
	}
	return wanted[:min(len(wanted), maxBranches)]
}

// uses says whether a thread is in a call on an object.
func (l *look) uses(t *thread, o object, does direction) bool {
	if !t.call.known || t.call.running || t.call.outside || t.call.foreign {
		return false
	}
	c, ok := l.calls[t.call.nr]
	if !ok {
		return false
	}
	var fd uint64
	switch {
	case c.does == reads && does == reading, (c.does == writes || c.does == sends) && does == writing, c.does == accepts && does == accepting:
		fd = t.call.args[c.fd]
	case c.does == copies && does == writing, c.does == splices && does == writing:
		fd = t.call.args[c.fd]
	case c.does == copies && does == reading:
		fd = t.call.args[1]
	case c.does == splices && does == reading:
		fd = t.call.args[0]
	case (c.does == polls || c.does == selects) && l.linkOf(t).reader == does && len(l.linkOf(t).targets) > 0:
		return l.polls(t, o)
	default:
		return false
	}
	return l.stands(t, int(int32(fd)), o)
}

// stands says whether a descriptor of a thread stands for an object.
func (l *look) stands(t *thread, fd int, o object) bool {
	has := l.object(t, fd)
	return has.kind != noObject && has.kind == o.kind && has.inode == o.inode && has.dev == o.dev
}

// polls says whether the descriptor that a thread in poll or select was found
// to wait for is an object.
func (l *look) polls(t *thread, o object) bool {
	var fd int
	if _, err := fmt.Sscanf(l.linkOf(t).object, "fd %d ", &fd); err != nil {
		return false
	}
	return l.stands(t, fd, o)
}

// likelyOf is the threads of a process that are most likely why it does not
// come round to something: those that wait for something else, not those that
// are ready for work.
func (l *look) likelyOf(last *step, p *process, to target) []step {
	best := 1 << 10
	for _, t := range p.threads {
		if t != last.t {
			best = min(best, rank(l.linkOf(t)))
		}
	}
	if best > likely {
		t := l.readyThread(p, last.t)
		if last.link.kind == observe.WaitFuse {
			t = l.servingThread(p, t)
		}
		k := l.linkOf(t)
		if stuck := l.stuckInstead(last, t, k); stuck != nil {
			k = stuck
		}
		return []step{{t: t, link: k, by: to}}
	}
	// Threads that wait for children of the process only look after those.
	if best > 0 && last.link.wants == observe.WantsRoom && l.onlyParents(p, last.t, best) {
		t := l.readyThread(p, last.t)
		if stuck := l.stuckOutput(t, map[int]bool{last.t.p.pid: true}, 0); stuck != nil {
			return []step{{t: t, link: stuck, by: to}}
		}
	}
	var out []step
	seen := map[string]bool{}
	for _, t := range p.threads {
		k := l.linkOf(t)
		if t == last.t || rank(k) != best || seen[k.key()] || len(out) == maxBranches {
			continue
		}
		seen[k.key()] = true
		out = append(out, step{t: t, link: k, by: to})
	}
	return out
}

// servingThread is the thread of a file system's server that sleeps while it has a
// request in hand: those without one wait in a read of /dev/fuse, and the main thread
// for all of them. It is the ready one when none sleeps.
func (l *look) servingThread(p *process, ready *thread) *thread {
	for i := len(p.threads) - 1; i >= 0; i-- {
		if l.linkOf(p.threads[i]).end == observe.EndSleep {
			return p.threads[i]
		}
	}
	return ready
}

// onlyParents says whether all threads of a rank wait for a child.
func (l *look) onlyParents(p *process, but *thread, of int) bool {
	for _, t := range p.threads {
		if k := l.linkOf(t); t != but && rank(k) == of && k.kind != observe.WaitChild {
			return false
		}
	}
	return true
}

// readyThread is a thread that stands for a process of which all are ready for
// work or asleep: the main thread if that sleeps, else its event loop, else the
// main thread.
func (l *look) readyThread(p *process, but *thread) *thread {
	main := p.threads[0]
	if main != but && l.linkOf(main).end == observe.EndSleep {
		return main
	}
	for _, t := range p.threads {
		if k := l.linkOf(t); t != but && k.end == observe.EndIdle && k.kind == observe.WaitEpoll {
			return t
		}
	}
	if main == but && len(p.threads) > 1 {
		return p.threads[1]
	}
	return main
}
