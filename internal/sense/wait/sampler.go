package wait

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
)

const (
	// lasting is how long a thread must have waited before a wait is followed
	// for which sockets or the open files of the host must be read. Most waits
	// on a healthy host are shorter.
	lasting = 60 * time.Millisecond
	// followShare is the share of a CPU that following chains may take, after a
	// credit for the first ones: a chain is worth most when it is seen at once.
	followShare  = 0.01
	followCredit = 60 * time.Millisecond
	// refollow is when a chain that still holds is followed anew: who is at its
	// end may have changed.
	refollow = 2 * time.Second

	maxShapes    = 256   // of chains
	maxIntervals = 32768 // waits of single threads that are kept
	maxWatched   = 16384 // threads that are remembered from look to look
	maxThreadIDs = 4096  // that are counted of one shape
	freezeEvery  = time.Second
	// A process of which all threads are ready for work, and a thread that is, are
	// looked at less often after some looks: a process every so many looks, and
	// so many of such threads in one.
	quietAfter = 2
	quietLooks = 4
	restLooks  = 16 // for the threads of processes with very many
	restAtOnce = 128
)

// A Sampler looks again and again at the threads of some processes, follows
// what holds them up, and keeps how long. It is for one goroutine.
type Sampler struct {
	reader *Reader
	names  *host.Names
	raw    files
	calls  map[uint64]call

	start     time.Time
	looks     int
	gaps      int
	every     time.Duration // sum of the time between looks at a process
	spent     time.Duration // CPU time of this thread, for following
	threads   map[int]*watched
	hops      map[int]seenHop // threads that chains lead to
	shapes    []*shape
	byKey     map[string]*shape
	byCall    map[callKey]*shape
	intervals []*interval
	unseen    []string
	lost      int64 // intervals beyond maxIntervals

	followed  int
	unknown   time.Duration
	processes map[int]*visit
}

// visit is when a process was looked at.
type visit struct {
	last     time.Time
	frozenAt time.Time // it was asked whether it is frozen
	quiet    int       // looks in a row in which all threads were ready for work
	skipped  int       // looks since it was looked at
	threads  int
}

// watched is what is remembered of a thread from the look before.
type watched struct {
	pid, tid int
	switches uint64
	call     inCall
	state    byte
	class    class
	since    time.Time // first seen like this
	seen     time.Time // last look
	listed   time.Time // last look at which it was there
	still    int       // looks in a row that it did not run
	idle     bool      // it was followed: nobody holds it up
	wait     *interval // nil when it does not wait for anybody
	followed time.Time
}

// seenHop is a thread that a chain leads to.
type seenHop struct {
	switches uint64
	since    time.Time
	seen     time.Time
}

// interval is one wait of one thread.
type interval struct {
	pid, tid int
	from, to time.Time
	open     bool // it was still going on at the last look
	running  bool // on a CPU, or ready for one: no wait
	call     callKey
	shape    *shape // nil when it was over before it could be followed
	samples  int
}

