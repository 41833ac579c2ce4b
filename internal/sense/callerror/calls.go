package callerror

import (
	"runtime"

	"github.com/slowray/slowray/internal/sense/syscalls"
)

// What the arguments of a system call are, as bits of call_kinds in
// callerror.bpf.c.
const (
	path0   = 1 << iota // the first argument is a path
	path1               // the second one is, below the directory of the first
	again               // EAGAIN says that a limit has been reached
	onFile              // the first argument is a descriptor
	address             // the second one is an address (sockaddr)
)

// call is a system call and what its arguments are.
type call struct {
	name string
	kind uint8
}

// maxCalls is MAX_CALLS of callerror.bpf.c.
const maxCalls = 512

// calls are those that are known by name, by number: the others are counted
// too.
var calls = callsOf(runtime.GOARCH)

// callsWith are the names of calls, by what their arguments are.
var callsWith = map[uint8][]string{
	0: {
		"mmap", "munmap", "mprotect", "mremap", "msync", "madvise", "mlock", "brk", "memfd_create", "add_key",
		"shmget", "semget", "semop", "msgget", "pipe2", "eventfd2", "inotify_init", "inotify_init1", "io_uring_setup",
		"socket", "accept", "accept4", "sendto", "sendmsg", "splice", "copy_file_range",
		"epoll_create", "epoll_create1", "epoll_ctl",
	},
	onFile: {
		"read", "readv", "pread64", "write", "writev", "pwrite64", "pwritev", "pwritev2", "sendfile", "close",
		"fsync", "fdatasync", "sync_file_range", "ftruncate", "fallocate",
	},
	address: {"bind", "connect"},
	again:   {"clone", "clone3", "fork", "vfork", "io_setup"},
	path0: {
		"open", "creat", "stat", "lstat", "access", "truncate", "chdir", "chmod", "chown", "mkdir", "rmdir", "unlink", "execve", "mq_open",
	},
	path1: {
		"openat", "openat2", "newfstatat", "statx", "faccessat", "mkdirat", "unlinkat", "rename", "renameat", "renameat2",
		"link", "linkat", "symlink", "execveat", "inotify_add_watch",
	},
}

// callsOf is the calls of an architecture by number; nil for one that is not
// known.
func callsOf(arch string) map[uint32]call {
	byName := map[string]call{}
	for kind, names := range callsWith {
		for _, name := range names {
			byName[name] = call{name, kind}
		}
	}
	return syscalls.ByNumber[uint32](arch, byName)
}

// errorNames are the errors that are counted (asm-generic/errno.h).
var errorNames = map[uint32]string{
	1: "EPERM", 5: "EIO", 11: "EAGAIN", 12: "ENOMEM", 13: "EACCES", 23: "ENFILE", 24: "EMFILE", 27: "EFBIG", 28: "ENOSPC", 30: "EROFS",
	98: "EADDRINUSE", 101: "ENETUNREACH", 113: "EHOSTUNREACH", 116: "ESTALE", 117: "EUCLEAN", 122: "EDQUOT",
}
