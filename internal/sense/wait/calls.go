package wait

import (
	"runtime"

	"github.com/slowray/slowray/internal/sense/syscalls"
)

const goarch = runtime.GOARCH

// call is a system call that a thread can be asleep in.
type call struct {
	name string
	does action
	fd   int // argument that is the descriptor, of those that have one
}

// action is what a system call waits for, and how its arguments are read.
type action int

const (
	otherCall   action = iota
	reads              // fd: bytes, or a message
	writes             // fd: room for bytes, or for a message
	sends              // as writes, and the arguments may hold an address
	copies             // sendfile: from the second argument's descriptor to the first's
	splices            // splice, tee: from the first argument's descriptor to the third's or second's
	connects           // fd, address
	accepts            // fd
	polls              // array of struct pollfd, number, timeout
	selects            // number, sets of descriptors
	waitsEpoll         // fd
	waitsRing          // fd: completions of io_uring
	waitsAIO           // completions of an AIO context
	waitsFutex         // address, operation, value, timeout
	waitsFutex2        // address, value, mask, flags, timeout
	waitsVector        // futex_waitv
	locksFile          // fd: flock
	controls           // fd: fcntl, which can wait for a lock
	waitsPID           // wait4
	waitsID            // waitid
	syncs              // fd: written to storage
	touches            // fd: a file
	opens              // path in an argument
	names              // path in an argument: a file that is not opened
	sleeps             // struct timespec in an argument
	waitsSignal        // a signal
	forks              // vfork and clone with CLONE_VFORK: the child's exec or end
	restarts           // goes on with a call that was interrupted, of which nothing is known
	leaves             // exit: the thread goes away
	queues             // System V and POSIX message queues, semaphores
)

// callsThat are the system calls that threads are seen asleep in.
var callsThat = map[action][]string{
	reads:       {"read", "pread64", "readv", "preadv", "preadv2", "recvfrom", "recvmsg", "recvmmsg"},
	writes:      {"write", "pwrite64", "writev", "pwritev", "pwritev2", "vmsplice"},
	sends:       {"sendto", "sendmsg", "sendmmsg"},
	copies:      {"sendfile"},
	splices:     {"splice", "tee"},
	connects:    {"connect"},
	accepts:     {"accept", "accept4"},
	polls:       {"poll", "ppoll"},
	selects:     {"select", "pselect6"},
	waitsEpoll:  {"epoll_wait", "epoll_pwait", "epoll_pwait2"},
	waitsRing:   {"io_uring_enter"},
	waitsAIO:    {"io_getevents", "io_pgetevents"},
	waitsFutex:  {"futex"},
	waitsFutex2: {"futex_wait"},
	waitsVector: {"futex_waitv"},
	locksFile:   {"flock"},
	controls:    {"fcntl"},
	waitsPID:    {"wait4"},
	waitsID:     {"waitid"},
	syncs:       {"fsync", "fdatasync", "sync_file_range", "syncfs"},
	touches:     {"close", "fstat", "lseek", "ioctl", "ftruncate", "getdents64", "fallocate", "copy_file_range"},
	opens:       {"open", "openat", "openat2"},
	sleeps:      {"nanosleep", "clock_nanosleep"},
	waitsSignal: {"pause", "rt_sigtimedwait", "rt_sigsuspend"},
	forks:       {"vfork", "clone", "clone3"},
	restarts:    {"restart_syscall"},
	leaves:      {"exit", "exit_group"},
	queues:      {"semop", "semtimedop", "msgrcv", "msgsnd", "mq_timedreceive", "mq_timedsend"},
	names: {
		"stat", "lstat", "statx", "newfstatat", "access", "faccessat", "execve", "execveat",
		"rename", "renameat", "renameat2", "mkdir", "mkdirat", "rmdir", "unlink", "unlinkat", "readlinkat",
	},
	otherCall: {"msync", "sync", "fork", "mmap", "munmap", "mremap", "mprotect", "madvise", "brk", "mlock"},
}

// descriptorAt is which argument holds the descriptor, or the path or time, of
// calls where that is not the first.
var descriptorAt = map[string]int{
	"splice": 2, "tee": 1, "clock_nanosleep": 2, "openat": 1, "openat2": 1, "statx": 1, "newfstatat": 1, "faccessat": 1, "execveat": 1,
	"renameat": 1, "renameat2": 1, "mkdirat": 1, "unlinkat": 1, "readlinkat": 1,
}

// callsOf is the system calls of an architecture by number; nil for one that is
// not known.
func callsOf(arch string) map[uint64]call {
	byName := map[string]call{}
	for does, names := range callsThat {
		for _, name := range names {
			byName[name] = call{name, does, descriptorAt[name]}
		}
	}
	return syscalls.ByNumber[uint64](arch, byName)
}
