package safefile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strconv"

	"golang.org/x/sys/unix"
)

// maxFile is the largest file that is read or written, in bytes.
const maxFile = 4 << 20

// File is a file as it was read.
type File struct {
	Text []byte
	Attr
	Inode   Inode
	CTimeNS int64  // Unix nanoseconds
	InPlace bool   // it cannot be renamed over: it is a mount, has other names, or its directory is another's
	Locked  string // why it cannot be changed; empty: it can
}

// Attr is what a file has besides its content, its owner, and its group.
type Attr struct {
	Mode    uint32            `json:"mode"` // permission bits
	ATimeNS int64             `json:"atime_ns"`
	MTimeNS int64             `json:"mtime_ns"`
	X       map[string][]byte `json:"x,omitempty"` // extended attributes: ACLs, labels
}

// Edit is what a file is to become. Its owner, group, mode, and extended
// attributes stay what they are.
type Edit struct {
	Text    []byte
	Temp    string // name of the unfinished file, of TempName
	InPlace bool   // written through, not renamed over
	Times   bool   // ATimeNS and MTimeNS are set; otherwise the times become those of now
	ATimeNS int64
	MTimeNS int64
}

// tempName is what [Edit].Temp may be: no more than this is ever removed, whatever
// a record says.
var tempName = regexp.MustCompile(`^\.slowray-[0-9a-f]{16}$`)

// at walks to a spot, and makes sure that it is the one that was found.
func (t *Tree) at(s Spot) (*chain, error) {
	c, err := walk(int(t.dir.Fd()), s.Path)
	if err == nil {
		if err = c.same(s); err != nil { // whatever it is: something else is there by now
			err = &failure{err.Error(), []error{ErrUnsafe, err}}
		}
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *chain) same(s Spot) error {
	if len(c.links) > 0 || c.path() != s.Path {
		return fmt.Errorf("%s leads to %s by now: %w", s.Path, c.path(), ErrUnsafe)
	}
	if err := c.file(s.Owner); err != nil {
		return err
	}
	dir, err := inodeOf(c.dir().fd)
	if err == nil && s.Dir != (Inode{}) && s.Dir != dir.inode {
		err = fmt.Errorf("the directory of %s is another one by now: %w", s.Path, ErrUnsafe)
	}
	return err
}

// read reads the last component.
func (c *chain) read() (*File, error) {
	in, err := reopen(c.last(), unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	fd, f, st := int(in.Fd()), &File{}, c.last().st
	if f.Text, err = io.ReadAll(io.LimitReader(in, maxFile+1)); err != nil {
		return nil, bare(err)
	}
	if len(f.Text) > maxFile {
		return nil, fmt.Errorf("larger than %d bytes", maxFile)
	}
	f.Attr = Attr{Mode: st.Mode & 0o7777, ATimeNS: st.Atim.Nano(), MTimeNS: st.Mtim.Nano()}
	f.CTimeNS = st.Ctim.Nano()
	if f.X, err = xattrs(fd); err != nil {
		return nil, fmt.Errorf("extended attributes: %w", err)
	}
	id, err := inodeOf(fd)
	dir, err2 := inodeOf(c.dir().fd)
	if err := errors.Join(err, err2); err != nil {
		return nil, err
	}
	f.Inode = id.inode
	full := unix.Faccessat(c.dir().fd, ".", unix.W_OK, unix.AT_EACCESS)
	f.InPlace = st.Nlink > 1 || id.mount != dir.mount || errors.Is(full, unix.EACCES) || labelled(f.X) && os.Geteuid() != 0
	if f.InPlace {
		full = unix.Faccessat(c.dir().fd, c.last().name, unix.W_OK, unix.AT_EACCESS)
	}
	if full != nil {
		f.Locked = full.Error()
	}
	return f, nil
}

// ChangedNS is when the file was last changed, in content or in attributes, in
// Unix nanoseconds.
func (f *File) ChangedNS() int64 { return max(f.MTimeNS, f.CTimeNS) }

// labelled says that a file has attributes that only a privileged process gives.
func labelled(x map[string][]byte) bool {
	for name := range x {
		if !bytes.HasPrefix([]byte(name), []byte("user.")) && !bytes.HasPrefix([]byte(name), []byte("system.posix_acl_")) {
			return true
		}
	}
	return false
}

// reopen opens the very file that was checked, not what has its name by now.
func reopen(n *node, flags int) (*os.File, error) {
	fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(n.fd), flags|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), n.name), nil
}

