package host

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/nl"
	"github.com/slowray/slowray/internal/osthread"
)

// NetNS is an open network namespace. It stays reachable after the process it
// was opened through has ended. Its methods may be called from several
// goroutines.
type NetNS struct {
	fs    FS
	pid   int
	inode uint64
	fd    int // of the namespace; -1 for a fixture, where nothing is switched

	mu   sync.Mutex
	diag *nl.Socket // made at the first use; a socket stays in its namespace
}

// NetNamespaces is the network namespaces that the processes live in: inode →
// the oldest process in it, which is the one most likely to stay.
func NetNamespaces(procs []ProcSample) map[uint64]int {
	oldest := make(map[uint64]*ProcSample)
	for i := range procs {
		p := &procs[i]
		if first := oldest[p.NetNS]; p.NetNS != 0 && (first == nil || older(p, first)) {
			oldest[p.NetNS] = p
		}
	}
	out := make(map[uint64]int, len(oldest))
	for inode, p := range oldest {
		out[inode] = p.PID
	}
	return out
}

// older says that a began before b. Process IDs wrap around: the lowest is not
// always the oldest.
func older(a, b *ProcSample) bool {
	return cmp.Or(cmp.Compare(a.StartTicks, b.StartTicks), cmp.Compare(a.PID, b.PID)) < 0
}

// ByAge sorts lists of processes so that the oldest comes first: a master before
// its workers. Those that are not in procs come last.
func ByAge(procs []ProcSample, lists map[uint64][]int) {
	start := make(map[int]uint64, len(procs))
	for i := range procs {
		start[procs[i].PID] = procs[i].StartTicks
	}
	age := func(pid int) uint64 {
		if ticks, ok := start[pid]; ok {
			return ticks
		}
		return math.MaxUint64
	}
	for _, list := range lists {
		slices.SortFunc(list, func(a, b int) int { return cmp.Or(cmp.Compare(age(a), age(b)), cmp.Compare(a, b)) })
	}
}

// OpenNetNS opens the network namespace of a process. Needs CAP_SYS_PTRACE for
// others' processes; entering it later needs CAP_SYS_ADMIN (setns(2)).
func (fs FS) OpenNetNS(pid int) (*NetNS, error) {
	fd, err := openNS(fmt.Sprintf("%s/%d/ns/net", fs.Proc, pid))
	if err != nil {
		return nil, fmt.Errorf("network namespace of process %d: %w", pid, err)
	}
	inode, err := inodeOf(fd)
	if err != nil {
		closeFD(fd)
		return nil, fmt.Errorf("network namespace of process %d: %w", pid, err)
	}
	return &NetNS{fs: fs, pid: pid, fd: fd, inode: inode}, nil
}

func openNS(path string) (int, error) {
	for {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

func inodeOf(fd int) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, err
	}
	return st.Ino, nil
}

// Inode is the namespace's number, as in "net:[4026531840]".
func (n *NetNS) Inode() uint64 { return n.inode }

// PID is the process the namespace was opened through, 0 where it was a mount.
func (n *NetNS) PID() int { return n.pid }

// FD is the namespace's open file, which is closed with it.
func (n *NetNS) FD() int { return n.fd }

// Close releases the namespace. The NetNS must not be used afterwards.
func (n *NetNS) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.diag != nil {
		n.diag.Close()
		n.diag = nil
	}
	if n.fd < 0 {
		return nil
	}
	err := unix.Close(n.fd)
	n.fd = -1
	return err
}

// Do runs fn on an operating system thread inside the namespace and returns its
// error. A namespace that is already the caller's is not switched to: fn runs
// on the calling goroutine. Otherwise fn runs on a goroutine of its own, whose
// thread is given up if it cannot be brought back, so that no other goroutine
// ever runs in the foreign namespace. fn must not start goroutines that depend
// on the namespace. Needs CAP_SYS_ADMIN unless the namespace is the caller's.
func (n *NetNS) Do(fn func() error) error {
	if n.fd < 0 {
		return fn()
	}
	runtime.LockOSThread()
	if n.current() {
		defer runtime.UnlockOSThread()
		return fn()
	}
	runtime.UnlockOSThread()

	return osthread.Own(func() error { return n.inside(fn) })
}

// inside switches the thread that the current goroutine is locked to, runs fn,
// switches back, and unlocks it. The thread stays locked when it cannot be
// brought back.
func (n *NetNS) inside(fn func() error) error {
	home, err := openNS(filepath.Join(n.fs.Proc, "thread-self/ns/net"))
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("own network namespace: %w", err)
	}
	defer closeFD(home)
	if err := setns(n.fd); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace %d: %w", n.inode, err)
	}
	defer func() {
		if setns(home) == nil {
			runtime.UnlockOSThread()
		}
	}()
	return fn()
}

func setns(fd int) error {
	for {
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != unix.EINTR {
			return err
		}
	}
}

// current says whether the calling thread is in the namespace already.
func (n *NetNS) current() bool {
	var st unix.Stat_t
	err := unix.Stat(filepath.Join(n.fs.Proc, "thread-self/ns/net"), &st)
	return err == nil && st.Ino == n.inode
}

// netFiles runs fn with the directory that holds the namespace's part of
// /proc/net: that of a thread inside, or where it may not be entered, that of
// the process the namespace was opened through, which can have ended.
func (n *NetNS) netFiles(fn func(dir string) error) error {
	entered := false
	err := n.Do(func() error {
		entered = true
		return fn(filepath.Join(n.fs.Proc, "thread-self/net"))
	})
	if entered || !errors.Is(err, unix.EPERM) {
		return err
	}
	dir := fmt.Sprintf("%s/%d", n.fs.Proc, n.pid)
	if inode, err := netNSLink(dir + "/ns/net"); err != nil || inode != n.inode {
		return fmt.Errorf("network namespace %d: process %d is gone: %w", n.inode, n.pid, unix.ESRCH)
	}
	return fn(dir + "/net")
}
