package wait

import (
	"bytes"
	"errors"
	"io/fs"
	"math"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/printable"
	"github.com/slowray/slowray/internal/sense/host"
)

// files reads small files of procfs into one buffer. Of a file that is larger
// the beginning is read.
type files struct {
	proc string
	buf  []byte
}

// open opens a directory of procfs to read files in it.
func (f *files) open(path string) (int, error) {
	for {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// read returns the contents of a file in an open directory, valid until the
// next call.
func (f *files) read(dir int, name string) ([]byte, error) {
	var fd int
	var err error
	for {
		fd, err = unix.Openat(dir, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	for {
		n, err := unix.Read(fd, f.buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		return f.buf[:max(n, 0)], nil
	}
}

// vanished says whether err means that the process ended while it was read.
func vanished(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH)
}

// stat is what matters of /proc/PID/task/TID/stat (proc_pid_stat(5)).
type stat struct {
	comm   string
	state  byte
	ppid   int
	kernel bool // a kernel thread
}

// pfKthread marks a kernel thread (PF_KTHREAD, include/linux/sched.h).
const pfKthread = 0x00200000

// parseStat reads a stat file; false when it is not one. The name may hold any
// byte, also ") R 1", so fields are counted from the last closing parenthesis.
func parseStat(b []byte) (stat, bool) {
	open, last := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || last < open {
		return stat{}, false
	}
	f := bytes.Fields(b[last+1:])
	if len(f) < 2 || len(f[0]) != 1 {
		return stat{}, false
	}
	s := stat{comm: printable.Name(b[open+1:last], maxComm), state: f[0][0]}
	s.ppid, _ = host.ParseSmall(f[1])
	if len(f) > 6 {
		flags, _ := host.ParseUint(f[6])
		s.kernel = flags&pfKthread != 0
	}
	return s, true
}

// maxComm is TASK_COMM_LEN (16), and more for kernel threads, whose names have
// what they work on added (proc_task_name).
const maxComm = 64

// usage is how often and how long a thread ran.
type usage struct {
	switches uint64 // grows when it is taken onto a CPU, or off one
	run      int64  // ns on a CPU
	delay    int64  // ns runnable without one
}

// parseSchedstat reads a schedstat file (Documentation/scheduler/sched-stats.rst):
// ns on a CPU, ns waiting for one, and how often it was given one. False where
// the kernel does not count: such a file is all zeros.
func parseSchedstat(b []byte) (usage, bool) {
	f := bytes.Fields(b)
	if len(f) < 3 {
		return usage{}, false
	}
	run, ok1 := host.ParseUint(f[0])
	delay, ok2 := host.ParseUint(f[1])
	times, ok3 := host.ParseUint(f[2])
	if !ok1 || !ok2 || !ok3 || times == 0 || run > math.MaxInt64 || delay > math.MaxInt64 {
		return usage{}, false
	}
	return usage{switches: times, run: int64(run), delay: int64(delay)}, true
}

// parseSwitches takes the context switches from a status file (proc_pid_status(5)).
func parseSwitches(b []byte) (usage, bool) {
	own, ok1 := host.ParseUint(keyed(b, "voluntary_ctxt_switches:"))
	forced, ok2 := host.ParseUint(keyed(b, "nonvoluntary_ctxt_switches:"))
	return usage{switches: own + forced}, ok1 && ok2
}

// inCall is what /proc/PID/syscall says (proc_pid_syscall, fs/proc/base.c).
type inCall struct {
	known   bool // false: it could not be read
	running bool
	outside bool // asleep, but not in a system call
	foreign bool // of a 32-bit program, whose calls have other numbers and arguments
	nr      uint64
	args    [6]uint64
}

// parseSyscall reads "running", "-1 SP PC", or the number, six arguments, SP
// and PC.
func parseSyscall(b []byte) inCall {
	f := bytes.Fields(b)
	switch {
	case len(f) == 0:
		return inCall{}
	case string(f[0]) == "running":
		return inCall{known: true, running: true}
	case string(f[0]) == "-1":
		return inCall{known: true, outside: true}
	}
	nr, ok := host.ParseUint(f[0])
	if !ok {
		return inCall{}
	}
	c := inCall{known: true, nr: nr}
	for i := range c.args {
		if i+1 < len(f) {
			c.args[i], _ = hexadecimal(f[i+1])
		}
	}
	// The stack of a 64-bit program never lies in the first 4 GiB.
	if len(f) > 7 {
		sp, ok := hexadecimal(f[7])
		c.foreign = ok && sp>>32 == 0
	}
	return c
}

// keyed is what follows a key at the beginning of a line, without blanks around.
func keyed(b []byte, key string) []byte {
	rest, _ := host.AfterKey(b, key)
	return rest
}

// hexadecimal reads "0x1f" or "1f".
func hexadecimal(b []byte) (n uint64, ok bool) {
	b, _ = bytes.CutPrefix(b, []byte("0x"))
	return host.ParseHex(b)
}
