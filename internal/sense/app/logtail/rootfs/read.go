package rootfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sort"
	"sync"

	"github.com/slowray/slowray/internal/budget"
	"golang.org/x/sys/unix"
)

// look is what all readers below a root have in common.
type look struct {
	b      *budget.Budget
	mounts *mounts

	mu    sync.Mutex
	texts map[version]string  // of files
	lists map[string][]string // of directories
}

func newLook(b *budget.Budget, m *mounts) *look {
	return &look{b: b, mounts: m, texts: map[version]string{}, lists: map[string][]string{}}
}

// version tells a file from others, and from what it was before.
type version struct {
	dev, ino     uint64
	size         int64
	mtime, ctime int64
}

func versionOf(st *unix.Stat_t) version {
	return version{uint64(st.Dev), st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano()}
}

// ReadFile returns the text of a regular file of at most max bytes. The same file is
// read, and taken from the budget, once in a look, by whatever name it is asked for.
func (r Root) ReadFile(name string, max int64) (string, unix.Stat_t, error) {
	type result struct {
		text string
		st   unix.Stat_t
	}
	r = r.known()
	got, err := do(r, name, "read", func(o *op) (result, error) {
		fd, st, err := r.regular(o, name)
		if err != nil {
			return result{st: st}, err
		}
		defer unix.Close(fd)
		text, err := r.text(o, fd, name, &st, max)
		return result{text, st}, err
	})
	return got.text, got.st, err
}

func (r Root) text(o *op, fd int, name string, st *unix.Stat_t, max int64) (string, error) {
	l, v := r.look, versionOf(st)
	l.mu.Lock()
	text, known := l.texts[v]
	l.mu.Unlock()
	if known && int64(len(text)) <= max {
		return text, nil
	}
	if err := l.b.File(); err != nil {
		return "", err
	}
	f, err := r.reopen(o, fd, name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := l.b.ReadAll(io.LimitReader(f.File, max+1))
	switch {
	case err != nil && budget.IsExceeded(err):
		return "", err
	case err != nil:
		return "", &fs.PathError{Op: "read", Path: name, Err: err}
	case int64(len(b)) > max:
		return "", &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf("larger than %d bytes", max)}
	}
	text = string(b)
	l.mu.Lock()
	l.texts[v] = text
	l.mu.Unlock()
	return text, nil
}

// maxEntries bounds a directory listing.
const maxEntries = 100_000

// errEntries says that a directory has more entries than are listed.
var errEntries = fmt.Errorf("more than %d entries", maxEntries)

// ReadDir lists the names in a directory, sorted. A directory is read once in a look.
func (r Root) ReadDir(name string) ([]string, error) {
	r = r.known()
	l := r.look
	l.mu.Lock()
	names, known := l.lists[name]
	l.mu.Unlock()
	if known {
		return names, l.b.Node()
	}
	names, err := do(r, name, "open", func(o *op) ([]string, error) { return r.list(o, name) })
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.lists[name] = names
	l.mu.Unlock()
	return names, nil
}

func (r Root) list(o *op, name string) ([]string, error) {
	fd, err := r.path(o, name)
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
	var names []string
	for {
		some, err := d.Readdirnames(1024)
		if over := r.look.b.Nodes(int64(len(some))); over != nil {
			return nil, over
		}
		names = append(names, some...)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil && len(names) > maxEntries {
			err = &fs.PathError{Op: "read", Path: name, Err: errEntries}
		}
		if err != nil {
			return nil, err
		}
	}
	sort.Strings(names)
	return names, nil
}
