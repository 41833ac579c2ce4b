package host

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
)

// Bounds of what is looked at.
const (
	maxMountNamespaces = 64
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
	Cut    bool // there are more than were read

	others bool            // another user namespace owns it: what a local type lies on is not known
	top    map[string]int  // index of the mount on top, by its place
	remote map[string]bool // places of mounts, also of covered ones, that may not answer
}

// Bounds of one mountinfo. A user may make 100,000 mounts in each namespace of
// his own (fs.mount-max), with places of 4 kB.
const (
	maxMounts     = 16_384
	maxMountBytes = 4 << 20
	maxMountDepth = 128 // components of a path
)

// MountTableOf reads the mounts that a process sees. It touches no file system
// but procfs.
func (fs FS) MountTableOf(b *budget.Budget, pid int) (MountTable, error) {
	t := MountTable{PID: pid}
	target, err := os.Readlink(fmt.Sprintf("%s/%d/ns/mnt", fs.Proc, pid))
	if err != nil {
		return t, err
	}
	t.NS, _ = parseNSLink([]byte(target))
	t.others = othersMounts(fmt.Sprintf("%s/%d/ns/mnt", fs.Proc, pid))
	text, err := readMountinfo(b, fmt.Sprintf("%s/%d/mountinfo", fs.Proc, pid))
	t.Cut = budget.IsExceeded(err)
	if err != nil && !t.Cut {
		return t, err
	}
	t.parse(b, text)
	return t, nil
}

func (t *MountTable) parse(budget *budget.Budget, b []byte) {
	t.top, t.remote = map[string]int{}, map[string]bool{}
	for len(b) > 0 {
		if len(t.Mounts) == maxMounts || budget.Node() != nil {
			t.Cut = true
			return
		}
		var line []byte
		line, b = nextLine(b)
		m, ok := parseMount(line)
		if !ok {
			continue
		}
		t.top[m.Dir] = len(t.Mounts)
		m.Others = t.others
		if m.MayHang() {
			t.remote[m.Dir] = true
		}
		t.Mounts = append(t.Mounts, m)
	}
}

// Of is the mount that a path lies on: the innermost, and of those at one place
// the one on top. It follows no links.
func (t *MountTable) Of(name string) (Mount, bool) {
	if strings.Count(name, "/") > maxMountDepth {
		return Mount{}, false
	}
	for dir := path.Clean(name); ; dir = path.Dir(dir) {
		if i, ok := t.top[dir]; ok {
			return t.Mounts[i], true
		}
		if dir == "/" || dir == "." {
			return Mount{}, false
		}
	}
}

// At is the mount on top at a place; false when nothing is mounted there.
func (t *MountTable) At(dir string) (Mount, bool) {
	i, ok := t.top[dir]
	if !ok {
		return Mount{}, false
	}
	return t.Mounts[i], true
}

// AllAnswer says that there is no mount but of this host's own disks and memory.
func (t *MountTable) AllAnswer() bool { return len(t.remote) == 0 && !t.Cut }

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
	major, minor, _ := strings.Cut(device, ":")
	ma, err := strconv.ParseUint(major, 10, 32)
	mi, err2 := strconv.ParseUint(minor, 10, 32)
	i := slices.IndexFunc(t.Mounts, func(m Mount) bool { return uint64(m.Major) == ma && uint64(m.Minor) == mi })
	if err != nil || err2 != nil || i < 0 {
		return Mount{}, false
	}
	return t.Mounts[i], true
}

// behindRemote says that the way to a mount leads over one that may not answer.
func (t *MountTable) behindRemote(dir string) bool {
	if len(t.remote) == 0 {
		return false
	}
	if strings.Count(dir, "/") > maxMountDepth {
		return true
	}
	for dir != "/" && dir != "." {
		if dir = path.Dir(dir); t.remote[dir] {
			return true
		}
	}
	return false
}

// Answers says that what lies at a path is on this host's own disks or memory,
// so that looking at it cannot take for ever. It follows no links. Of a table
// that was cut nobody knows.
func (t *MountTable) Answers(name string) bool {
	m, ok := t.Of(name)
	return ok && !t.Cut && !m.MayHang() && !t.behindRemote(m.Dir)
}

// answers says that a file system of this type is this host's own.
func answers(kind string) bool { return slices.Contains(localTypes, kind) || kernelOwn(kind) }

// MayHang says that a file system is over the network, or of a process in user
// space: it may never answer. That goes for an overlay of a user namespace other than
// slowray's, too: whoever made it may have laid it over a file system of that kind
// (Linux 5.11), and hidden that one since.
func (m *Mount) MayHang() bool { return !answers(m.Type) || m.Others && m.Type == "overlay" }

