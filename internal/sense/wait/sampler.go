package wait

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/budget"
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

	// glancePart is the part of that which a glance may take, for threads that have waited
	// for glanceLasting.
	glancePart    = 4
	glanceLasting = 250 * time.Millisecond

	maxShapes    = 256   // of chains
	maxIntervals = 32768 // waits of single threads that are kept
	maxWatched   = 16384 // threads that are remembered from look to look
	maxThreadIDs = 4096  // that are counted of one shape
	freezeEvery  = time.Second
	placeEvery   = time.Second // it is read where threads in Python are
	// … after such a time, where one has begun to compute
	burstPlaceEvery = 100 * time.Millisecond
	// A process of which all threads are ready for work, and a thread that is, are
	// looked at less often after some looks: a process every so many looks, and
	// so many of such threads in one.
	quietAfter = 2
	// asleepAfter is the same of threads that sleep of their own will.
	asleepAfter = 40
	quietLooks  = 4
	restLooks   = 16 // for the threads of processes with very many
	restAtOnce  = 128
)

// What one of many looks may take of others, and the last one. What each process
// of a service adds is some ms at most.
var (
	sampleLimits = budget.Limits{Bytes: 128 << 20, Unpacked: 64 << 20, Files: 512 << 10, Nodes: 4 << 20, Wall: 200 * time.Millisecond}
	finishLimits = budget.Limits{Bytes: 256 << 20, Unpacked: 64 << 20, Files: 512 << 10, Nodes: 4 << 20, Wall: 400 * time.Millisecond}
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
	served    map[int]bool // processes that wait for the server of a file system
	intervals []*interval
	unseen    []string
	lost      int64 // intervals beyond maxIntervals

	followed  int
	unknown   time.Duration
	processes map[int]*visit
	goes      goSampling
	placed    time.Time // it was read where threads in Python are
	// … and where one is that has begun to compute
	burstPlaced time.Time
	ended       map[poolKey]int
}

// visit is when a process was looked at.
type visit struct {
	last     time.Time
	frozenAt time.Time // it was asked whether it is frozen
	quiet    int       // looks in a row in which all threads were ready for work
	skipped  int       // looks since it was looked at
	threads  int
}

// NewSampler begins to sample with reader r. The names tell the families of
// processes; they must be the sampler's own.
func NewSampler(r *Reader) *Sampler {
	return &Sampler{
		reader: r, names: r.fs.Names(), raw: files{proc: r.fs.Proc, buf: make([]byte, 64<<10)}, calls: callsOf(r.arch),
		start: time.Now(), threads: map[int]*watched{}, hops: map[int]seenHop{}, goes: goSampling{programs: map[int]*goWatched{}}, byKey: map[string]*shape{}, byCall: map[callKey]*shape{}, served: map[int]bool{}, processes: map[int]*visit{}, ended: map[poolKey]int{},
	}
}

// Effort is what a look may cost.
type Effort int

// The efforts.
const (
	Glance Effort = iota // at the threads; what holds them up is not followed
	Follow               // what holds them up, as far as the budget allows
	Finish               // the last look: whatever it costs
)

// Look looks once at all threads of the processes, and follows those that are
// held up, as far as the effort allows. A process that ended, or that may not be looked at, is left out. It must be
// called on one thread of the system (runtime.LockOSThread): what it costs is
// the CPU time of that.
func (s *Sampler) Look(pids []int, e Effort) {
	last := e == Finish
	now := time.Now()
	limits := sampleLimits
	if last {
		limits = finishLimits
	}
	l := &look{
		Reader: s.reader, raw: s.raw, calls: s.calls, names: s.names,
		procs: map[int]*process{}, links: map[*thread]*link{}, nets: map[uint64]*network{},
	}
	l.begin(limits)
	defer l.close()
	s.looks++
	if !last {
		l.skip = func(tid int) bool { return s.rests(tid, now) }
	}
	for _, sh := range s.shapes {
		sh.now = 0
	}
	var cheap, expensive []*thread
	for _, pid := range pids {
		c, d := s.lookAt(l, pid, now, last)
		cheap, expensive = append(cheap, c...), append(expensive, d...)
	}
	s.forget(now)
	budget := followCredit + time.Duration(followShare*float64(now.Sub(s.start)))
	switch {
	case last || e == Follow && s.spent < budget:
		cheap = append(cheap, expensive...)
	case e == Glance || s.spent > 2*budget:
		// Who is stopped is followed at once: it costs nothing, and may be over soon. So is
		// who waits for long, of whose requests none has ended to be known as slow.
		few := e == Glance && s.spent < budget/glancePart
		cheap = slices.DeleteFunc(cheap, func(t *thread) bool {
			return t.state != 'T' && t.state != 't' && !(few && s.threads[t.tid].long(now))
		})
	}
	if len(cheap) > 0 {
		s.follow(l, cheap, now)
	}
	s.lookAtGoroutines(l, pids, now, e)
	if e == Follow && now.Sub(s.placed) >= placeEvery {
		s.placed = now
		s.placeThreads(l, pids, (*watched).mostly)
	} else if now.Sub(s.burstPlaced) >= burstPlaceEvery {
		s.burstPlaced = now
		s.placeThreads(l, pids, (*watched).bursts)
	}
	for _, sh := range s.shapes {
		sh.most = max(sh.most, sh.now)
	}
	if err := l.budget.Err(); err != nil {
		s.overBudget(err)
	}
}

