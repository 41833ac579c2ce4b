package wait

import "runtime"

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
	sleeps             // struct timespec in an argument
	waitsSignal        // a signal
	forks              // vfork and clone with CLONE_VFORK: the child's exec or end
	restarts           // goes on with a call that was interrupted, of which nothing is known
	leaves             // exit: the thread goes away
	queues             // System V and POSIX message queues, semaphores
)

// callsOf is the system calls of an architecture by number; nil for one that is
// not known. x86: arch/x86/entry/syscalls/syscall_64.tbl; arm64 and riscv64:
// include/uapi/asm-generic/unistd.h.
func callsOf(arch string) map[uint64]call {
	var table map[uint64]call
	switch arch {
	case "amd64":
		table = map[uint64]call{
			0: {"read", reads, 0}, 17: {"pread64", reads, 0}, 19: {"readv", reads, 0}, 295: {"preadv", reads, 0}, 327: {"preadv2", reads, 0},
			45: {"recvfrom", reads, 0}, 47: {"recvmsg", reads, 0}, 299: {"recvmmsg", reads, 0},
			1: {"write", writes, 0}, 18: {"pwrite64", writes, 0}, 20: {"writev", writes, 0}, 296: {"pwritev", writes, 0}, 328: {"pwritev2", writes, 0},
			44: {"sendto", sends, 0}, 46: {"sendmsg", sends, 0}, 307: {"sendmmsg", sends, 0}, 278: {"vmsplice", writes, 0},
			40: {"sendfile", copies, 0}, 275: {"splice", splices, 2}, 276: {"tee", splices, 1}, 326: {"copy_file_range", touches, 0},
			42: {"connect", connects, 0}, 43: {"accept", accepts, 0}, 288: {"accept4", accepts, 0},
			7: {"poll", polls, 0}, 271: {"ppoll", polls, 0}, 23: {"select", selects, 0}, 270: {"pselect6", selects, 0},
			232: {"epoll_wait", waitsEpoll, 0}, 281: {"epoll_pwait", waitsEpoll, 0},
			202: {"futex", waitsFutex, 0}, 73: {"flock", locksFile, 0}, 72: {"fcntl", controls, 0},
			61: {"wait4", waitsPID, 0}, 247: {"waitid", waitsID, 0},
			74: {"fsync", syncs, 0}, 75: {"fdatasync", syncs, 0}, 277: {"sync_file_range", syncs, 0}, 306: {"syncfs", syncs, 0},
			26: {"msync", otherCall, 0}, 162: {"sync", otherCall, 0},
			208: {"io_getevents", waitsAIO, 0}, 333: {"io_pgetevents", waitsAIO, 0},
			35: {"nanosleep", sleeps, 0}, 230: {"clock_nanosleep", sleeps, 2},
			34: {"pause", waitsSignal, 0}, 128: {"rt_sigtimedwait", waitsSignal, 0}, 130: {"rt_sigsuspend", waitsSignal, 0},
			219: {"restart_syscall", restarts, 0}, 58: {"vfork", forks, 0}, 57: {"fork", otherCall, 0}, 56: {"clone", forks, 0},
			60: {"exit", leaves, 0}, 231: {"exit_group", leaves, 0},
			65: {"semop", queues, 0}, 220: {"semtimedop", queues, 0}, 70: {"msgrcv", queues, 0}, 69: {"msgsnd", queues, 0},
			243: {"mq_timedreceive", queues, 0}, 242: {"mq_timedsend", queues, 0},
			2: {"open", opens, 0}, 257: {"openat", opens, 1},
			3: {"close", touches, 0}, 5: {"fstat", touches, 0}, 8: {"lseek", touches, 0}, 16: {"ioctl", touches, 0}, 77: {"ftruncate", touches, 0},
			217: {"getdents64", touches, 0}, 285: {"fallocate", touches, 0},
			4: {"stat", otherCall, 0}, 6: {"lstat", otherCall, 0}, 9: {"mmap", otherCall, 0}, 11: {"munmap", otherCall, 0}, 21: {"access", otherCall, 0},
			59: {"execve", otherCall, 0}, 82: {"rename", otherCall, 0}, 83: {"mkdir", otherCall, 0}, 84: {"rmdir", otherCall, 0}, 87: {"unlink", otherCall, 0},
			258: {"mkdirat", otherCall, 0}, 262: {"newfstatat", otherCall, 0}, 263: {"unlinkat", otherCall, 0}, 264: {"renameat", otherCall, 0},
			267: {"readlinkat", otherCall, 0}, 269: {"faccessat", otherCall, 0}, 316: {"renameat2", otherCall, 0}, 322: {"execveat", otherCall, 0},
			332: {"statx", otherCall, 0},
		}
	case "arm64", "riscv64", "loong64":
		table = map[uint64]call{
			63: {"read", reads, 0}, 67: {"pread64", reads, 0}, 65: {"readv", reads, 0}, 69: {"preadv", reads, 0}, 286: {"preadv2", reads, 0},
			207: {"recvfrom", reads, 0}, 212: {"recvmsg", reads, 0}, 243: {"recvmmsg", reads, 0},
			64: {"write", writes, 0}, 68: {"pwrite64", writes, 0}, 66: {"writev", writes, 0}, 70: {"pwritev", writes, 0}, 287: {"pwritev2", writes, 0},
			206: {"sendto", sends, 0}, 211: {"sendmsg", sends, 0}, 269: {"sendmmsg", sends, 0}, 75: {"vmsplice", writes, 0},
			71: {"sendfile", copies, 0}, 76: {"splice", splices, 2}, 77: {"tee", splices, 1}, 285: {"copy_file_range", touches, 0},
			203: {"connect", connects, 0}, 202: {"accept", accepts, 0}, 242: {"accept4", accepts, 0},
			73: {"ppoll", polls, 0}, 72: {"pselect6", selects, 0}, 22: {"epoll_pwait", waitsEpoll, 0},
			98: {"futex", waitsFutex, 0}, 32: {"flock", locksFile, 0}, 25: {"fcntl", controls, 0},
			260: {"wait4", waitsPID, 0}, 95: {"waitid", waitsID, 0},
			82: {"fsync", syncs, 0}, 83: {"fdatasync", syncs, 0}, 84: {"sync_file_range", syncs, 0}, 267: {"syncfs", syncs, 0},
			227: {"msync", otherCall, 0}, 81: {"sync", otherCall, 0},
			4: {"io_getevents", waitsAIO, 0}, 292: {"io_pgetevents", waitsAIO, 0},
			101: {"nanosleep", sleeps, 0}, 115: {"clock_nanosleep", sleeps, 2},
			137: {"rt_sigtimedwait", waitsSignal, 0}, 133: {"rt_sigsuspend", waitsSignal, 0},
			128: {"restart_syscall", restarts, 0}, 220: {"clone", forks, 0}, 93: {"exit", leaves, 0}, 94: {"exit_group", leaves, 0},
			193: {"semop", queues, 0}, 192: {"semtimedop", queues, 0}, 188: {"msgrcv", queues, 0}, 189: {"msgsnd", queues, 0},
			183: {"mq_timedreceive", queues, 0}, 182: {"mq_timedsend", queues, 0},
			56: {"openat", opens, 1},
			57: {"close", touches, 0}, 80: {"fstat", touches, 0}, 62: {"lseek", touches, 0}, 29: {"ioctl", touches, 0}, 46: {"ftruncate", touches, 0},
			61: {"getdents64", touches, 0}, 47: {"fallocate", touches, 0},
			222: {"mmap", otherCall, 0}, 34: {"mkdirat", otherCall, 0}, 35: {"unlinkat", otherCall, 0}, 38: {"renameat", otherCall, 0},
			48: {"faccessat", otherCall, 0}, 78: {"readlinkat", otherCall, 0}, 79: {"newfstatat", otherCall, 0}, 215: {"munmap", otherCall, 0},
			221: {"execve", otherCall, 0}, 276: {"renameat2", otherCall, 0}, 281: {"execveat", otherCall, 0}, 291: {"statx", otherCall, 0},
		}
	default:
		return nil
	}
	// From 424 on all architectures share the numbers.
	for nr, c := range map[uint64]call{
		426: {"io_uring_enter", waitsRing, 0}, 435: {"clone3", forks, 0}, 437: {"openat2", opens, 1},
		441: {"epoll_pwait2", waitsEpoll, 0}, 449: {"futex_waitv", waitsVector, 0}, 455: {"futex_wait", waitsFutex2, 0},
	} {
		table[nr] = c
	}
	return table
}
