package callerror

import "runtime"

// What the arguments of a system call are, as bits of call_kinds in
// callerror.bpf.c.
const (
	path0  = 1 << iota // the first argument is a path
	path1              // the second one is, below the directory of the first
	again              // EAGAIN says that a limit has been reached
	onFile             // the first argument is a descriptor
)

// call is a system call and what its arguments are.
type call struct {
	name string
	kind uint8
}

// maxCalls is MAX_CALLS of callerror.bpf.c.
const maxCalls = 512

// calls are those that are known by name, by number: the others are counted
// too (x86: arch/x86/entry/syscalls/syscall_64.tbl; arm64:
// include/uapi/asm-generic/unistd.h).
var calls = callsOf(runtime.GOARCH)

func callsOf(arch string) map[uint32]call {
	switch arch {
	case "amd64":
		return map[uint32]call{
			0: {"read", onFile}, 1: {"write", onFile}, 2: {"open", path0}, 3: {"close", onFile}, 4: {"stat", path0}, 6: {"lstat", path0},
			9: {"mmap", 0}, 10: {"mprotect", 0}, 11: {"munmap", 0}, 12: {"brk", 0}, 17: {"pread64", onFile}, 18: {"pwrite64", onFile},
			19: {"readv", onFile}, 20: {"writev", onFile}, 21: {"access", path0}, 25: {"mremap", 0}, 26: {"msync", 0}, 28: {"madvise", 0},
			29: {"shmget", 0}, 40: {"sendfile", onFile}, 41: {"socket", 0}, 42: {"connect", 0}, 43: {"accept", 0}, 44: {"sendto", 0},
			46: {"sendmsg", 0}, 49: {"bind", 0}, 56: {"clone", again}, 57: {"fork", again}, 58: {"vfork", again}, 59: {"execve", path0},
			64: {"semget", 0}, 65: {"semop", 0}, 68: {"msgget", 0}, 74: {"fsync", onFile}, 75: {"fdatasync", onFile}, 76: {"truncate", path0},
			77: {"ftruncate", onFile}, 80: {"chdir", path0}, 82: {"rename", path1}, 83: {"mkdir", path0}, 84: {"rmdir", path0},
			85: {"creat", path0}, 86: {"link", path1}, 87: {"unlink", path0}, 88: {"symlink", path1}, 90: {"chmod", path0}, 92: {"chown", path0},
			149: {"mlock", 0}, 206: {"io_setup", again}, 213: {"epoll_create", 0}, 233: {"epoll_ctl", 0}, 240: {"mq_open", path0}, 248: {"add_key", 0},
			253: {"inotify_init", 0}, 254: {"inotify_add_watch", path1}, 257: {"openat", path1}, 258: {"mkdirat", path1},
			262: {"newfstatat", path1}, 263: {"unlinkat", path1}, 264: {"renameat", path1}, 265: {"linkat", path1}, 269: {"faccessat", path1},
			275: {"splice", 0}, 277: {"sync_file_range", onFile}, 285: {"fallocate", onFile}, 288: {"accept4", 0}, 290: {"eventfd2", 0},
			291: {"epoll_create1", 0}, 293: {"pipe2", 0}, 294: {"inotify_init1", 0}, 296: {"pwritev", onFile}, 316: {"renameat2", path1},
			319: {"memfd_create", 0}, 322: {"execveat", path1}, 326: {"copy_file_range", 0}, 328: {"pwritev2", onFile}, 332: {"statx", path1},
			425: {"io_uring_setup", 0}, 435: {"clone3", again}, 437: {"openat2", path1},
		}
	case "arm64", "riscv64", "loong64":
		return map[uint32]call{
			63: {"read", onFile}, 64: {"write", onFile}, 57: {"close", onFile}, 222: {"mmap", 0}, 226: {"mprotect", 0}, 215: {"munmap", 0},
			214: {"brk", 0}, 67: {"pread64", onFile}, 68: {"pwrite64", onFile}, 65: {"readv", onFile}, 66: {"writev", onFile},
			216: {"mremap", 0}, 227: {"msync", 0}, 233: {"madvise", 0}, 194: {"shmget", 0}, 71: {"sendfile", onFile}, 198: {"socket", 0},
			203: {"connect", 0}, 202: {"accept", 0}, 206: {"sendto", 0}, 211: {"sendmsg", 0}, 200: {"bind", 0}, 220: {"clone", again},
			221: {"execve", path0}, 190: {"semget", 0}, 193: {"semop", 0}, 186: {"msgget", 0}, 82: {"fsync", onFile}, 83: {"fdatasync", onFile},
			45: {"truncate", path0}, 46: {"ftruncate", onFile}, 49: {"chdir", path0}, 228: {"mlock", 0}, 0: {"io_setup", again},
			21: {"epoll_ctl", 0}, 180: {"mq_open", path0}, 217: {"add_key", 0}, 27: {"inotify_add_watch", path1}, 56: {"openat", path1},
			34: {"mkdirat", path1}, 79: {"newfstatat", path1}, 35: {"unlinkat", path1}, 38: {"renameat", path1}, 37: {"linkat", path1},
			48: {"faccessat", path1}, 76: {"splice", 0}, 84: {"sync_file_range", onFile}, 47: {"fallocate", onFile}, 242: {"accept4", 0},
			19: {"eventfd2", 0}, 20: {"epoll_create1", 0}, 59: {"pipe2", 0}, 26: {"inotify_init1", 0}, 70: {"pwritev", onFile},
			276: {"renameat2", path1}, 279: {"memfd_create", 0}, 281: {"execveat", path1}, 285: {"copy_file_range", 0}, 287: {"pwritev2", onFile},
			291: {"statx", path1}, 425: {"io_uring_setup", 0}, 435: {"clone3", again}, 437: {"openat2", path1},
		}
	}
	return nil
}

// errorNames are the errors that are counted (asm-generic/errno.h).
var errorNames = map[uint32]string{
	1: "EPERM", 5: "EIO", 11: "EAGAIN", 12: "ENOMEM", 13: "EACCES", 23: "ENFILE", 24: "EMFILE", 27: "EFBIG", 28: "ENOSPC", 30: "EROFS",
	116: "ESTALE", 117: "EUCLEAN", 122: "EDQUOT",
}