// write gives the file at s another content, if it is as it was read.
func (t *Tree) write(s Spot, was *File, e Edit) error {
	c, err := t.at(s)
	if err != nil {
		return err
	}
	defer c.close()
	step("walked")
	if err := c.unchanged(was); err != nil {
		return err
	}
	if e.InPlace {
		out, err := reopen(c.last(), unix.O_WRONLY)
		if err != nil {
			return err
		}
		step("opened")
		return errors.Join(e.fill(out), out.Close())
	}
	if err := c.sibling(s, was, e); err != nil {
		return err
	}
	step("filled")
	// What is renamed over is what was read, and where it was.
	again, err := t.at(s)
	if err == nil {
		err = again.unchanged(was)
		again.close()
	}
	step("checked")
	if err == nil {
		err = unix.Renameat(c.dir().fd, e.Temp, c.dir().fd, c.last().name)
	}
	if err != nil {
		_ = unix.Unlinkat(c.dir().fd, e.Temp, 0)
		return err
	}
	step("renamed")
	return syncNode(c.dir())
}

// unchanged says that the last component is another file than was read, or was
// written to since.
func (c *chain) unchanged(was *File) error {
	id, err := inodeOf(c.last().fd)
	if err == nil && (id.inode != was.Inode || c.last().st.Ctim.Nano() != was.CTimeNS) {
		err = fmt.Errorf("%s was changed by somebody else in this moment", c.path())
	}
	return err
}

// next to makes a file in the directory of the last component, with its group,
// mode, and extended attributes. Its owner is who makes it.
func (c *chain) sibling(s Spot, was *File, e Edit) (err error) {
	if !tempName.MatchString(e.Temp) {
		return fmt.Errorf("%q is no name of an unfinished file", e.Temp)
	}
	dir := c.dir().fd
	_ = unix.Unlinkat(dir, e.Temp, 0) // of an attempt that was stopped
	fd, err := unix.Openat(dir, e.Temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	out := os.NewFile(uintptr(fd), e.Temp)
	defer func() {
		if err = errors.Join(err, out.Close()); err != nil {
			_ = unix.Unlinkat(dir, e.Temp, 0)
		}
	}()
	step("created")
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Uid != s.Owner {
		return fmt.Errorf("a new file in %s would belong to user %d", path.Dir(s.Path), st.Uid)
	}
	if st.Gid != s.Group {
		if err := unix.Fchown(fd, -1, int(s.Group)); err != nil {
			return fmt.Errorf("group %d: %w", s.Group, err)
		}
	}
	if err := unix.Fchmod(fd, was.Mode); err != nil {
		return err
	}
	if err := setXattrs(fd, was.X); err != nil {
		return err
	}
	return e.fill(out)
}

// fill gives an open file the content and the times.
func (e *Edit) fill(out *os.File) error {
	if _, err := out.Write(e.Text); err != nil {
		return bare(err)
	}
	if err := out.Truncate(int64(len(e.Text))); err != nil {
		return bare(err)
	}
	if err := out.Sync(); err != nil {
		return bare(err)
	}
	if !e.Times {
		return nil
	}
	return setTimes(int(out.Fd()), e.ATimeNS, e.MTimeNS)
}

// bare is the kernel's answer without operation and path.
func bare(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// setTimes keeps nanoseconds, which futimes(3) would cut off.
func setTimes(fd int, atime, mtime int64) error {
	ts := []unix.Timespec{unix.NsecToTimespec(atime), unix.NsecToTimespec(mtime)}
	return unix.UtimesNanoAt(fd, "", ts, unix.AT_EMPTY_PATH) // Linux 5.8
}
