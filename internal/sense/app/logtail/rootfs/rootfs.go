package rootfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"sort"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Root is a directory that stands for "/".
type Root struct {
	dir string
}

// At is the root at a directory of the host; "" and "/" are the host's own.
func At(dir string) Root {
	if dir == "" {
		dir = "/"
	}
	return Root{dir: dir}
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

// Open opens a regular file for reading, without ever blocking. Errors: those
// of openat2(2) as *fs.PathError, or one that wraps ErrNotRegular.
func (r Root) Open(name string) (*os.File, error) {
	fd, err := r.path(name)
	if err != nil {
		return nil, r.explain(name, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fmt.Errorf("%s: %w", kindOf(st.Mode), ErrNotRegular)}
	}
	// The O_PATH descriptor pins the file that was just looked at: what is
	// opened is what was found to be a regular file.
	rd, err := reopen(fd, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(rd), name), nil
}

// Stat describes what a path leads to.
func (r Root) Stat(name string) (unix.Stat_t, error) {
	var st unix.Stat_t
	fd, err := r.path(name)
	if err != nil {
		return st, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	defer unix.Close(fd)
	if err := unix.Fstat(fd, &st); err != nil {
		return st, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	return st, nil
}

// Born is when a file was made, in Unix nanoseconds; 0 when it cannot be told
// (statx(2) stx_btime).
func (r Root) Born(name string) int64 {
	fd, err := r.path(name)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	var st unix.Statx_t
	err = unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_BTIME, &st)
	if err != nil || st.Mask&unix.STATX_BTIME == 0 {
		return 0
	}
	return st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
}

// ReadFile returns the text of a regular file of at most max bytes.
func (r Root) ReadFile(name string, max int64) ([]byte, unix.Stat_t, error) {
	var st unix.Stat_t
	f, err := r.Open(name)
	if err != nil {
		return nil, st, err
	}
	defer f.Close()
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, st, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	b, err := io.ReadAll(io.LimitReader(f, max+1))
	if err != nil {
		return nil, st, err
	}
	if int64(len(b)) > max {
		return nil, st, &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf("larger than %d bytes", max)}
	}
	return b, st, nil
}

// maxEntries bounds a directory listing.
const maxEntries = 100_000

// ReadDir lists the names in a directory, sorted.
func (r Root) ReadDir(name string) ([]string, error) {
	fd, err := r.path(name)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	dfd, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	d := os.NewFile(uintptr(dfd), name)
	defer d.Close()
	names, err := d.Readdirnames(maxEntries)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	sort.Strings(names)
	return names, nil
}

// Glob lists the paths that match a pattern of glob(3), sorted. A leading dot
// is matched only by a dot, as the shell and glob(3) do it.
func (r Root) Glob(pattern string) ([]string, error) {
	parts := strings.Split(strings.Trim(path.Clean("/"+pattern), "/"), "/")
	found := []string{"/"}
	for i, part := range parts {
		var next []string
		for _, dir := range found {
			matched, err := r.globIn(dir, part, i == len(parts)-1)
			if err != nil {
				return nil, err
			}
			next = append(next, matched...)
			if len(next) > maxEntries {
				return nil, fmt.Errorf("glob %s: more than %d paths", pattern, maxEntries)
			}
		}
		found = next
	}
	sort.Strings(found)
	return found, nil
}

func (r Root) globIn(dir, part string, last bool) ([]string, error) {
	if !HasMeta(part) {
		p := path.Join(dir, part)
		if last {
			if _, err := r.Stat(p); err != nil {
				if errors.Is(err, fs.ErrNotExist) {
					return nil, nil
				}
				return nil, err
			}
		}
		return []string{p}, nil
	}
	names, err := r.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	// glob(3) negates a class with "!", path.Match with "^".
	goPart := strings.ReplaceAll(part, "[!", "[^")
	var out []string
	for _, n := range names {
		if strings.HasPrefix(n, ".") && !strings.HasPrefix(part, ".") {
			continue
		}
		ok, err := path.Match(goPart, n)
		if err != nil {
			return nil, fmt.Errorf("glob %s: %w", part, err)
		}
		if ok {
			out = append(out, path.Join(dir, n))
		}
	}
	return out, nil
}

// HasMeta says whether a path holds characters that glob(3) expands.
func HasMeta(p string) bool { return strings.ContainsAny(p, "*?[") }

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

func reopen(fd, flags int) (int, error) {
	return unix.Open("/proc/self/fd/"+strconv.Itoa(fd), flags, 0)
}
