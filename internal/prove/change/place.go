package change

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/sense/host"
	"github.com/slowray/slowray/internal/shell"
)

// place is the network namespace that a change is made in. Its inode is given
// to another namespace soon after it has ended; its cookie is not.
type place struct {
	NetNS   uint64  `json:"netns,omitempty"` // inode; 0 is the host's
	Cookie  uint64  `json:"cookie,omitempty"`
	Process Process `json:"process,omitzero"` // that it was entered through
	Path    string  `json:"path,omitempty"`   // … or what it is mounted on, where no process lives in it
}

// hostPID is in the host's network namespace, unless slowray runs in a
// container that has its own processes: then it can see no further.
const hostPID = 1

// placeOf finds out where c is to be made.
func placeOf(c *cause.Change) (place, error) {
	if c.NetNS == 0 {
		return place{}, nil
	}
	out := place{NetNS: c.NetNS}
	var ns *host.NetNS
	var err error
	if c.PID == 0 && c.NetNSPath != "" {
		out.Path = c.NetNSPath
		ns, err = openPath(c.NetNSPath, c.NetNS)
	} else {
		if out.Process, err = ProcessOf(c.PID); err != nil {
			return place{}, fmt.Errorf("network namespace %d: %w", c.NetNS, err)
		}
		ns, err = openPlace(c.PID, c.NetNS)
	}
	if errors.Is(err, ErrGone) && out.Path != "" {
		return place{}, fmt.Errorf("network namespace %d is not at %s: observe anew", c.NetNS, c.NetNSPath)
	}
	if errors.Is(err, ErrGone) {
		return place{}, fmt.Errorf("process %d is not in network namespace %d: observe anew", c.PID, c.NetNS)
	}
	if err != nil {
		return place{}, err
	}
	defer ns.Close()
	err = ns.Do(func() (err error) {
		out.Cookie, err = netnsCookie()
		return err
	})
	return out, enterError(c.NetNS, err)
}

func enterError(inode uint64, err error) error {
	if err != nil {
		return fmt.Errorf("network namespace %d: %w", inode, refused(err, "CAP_SYS_ADMIN to enter it"))
	}
	return nil
}

// openPath opens the namespace that is mounted on a file, if that is the one with
// the inode.
func openPath(path string, inode uint64) (*host.NetNS, error) {
	m, err := host.NetNSMountAt(path, inode)
	if err != nil {
		return nil, err
	}
	ns, err := host.Default().OpenNetNSMount(m)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ESTALE) {
		return nil, ErrGone
	}
	return ns, enterError(inode, err)
}

// openPlace opens the namespace of a process, if that is the one with the inode.
func openPlace(pid int, inode uint64) (*host.NetNS, error) {
	ns, err := host.Default().OpenNetNS(pid)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return nil, ErrGone
	}
	if err != nil {
		return nil, enterError(inode, err)
	}
	if inode != 0 && ns.Inode() != inode {
		ns.Close()
		return nil, ErrGone
	}
	return ns, nil
}

// open gives the namespace again: through the process that it was entered
// through at first, else through any that lives in it.
func (p place) open() (*host.NetNS, error) {
	if p.NetNS == 0 {
		ns, err := openPlace(hostPID, 0)
		if err != nil { // it may not be looked at; then slowray's own is meant
			ns, err = openPlace(os.Getpid(), 0)
		}
		return ns, err
	}
	if p.Path != "" {
		ns, err := openPath(p.Path, p.NetNS)
		if err == nil && !p.same(ns) {
			ns.Close()
			return nil, ErrGone
		}
		return ns, err
	}
	if p.Process.Check() == nil {
		ns, err := openPlace(p.Process.PID, p.NetNS)
		if err == nil && p.same(ns) {
			return ns, nil
		}
		if err == nil {
			ns.Close()
		} else if !errors.Is(err, ErrGone) {
			return nil, err
		}
	}
	if p.Cookie == 0 {
		return nil, ErrGone
	}
	for _, pid := range allPIDs() {
		ns, err := openPlace(pid, p.NetNS)
		if err != nil {
			continue
		}
		if p.same(ns) {
			return ns, nil
		}
		ns.Close()
		return nil, ErrGone // the inode belongs to another one now
	}
	return nil, ErrGone
}

// same compares the cookies, where the kernel has them.
func (p place) same(ns *host.NetNS) bool {
	if p.Cookie == 0 {
		return true
	}
	var cookie uint64
	err := ns.Do(func() (err error) {
		cookie, err = netnsCookie()
		return err
	})
	return err == nil && cookie == p.Cookie
}

// do runs f on a thread in the namespace.
func (p place) do(f func() error) error {
	ns, err := p.open()
	if err != nil {
		return err
	}
	defer ns.Close()
	entered := false
	err = ns.Do(func() error {
		entered = true
		return f()
	})
	if !entered {
		return enterError(p.NetNS, err)
	}
	return err
}

// netnsCookie is the number of the thread's namespace that no other ever gets
// (SO_NETNS_COOKIE, Linux 5.14); 0 on older kernels.
func netnsCookie() (uint64, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return 0, nil
	}
	return cookie, nil
}

// prefix is what a person types before a command to run it in the namespace.
func (p place) prefix() shell.Command {
	if p.NetNS == 0 {
		return shell.Command{}
	}
	if p.Path != "" {
		return shell.Line("nsenter --net=%s", p.Path)
	}
	return shell.Line("nsenter -t %s -n", p.Process.PID)
}
