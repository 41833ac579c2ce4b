package host

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
)

// Bounds of what is looked at.
const (
	maxMountNamespaces = 64
	maxMounts          = 4096 // lines of one mountinfo
	maxFilesystems     = 256
)

// localTypes are file systems that answer statfs(2) out of this host's own
// memory or disks: one over the network, or of a process in user space, may
// never answer.
var localTypes = []string{
	"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "tmpfs", "ramfs", "overlay", "zfs", "bcachefs", "jfs", "reiserfs", "vfat", "nilfs2", "ubifs", "hugetlbfs",
}

// MountTable is the mounts that a process sees, in the order of its mountinfo.
type MountTable struct {
	NS     uint64 // inode of the mount namespace
	PID    int
	Mounts []Mount
}

// MountTableOf reads the mounts that a process sees. It touches no file system
// but procfs.
func (fs FS) MountTableOf(pid int) (MountTable, error) {
	t := MountTable{PID: pid}
	target, err := os.Readlink(fmt.Sprintf("%s/%d/ns/mnt", fs.Proc, pid))
	if err != nil {
		return t, err
	}
	t.NS, _ = parseNSLink([]byte(target))
	b, err := os.ReadFile(fmt.Sprintf("%s/%d/mountinfo", fs.Proc, pid))
	if err != nil {
		return t, err
	}
	for len(b) > 0 && len(t.Mounts) < maxMounts {
		var line []byte
		line, b = nextLine(b)
		if m, ok := parseMount(line); ok {
			t.Mounts = append(t.Mounts, m)
		}
	}
	return t, nil
}

// Of is the mount that a path lies on: the innermost, and of those at one place
// the one on top. It follows no links.
func (t *MountTable) Of(name string) (Mount, bool) {
	best := -1
	for i := range t.Mounts {
		if below(name, t.Mounts[i].Dir) && (best < 0 || len(t.Mounts[i].Dir) >= len(t.Mounts[best].Dir)) {
			best = i
		}
	}
	if best < 0 {
		return Mount{}, false
	}
	return t.Mounts[best], true
}

// ByID is the mount of that number.
func (t *MountTable) ByID(id int) (Mount, bool) {
	i := slices.IndexFunc(t.Mounts, func(m Mount) bool { return m.ID == id })
	if i < 0 {
		return Mount{}, false
	}
	return t.Mounts[i], true
}

// OnDevice is the first mount of a device, as "254:1".
func (t *MountTable) OnDevice(device string) (Mount, bool) {
	i := slices.IndexFunc(t.Mounts, func(m Mount) bool { return fmt.Sprintf("%d:%d", m.Major, m.Minor) == device })
	if device == "" || i < 0 {
		return Mount{}, false
	}
	return t.Mounts[i], true
}

// below says whether a path is dir or lies in it.
func below(name, dir string) bool {
	return dir == "/" || name == dir || strings.HasPrefix(name, dir) && name[len(dir)] == '/'
}

// remote says that the way to a mount leads over one that may not answer.
func (t *MountTable) remote(dir string) bool {
	for i := range t.Mounts {
		m := &t.Mounts[i]
		if m.Dir != dir && below(dir, m.Dir) && !slices.Contains(localTypes, m.Type) && !kernelOwn(m.Type) {
			return true
		}
	}
	return false
}

// Answers says that what lies at a path is on this host's own disks or memory,
// so that looking at it cannot take for ever. It follows no links.
func (t *MountTable) Answers(name string) bool {
	m, ok := t.Of(name)
	return ok && (slices.Contains(localTypes, m.Type) || kernelOwn(m.Type)) && !t.remote(m.Dir)
}

// kernelOwn says that a file system is the kernel's own, like proc.
func kernelOwn(kind string) bool {
	return slices.Contains([]string{"proc", "sysfs", "devtmpfs", "cgroup", "cgroup2", "rootfs", "squashfs", "iso9660", "erofs", "securityfs", "debugfs", "tracefs", "mqueue", "devpts", "bpf"}, kind)
}

