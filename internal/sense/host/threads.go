package host

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
)

// Activity is what a thread is doing at one moment.
type Activity int

// What a thread can be seen doing.
const (
	Unknown Activity = iota // asleep, and neither syscall nor wchan may be read
	Idle                    // asleep in accept(): ready for a connection
	Polling                 // asleep in epoll_wait, poll, select or io_uring_enter: idle, or waiting for any of many
	Running                 // running or runnable
	Disk                    // uninterruptible
	Reading                 // asleep in read or recv: waiting for the bytes of a pipe or socket
	Waiting                 // asleep in anything else
	Stopped                 // by a signal or a tracer
	Gone                    // ended, or a zombie
)

// String is the Activity in one word.
func (a Activity) String() string {
	names := [...]string{"unknown", "idle", "polling", "running", "disk", "reading", "waiting", "stopped", "gone"}
	if a < 0 || int(a) >= len(names) {
		return "invalid"
	}
	return names[a]
}

// maxThreads bounds the threads of one process that SampleThreads looks at in
// one round.
const maxThreads = 256

// SampleThreads looks once at each thread of a process and adds what it sees to
// into. Of a process with more than 256 threads each round takes the next 256.
// The thread's system call needs the right to trace the process (same user or
// CAP_SYS_PTRACE); without it nothing is added and the error is a permission
// error.
func (fs FS) SampleThreads(pid int, into *observe.ThreadStates) error {
	r := getRaw()
	defer r.put()
	dir, err := r.open(unix.AT_FDCWD, r.num(fs.Proc+"/", pid, "/task"), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return fmt.Errorf("threads of process %d: %w", pid, err)
	}
	defer closeFD(dir)
	tids, err := r.numbers(dir, []byte(".\x00"))
	if err != nil {
		return fmt.Errorf("threads of process %d: %w", pid, err)
	}
	start := 0
	if len(tids) > maxThreads {
		start = into.Rounds * maxThreads % len(tids)
	}
	round := *into
	for i := range min(len(tids), maxThreads) {
		a := r.activity(dir, tids[(start+i)%len(tids)])
		if a == Unknown {
			return fmt.Errorf("threads of process %d: system call: %w", pid, unix.EACCES)
		}
		add(&round, a)
	}
	round.Rounds++
	*into = round
	return nil
}

func add(s *observe.ThreadStates, a Activity) {
	switch a {
	case Idle:
		s.Accept++
	case Polling:
		s.Poll++
	case Running:
		s.Running++
	case Disk:
		s.Disk++
	case Waiting, Reading:
		s.Waiting++
	case Stopped:
		s.Stopped++
	default:
		return
	}
	s.Samples++
}

// Activity is what the main thread of a process is doing: two small reads.
func (fs FS) Activity(pid int) Activity {
	r := getRaw()
	defer r.put()
	dir, err := r.open(unix.AT_FDCWD, r.num(fs.Proc+"/", pid, "/task"), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return Gone
	}
	defer closeFD(dir)
	return r.activity(dir, pid)
}

// activity looks at the thread tid in the task directory dir. The state comes
// first: a process stopped by a signal while it was in accept() still shows
// that system call, but nobody will accept.
func (r *raw) activity(dir, tid int) Activity {
	b, err := r.read(dir, r.num("", tid, "/stat"))
	if err != nil {
		return Gone
	}
	switch statState(b) {
	case 'R':
		return Running
	case 'D', 'K', 'W':
		return Disk
	case 'T', 't':
		return Stopped
	case 'S':
		return r.sleeping(dir, tid)
	case 'I', 'P':
		return Waiting
	}
	return Gone
}

// sleeping tells what a sleeping thread waits for, by its system call, or by
// the kernel function it sleeps in.
func (r *raw) sleeping(dir, tid int) Activity {
	b, err := r.read(dir, r.num("", tid, "/syscall"))
	if err == nil && waitCalls != nil {
		return parseSyscall(b, waitCalls)
	}
	if err != nil && vanished(err) && !r.exists(dir, r.num("", tid, "")) {
		return Gone
	}
	if b, err = r.read(dir, r.num("", tid, "/wchan")); err != nil {
		return Unknown
	}
	return parseWchan(b)
}

func (r *raw) exists(at int, name []byte) bool {
	fd, err := r.open(at, name, unix.O_PATH)
	if err != nil {
		return false
	}
	closeFD(fd)
	return true
}

// parseSyscall reads /proc/PID/syscall (proc_pid_syscall, fs/proc/base.c):
// "running", or "-1 SP PC" outside a call, or the number and six arguments.
func parseSyscall(b []byte, calls map[uint64]Activity) Activity {
	f, _ := nextField(b)
	if strings.HasPrefix(string(f), "running") {
		return Running
	}
	nr, ok := ParseUint(f)
	if !ok {
		return Waiting
	}
	if a, ok := calls[nr]; ok {
		return a
	}
	return Waiting
}

// wchanPrefixes is the kernel functions that a thread sleeps in when it has no
// work, over the versions since 4.x.
var wchanPrefixes = []struct {
	prefix   string
	activity Activity
}{
	{"inet_csk_accept", Idle}, {"inet_csk_wait_for_connect", Idle}, {"unix_accept", Idle},
	{"__skb_wait_for_more_packets", Idle}, {"skb_wait_for_more_packets", Idle}, // unix_accept waits in it
	{"ep_poll", Polling}, {"do_epoll_wait", Polling}, {"do_epoll_pwait", Polling},
	{"poll_schedule_timeout", Polling}, {"do_select", Polling}, {"core_sys_select", Polling},
	{"do_poll", Polling}, {"do_sys_poll", Polling}, {"io_cqring_wait", Polling},
}

// parseWchan reads /proc/PID/wchan: the name of the function the thread sleeps
// in. "0" is what those get who may not know it.
func parseWchan(b []byte) Activity {
	name := strings.TrimSpace(string(b))
	if name == "" || name == "0" {
		return Unknown
	}
	for _, p := range wchanPrefixes {
		if strings.HasPrefix(name, p.prefix) {
			return p.activity
		}
	}
	return Waiting
}
