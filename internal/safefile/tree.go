package safefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Tree is a root directory that paths are taken in: the host's, or that of a
// process with another one. Nothing in a path leaves it.
type Tree struct {
	dir *os.File // O_PATH
}

// OpenTree opens a root directory.
func OpenTree(dir string) (*Tree, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open root directory", Path: dir, Err: err}
	}
	return TreeAt(fd, dir), nil
}

// TreeAt is the root directory that a descriptor stands for, which it takes over.
func TreeAt(fd int, name string) *Tree { return &Tree{os.NewFile(uintptr(fd), name)} }

// Close closes the directory.
func (t *Tree) Close() error { return t.dir.Close() }

// own says that it is the root directory of this process itself.
func (t *Tree) own() bool {
	here, err1 := inodeOf(int(t.dir.Fd()))
	there, err2 := inodeAt(unix.AT_FDCWD, "/", 0)
	return err1 == nil && err2 == nil && here.inode == there.inode && here.mount == there.mount
}

// Inode tells a file or directory from any other that there is or was in its file
// system, until the host is started again.
type Inode struct {
	Dev    uint64 `json:"dev"`
	Ino    uint64 `json:"ino"`
	BornNS int64  `json:"born_ns,omitempty"` // statx(2), stx_btime: numbers are given again
}

// Spot is where a file is: what is found there later is the same file, or it is
// refused.
type Spot struct {
	Path  string `json:"path"` // in the tree, behind symbolic links
	Owner uint32 `json:"owner"`
	Group uint32 `json:"group"`
	Dir   Inode  `json:"dir"` // its directory
}

// Find says where a regular file is, whose path is in the hands of root and the
// file's owner alone. Nothing is opened for reading.
func (t *Tree) Find(name string) (Spot, error) {
	c, err := walk(int(t.dir.Fd()), name)
	defer c.close()
	if err != nil {
		return Spot{}, err
	}
	s := Spot{Path: c.path(), Owner: c.last().st.Uid, Group: c.last().st.Gid}
	if err := c.file(s.Owner); err != nil {
		return Spot{}, err
	}
	dir, err := inodeOf(c.dir().fd)
	s.Dir = dir.inode
	return s, err
}

// ChangedNS is when what a path leads to was last changed, in content or in
// attributes, in Unix nanoseconds.
func (t *Tree) ChangedNS(name string) (int64, error) {
	c, err := walk(int(t.dir.Fd()), name)
	defer c.close()
	if err != nil {
		return 0, err
	}
	return max(c.last().st.Mtim.Nano(), c.last().st.Ctim.Nano()), nil
}

// Reach gives an O_PATH descriptor of what a path leads to, whatever that is and
// whosoever made it.
func (t *Tree) Reach(name string) (*os.File, error) {
	c, err := walk(int(t.dir.Fd()), name)
	defer c.close()
	if err != nil {
		return nil, err
	}
	fd, err := unix.FcntlInt(uintptr(c.last().fd), unix.F_DUPFD_CLOEXEC, 0)
	return os.NewFile(uintptr(fd), name), err
}

// Trusted says why a path is not in the hands of the given users alone: each
// directory, link and file on it belongs to one of them, and no other may write to
// what it leads to.
func (t *Tree) Trusted(name string, users ...uint32) error {
	c, err := walk(int(t.dir.Fd()), name)
	defer c.close()
	if err != nil {
		return err
	}
	return errors.Join(c.trusted(users...), closed(c.path(), &c.last().st))
}

// dir is the directory of the last component.
func (c *chain) dir() *node { return &c.nodes[max(0, len(c.nodes)-2)] }

// file says why the last component is not a regular file of its owner, on a path
// that is in the hands of him and root alone.
func (c *chain) file(owner uint32) error {
	n, name := c.last(), c.path()
	switch {
	case n.st.Mode&unix.S_IFMT != unix.S_IFREG:
		return fmt.Errorf("%s is not a regular file", name)
	case n.st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0:
		return fmt.Errorf("%s gives whoever runs it the rights of another (mode %04o): %w", name, n.st.Mode&0o7777, ErrUnsafe)
	}
	if err := c.trusted(0, owner); err != nil {
		return err
	}
	if n.st.Uid != owner { // root's, in the directory of a user who could only replace it
		return fmt.Errorf("%s belongs to user %d, not to user %d: %w", name, n.st.Uid, owner, ErrUnsafe)
	}
	dir := &chain{nodes: c.nodes[:len(c.nodes)-1]}
	return closed(dir.path(), &c.dir().st) // also where it is sticky
}

// identity is what statx(2) tells of a file besides stat(2).
type identity struct {
	inode Inode
	mount uint64 // Linux 5.8
}

func inodeOf(fd int) (identity, error) { return inodeAt(fd, "", unix.AT_EMPTY_PATH) }

func inodeAt(dir int, name string, flags int) (identity, error) {
	var st unix.Statx_t
	err := unix.Statx(dir, name, flags|unix.AT_SYMLINK_NOFOLLOW, unix.STATX_INO|unix.STATX_BTIME|unix.STATX_MNT_ID, &st)
	if err != nil {
		return identity{}, fmt.Errorf("statx: %w", err)
	}
	id := identity{Inode{Dev: unix.Mkdev(st.Dev_major, st.Dev_minor), Ino: st.Ino}, st.Mnt_id}
	if st.Mask&unix.STATX_BTIME != 0 {
		id.inode.BornNS = st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
	}
	return id, nil
}
