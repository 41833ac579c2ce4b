package host

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/budget"
)

// Mount is one line of /proc/PID/mountinfo (proc_pid_mountinfo(5)).
type Mount struct {
	ID         int
	Major      uint32
	Minor      uint32
	Root       string // the directory of the file system that is mounted
	Dir        string // mount point as the process sees it
	Type       string // "ext4", "nfs4", "fuse.sshfs"…
	Source     string // "/dev/vda1", "server:/export"…
	Superblock string // its options
	Options    string // those of this mount
	NetNS      string // of a namespace's own file: which network namespace, as "net:[4026532177]"

	Others bool // it is in a mount namespace of another user namespace than slowray's
}

// readOnly says that nothing can be written through this mount.
func (m *Mount) readOnly() bool { return m.Options == "ro" || strings.HasPrefix(m.Options, "ro,") }

// MountOf is the mount with an ID, as fdinfo names it, in the mount namespace
// of a process; false when it is not there.
func (fs FS) MountOf(pid, id int) (Mount, bool) {
	return fs.lastMount(pid, func(m *Mount, _ Mount) bool { return m.ID == id })
}

// MountAt is the mount that a name leads to which a process knows, as far as that is
// known without asking any file system: links on the way are not followed.
func (fs FS) MountAt(pid int, name string) (Mount, bool) {
	return fs.lastMount(pid, func(m *Mount, best Mount) bool {
		below, under := strings.CutPrefix(name, strings.TrimSuffix(m.Dir, "/"))
		return under && (below == "" || below[0] == '/') && len(m.Dir) >= len(best.Dir)
	})
}

// lastMount is the last mount in the namespace of a process that is better than the
// best one before.
func (fs FS) lastMount(pid int, better func(m *Mount, best Mount) bool) (best Mount, found bool) {
	b, err := budget.Head(fmt.Sprintf("%s/%d/mountinfo", fs.Proc, pid), maxMountBytes)
	if err != nil {
		return Mount{}, false
	}
	for len(b) > 0 {
		var line []byte
		line, b = nextLine(b)
		if m, ok := parseMount(line); ok && better(&m, best) {
			best, found = m, true
		}
	}
	if found {
		best.Others = othersMounts(fmt.Sprintf("%s/%d/ns/mnt", fs.Proc, pid))
	}
	return best, found
}

// Device is the number of its file system as the kernel keeps it (MKDEV,
// include/linux/kdev_t.h).
func (m *Mount) Device() uint64 { return uint64(m.Major)<<20 | uint64(m.Minor) }

// LinkAnswers says why who goes where a link of procfs leads to ("cwd", "root", "exe") may
// have to wait for a user's program for ever: nil where not. No file system is asked.
func (fs FS) LinkAnswers(pid int, link string) error {
	name := fmt.Sprintf("%s/%d/%s", fs.Proc, pid, link)
	fd, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer closeFD(fd)
	if err := fs.answers(pid, fd); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// OpenExe opens the program that a process executes, if that cannot take for ever.
func (fs FS) OpenExe(pid int) (*os.File, error) {
	name := fmt.Sprintf("%s/%d/exe", fs.Proc, pid)
	fd, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	defer closeFD(fd)
	if err := fs.answers(pid, fd); err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	in, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(in), name), nil
}

// answers says why who uses a file of a process, open with O_PATH, may have to wait for a
// user's program.
func (fs FS) answers(pid, fd int) error {
	// What is known of the file without asking for it (fuse_update_get_attr,
	// fs/fuse/dir.c). All that lies on a device has a number of that.
	var st unix.Statx_t
	if unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &st) == nil && st.Dev_major != 0 {
		return nil
	}
	info, err := budget.Head(fmt.Sprintf("/proc/self/fdinfo/%d", fd), 1<<12)
	if err != nil {
		return err
	}
	text, _ := AfterKey(info, "mnt_id:")
	field, _ := nextField(text)
	id, ok := ParseUint(field)
	m, found := fs.MountOf(pid, int(id))
	if !found {
		// Of a process with another root directory not all mounts are shown.
		m, found = fs.MountOf(os.Getpid(), int(id))
	}
	switch {
	case !ok || !found:
		return errors.New("on which file system it is cannot be seen")
	case m.MayHang() && (m.UserSpace() || answers(m.Type)):
		return fmt.Errorf("it is on a file system (%s) of a user's own, which may not answer", m.Type)
	}
	return nil
}

// readMountinfo reads the mountinfo of a process, at most maxMountBytes of it. An
// error of a budget comes with what was read before.
func readMountinfo(b *budget.Budget, name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b = b.Sub(budget.Limits{Bytes: maxMountBytes})
	var text []byte
	part := make([]byte, 64<<10)
	for {
		n, err := f.Read(part)
		if over := b.Read(int64(n)); over != nil {
			return text, over
		}
		text = append(text, part[:n]...)
		if err == io.EOF {
			return text, nil
		}
		if err != nil {
			return text, err
		}
	}
}

func parseMount(line []byte) (Mount, bool) {
	head, tail, ok := strings.Cut(string(line), " - ")
	fields, types := strings.Fields(head), strings.Fields(tail)
	if !ok || len(fields) < 6 || len(types) < 1 {
		return Mount{}, false
	}
	id, ok := ParseSmall([]byte(fields[0]))
	if !ok {
		return Mount{}, false
	}
	m := Mount{ID: id, Root: unescapeMount(fields[3]), Dir: unescapeMount(fields[4]), Options: fields[5], Type: types[0]}
	major, minor, _ := strings.Cut(fields[2], ":")
	ma, _ := ParseSmall([]byte(major))
	mi, _ := ParseSmall([]byte(minor))
	m.Major, m.Minor = uint32(ma), uint32(mi)
	if m.Type == "nsfs" && strings.HasPrefix(fields[3], "net:[") {
		m.NetNS = fields[3]
	}
	if len(types) > 1 {
		m.Source = unescapeMount(types[1])
	}
	if len(types) > 2 {
		m.Superblock = types[2]
	}
	return m, true
}

// Number is the number of its file system, as "254:1".
func (m *Mount) Number() string { return fmt.Sprintf("%d:%d", m.Major, m.Minor) }

// MountOn is a mount of which no more is known.
func MountOn(number, root, kind, source string) Mount {
	m := Mount{Root: root, Type: kind, Source: source, Others: true}
	m.Major, m.Minor = deviceOf(number)
	return m
}

// deviceOf reads "254:1"; 0, 0 where it is no such number.
func deviceOf(number string) (major, minor uint32) {
	first, second, _ := strings.Cut(number, ":")
	a, ok := ParseSmall([]byte(first))
	b, ok2 := ParseSmall([]byte(second))
	if !ok || !ok2 {
		return 0, 0
	}
	return uint32(a), uint32(b)
}
