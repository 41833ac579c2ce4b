package wait

import (
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
	"github.com/slowray/slowray/internal/sense/host"
)

// link is what a thread waits for: either somebody (targets), or an end.
type link struct {
	kind    observe.WaitKind
	wants   observe.WaitWants
	object  string
	detail  string
	dgram   bool          // of a unix socket: it passes messages
	remote  string        // where the chain leaves the host
	quiet   time.Duration // nothing passed on the object for so long
	targets []target      // any of them could end the wait
	sure    bool          // nobody but the targets could end it, and no time limit does
	cut     string        // what was left out of targets

	end   observe.WaitEnd // without targets
	text  string          // the end in words
	actor int             // process that could let go
	path  string          // of what ends the chain
	mount *observe.WaitMount

	name   string // of the system call
	inside observe.WaitInside
	stack  []string    // functions of the program, innermost first, where they are known
	wakes  bool        // who waits like this wakes up now and then to look itself: that is no sign that the wait is over
	same   func() bool // whether the owner is still the same; nil = nothing to ask
	extra  string      // what tells this wait from others of its kind, for grouping
	reader direction   // what the thread does with the object
}

// target is who could end a wait: a thread, or a process of which it is not
// known which thread.
type target struct {
	pid, tid int // tid 0: any thread of the process
	how      observe.WaitHow
	why      string // "holds the mutex", said of the target
	object   object // the other end as the target has it: inode and kind; no object when there is none
	does     direction
}

// direction is what a thread does with an object that it is in a call on.
type direction int

const (
	nothing direction = iota
	reading
	writing
	accepting
)

// ends is a link without a next hop.
func ends(kind observe.WaitKind, end observe.WaitEnd, format string, args ...any) *link {
	return &link{kind: kind, end: end, text: fmt.Sprintf(format, args...)}
}

// linkOf tells what a thread waits for, once.
func (l *look) linkOf(t *thread) *link {
	if k, ok := l.links[t]; ok {
		return k
	}
	k := l.decode(t)
	if k.name == "" {
		k.name = l.callName(t)
	}
	l.links[t] = k
	return k
}

// callName is the name of the system call that a thread is in, or its number.
func (l *look) callName(t *thread) string {
	if !t.call.known || t.call.running || t.call.outside {
		return ""
	}
	if c, ok := l.calls[t.call.nr]; ok && !t.call.foreign {
		return c.name
	}
	return fmt.Sprintf("system call %d", t.call.nr)
}

func (l *look) decode(t *thread) *link {
	switch t.state {
	case 'R':
		return running()
	case 'T':
		return ends(observe.WaitStopped, observe.EndStopped, "%s is stopped by a signal and does nothing until it is continued", label(t.p))
	case 't':
		return l.traced(t)
	case 'Z', 'X', 'x':
		return ends(observe.WaitEnded, observe.EndEnded, "%s has ended; its parent %d has not asked for its exit status", label(t.p), t.p.ppid)
	case 'I':
		return ends(observe.WaitEpoll, observe.EndIdle, "a kernel thread without work")
	}
	if frozen := l.frozenLink(t); frozen != nil {
		return frozen
	}
	switch {
	case t.p.kernel:
		return l.inKernel(t, object{fd: -1})
	case t.p.denied && !t.call.known:
		return ends(observe.WaitUnknown, observe.EndUnseen, "what %s waits for may not be seen (needs CAP_SYS_PTRACE)", label(t.p))
	case t.call.running:
		return running()
	case !t.call.known || t.call.foreign || l.calls == nil:
		return l.byWchan(t)
	case t.call.outside:
		return l.outside(t)
	}
	return l.inSyscall(t)
}

func running() *link {
	return ends(observe.WaitRunnable, observe.EndRunning, "runs, or is ready to: it does not wait")
}

