package privsep

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// OnThread calls f on a thread of its own, which ends with it: what f does to the
// thread (namespaces, rights) stays nowhere, and is inherited by the processes that
// f starts. The first thread of a program is never taken: it never ends, and is
// what /proc/self shows.
func OnThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			done <- f() // never unlocked
			return
		}
		done <- OnThread(f)
		runtime.UnlockOSThread()
	}()
	return <-done
}

// maxCapability is more than any kernel has: they are bits of 64.
const maxCapability = 63

// Confine has the programs that the calling thread starts gain nothing by being
// started: no_new_privs, no inheritable capability (which root keeps whatever the
// bounding set says), and of the capability bounding set only what keep has.
// The thread must end with its goroutine ([OnThread]).
func Confine(keep uint64) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	if err := dropInheritable(); err != nil {
		return fmt.Errorf("inheritable capabilities: %w", err)
	}
	for c := range uintptr(maxCapability + 1) {
		if keep&(1<<c) != 0 {
			continue
		}
		switch held, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0); {
		case errors.Is(err, unix.EINVAL):
			return nil // past the last one
		case err == nil && held == 0:
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			return fmt.Errorf("capability bounding set: %w", err)
		}
	}
	return nil
}

// dropInheritable empties that set of the calling thread, and with it the ambient one.
func dropInheritable() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&header, &caps[0]); err != nil {
		return err
	}
	caps[0].Inheritable, caps[1].Inheritable = 0, 0
	return unix.Capset(&header, &caps[0])
}

// SealFiles has no open file but standard input, output and error, and those that
// are handed on by name, reach a program that is started: also not what slowray
// was itself given by whoever started it.
func SealFiles() error {
	if err := unix.CloseRange(3, 1<<31-1, unix.CLOSE_RANGE_CLOEXEC); err != nil { // Linux 5.11
		return sealEach()
	}
	return nil
}

// sealEach is SealFiles for kernels without close_range(2).
func sealEach() error {
	d, err := os.Open("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("open files: %w", err)
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("open files: %w", err)
	}
	for _, name := range names {
		if fd, err := strconv.Atoi(name); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}
