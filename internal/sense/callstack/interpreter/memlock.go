package interpreter

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// allowMemlock lets the library raise RLIMIT_MEMLOCK, on which it insists
// whenever it makes a map. Since Linux 5.11 BPF needs no such limit
// (d5299b67dd59), but where CAP_SYS_RESOURCE is missing, as in many containers,
// the raise is refused and the library gives up. There the kernel is asked to
// say of such a raise, in this process, that it was done. That lasts until the
// process ends, and changes nothing else.
func allowMemlock() error {
	limit := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	if unix.Prlimit(0, unix.RLIMIT_MEMLOCK, &limit, nil) == nil {
		return nil // and left so: before Linux 5.11 our own maps need it too
	}
	if err := pretendMemlock(); err != nil {
		return fmt.Errorf("RLIMIT_MEMLOCK cannot be raised (needs CAP_SYS_RESOURCE): %w", err)
	}
	return nil
}

// pretendMemlock makes setting RLIMIT_MEMLOCK do nothing and succeed, by a
// seccomp filter on all threads. It is installed once.
var pretendMemlock = sync.OnceValue(func() error {
	const (
		number   = 0  // offsets in struct seccomp_data
		resource = 24 // args[1], low half
		newLimit = 32 // args[2], low and high half
	)
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	jump := func(value uint32, equal, other uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jt: equal, Jf: other}
	}
	answer := func(value uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: value}
	}
	filter := []unix.SockFilter{
		load(number),
		jump(unix.SYS_PRLIMIT64, 0, 7),
		load(resource),
		jump(unix.RLIMIT_MEMLOCK, 0, 5),
		load(newLimit),
		jump(0, 0, 2), // something is set
		load(newLimit + 4),
		jump(0, 1, 0),                  // nothing is set, only asked
		answer(unix.SECCOMP_RET_ERRNO), // with error 0: success
		answer(unix.SECCOMP_RET_ALLOW),
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	install := func() error {
		thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
		switch {
		case errno != 0:
			return errno
		case thread != 0:
			return errors.New("a thread has a filter of its own")
		}
		return nil
	}
	runtime.LockOSThread() // both calls are of one thread
	defer runtime.UnlockOSThread()
	err := install()
	if errors.Is(err, unix.EACCES) {
		// Without CAP_SYS_ADMIN the process must first renounce what a program
		// that it starts could gain; it starts none.
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("no new privileges: %w", err)
		}
		err = install()
	}
	runtime.KeepAlive(filter)
	if err != nil {
		return fmt.Errorf("seccomp filter: %w", err)
	}
	return nil
})