// traced is a thread that its tracer holds. State t is also that of a thread
// that reports to its tracer, as strace's.
func (l *look) traced(t *thread) *link {
	k := ends(observe.WaitStopped, observe.EndTraced, "%s is stopped by its tracer", label(t.p))
	b, err := l.raw.read(unix.AT_FDCWD, l.path(t, "status"))
	if err != nil {
		return k
	}
	if tracer, ok := host.ParseSmall(keyed(b, "TracerPid:")); ok && tracer > 0 {
		k.actor = tracer
		k.text += " " + label(l.process(tracer))
	}
	return k
}

// frozenLink is the wait of a thread whose control group is frozen, nil when it
// is not. Its system call and state are those of the moment when it was frozen.
func (l *look) frozenLink(t *thread) *link {
	file := l.frozenBy(t.p)
	if file == "" {
		return nil
	}
	k := ends(observe.WaitStopped, observe.EndFrozen, "the control group of %s is frozen", label(t.p))
	k.path = file
	return k
}

// inSyscall tells what a thread waits for that is asleep in a call.
func (l *look) inSyscall(t *thread) *link {
	c, known := l.calls[t.call.nr]
	a := t.call.args
	if !known {
		return l.byWchan(t)
	}
	fd := -1
	if c.fd < len(a) {
		fd = int(int32(a[c.fd]))
	}
	// Uninterruptible sleep is not for the other end of anything, but for a
	// device or a lock inside the kernel; a parent waits like this for vfork.
	if t.state == 'D' && c.does != forks {
		switch c.does {
		case reads, writes, sends, syncs, touches, locksFile, controls, copies, splices:
			return l.inKernel(t, l.object(t, fd))
		}
		return l.inKernel(t, object{fd: -1})
	}
	switch c.does {
	case reads:
		return l.onFD(t, fd, reading)
	case writes:
		return l.onFD(t, fd, writing)
	case sends:
		return l.sendsTo(t, fd)
	case copies:
		return l.onFD(t, fd, writing)
	case splices:
		return l.splice(t, fd)
	case connects:
		return l.connecting(t, fd)
	case accepts:
		return l.accepting(t, fd)
	case polls:
		return l.polling(t)
	case selects:
		return l.selecting(t)
	case waitsEpoll:
		return ends(observe.WaitEpoll, observe.EndIdle, "an event loop without work")
	case waitsRing, waitsAIO:
		return ends(observe.WaitEpoll, observe.EndIdle, "waits for completions of asynchronous I/O, or for work")
	case waitsFutex:
		return l.futex(t, a[0], uint32(a[1]), uint32(a[2]), a[3])
	case waitsFutex2:
		return l.futexNew(t)
	case waitsVector:
		return noOwner("waits on several locks at once; who holds them is not written anywhere")
	case locksFile, controls:
		return l.fileLocked(t, fd, c.does == locksFile)
	case waitsPID, waitsID:
		return l.waitsForChild(t, c.does == waitsID)
	case opens:
		return l.opening(t, a[c.fd])
	case sleeps:
		return l.sleeping(t, a[c.fd])
	case waitsSignal:
		return ends(observe.WaitEvent, observe.EndIdle, "waits for a signal")
	case forks:
		return l.forked(t)
	case restarts:
		return l.byWchan(t)
	case leaves:
		return ends(observe.WaitEnded, observe.EndEnded, "is ending")
	case queues:
		return ends(observe.WaitEvent, observe.EndNoOwner, "waits for a message queue or semaphore; who will serve it is not written anywhere")
	}
	return l.inKernel(t, l.objectOf(t, c, fd))
}

// objectOf is the descriptor of a call that has one.
func (l *look) objectOf(t *thread, c call, fd int) object {
	switch c.does {
	case syncs, touches:
		return l.object(t, fd)
	}
	return object{fd: -1}
}

// onFD is the wait in a read or write.
func (l *look) onFD(t *thread, fd int, does direction) *link {
	return l.onObject(t, l.object(t, fd), does)
}

