package logtail

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/slowray/slowray/internal/sense/app/logtail/rootfs"
	"golang.org/x/sys/unix"
)

// Tail is one log between the beginning and the end of a window. It is not
// safe for use by several goroutines.
type Tail struct {
	root rootfs.Root
	path string

	file     *os.File // nil when the log did not exist at the beginning
	id       fileID
	offset   int64  // its size at the beginning
	before   []byte // the bytes just before offset: they change when the file is rewritten
	siblings map[birth]bool

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

// Open remembers the end of the log at path on the host. A log that does not
// exist yet is read from its beginning once it appears. Errors: the path leads
// to something that is not a file (rootfs.ErrNotRegular), or permission.
func Open(path string) (*Tail, error) { return OpenIn(rootfs.At("/"), path) }

// OpenIn is Open for a path inside another root directory.
func OpenIn(root rootfs.Root, name string) (*Tail, error) {
	t := &Tail{root: root, path: name}
	f, err := root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		f.Close()
		return nil, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	t.file, t.id, t.offset = f, idOf(&st), st.Size
	t.before = textBefore(f, t.offset)
	t.siblings = map[birth]bool{}
	for _, s := range t.rotated() {
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

func textBefore(f *os.File, offset int64) []byte {
	n := min(offset, beforeBytes)
	b := make([]byte, n)
	got, _ := f.ReadAt(b, offset-n)
	return b[:got]
}

// part is a stretch of one file that was written in the window.
type part struct {
	file     *os.File
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
	var st unix.Stat_t
	if err := unix.Fstat(int(now.Fd()), &st); err != nil {
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
	var st unix.Stat_t
	if err := unix.Fstat(int(t.file.Fd()), &st); err != nil {
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
// names beside the log that lead to files which were not there at Open.
func (t *Tail) between(now fileID) (parts []part, notes []string) {
	compressed := 0
	for _, s := range t.rotated() {
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
		var st unix.Stat_t
		if unix.Fstat(int(f.Fd()), &st) != nil || idOf(&st) != s.fileID {
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

// rotated lists the files beside the log that carry its name, as log rotation
// makes them, oldest change first: access.log.1, access.log-20261021,
// access-20261021.log.
func (t *Tail) rotated() []sibling {
	dir, base := path.Split(t.path)
	names, err := t.root.ReadDir(dir)
	if err != nil {
		return nil
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
		st, err := t.root.Stat(dir + n)
		if err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
			continue
		}
		out = append(out, sibling{dir + n, birth{idOf(&st), t.root.Born(dir + n)}, st.Mtim.Nano()})
		if len(out) == maxSiblings {
			break
		}
	}
	sortSiblings(out)
	return out
}

func isCompressed(name string) bool {
	switch path.Ext(name) {
	case ".gz", ".bz2", ".xz", ".zst", ".lz4", ".lzo", ".Z":
		return true
	}
	return false
}
