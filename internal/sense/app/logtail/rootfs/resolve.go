package rootfs

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// maxLinks is the kernel's own bound (MAXSYMLINKS, include/linux/namei.h). Each link
// may lead over as many directories as a path has room for: maxSteps bounds them all,
// and maxDepth the descriptors that are open for them.
const (
	maxLinks = 40
	maxSteps = 4096
	maxDepth = 256
)

// noOpenat2 is set once the kernel (before 5.6: ENOSYS) or a seccomp filter
// (EPERM) refuses openat2.
var noOpenat2 atomic.Bool

// path opens a path inside the root with O_PATH: nothing is opened for
// reading, no permission on the file itself is needed.
func (r Root) path(o *op, name string) (int, error) {
	if strings.IndexByte(name, 0) >= 0 {
		return -1, unix.EINVAL
	}
	root, err := r.top()
	if err != nil {
		return -1, err
	}
	defer unix.Close(root)
	if o.mounts == nil && !noOpenat2.Load() {
		fd, err := openInRoot(root, name)
		if !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM) {
			return fd, err
		}
		noOpenat2.Store(true)
	}
	fd, _, err := walk(o, root, name)
	return fd, err
}

// top opens the root directory itself.
func (r Root) top() (int, error) {
	root, err := unix.Open(r.Dir(), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("root %s: %w", r.Dir(), err)
	}
	return root, nil
}

func openInRoot(root int, name string) (int, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	for range 8 {
		fd, err := unix.Openat2(root, "/"+strings.TrimLeft(name, "/"), &how)
		// EAGAIN: a rename raced with a ".." (openat2(2)); try again.
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue
		}
		return fd, err
	}
	fd, _, err := walk(&op{}, root, name)
	return fd, err
}

// walk resolves a path one component at a time below the directory root. It
// returns an O_PATH descriptor and the path without symbolic links.
func walk(o *op, root int, name string) (int, string, error) {
	top, err := unix.Dup(root)
	if err != nil {
		return -1, "", err
	}
	unix.CloseOnExec(top)
	stack, names := []int{top}, []string{}
	defer func() {
		for _, fd := range stack {
			unix.Close(fd)
		}
	}()
	pop := func(keep int) {
		for len(stack) > keep {
			unix.Close(stack[len(stack)-1])
			stack = stack[:len(stack)-1]
		}
		names = names[:keep-1]
	}
	todo, links, steps := strings.Split(name, "/"), 0, 0
	for len(todo) > 0 {
		part := todo[0]
		todo = todo[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			if len(stack) > 1 {
				pop(len(stack) - 1)
			}
			continue
		}
		dir := "/" + strings.Join(names, "/")
		at := path.Join(dir, part)
		if steps++; steps > maxSteps || len(stack) > maxDepth {
			return -1, at, unix.ENAMETOOLONG
		}
		fd, target, isLink, err := step(o, stack[len(stack)-1], dir, part)
		if err != nil {
			return -1, at, err
		}
		if !isLink {
			stack, names = append(stack, fd), append(names, part)
			continue
		}
		unix.Close(fd)
		if links++; links > maxLinks {
			return -1, at, unix.ELOOP
		}
		if isDescriptor(at) {
			return -1, at, unix.ELOOP
		}
		if strings.HasPrefix(target, "/") {
			pop(1)
		}
		todo = append(strings.Split(target, "/"), todo...)
	}
	at := "/" + strings.Join(names, "/")
	if err := o.at(at); err != nil {
		return -1, at, err
	}
	fd, err := unix.FcntlInt(uintptr(stack[len(stack)-1]), unix.F_DUPFD_CLOEXEC, 0)
	return fd, at, err
}

// step opens one component. It is looked up by the file system of the directory, and
// says what it is by that of its own.
func step(o *op, dirFD int, dir, part string) (fd int, target string, isLink bool, err error) {
	if err := o.at(dir); err != nil {
		return -1, "", false, err
	}
	fd, err = unix.Openat(dirFD, part, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, "", false, err
	}
	if err = o.at(path.Join(dir, part)); err == nil {
		target, isLink, err = readLink(fd)
	}
	if err != nil {
		unix.Close(fd)
	}
	return fd, target, isLink, err
}

func readLink(fd int) (string, bool, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", false, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return "", false, nil
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", buf)
	if err != nil {
		return "", false, err
	}
	return string(buf[:n]), true, nil
}

// Target follows the symbolic links of a path as far as they go and returns
// the place reached, which need not exist: "/proc/self/fd/2" for a log that is
// linked to standard error.
func (r Root) Target(name string) string {
	r = r.known()
	at, err := do(r, name, "open", func(o *op) (string, error) { return r.target(o, name), nil })
	if err != nil {
		return name
	}
	return at
}

func (r Root) target(o *op, name string) string {
	root, err := r.top()
	if err != nil {
		return name
	}
	defer unix.Close(root)
	fd, at, err := walk(o, root, name)
	if err == nil {
		unix.Close(fd)
	}
	if at == "" {
		return name
	}
	return at
}

// isDescriptor recognises the names of a process's own open files, which mean
// something else to every process that opens them.
func isDescriptor(p string) bool {
	switch p {
	case "/dev/stdout", "/dev/stderr", "/dev/stdin":
		return true
	}
	rest, ok := strings.CutPrefix(p, "/proc/")
	if !ok {
		return strings.HasPrefix(p, "/dev/fd/")
	}
	_, rest, _ = strings.Cut(rest, "/")
	return strings.HasPrefix(rest, "fd/") || strings.HasPrefix(rest, "task/") && strings.Contains(rest, "/fd/")
}

// IsDescriptor says whether a path, followed to its end, names an open file of
// the process that opens it (standard output, standard error) and not a file
// that others could open.
func (r Root) IsDescriptor(name string) bool {
	return isDescriptor(path.Clean(name)) || isDescriptor(r.Target(name))
}

// explain replaces the kernel's answer for a path that leads to an open
// descriptor, which is misleading (ELOOP, or ENOENT for /proc/self of another
// pid namespace), by what it means.
func (r Root) explain(o *op, name string, err error) error {
	if !errors.Is(err, ErrNoAnswer) && (isDescriptor(path.Clean(name)) || isDescriptor(r.target(o, name))) {
		return &fs.PathError{Op: "open", Path: name, Err: fmt.Errorf("the process's own standard output or error: %w", ErrNotRegular)}
	}
	return &fs.PathError{Op: "open", Path: name, Err: err}
}
