package host

import "runtime"

// waitCalls is the system calls of this machine in which a thread waits for
// work or for bytes. Threads of 32-bit programs on a 64-bit kernel number theirs otherwise
// and are told wrong.
var waitCalls = waitCallsOf(runtime.GOARCH)

// waitCallsOf is the system call numbers of an architecture (x86:
// arch/x86/entry/syscalls/syscall_64.tbl; arm64 and riscv64:
// include/uapi/asm-generic/unistd.h, which has no epoll_wait, poll or select).
func waitCallsOf(arch string) map[uint64]Activity {
	switch arch {
	case "amd64":
		return map[uint64]Activity{
			43: Idle, 288: Idle, // accept, accept4
			232: Polling, 281: Polling, 441: Polling, // epoll_wait, epoll_pwait, epoll_pwait2
			7: Polling, 271: Polling, // poll, ppoll
			23: Polling, 270: Polling, // select, pselect6
			426: Polling,              // io_uring_enter
			0:   Reading, 19: Reading, // read, readv
			45: Reading, 47: Reading, 299: Reading, // recvfrom, recvmsg, recvmmsg
		}
	case "arm64", "riscv64", "loong64":
		return map[uint64]Activity{
			202: Idle, 242: Idle, // accept, accept4
			22: Polling, 441: Polling, // epoll_pwait, epoll_pwait2
			73: Polling, 72: Polling, // ppoll, pselect6
			426: Polling,              // io_uring_enter
			63:  Reading, 65: Reading, // read, readv
			207: Reading, 212: Reading, 243: Reading, // recvfrom, recvmsg, recvmmsg
		}
	}
	return nil
}