// overBudget notes that a look did not see all, once.
func (s *Sampler) overBudget(err error) {
	if told := fmt.Sprintf("some of what threads wait for: %v", err); len(s.unseen) < 16 && !slices.Contains(s.unseen, told) {
		s.unseen = append(s.unseen, told)
	}
}

// lookAt looks at one process and returns the threads to be followed: those of
// which that costs little, and the others.
func (s *Sampler) lookAt(l *look, pid int, now time.Time, last bool) (cheap, expensive []*thread) {
	turn := s.processes[pid]
	if turn == nil {
		turn = &visit{}
		s.processes[pid] = turn
	}
	if turn.skipped++; turn.quiet >= quietAfter && turn.skipped < quietLooks && !last && !l.held(pid) {
		return nil, nil
	}
	turn.skipped = 0
	p := l.process(pid)
	if p.gone || p.kernel {
		turn.last = now // its threads are forgotten
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
		w := s.note(l, t, now, gap, frozen)
		if w == nil {
			continue
		}
		busy = busy || !w.ready()
		switch {
		case !s.due(w, now):
		case w.class == classCheap || w.class == classAsleep:
			cheap = append(cheap, t)
		default:
			expensive = append(expensive, t)
		}
	}
	if turn.quiet++; busy {
		turn.quiet = 0
	}
	return cheap, expensive
}

// rests says that a thread has been ready for work for long enough not to be
// looked at this time.
func (s *Sampler) rests(tid int, now time.Time) bool {
	w := s.threads[tid]
	if w == nil || w.still < quietAfter || !w.ready() {
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
	w.count()
	return true
}

// held says whether the main thread of a process sleeps where stopped, traced and
// frozen ones do. One short file tells.
func (l *look) held(pid int) bool {
	b, err := l.raw.read(unix.AT_FDCWD, l.fs.Proc+"/"+strconv.Itoa(pid)+"/wchan")
	return err == nil && slices.ContainsFunc(heldIn, func(f string) bool { return bytes.HasPrefix(b, []byte(f)) })
}

// heldIn are functions that stopped, traced and frozen processes sleep in.
var heldIn = []string{"do_signal_stop", "ptrace_stop", "do_freezer_trap", "__refrigerator", "__freezer_trap"}

// looksFrozen says whether a process sleeps where frozen ones do, of control
// groups of version 2 and 1.
func looksFrozen(l *look, p *process) bool {
	w := l.wchanOf(p.threads[0])
	return strings.HasPrefix(w, "do_freezer_trap") || strings.HasPrefix(w, "__refrigerator") || strings.HasPrefix(w, "__freezer_trap")
}

// forget ends the waits of threads that were not seen when their process was
// looked at last: they ended.
func (s *Sampler) forget(now time.Time) {
	for tid, w := range s.threads {
		if turn := s.processes[w.pid]; turn != nil && !w.listed.Equal(turn.last) || now.Sub(w.listed) > 10*time.Second {
			s.end(w, min(now.Sub(w.listed), time.Second))
			if k := s.poolOf(w); w.use.looks > 0 && (len(s.ended) < maxPools || s.ended[k] > 0) {
				s.ended[k]++
			}
			delete(s.threads, tid)
		}
	}
}
