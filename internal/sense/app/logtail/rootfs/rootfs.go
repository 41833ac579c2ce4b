package rootfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/budget"
	"golang.org/x/sys/unix"
)

// Root is a directory that stands for "/", for as long as one budget lasts. It may
// be copied; copies are one look: what one has read the others need not read again.
type Root struct {
	dir  string
	look *look
}

// At is the root at a directory of the host; "" and "/" are the host's own. All that
// is read below it is taken from b.
func At(dir string, b *budget.Budget) Root {
	if dir == "" {
		dir = "/"
	}
	return Root{dir: dir, look: newLook(b, &mounts{root: dir})}
}

// With is the same root for another look, with a budget of its own: nothing that was
// read is remembered.
func (r Root) With(b *budget.Budget) Root {
	if r.look == nil {
		return At(r.dir, b)
	}
	return Root{dir: r.dir, look: newLook(b, r.look.mounts)}
}

// known is the root with a look: the zero Root is that of the host, with the default
// budget for each call.
func (r Root) known() Root {
	if r.look == nil {
		return At(r.dir, budget.New(context.Background(), budget.Limits{}))
	}
	return r
}

// Dir is the root's directory on the host.
func (r Root) Dir() string {
	if r.dir == "" {
		return "/"
	}
	return r.dir
}

// ErrNotRegular says that a path leads to something that is not a file of
// bytes: the text of the error names what it is.
var ErrNotRegular = errors.New("not a regular file")

// Open opens a regular file for reading, without ever blocking: not on a FIFO, nor
// on a file system that does not answer (ErrNoAnswer). Errors: those of openat2(2) as
// *fs.PathError, one that wraps ErrNotRegular, or that of the budget.
func (r Root) Open(name string) (*File, error) {
	r = r.known()
	return do(r, name, "open", func(o *op) (*File, error) {
		fd, _, err := r.regular(o, name)
		if err != nil {
			return nil, err
		}
		defer unix.Close(fd)
		if err := r.look.b.File(); err != nil {
			return nil, err
		}
		return r.reopen(o, fd, name)
	})
}

// regular is an O_PATH descriptor of a file that is nothing but bytes.
func (r Root) regular(o *op, name string) (int, unix.Stat_t, error) {
	var st unix.Stat_t
	fd, err := r.path(o, name)
	if err != nil {
		return -1, st, r.explain(o, name, err)
	}
	if err = unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = fmt.Errorf("%s: %w", kindOf(st.Mode), ErrNotRegular)
	}
	var s unix.Statfs_t // empty where the file system cannot say: then it is none of those
	if err == nil && unix.Fstatfs(fd, &s) == nil && kernelFiles[int64(s.Type)] != "" {
		err = fmt.Errorf("a file of %s, which the kernel makes up: %w", kernelFiles[int64(s.Type)], ErrNotRegular)
	}
	if err != nil {
		unix.Close(fd)
		return -1, st, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return fd, st, nil
}

// kernelFiles are file systems whose regular files are none: some are as long as the
// memory, some are used up by being read, and none is anybody's configuration or log.
var kernelFiles = map[int64]string{
	unix.PROC_SUPER_MAGIC: "proc", unix.SYSFS_MAGIC: "sysfs", unix.DEBUGFS_MAGIC: "debugfs", unix.TRACEFS_MAGIC: "tracefs",
	unix.CGROUP_SUPER_MAGIC: "cgroup", unix.CGROUP2_SUPER_MAGIC: "cgroup2", unix.SECURITYFS_MAGIC: "securityfs",
	unix.BPF_FS_MAGIC: "bpf", unix.SELINUX_MAGIC: "selinuxfs", unix.EFIVARFS_MAGIC: "efivarfs",
}

// reopen opens for reading what an O_PATH descriptor pins: the file that was found to
// be regular.
func (r Root) reopen(o *op, fd int, name string) (*File, error) {
	// O_NONBLOCK, for its owner may have taken a lease (fcntl(2), F_SETLEASE). Only until
	// then: a descriptor that has it is given to epoll by package os, in a system call that
	// the runtime believes to be short, and a file system in user space is asked by it.
	rd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	if err := unix.SetNonblock(rd, false); err != nil {
		unix.Close(rd)
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return &File{File: os.NewFile(uintptr(rd), name), mount: o.mount()}, nil
}

// OpenLink opens the regular file that a link of procfs leads to, as /proc/PID/exe:
// also one that was deleted since, or has another root directory.
func (r Root) OpenLink(link string) (*File, error) {
	r = r.known()
	name, err := os.Readlink(link)
	if err != nil {
		return nil, err
	}
	return do(r, name, "open", func(o *op) (*File, error) {
		if err := o.at(strings.TrimSuffix(name, " (deleted)")); err != nil {
			return nil, &fs.PathError{Op: "open", Path: name, Err: err}
		}
		fd, err := unix.Open(link, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, &fs.PathError{Op: "open", Path: name, Err: err}
		}
		defer unix.Close(fd)
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return nil, &fs.PathError{Op: "stat", Path: name, Err: err}
		}
		if st.Mode&unix.S_IFMT != unix.S_IFREG {
			return nil, &fs.PathError{Op: "open", Path: name, Err: fmt.Errorf("%s: %w", kindOf(st.Mode), ErrNotRegular)}
		}
		return r.reopen(o, fd, name)
	})
}

// Stat describes what a path leads to.
func (r Root) Stat(name string) (unix.Stat_t, error) {
	r = r.known()
	return do(r, name, "stat", func(o *op) (st unix.Stat_t, err error) {
		fd, err := r.path(o, name)
		if err != nil {
			return st, &fs.PathError{Op: "stat", Path: name, Err: err}
		}
		defer unix.Close(fd)
		if err := unix.Fstat(fd, &st); err != nil {
			return st, &fs.PathError{Op: "stat", Path: name, Err: err}
		}
		return st, nil
	})
}

// Statx describes what a path leads to, with the time when it was made where the
// file system keeps it (statx(2), STATX_BTIME in Mask).
func (r Root) Statx(name string) (unix.Statx_t, error) {
	r = r.known()
	return do(r, name, "stat", func(o *op) (st unix.Statx_t, err error) {
		fd, err := r.path(o, name)
		if err != nil {
			return st, &fs.PathError{Op: "stat", Path: name, Err: err}
		}
		defer unix.Close(fd)
		if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st); err != nil {
			return st, &fs.PathError{Op: "stat", Path: name, Err: err}
		}
		return st, nil
	})
}

func kindOf(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFIFO:
		return "a FIFO"
	case unix.S_IFSOCK:
		return "a socket"
	case unix.S_IFCHR:
		return "a character device"
	case unix.S_IFBLK:
		return "a block device"
	case unix.S_IFDIR:
		return "a directory"
	}
	return "something of unknown type"
}
