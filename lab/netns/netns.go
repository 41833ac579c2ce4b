package netns

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/osthread"
)

// self is the network namespace of the calling thread; the process's own link
// is that of its first thread.
const self = "/proc/thread-self/ns/net"

// New makes a network namespace whose loopback interface is up. It lives as
// long as the file, and sockets and processes in it. It needs CAP_SYS_ADMIN.
func New() (*os.File, error) {
	var f *os.File
	err := osthread.Own(func() (err error) {
		if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("netns: new: %w", err)
		}
		if f, err = os.Open(self); err != nil {
			return fmt.Errorf("netns: new: %w", err)
		}
		return up("lo")
	})
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Do calls f on a thread inside the namespace. Sockets that f opens stay
// there; goroutines it starts run outside.
func Do(ns *os.File, f func() error) error {
	return osthread.Own(func() error {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("netns: enter %s: %w", ns.Name(), err)
		}
		return f()
	})
}

func up(name string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("netns: socket: %w", err)
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr); err != nil {
		return fmt.Errorf("netns: %s up: %w", name, err)
	}
	return nil
}
