package watch

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/callstack"
	"github.com/slowray/slowray/internal/sense/callstack/interpreter"
	"github.com/slowray/slowray/internal/sense/stack"
	"github.com/slowray/slowray/internal/sense/symbol"
)

// The samples that are taken all the time tell which functions of the machine's
// code run, and lead through a program only by frame pointers. Which function
// of a Python or PHP program it is, a far more expensive unwinder tells: it is used when
// services compute while their requests are slow, once in a window.
const (
	closelyFirst = 750 * time.Millisecond // into the window: before, nobody knows who computes
	closelyEvery = 250 * time.Millisecond
	// closelyStart is what the unwinder takes before it tells anything: 0.3 s
	// to be loaded, 0.2 s for each interpreter, a second to meet the processes.
	closelyStart = 1700 * time.Millisecond
	closelyLeast = 400 * time.Millisecond // of samples, or it is not worth it
	closelyMost  = 4 * time.Second
	closelyEnd   = 400 * time.Millisecond // before the window's end: names take their time
	closelySpans = 4                      // of the courses, the last ones

	closelyCPU     = 0.3  // CPUs that they use together
	closelyProcess = 0.05 // CPUs that each of them uses, or wants
	closelySlow    = 5    // slow requests that they answered
	// Whose slow requests compute for less than closelyOf of their time, as followed ones
	// tell, are slow for something else, unless a thread of theirs is always on a CPU.
	closelyOf     = 0.15
	closelyAlways = 0.8 // CPUs that a process with such a thread uses
	closelyPIDs   = 64
	closelyFull   = 0.95 // of the CPUs, busy
	closelyOwn    = 0.5  // of the CPUs, used by the services

	closelyAsleep = 1500 * time.Millisecond // into the window: when nobody computes, where they wait is looked at
	closelyWait   = 15 * time.Millisecond   // the shortest wait of those: who waits so long does not wait often

	// The unwinder takes up to 200 MB for a moment: where that is a good part
	// of what is left, it would do harm.
	closelyMemory = 1 << 30 // bytes available
	// closelyNice is the nice value at which it is loaded, which takes about
	// 1.2 s of CPU time: slowray's own would take it from the service.
	closelyNice = 5
)

// SubjectFunctions is the subject of gaps of this look.
const SubjectFunctions = "functions of interpreters"

// closely is the recording of the stacks of some processes, with all frames: of those
// that compute, or, where none does, of threads of Java, PHP and Node that wait, which is
// written nowhere in the kernel either.
type closely struct {
	requests *requests
	threads  *threads
	use      *use

	cancel context.CancelFunc // nil until it has begun
	done   chan struct{}
	stacks *observe.Stacks
	err    error
	pids   []int
	asleep bool         // it records where they wait, not what they compute
	speaks map[int]bool // processes by whether they run an interpreter whose stacks are read no other way
}

// sample begins to record when there is something to look at.
func (c *closely) sample(s *session) {
	elapsed := s.elapsed()
	left := s.opt.For - elapsed - closelyEnd - closelyStart
	if s.opt.SkipUnwinder || c.cancel != nil || elapsed < closelyFirst || left < closelyLeast {
		return
	}
	if c.pids = c.computing(s); len(c.pids) == 0 {
		if elapsed < closelyAsleep {
			return
		}
		if c.pids, c.asleep = c.waiting(s), true; len(c.pids) == 0 {
			return
		}
	}
	if s.fs.AvailableMemory() < closelyMemory {
		c.cancel, c.done = func() {}, make(chan struct{})
		c.err = errors.New("less than 1 GB of memory is available, of which the unwinder takes up to 200 MB")
		close(c.done)
		return
	}
	var ctx context.Context
	ctx, c.cancel = context.WithCancel(context.Background())
	c.done = make(chan struct{})
	go func() {
		defer close(c.done)
		runtime.LockOSThread() // never unlocked: the thread ends with its nice value
		c.stacks, c.err = callstack.Record(ctx, min(left, closelyMost), callstack.Options{
			PIDs: c.pids, OnCPU: !c.asleep, OffCPU: c.asleep, Min: closelyWait, Hz: stack.Hz, Threads: true,
			Unwinder: func(space *symbol.Space, pids []int) (callstack.Unwinder, error) {
				_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), closelyNice)
				u, err := interpreter.Start(space, pids)
				_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), ownNice)
				if err != nil {
					return nil, err // not u: that would be no nil interface
				}
				return u, nil
			},
		})
	}()
}