func (l *look) onObject(t *thread, o object, does direction) *link {
	var k *link
	switch o.kind {
	case pipeObject, fifoObject:
		k = l.onPipe(t, o, does)
	case socketObject:
		k = l.onSocket(t, o, does)
	case anonObject:
		k = l.onAnon(t, o)
	case deviceObject:
		k = l.onDevice(o, does)
	case noObject:
		k = ends(observe.WaitUnknown, observe.EndUnseen, "what fd %d stands for could not be read", o.fd)
	default:
		k = l.inKernel(t, o)
	}
	k.reader = does
	if k.object == "" {
		k.object = o.String()
	}
	return k
}

// onAnon is the wait for an eventfd and its like.
func (l *look) onAnon(t *thread, o object) *link {
	name := strings.Trim(strings.TrimPrefix(o.link, "anon_inode:"), "[]")
	if name == "pidfd" {
		return l.onPIDFD(t, o)
	}
	return ends(observe.WaitEvent, observe.EndIdle, "waits for an event (%s)", printable.Name(name, 64))
}

// onDevice is the wait for a character device.
func (l *look) onDevice(o object, does direction) *link {
	switch {
	case o.isTerminal() && does == writing:
		k := ends(observe.WaitTerminal, observe.EndNoOwner, "the terminal takes no more: its output is stopped (Ctrl-S), or the program that shows it does not read")
		k.wants = observe.WantsRoom
		return k
	case o.isTerminal():
		return ends(observe.WaitTerminal, observe.EndIdle, "waits for somebody to type")
	case o.link == "/dev/fuse":
		return ends(observe.WaitEvent, observe.EndIdle, "a file system's server without work")
	}
	return ends(observe.WaitEvent, observe.EndIdle, "waits for the device %s", printable.Name(o.link, 256))
}

// splice is the wait in splice and tee, of which the kernel function tells
// whether there is nothing to take or no room to put it.
func (l *look) splice(t *thread, out int) *link {
	for _, full := range []string{"wait_for_space", "opipe_prep", "sk_stream_wait_memory", "sock_alloc_send"} {
		if strings.HasPrefix(l.wchanOf(t), full) {
			return l.onFD(t, out, writing)
		}
	}
	return l.onFD(t, int(int32(t.call.args[0])), reading)
}

// sleeping is nanosleep and clock_nanosleep: a struct timespec at addr.
func (l *look) sleeping(t *thread, addr uint64) *link {
	k := ends(observe.WaitSleep, observe.EndSleep, "sleeps for a time that it chose itself")
	if c := l.calls[t.call.nr]; c.fd == 2 && t.call.args[1]&1 != 0 {
		return k // TIMER_ABSTIME: until a time of the clock
	}
	if b := l.bytesAt(t.p, addr, 16); b != nil && long(b, 0) < 1<<32 && long(b, 8) < 1e9 {
		sleep := time.Duration(long(b, 0)*1e9 + long(b, 8))
		if lock := l.sqlite(t, sleep); lock != nil {
			return lock
		}
		if sleep >= time.Microsecond { // less was read when it was over
			k.object = sleep.String()
		}
	}
	return k
}

// opening is open(2) of a FIFO, which waits until somebody opens the other end.
func (l *look) opening(t *thread, addr uint64) *link {
	name, ok := l.text(t.p, addr, 4096)
	wchan := l.wchanOf(t)
	if !ok || !strings.HasPrefix(wchan, "wait_for_partner") && !strings.HasPrefix(wchan, "fifo_open") {
		return l.byWchan(t)
	}
	k := ends(observe.WaitPipe, observe.EndNoHolder, "nobody has the other end of the FIFO open")
	k.wants, k.object = observe.WantsAccept, "FIFO "+printable.Name(name, 512)
	return k
}

func noOwner(text string) *link {
	return ends(observe.WaitCond, observe.EndNoOwner, "%s", text)
}
