package host

import (
	"runtime"

	"github.com/slowray/slowray/internal/sense/syscalls"
)

// waitCalls is the system calls of this machine in which a thread waits for
// work or for bytes. Threads of 32-bit programs on a 64-bit kernel number theirs otherwise
// and are reported wrong.
var waitCalls = waitCallsOf(runtime.GOARCH)

// waitCallsOf is the same of an architecture; nil for one that is not known.
func waitCallsOf(arch string) map[uint64]Activity {
	return syscalls.ByNumber[uint64](arch, map[string]Activity{
		"accept": Idle, "accept4": Idle,
		"epoll_wait": Polling, "epoll_pwait": Polling, "epoll_pwait2": Polling,
		"poll": Polling, "ppoll": Polling, "select": Polling, "pselect6": Polling, "io_uring_enter": Polling,
		"read": Reading, "readv": Reading, "recvfrom": Reading, "recvmsg": Reading, "recvmmsg": Reading,
	})
}