// computing lists the serving processes that compute, when their requests are
// slow.
func (c *closely) computing(s *session) []int {
	slow := c.requests.slow.byProcess()
	var few slowAt // of those with few of them, such as workers of one service
	for _, at := range slow {
		if at.followed < closelySlow {
			few.add(at.computes)
		}
	}
	var pids []int
	var used float64
	requests := 0
	for _, pid := range s.serving {
		spans := c.threads.spans[pid]
		spans = spans[max(0, len(spans)-closelySpans):]
		var cpu, wanted, seconds float64
		begin := 0.0
		if all := c.threads.spans[pid]; len(all) > len(spans) {
			begin = all[len(all)-len(spans)-1].Seconds
		}
		for _, span := range spans {
			cpu += span.CPU
			wanted += span.CPU + span.Delay
			seconds += span.Seconds - begin
			begin = span.Seconds
		}
		at := slow[pid]
		if at.followed < closelySlow {
			at.computes = few.computes
		}
		if seconds <= 0 || wanted < closelyProcess*seconds || at.waits() && cpu < closelyAlways*seconds || len(pids) >= closelyPIDs {
			continue
		}
		used += cpu / seconds
		requests += at.requests
		pids = append(pids, pid)
	}
	if used < closelyCPU || requests < closelySlow || c.crowded(s, used) {
		return nil
	}
	return slices.Sorted(slices.Values(pids))
}

// waiting lists the processes whose requests are slow and whose threads wait in what
// only the unwinder understands.
func (c *closely) waiting(s *session) []int {
	if c.speaks == nil {
		c.speaks = map[int]bool{}
	}
	var pids []int
	requests := 0
	for pid, at := range c.requests.slow.byProcess() {
		if _, known := c.speaks[pid]; !known {
			c.speaks[pid] = pid > 0 && interpreter.Alone(pid)
		}
		if c.speaks[pid] && len(pids) < closelyPIDs {
			pids = append(pids, pid)
			requests += at.requests
		}
	}
	if requests < closelySlow || c.crowded(s, 0) {
		return nil
	}
	return slices.Sorted(slices.Values(pids))
}

// crowded says whether the CPUs are full, and not with the services, which use
// so many: what a service executes is then not why it is slow, and the unwinder
// would take long and get in its way.
func (c *closely) crowded(s *session, used float64) bool {
	var busy, all float64
	for _, span := range c.use.course[max(0, len(c.use.course)-closelySpans):] {
		busy += span.Busy
		all += span.Busy + span.Idle
	}
	return all > 0 && busy > closelyFull*all && used < closelyOwn*float64(s.out.Host.CPUs)
}

// slowAt is the slow requests of a process.
type slowAt struct {
	requests int
	computes
}

// computes is what of them was followed from thread to thread.
type computes struct {
	followed               int
	followedNS, computedNS int64
}

func (c *computes) add(o computes) {
	c.followed, c.followedNS, c.computedNS = c.followed+o.followed, c.followedNS+o.followedNS, c.computedNS+o.computedNS
}

// waits says that they are slow for something else than what they compute.
func (c *computes) waits() bool {
	return c.followed >= closelySlow && float64(c.computedNS) < closelyOf*float64(c.followedNS)
}

// byProcess counts the slow requests by who read them.
func (q *slowRequests) byProcess() map[int]slowAt {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := map[int]slowAt{}
	add := func(r *slowRecord) {
		s := at[r.pid]
		s.requests++
		if r.followed > 0 {
			s.add(computes{1, r.followed, r.computed})
		}
		at[r.pid] = s
	}
	for i := range q.finished {
		add(&q.finished[i])
	}
	for _, r := range q.open {
		add(&r)
	}
	return at
}

// stop puts what was recorded into the profile.
func (c *closely) stop(s *session) {
	if c.cancel == nil {
		return
	}
	if !c.ended(s.ctx) {
		s.partialGap(observe.KindProfile, 0, SubjectFunctions, errors.New("were not named in time: the CPUs are full"))
		return
	}
	if c.err != nil {
		s.partialGap(observe.KindProfile, 0, SubjectFunctions, c.err)
		return
	}
	if c.asleep {
		return // end joins them with the waits
	}
	if !stack.Take(s.out.Profile, c.stacks) {
		s.partialGap(observe.KindProfile, 0, SubjectFunctions, errors.New("too few stacks were recorded in what was left of the window"))
		return
	}
	if s.opt.KeepStacks {
		s.out.Stacks = c.stacks
	}
	for _, note := range c.stacks.Notes {
		s.partialGap(observe.KindProfile, 0, SubjectFunctions, fmt.Errorf("%s", note))
	}
}

// end tells where the threads wait whose stacks were recorded.
func (c *closely) end(s *session) {
	if c.asleep && c.stacks != nil && s.out.Waits != nil {
		stack.PlaceWaits(s.out.Waits, c.stacks)
	}
}

// closelyPatience is how long the verdict waits for the names of functions.
const closelyPatience = 700 * time.Millisecond

func (c *closely) close(s *session) { c.ended(s.ctx) }

// ended ends the recording and waits until it has, which it says; when that
// takes too long, or until ctx ends, it ends by itself.
func (c *closely) ended(ctx context.Context) bool {
	if c.cancel == nil {
		return false
	}
	c.cancel()
	select {
	case <-c.done:
		return true
	case <-ctx.Done():
		return false
	case <-time.After(closelyPatience):
		return false
	}
}
