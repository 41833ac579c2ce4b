package request

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/cilium/ebpf/link"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/threadcontext"
)

// Contexts of threads: which span a thread has in hand that sends an answer or a call (OTEP
// 4947). The kernel side reads it (thread_context.h); here it is found where the processes
// publish it that have requests.

const (
	// contextsFirst is after how long a process is looked at again that published nothing,
	// contextsMost the most that this grows to, twice as long each time: an SDK may begin
	// late, and a process may execute another program.
	contextsFirst, contextsMost = time.Second, 5 * time.Minute
	// contextsEvery is how often it is looked at whose turn it is.
	contextsEvery = 250 * time.Millisecond
	// contextsCheck is how often it is looked at whether one that publishes still does.
	contextsCheck = 2 * time.Second
	// contextsPace is how much longer looking at processes rests than it took.
	contextsPace = 50
	// maxPublishers bounds those that publish: PUBLISHERS of thread_context.h.
	maxPublishers = 256
	// maxContextProcesses bounds those that are remembered, maxContextLooks those that are
	// looked at in one go.
	maxContextProcesses, maxContextLooks = 4096, 16
	// maxContextsTold bounds the processes of which it is reported why they are not read.
	maxContextsTold = 16
	// maxFaults is how many reads in a row may fail: MAX_FAULTS of thread_context.h.
	maxFaults = 64
)

// threadContext is struct thread_context.
type threadContext struct {
	trace      [16]byte
	span       [8]byte
	valid      uint8
	flags      uint8
	attributes uint16
	of         uint32
}

// publisher is struct publisher.
type publisher struct {
	Memory                 uint64
	Offset, Vector, Length int64
	Module, Entry          uint32
	Faults, Other          uint32
}

// contexts are the processes that may publish the contexts of their threads.
type contexts struct {
	processes map[int]*contextProcess
	last      int                // process that was wanted last
	working   chan contextsFound // nil while nobody works
	cancel    context.CancelFunc
	next      time.Time // nothing is looked at before
	publish   int       // processes that do
	told      int       // processes of which it was said why they are not read
}

// contextProcess is a process that had requests.
type contextProcess struct {
	pid   int
	next  time.Time     // it is looked at
	again time.Duration // after that
	place threadcontext.Place
	is    bool // it publishes, at place
	told  bool // why it is not read
}

// contextsFound is what came of a look at some processes.
type contextsFound struct {
	processes map[*contextProcess]contextFound
	took      time.Duration
}

type contextFound struct {
	place threadcontext.Place
	err   error
}

// context is what the slot of a record has of its thread's context.
func (r *Recorder) context(cpu int, number uint64) *threadContext {
	size := int(unsafe.Sizeof(threadContext{}))
	return (*threadContext)(unsafe.Pointer(&r.handed[(cpu*int(r.slots)+int(number&(r.slots-1)))*size]))
}

// read gives a request the trace of the thread that sent it, or its answer.
func (c *contexts) read(q *observe.Request, from *threadContext) {
	if !single(q) {
		return
	}
	q.Trace = observe.Trace{ID: from.trace, Parent: from.span, Flags: uint32(from.flags)}
	q.Flags |= observe.FlagThreadContext
}

// published says whether any process publishes.
func (c *contexts) published() bool { return c.publish > 0 }

// want notes a process that has requests.
func (c *contexts) want(pid int) {
	if pid == c.last || pid == 0 || pid == self {
		return
	}
	c.last = pid
	if c.processes[pid] != nil {
		return
	}
	if c.processes == nil {
		c.processes = map[int]*contextProcess{}
	}
	if len(c.processes) < maxContextProcesses {
		c.processes[pid] = &contextProcess{pid: pid, again: contextsFirst}
	}
}