// callKey is a system call of a process on the same descriptor, or lock. What
// was too short to be followed is taken for what was seen there at other times.
type callKey struct {
	pid int
	nr  uint64
	arg uint64
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

// class is what a thread's system call tells at first sight.
type class int

const (
	classIdle    class = iota // ready for work, or asleep of its own will
	classRunning              // on a CPU, or ready for one
	classCheap                // held up, perhaps; to follow it costs little
	classDear                 // held up, perhaps; sockets or open files must be read
)

// NewSampler begins to sample with reader r. The names tell the families of
// processes; they must be the sampler's own.
func NewSampler(r *Reader) *Sampler {
	return &Sampler{
		reader: r, names: r.fs.Names(), raw: files{proc: r.fs.Proc, buf: make([]byte, 64<<10)}, calls: callsOf(r.arch),
		start: time.Now(), threads: map[int]*watched{}, hops: map[int]seenHop{}, byKey: map[string]*shape{}, byCall: map[callKey]*shape{}, processes: map[int]*visit{},
	}
}

// Look looks once at all threads of the processes, and follows those that are
// held up, as far as the budget allows; the last time whatever it costs. A
// process that ended, or that may not be looked at, is left out. It must be
// called on one thread of the system (runtime.LockOSThread): what it costs is
// the CPU time of that.
func (s *Sampler) Look(pids []int, last bool) {
	now := time.Now()
	l := &look{
		Reader: s.reader, raw: s.raw, calls: s.calls, names: s.names,
		procs: map[int]*process{}, links: map[*thread]*link{}, nets: map[uint64]*network{},
	}
	defer l.close()
	s.looks++
	if !last {
		l.skip = func(tid int) bool { return s.rests(tid, now) }
	}
	for _, sh := range s.shapes {
		sh.now = 0
	}
	var cheap, dear []*thread
	for _, pid := range pids {
		c, d := s.lookAt(l, pid, now, last)
		cheap, dear = append(cheap, c...), append(dear, d...)
	}
	s.forget(now)
	budget := followCredit + time.Duration(followShare*float64(now.Sub(s.start)))
	switch {
	case last || s.spent < budget:
		cheap = append(cheap, dear...)
	case s.spent > 2*budget:
		cheap = nil
	}
	if len(cheap) > 0 {
		s.follow(l, cheap, now)
	}
	for _, sh := range s.shapes {
		sh.most = max(sh.most, sh.now)
	}
}

// lookAt looks at one process and returns the threads to be followed: those of
// which that costs little, and the others.
func (s *Sampler) lookAt(l *look, pid int, now time.Time, last bool) (cheap, dear []*thread) {
	turn := s.processes[pid]
	if turn == nil {
		turn = &visit{}
		s.processes[pid] = turn
	}
	if turn.skipped++; turn.quiet >= quietAfter && turn.skipped < quietLooks && !last {
		return nil, nil
	}
	turn.skipped = 0
	p := l.process(pid)
	if p.gone || p.kernel {
		return nil, nil
	}
	var gap time.Duration
	if !turn.last.IsZero() {
		gap = now.Sub(turn.last)
		s.every += gap
		s.gaps++
	}
	turn.last, turn.threads = now, p.total
	frozen := false
	if now.Sub(turn.frozenAt) >= freezeEvery {
		turn.frozenAt = now
		frozen = looksFrozen(l, p)
	}
	busy := false
	for _, t := range p.threads {
		w := s.note(t, now, gap, frozen)
		if w == nil {
			continue
		}
		busy = busy || w.class != classIdle && !w.idle
		switch {
		case !s.due(w, now):
		case w.class == classCheap:
			cheap = append(cheap, t)
		default:
			dear = append(dear, t)
		}
	}
	if turn.quiet++; busy {
		turn.quiet = 0
	}
	return cheap, dear
}

// rests says that a thread has been ready for work for long enough not to be
// looked at this time.
func (s *Sampler) rests(tid int, now time.Time) bool {
	w := s.threads[tid]
	if w == nil || w.still < quietAfter || w.class != classIdle && !w.idle {
		return false
	}
	every := quietLooks
	if turn := s.processes[w.pid]; turn != nil {
		every = min(max(turn.threads/restAtOnce, quietLooks), restLooks)
	}
	if (s.looks+tid)%every == 0 {
		return false
	}
	w.listed = now
	return true
}

// looksFrozen says whether a process sleeps where frozen ones do, of control
// groups of version 2 and 1.
func looksFrozen(l *look, p *process) bool {
	w := l.wchanOf(p.threads[0])
	return strings.HasPrefix(w, "do_freezer_trap") || strings.HasPrefix(w, "__refrigerator") || strings.HasPrefix(w, "__freezer_trap")
}

// note compares a thread with the look before; nil when there are too many.
func (s *Sampler) note(t *thread, now time.Time, gap time.Duration, frozen bool) *watched {
	w := s.threads[t.tid]
	if w == nil {
		if len(s.threads) >= maxWatched {
			return nil
		}
		w = &watched{pid: t.p.pid, tid: t.tid}
		s.threads[t.tid] = w
	}
	same := w.pid == t.p.pid && w.state == t.state && w.call == t.call && t.known && w.switches == t.use.switches &&
		!w.seen.IsZero() && t.state != 'R'
	if !w.seen.IsZero() {
		gap = now.Sub(w.seen)
	}
	w.seen, w.listed = now, now
	if w.still++; !same {
		w.still = 0
	}
	if same && !(frozen && w.class == classIdle) {
		if w.wait != nil {
			s.extend(w, now, gap)
		}
	} else {
		s.end(w, gap)
		w.pid, w.state, w.call, w.switches = t.p.pid, t.state, t.call, t.use.switches
		w.since, w.idle, w.followed = now.Add(-gap/2), false, time.Time{}
		w.class = s.classify(t)
		if frozen {
			w.class = classCheap
		}
		if w.class != classIdle {
			s.begin(w, now)
		}
	}
	return w
}

// due says whether a thread is to be followed now.
func (s *Sampler) due(w *watched, now time.Time) bool {
	switch {
	case w.idle || w.class == classIdle || w.class == classRunning:
		return false
	case w.wait != nil && w.wait.shape != nil:
		return now.Sub(w.followed) >= refollow
	case w.class == classDear:
		return now.Sub(w.since) >= lasting
	}
	return true
}

// begin opens an interval.
func (s *Sampler) begin(w *watched, now time.Time) {
	if len(s.intervals) >= maxIntervals {
		s.intervals = slices.DeleteFunc(s.intervals, func(i *interval) bool {
			return !i.open && i.shape == nil && !i.running && s.byCall[i.call] == nil
		})
		if len(s.intervals) >= maxIntervals {
			s.lost++
			return
		}
	}
	w.wait = &interval{pid: w.pid, tid: w.tid, from: w.since, to: now, open: true, running: w.class == classRunning, samples: 1}
	if w.class == classDear || w.class == classCheap && w.call.known {
		w.wait.call = callKey{w.pid, w.call.nr, w.call.args[0]}
	}
	s.intervals = append(s.intervals, w.wait)
}

// extend makes the wait of a thread that did not run last until now.
func (s *Sampler) extend(w *watched, now time.Time, gap time.Duration) {
	i := w.wait
	i.to = now
	i.samples++
	if sh := i.shape; sh != nil {
		sh.samples++
		sh.now++
		sh.time += gap
		sh.last = now
		sh.longest = max(sh.longest, now.Sub(w.since))
	}
}

// end closes the wait of a thread: half of the time since it was last seen is
// counted to it.
func (s *Sampler) end(w *watched, gap time.Duration) {
	if i := w.wait; i != nil {
		i.open = false
		i.to = i.to.Add(gap / 2)
		w.wait = nil
	}
}

// forget ends the waits of threads that were not seen when their process was
// looked at last: they ended.
func (s *Sampler) forget(now time.Time) {
	for tid, w := range s.threads {
		if turn := s.processes[w.pid]; turn != nil && !w.listed.Equal(turn.last) || now.Sub(w.listed) > 10*time.Second {
			s.end(w, 0)
			delete(s.threads, tid)
		}
	}
}

// classify tells from its system call whether a thread may be held up.
func (s *Sampler) classify(t *thread) class {
	switch t.state {
	case 'R':
		return classRunning
	case 'T', 't', 'D':
		return classCheap
	case 'S':
	default:
		return classIdle
	}
	switch {
	case t.call.running:
		return classRunning
	case !t.call.known, t.call.foreign:
		return classIdle // nothing is known: it is not blamed for anything
	case t.call.outside:
		return classDear
	}
	c, ok := s.calls[t.call.nr]
	if !ok {
		return classIdle
	}
	switch c.does {
	case waitsEpoll, waitsRing, waitsAIO, accepts, sleeps, waitsSignal, leaves, restarts:
		return classIdle
	case waitsFutex, waitsFutex2, waitsVector, locksFile, controls, syncs:
		return classCheap
	}
	return classDear
}

// follow follows threads and sorts their chains by shape.
func (s *Sampler) follow(l *look, threads []*thread, now time.Time) {
	defer func(before time.Duration) { s.spent += ThreadCPU() - before }(ThreadCPU())
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

// atRest notes that a thread is ready for work after all.
func (s *Sampler) atRest(w *watched) {
	if w == nil {
		return
	}
	w.idle = true
	if i := w.wait; i != nil && i.shape == nil {
		// It never counted for anything.
		i.to, i.open = i.from, false
		w.wait = nil
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
	if i.call != (callKey{}) && sh.chain.Hops[0].Wants == observe.WantsRoom {
		s.byCall[i.call] = sh
	}
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

// settle counts the waits that were over before they could be followed to what
// threads of the same process waited for in the same call at other times. What
// remains is not known.
func (s *Sampler) settle() {
	for _, i := range s.intervals {
		switch sh := s.byCall[i.call]; {
		case i.shape != nil || i.running || i.to.Equal(i.from):
		case sh != nil && i.call != (callKey{}):
			sh.count(i)
			sh.longest = max(sh.longest, i.to.Sub(i.from))
		default:
			s.unknown += i.to.Sub(i.from)
		}
	}
}

// oldest is since when the longest of some threads waits.
func (s *Sampler) oldest(threads []*thread) time.Time {
	var oldest time.Time
	for _, t := range threads {
		if w := s.threads[t.tid]; w != nil && (oldest.IsZero() || w.since.Before(oldest)) {
			oldest = w.since
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
			h.since = w.since
		}
	}
	h.seen = now
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
// is held up by: not one that is ready for work, or asleep of its own will.
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
	case observe.EndIdle, observe.EndSleep, observe.EndEnded:
		return false
	case observe.EndNoOwner, observe.EndUnseen, observe.EndRunning:
		return first.wants.Demands()
	}
	return true
}

// culprit says whether an end is something to be mended, whatever was wanted.
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
		b.WriteString(strings.Join([]string{strconv.Itoa(who), string(h.Kind), string(h.Wants), object, h.Syscall}, "|"))
		b.WriteByte('\n')
	}
	b.WriteString(string(c.End))
	return b.String()
}

// ThreadCPU is the CPU time that the calling thread has used (RUSAGE_THREAD,
// getrusage(2)).
func ThreadCPU() time.Duration {
	var r unix.Rusage
	if unix.Getrusage(unix.RUSAGE_THREAD, &r) != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
