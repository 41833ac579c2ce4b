package logtail

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/sense/app/logtail/rootfs"
	"golang.org/x/sys/unix"
)

// Tail is one log between the beginning and the end of a window. It is not
// safe for use by several goroutines.
type Tail struct {
	root rootfs.Root
	path string

	file     *rootfs.File // nil when the log did not exist at the beginning
	id       fileID
	offset   int64  // its size at the beginning
	before   []byte // the bytes just before offset: they change when the file is rewritten
	siblings map[birth]bool
	unlisted error // why the files next to it are not known

	grown int64 // set by Read, for Share
	at    int64 // bytes of the growth before the line in hand
}

type fileID struct {
	dev, ino uint64
}

// birth tells a file from a later one that was given the same inode number.
type birth struct {
	fileID
	born int64 // ns; 0 where the file system does not keep it
}

func idOf(st *unix.Stat_t) fileID { return fileID{uint64(st.Dev), st.Ino} }

// beforeBytes is how much of the text before the offset is remembered.
const beforeBytes = 64

// Open remembers the end of the log of that name inside a root directory. A log that
// does not exist yet is read from its beginning once it appears. Errors: the path leads
// to something that is not a file (rootfs.ErrNotRegular), permission, or the budget.
func Open(root rootfs.Root, name string) (*Tail, error) {
	t := &Tail{root: root, path: name}
	f, err := root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err != nil {
		return nil, err
	}
	st, err := f.Fstat()
	if err != nil {
		f.Close()
		return nil, err
	}
	t.file, t.id, t.offset = f, idOf(&st), st.Size
	t.before = textBefore(f, t.offset)
	t.siblings = map[birth]bool{}
	list, err := t.rotated()
	t.unlisted = err
	for _, s := range list {
		t.siblings[s.birth] = true
	}
	return t, nil
}

// Is says whether the log is the file of that device and inode number; never
// so for a log that did not exist at Open.
func (t *Tail) Is(dev, ino uint64) bool { return t.file != nil && t.id == fileID{dev, ino} }

// Close releases the log without reading it. Read does so too.
func (t *Tail) Close() error {
	if t.file == nil {
		return nil
	}
	err := t.file.Close()
	t.file = nil
	return err
}

// Share is how far into the growth the line in hand lies, from 0 to 1. It is
// meant to be called by the function given to Read.
func (t *Tail) Share() float64 {
	if t.grown <= 0 {
		return 0
	}
	return min(1, float64(t.at)/float64(t.grown))
}

func textBefore(f *rootfs.File, offset int64) []byte {
	n := min(offset, beforeBytes)
	b := make([]byte, n)
	got, _ := f.ReadAt(b, offset-n)
	return b[:got]
}

// part is a stretch of one file that was written in the window.
type part struct {
	file     *rootfs.File
	from, to int64
	midLine  bool // the stretch begins inside a line
}

// parts finds all that was written since Open, oldest first, and says in
// notes what may be missing. The caller closes the files.
func (t *Tail) parts() (parts []part, notes []string, err error) {
	if t.file != nil {
		p, note, err := t.oldPart()
		if err != nil {
			return nil, nil, err
		}
		parts = append(parts, p)
		notes = append(notes, note...)
	}
	now, err := t.root.Open(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		return parts, notes, nil
	}
	if err != nil {
		return parts, append(notes, "after rotation the new file could not be read: "+Reason(err)), nil
	}
	st, err := now.Fstat()
	if err != nil {
		now.Close()
		return parts, notes, err
	}
	if t.file != nil && idOf(&st) == t.id {
		now.Close()
		return parts, notes, nil
	}
	if t.file != nil {
		between, note := t.between(idOf(&st))
		parts = append(parts, between...)
		notes = append(notes, note...)
	}
	return append(parts, part{file: now, to: st.Size}), notes, nil
}

// oldPart is the growth of the file that was open from the beginning, wherever
// it has been renamed to.
func (t *Tail) oldPart() (part, []string, error) {
	st, err := t.file.Fstat()
	if err != nil {
		return part{}, nil, err
	}
	p := part{file: t.file, from: t.offset, to: st.Size}
	if st.Size < t.offset || !bytes.Equal(textBefore(t.file, t.offset), t.before) {
		p.from = 0
		return p, []string{"the file was truncated in the window: lines written before that are not counted"}, nil
	}
	p.midLine = t.offset > 0 && len(t.before) > 0 && t.before[len(t.before)-1] != '\n'
	return p, nil, nil
}

type sibling struct {
	name string
	birth
	mtime int64
}

// between finds the files that came and were rotated away inside the window:
// names next to the log that lead to files which were not there at Open.
func (t *Tail) between(now fileID) (parts []part, notes []string) {
	compressed := 0
	list, err := t.rotated()
	if err = cmp.Or(t.unlisted, err); err != nil {
		return nil, []string{"the log was rotated: what was written in between is not counted, for the files next to it cannot be listed: " + Reason(err)}
	}
	for _, s := range list {
		if s.fileID == now || s.fileID == t.id || t.siblings[s.birth] {
			continue
		}
		if isCompressed(s.name) {
			compressed++
			continue
		}
		f, err := t.root.Open(s.name)
		if err != nil {
			notes = append(notes, "a rotated file could not be read: "+Reason(err))
			continue
		}
		st, err := f.Fstat()
		if err != nil || idOf(&st) != s.fileID {
			f.Close()
			continue
		}
		parts = append(parts, part{file: f, to: st.Size})
	}
	// One rotation leaves at most one new compressed file, and its text is
	// still readable through the descriptor of the old one.
	if compressed > 1+len(parts) {
		notes = append(notes, "the log was rotated more than once in the window: parts already compressed are not counted")
	}
	return parts, notes
}

// maxSiblings bounds how many rotated files are looked at.
const maxSiblings = 1000

// rotated lists the files next to the log that carry its name, as log rotation
// makes them, oldest change first: access.log.1, access.log-20261021,
// access-20261021.log. An error says that there may be others.
func (t *Tail) rotated() ([]sibling, error) {
	dir, base := path.Split(t.path)
	names, err := t.root.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	ext := path.Ext(base)
	stem := strings.TrimSuffix(base, ext)
	var out []sibling
	for _, n := range names {
		after, ok := strings.CutPrefix(n, base)
		ok = ok && after != "" || ext != "" && strings.HasSuffix(n, ext) &&
			(strings.HasPrefix(n, stem+"-") || strings.HasPrefix(n, stem+"."))
		if !ok || n == base {
			continue
		}
		if len(out) == maxSiblings {
			return out, fmt.Errorf("more than %d files next to %s carry its name", maxSiblings, t.path)
		}
		st, err := t.root.Statx(dir + n)
		if budget.IsExceeded(err) {
			return out, err
		}
		if err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
			continue
		}
		id := fileID{unix.Mkdev(st.Dev_major, st.Dev_minor), st.Ino}
		out = append(out, sibling{dir + n, birth{id, nanoseconds(st.Btime)}, nanoseconds(st.Mtime)})
	}
	sortSiblings(out)
	return out, nil
}

// nanoseconds are since 1970; 0 for a time that is not kept.
func nanoseconds(t unix.StatxTimestamp) int64 { return t.Sec*1e9 + int64(t.Nsec) }

func isCompressed(name string) bool {
	switch path.Ext(name) {
	case ".gz", ".bz2", ".xz", ".zst", ".lz4", ".lzo", ".Z":
		return true
	}
	return false
}