// tellContexts looks for processes that publish, aside, and tells the programs.
func (r *Recorder) tellContexts(now time.Time) {
	c := &r.contexts
	if c.working != nil {
		select {
		case f := <-c.working:
			c.working = nil
			c.next = now.Add(contextsEvery + contextsPace*f.took)
			for p, is := range f.processes {
				r.takeContext(now, p, is)
			}
		default:
		}
		return
	}
	if len(c.processes) == 0 || now.Before(c.next) {
		return
	}
	c.next = now.Add(contextsEvery)
	var due []*contextProcess
	for pid, p := range c.processes {
		switch {
		case now.Before(p.next):
		case !running(pid):
			r.forgetContext(p)
			delete(c.processes, pid)
			c.last = 0
		case len(due) < maxContextLooks:
			due = append(due, p)
		}
	}
	if len(due) == 0 {
		return
	}
	working := make(chan contextsFound, 1)
	c.working = working
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	go func() {
		defer cancel()
		begun := time.Now()
		f := contextsFound{processes: map[*contextProcess]contextFound{}}
		for _, p := range due {
			place, err := threadcontext.Find(ctx, p.pid)
			f.processes[p] = contextFound{place, err}
		}
		f.took = time.Since(begun)
		working <- f
	}()
}

// takeContext tells the programs of what came of a look at a process.
func (r *Recorder) takeContext(now time.Time, p *contextProcess, f contextFound) {
	err := f.err
	if err == nil {
		err = r.publishContext(p, f.place)
	}
	switch {
	case err == nil:
		p.next = now.Add(contextsCheck)
	case errors.Is(err, threadcontext.ErrChanging):
		p.next = now.Add(contextsFirst)
	default:
		r.forgetContext(p)
		p.next = now.Add(p.again)
		p.again = min(2*p.again, contextsMost)
		if !errors.Is(err, threadcontext.ErrNone) && running(p.pid) {
			r.tellContext(p, err)
		}
	}
}

var (
	errFaults     = fmt.Errorf("%d of them in a row could not be read", maxFaults)
	errPublishers = fmt.Errorf("more than %d processes publish theirs", maxPublishers)
	errNoSending  = errors.New("which thread sends cannot be seen: tracepoint tcp:tcp_sendmsg_locked is missing (needs Linux 6.16)")
)

// publishContext has the programs read the contexts of a process, or checks that they do.
func (r *Recorder) publishContext(p *contextProcess, place threadcontext.Place) error {
	c := &r.contexts
	if r.sending == nil {
		return errNoSending
	}
	if p.is && p.place == place {
		var known publisher
		if err := r.objects.Publishers.Lookup(uint32(p.pid), &known); err != nil {
			return err
		}
		switch {
		case known.Faults >= maxFaults:
			p.again = contextsMost
			return errFaults
		case known.Other == 0:
			return nil
		}
		// It has executed the same program once more: all begins anew.
	}
	if !p.is && c.publish >= maxPublishers {
		return errPublishers
	}
	if r.sendingLink == nil {
		l, err := link.AttachTracing(link.TracingOptions{Program: r.sending})
		if err != nil {
			return fmt.Errorf("attach tcp/tcp_sendmsg_locked: %w", err)
		}
		r.sendingLink = l
		r.follow(r.share)
	}
	if err := r.objects.Publishers.Put(uint32(p.pid), &publisher{
		Offset: place.Offset, Vector: place.Vector, Length: place.Length, Module: place.Module, Entry: place.Entry,
	}); err != nil {
		return err
	}
	if !p.is {
		c.publish++
	}
	p.is, p.place = true, place
	_ = r.objects.Publishing.Set(uint32(c.publish)) // mapped memory: it cannot fail
	return nil
}

// forgetContext has the contexts of a process read no more.
func (r *Recorder) forgetContext(p *contextProcess) {
	if !p.is {
		return
	}
	p.is = false
	r.contexts.publish--
	_ = r.objects.Publishing.Set(uint32(r.contexts.publish)) // as above
	_ = r.objects.Publishers.Delete(uint32(p.pid))           // it was there: this side alone puts and deletes
}

// tellContext says why the contexts of a process are not read: once for each, of some.
func (r *Recorder) tellContext(p *contextProcess, err error) {
	if c := &r.contexts; !p.told && c.told < maxContextsTold {
		p.told = true
		c.told++
		r.missing = append(r.missing, fmt.Sprintf("traces of process %d by the contexts of its threads: %v", p.pid, err))
	}
}

func (c *contexts) close() {
	if c.working != nil {
		c.cancel()
		<-c.working
		c.working = nil
	}
}