// Filesystems reads how full the local file systems are that these processes
// see, each once, and how many there was no room for. Those that only hold
// what the kernel shows of itself are left out.
func (fs FS) Filesystems(pids []int) (list []observe.Filesystem, left int) {
	type key struct {
		device string
		kind   string
	}
	seen := map[key]int{} // index in list
	spaces := map[uint64]bool{}
	for _, pid := range pids {
		target, err := os.Readlink(fmt.Sprintf("%s/%d/ns/mnt", fs.Proc, pid))
		if err != nil {
			continue // it ended, or may not be looked at
		}
		ns, _ := parseNSLink([]byte(target))
		if spaces[ns] {
			continue
		}
		if len(spaces) == maxMountNamespaces {
			left++
			continue
		}
		spaces[ns] = true
		table, err := fs.MountTableOf(pid)
		if err != nil {
			continue
		}
		root, err := unix.Open(fmt.Sprintf("%s/%d/root", fs.Proc, pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		for i := range table.Mounts {
			m := &table.Mounts[i]
			if !slices.Contains(localTypes, m.Type) || table.remote(m.Dir) {
				continue
			}
			k := key{fmt.Sprintf("%d:%d", m.Major, m.Minor), m.Type}
			if at, known := seen[k]; known {
				// A file system may be mounted read-only here and writable there.
				list[at].ReadOnly = list[at].ReadOnly && m.readOnly()
				continue
			}
			if len(list) == maxFilesystems {
				left++
				continue
			}
			if f, ok := statFilesystem(root, m); ok {
				f.MountNS, f.PID = ns, pid
				seen[k] = len(list)
				list = append(list, f)
			}
		}
		closeFD(root)
	}
	slices.SortStableFunc(list, func(a, b observe.Filesystem) int {
		return cmp.Or(cmp.Compare(a.MountNS, b.MountNS), strings.Compare(a.Dir, b.Dir))
	})
	return list, left
}

// statFilesystem asks one file system. Another one may be mounted over it:
// then it is not asked.
func statFilesystem(root int, m *Mount) (observe.Filesystem, bool) {
	f := observe.Filesystem{
		Dir: printable([]byte(m.Dir), 256), Type: printable([]byte(m.Type), 32), Source: printable([]byte(m.Source), 128),
		Device: fmt.Sprintf("%d:%d", m.Major, m.Minor), ReadOnly: m.readOnly(),
	}
	for o := range strings.SplitSeq(m.Superblock, ",") {
		f.ReadOnlyFS = f.ReadOnlyFS || o == "ro"
		f.ReadOnlyErrors = f.ReadOnlyErrors || o == "errors=remount-ro"
	}
	// No symbolic link is followed: the path has none, as the kernel wrote it.
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS}
	fd, err := unix.Openat2(root, path.Join("/", m.Dir), &how)
	if err != nil {
		return f, false
	}
	defer closeFD(fd)
	var st unix.Stat_t
	var s unix.Statfs_t
	if unix.Fstat(fd, &st) != nil || unix.Fstatfs(fd, &s) != nil || s.Blocks == 0 {
		return f, false
	}
	if m.Type != "btrfs" && m.Type != "overlay" && (unix.Major(st.Dev) != m.Major || unix.Minor(st.Dev) != m.Minor) {
		return f, false
	}
	unit := uint64(max(s.Bsize, 1))
	if s.Frsize > 0 {
		unit = uint64(s.Frsize)
	}
	f.SizeBytes, f.FreeBytes = s.Blocks*unit, s.Bavail*unit
	f.Inodes, f.FreeInodes = s.Files, s.Ffree
	return f, true
}

// BootTime is when the kernel was started, to a second (btime of proc_stat(5)).
func (fs FS) BootTime() (time.Time, error) {
	b, err := os.ReadFile(fs.Proc + "/stat")
	if err != nil {
		return time.Time{}, err
	}
	v, ok := AfterKey(b, "btime ")
	f, _ := nextField(v)
	n, ok2 := ParseUint(f)
	if !ok || !ok2 || n > 1<<40 {
		return time.Time{}, errors.New("stat: no btime")
	}
	return time.Unix(int64(n), 0), nil
}

// StartTime is when a process began, on a kernel that was started at boot.
func (p *ProcSample) StartTime(boot time.Time) time.Time {
	return boot.Add(time.Duration(p.StartTicks) * (time.Second / userHZ))
}
