package safefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks is the kernel's own bound (MAXSYMLINKS, include/linux/namei.h).
const maxLinks = 40

// step is called before each step of opening and writing. Tests set it, to act
// between any two of them.
var step = func(string) {}

// ErrUnsafe is wrapped by the error about a path that somebody else can change.
var ErrUnsafe = errors.New("somebody else can change it")

// node is one component of a path, held open with O_PATH.
type node struct {
	name string
	fd   int
	st   unix.Stat_t
}

// chain is a path as it was walked: the root directory first, the last component
// at the end. Links that were followed are in links, and directories that were left
// again by a link or by ".." in passed, both with their whole path for a name.
type chain struct {
	nodes  []node
	links  []node   // their descriptors are closed
	passed []node   // as well
	rest   []string // what is left of the path, the component that is not there first
}

func (c *chain) close() {
	for _, n := range c.nodes {
		unix.Close(n.fd)
	}
	c.nodes = nil
}

// path is the place that was reached, without symbolic links, below the root.
func (c *chain) path() string {
	var names []string
	for _, n := range c.nodes[1:] {
		names = append(names, n.name)
	}
	return "/" + strings.Join(names, "/")
}

func (c *chain) last() *node { return &c.nodes[len(c.nodes)-1] }

// walk resolves name below the directory root, which nothing in the path can
// leave: ".." stops there and absolute links begin there. Every component is
// opened by itself in the descriptor of the one before it, so that a rename
// meanwhile leads nowhere else than what is checked. Links of procfs, which are
// no paths, are refused.
//
// Where a component cannot be opened the error is an *fs.PathError, and the chain
// holds what was reached; the caller closes it.
func walk(root int, name string) (*chain, error) {
	c := &chain{}
	if strings.IndexByte(name, 0) >= 0 {
		return c, &fs.PathError{Op: "open", Path: strconv.Quote(name), Err: unix.EINVAL}
	}
	top, err := unix.FcntlInt(uintptr(root), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return c, err
	}
	c.nodes = append(c.nodes, node{name: "/", fd: top})
	if err := unix.Fstat(top, &c.nodes[0].st); err != nil {
		return c, err
	}
	todo := strings.Split(name, "/")
	for len(todo) > 0 {
		part := todo[0]
		todo = todo[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			c.cut(max(1, len(c.nodes)-1))
			continue
		}
		step("component")
		n, err := openNode(c.last().fd, part)
		if err != nil {
			c.rest = append([]string{part}, todo...)
			return c, &fs.PathError{Op: "open", Path: path.Join(c.path(), part), Err: err}
		}
		if n.st.Mode&unix.S_IFMT != unix.S_IFLNK {
			c.nodes = append(c.nodes, n)
			continue
		}
		target, err := linkTarget(n.fd)
		unix.Close(n.fd)
		c.links = append(c.links, node{path.Join(c.path(), part), -1, n.st})
		if err == nil && len(c.links) > maxLinks {
			err = unix.ELOOP
		}
		if err != nil {
			return c, &fs.PathError{Op: "open", Path: path.Join(c.path(), part), Err: err}
		}
		if strings.HasPrefix(target, "/") {
			c.cut(1)
		}
		todo = append(strings.Split(target, "/"), todo...)
	}
	return c, nil
}

// cut closes all but the first components. Whoever can write to one of the others
// chooses what the path leads to: they stay part of it.
func (c *chain) cut(keep int) {
	for len(c.nodes) > keep {
		n := c.last()
		unix.Close(n.fd)
		c.passed = append(c.passed, node{c.path(), -1, n.st})
		c.nodes = c.nodes[:len(c.nodes)-1]
	}
}

func openNode(dir int, name string) (node, error) {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return node{}, err
	}
	n := node{name: name, fd: fd}
	if err := unix.Fstat(fd, &n.st); err != nil {
		unix.Close(fd)
		return node{}, err
	}
	return n, nil
}

// linkTarget reads a symbolic link. What readlink(2) gives of a link of procfs
// is for people: the kernel itself would go elsewhere.
func linkTarget(fd int) (string, error) {
	var at unix.Statfs_t
	if err := unix.Fstatfs(fd, &at); err != nil {
		return "", err
	}
	if at.Type == unix.PROC_SUPER_MAGIC {
		return "", unix.ELOOP
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", buf)
	if err == nil && (n == 0 || n == len(buf)) {
		err = unix.ENAMETOOLONG
	}
	return string(buf[:max(0, n)]), err
}

// trusted says why the path is not in the hands of the given users alone: each
// directory, link and file on it belongs to one of them, and no other can write
// to a directory on it. In a sticky directory, as /tmp, others may write: they can
// neither rename nor remove there what is not theirs. Access control lists are in
// this: what they allow at most is in the bits of the group (acl(5), the mask).
func (c *chain) trusted(users ...uint32) error { return c.heldBy(holders{users: users}) }

// holders are who may have a hand in a path.
type holders struct {
	users  []uint32
	groups []uint32 // whose members may write, but own nothing
}

func (c *chain) heldBy(by holders) error {
	for i, n := range c.nodes {
		if err := n.trusted((&chain{nodes: c.nodes[:i+1]}).path(), by); err != nil {
			return err
		}
	}
	for _, n := range slices.Concat(c.passed, c.links) {
		if err := n.trusted(n.name, by); err != nil {
			return err
		}
	}
	return nil
}

func (n *node) trusted(name string, by holders) error {
	if err := owned(name, &n.st, by.users); err != nil {
		return err
	}
	if n.isDir() && n.st.Mode&unix.S_ISVTX == 0 {
		return closed(name, &n.st, by.groups...)
	}
	return nil
}

func (n *node) isDir() bool { return n.st.Mode&unix.S_IFMT == unix.S_IFDIR }

func owned(name string, st *unix.Stat_t, users []uint32) error {
	if slices.Contains(users, st.Uid) {
		return nil
	}
	return fmt.Errorf("%s belongs to user %d: %w", name, st.Uid, ErrUnsafe)
}

// closed says that others than its owner may write to a directory or a file. The
// group of a user who is not root does not count, unless this process acts for
// another: with a umask of 002 each has one of their own, and may write by it to
// what is theirs. Members of the given groups may write as well.
func closed(name string, st *unix.Stat_t, groups ...uint32) error {
	open := st.Mode & 0o022
	if slices.Contains(groups, st.Gid) || !acting && os.Geteuid() != 0 && int(st.Gid) == os.Getegid() {
		open &^= 0o020
	}
	if open == 0 {
		return nil
	}
	return fmt.Errorf("others may write to %s (mode %04o): %w", name, st.Mode&0o7777, ErrUnsafe)
}