// othersMounts says that the mount namespace behind a link of procfs belongs to a user
// namespace other than slowray's (NS_GET_USERNS, ioctl_ns(2)), or that this cannot be
// known.
func othersMounts(link string) bool {
	var own, of unix.Stat_t
	if unix.Stat("/proc/self/ns/user", &own) != nil {
		return true
	}
	ns, err := unix.Open(link, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return true
	}
	defer closeFD(ns)
	user, err := unix.IoctlRetInt(ns, unix.NS_GET_USERNS)
	if err != nil {
		return true // an ancestor's, which only the initial one is to slowray in a container
	}
	defer closeFD(user)
	return unix.Fstat(user, &of) != nil || of.Ino != own.Ino
}

// kernelOwn says that a file system is the kernel's own, like proc.
func kernelOwn(kind string) bool {
	return slices.Contains([]string{"proc", "sysfs", "devtmpfs", "cgroup", "cgroup2", "rootfs", "squashfs", "iso9660", "erofs", "securityfs", "debugfs", "tracefs", "mqueue", "devpts", "bpf"}, kind)
}

// UserSpace says that a program answers for a file system, by way of FUSE. A thread
// that waits for such a one cannot even be killed (request_wait_answer,
// fs/fuse/dev.c): the process it is of does not end before the program answers.
func (m *Mount) UserSpace() bool {
	return m.Type == "fuse" || m.Type == "fuseblk" || strings.HasPrefix(m.Type, "fuse.")
}

// Filesystems reads how full the local file systems are that these processes
// see, each once, and how many there was no room for. Those that only hold
// what the kernel shows of itself are left out. Namespaces and mounts that are
// over the budget are counted as left.
func (fs FS) Filesystems(b *budget.Budget, pids []int) (list []observe.Filesystem, left int) {
	type key struct {
		device string
		kind   string
	}
	seen := map[key]int{} // index in list
	todo := fs.mountNamespaces(pids)
	if len(todo) > maxMountNamespaces {
		left += len(todo) - maxMountNamespaces
		todo = todo[:maxMountNamespaces]
	}
	for i, pid := range todo {
		share, room := b.Share(len(todo)-i), (maxFilesystems-len(list))/(len(todo)-i)
		table, err := fs.MountTableOf(share, pid)
		if err != nil {
			if budget.IsExceeded(err) {
				left++
			}
			continue // it ended, or may not be looked at
		}
		if table.Cut {
			left++
		}
		root, err := unix.Open(fmt.Sprintf("%s/%d/root", fs.Proc, pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		room += len(list)
		for i := range table.Mounts {
			m := &table.Mounts[i]
			if share.Nodes(mountPrice) != nil {
				left++
				break
			}
			if !slices.Contains(localTypes, m.Type) || m.MayHang() || table.behindRemote(m.Dir) {
				continue
			}
			k := key{fmt.Sprintf("%d:%d", m.Major, m.Minor), m.Type}
			if at, known := seen[k]; known {
				// A file system may be mounted read-only here and writable there.
				list[at].ReadOnly = list[at].ReadOnly && m.readOnly()
				continue
			}
			if len(list) >= room {
				left++
				continue
			}
			if f, ok := statFilesystem(root, m); ok {
				f.MountNS, f.PID = table.NS, pid
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

// mountPrice is what a mount takes of a budget, in items: asking it costs as
// much as parsing so many.
const mountPrice = 16

// mountNamespaces gives one process for each mount namespace that these see,
// slowray's own first.
func (fs FS) mountNamespaces(pids []int) []int {
	link := func(pid string) uint64 {
		target, err := os.Readlink(fs.Proc + "/" + pid + "/ns/mnt")
		if err != nil {
			return 0 // it ended, or may not be looked at
		}
		ns, _ := parseNSLink([]byte(target))
		return ns
	}
	own := link("self")
	seen := map[uint64]bool{0: true}
	var out []int
	for _, pid := range pids {
		switch ns := link(strconv.Itoa(pid)); {
		case seen[ns]:
		case ns == own:
			seen[ns], out = true, append([]int{pid}, out...)
		default:
			seen[ns], out = true, append(out, pid)
		}
	}
	return out
}

// statFilesystem asks one file system. Another one may be mounted over it:
// then it is not asked.
func statFilesystem(root int, m *Mount) (observe.Filesystem, bool) {
	f := observe.Filesystem{
		Dir: printable.Name([]byte(m.Dir), 256), Type: printable.Name([]byte(m.Type), 32), Source: printable.Name([]byte(m.Source), 128),
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
