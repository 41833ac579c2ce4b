package host

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/printable"
)

// NetNSMount is a file that a network namespace is mounted on: it keeps the
// namespace alive when no process lives in it, as that of a router does.
type NetNSMount struct {
	Inode uint64
	PID   int    // a process that sees the mount; 0 when slowray sees it itself
	Dir   string // where that process sees it
}

// Bounds of the tables of mounts that are looked through, and of what is found there.
const (
	maxNetNSTables = 1024
	maxNetNSMounts = 4096
)

// namedIn is where ip-netns(8) keeps the namespaces that have a name.
var namedIn = []string{"/run/netns/", "/var/run/netns/"}

// Name is the one that ip-netns(8) knows the namespace by, where slowray runs.
func (m *NetNSMount) Name() string {
	for _, dir := range namedIn {
		if name, ok := strings.CutPrefix(m.Dir, dir); ok && m.PID == 0 && name != "" && !strings.Contains(name, "/") {
			return name
		}
	}
	return ""
}

// Path leads to the namespace from where slowray runs.
func (m *NetNSMount) Path() string {
	if m.PID == 0 {
		return m.Dir
	}
	return fmt.Sprintf("/proc/%d/root%s", m.PID, m.Dir)
}

// NetNSMountAt is the mount that Path gave the path of.
func NetNSMountAt(path string, inode uint64) (NetNSMount, error) {
	m := NetNSMount{Inode: inode, Dir: path}
	if rest, ok := strings.CutPrefix(path, "/proc/"); ok {
		pid, dir, found := strings.Cut(rest, "/root/")
		n, err := strconv.Atoi(pid)
		if !found || err != nil || n <= 0 {
			return m, fmt.Errorf("%s: no path of a network namespace", path)
		}
		m.PID, m.Dir = n, "/"+dir
	}
	return m, nil
}

// NetNSMounts finds the network namespaces that are mounted somewhere, in all
// mount namespaces that these processes live in, each once: by a name of
// ip-netns(8), else where slowray sees it, else where the first of the processes
// does. It touches no file system but procfs. Tables and mounts beyond the
// budget are counted as left.
func (fs FS) NetNSMounts(b *budget.Budget, pids []int) (found map[uint64]NetNSMount, left int) {
	found = map[uint64]NetNSMount{}
	own := os.Getpid()
	todo := fs.mountNamespaces(append([]int{own}, pids...))
	if len(todo) > maxNetNSTables {
		left, todo = len(todo)-maxNetNSTables, todo[:maxNetNSTables]
	}
	for i, pid := range todo {
		share := b.Share(len(todo) - i)
		text, err := readMountinfo(share, fmt.Sprintf("%s/%d/mountinfo", fs.Proc, pid))
		if budget.IsExceeded(err) {
			left++
		}
		if !bytes.Contains(text, []byte(" - nsfs ")) {
			continue // or it ended, or may not be looked at
		}
		t := MountTable{PID: pid}
		t.parse(share, text)
		for i := range t.Mounts {
			m := &t.Mounts[i]
			inode, ok := parseNSLink([]byte(m.NetNS))
			if !ok || t.top[m.Dir] != i || t.behindRemote(m.Dir) || printable.Name(m.Dir, len(m.Dir)) != m.Dir {
				continue
			}
			at := NetNSMount{Inode: inode, Dir: m.Dir}
			if pid != own {
				at.PID = pid
			}
			old, known := found[inode]
			switch {
			case known && (old.Name() != "" || at.Name() == ""):
			case !known && len(found) == maxNetNSMounts:
				left++
			default:
				found[inode] = at
			}
		}
	}
	return found, left
}

// OpenNetNSMount opens a network namespace by a file that it is mounted on. Needs
// CAP_SYS_PTRACE where another process sees the file.
func (fs FS) OpenNetNSMount(m NetNSMount) (*NetNS, error) {
	root := fs.Proc + "/self/root"
	if m.PID != 0 {
		root = fmt.Sprintf("%s/%d/root", fs.Proc, m.PID)
	}
	fd, err := openBelow(root, m.Dir)
	if err != nil {
		return nil, fmt.Errorf("network namespace at %s: %w", m.Path(), err)
	}
	inode, err := inodeOf(fd)
	if err == nil && inode != m.Inode {
		err = unix.ESTALE // another one is mounted there since
	}
	if err != nil {
		closeFD(fd)
		return nil, fmt.Errorf("network namespace at %s: %w", m.Path(), err)
	}
	return &NetNS{fs: fs, fd: fd, inode: m.Inode}, nil
}

// openBelow opens a path of a process' own, of which no part is a symbolic link:
// the kernel wrote it into a table of mounts.
func openBelow(root, name string) (int, error) {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer closeFD(dir)
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS}
	return unix.Openat2(dir, path.Join("/", name), &how)
}

// SortedNetNSMounts are mounts in the order in which they are looked at: those
// with a name first.
func SortedNetNSMounts(found map[uint64]NetNSMount) []NetNSMount {
	var out []NetNSMount
	for _, m := range found {
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b NetNSMount) int {
		if named, other := a.Name() != "", b.Name() != ""; named != other {
			return map[bool]int{true: -1, false: 1}[named]
		}
		return cmp.Compare(a.Inode, b.Inode)
	})
	return out
}
