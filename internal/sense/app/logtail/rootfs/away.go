package rootfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/sense/host"
	"golang.org/x/sys/unix"
)

// A system call on a file system over the network (NFS) may never return, and a thread
// in it cannot be called back. Such calls are made by a goroutine that is left behind
// when it takes too long, one for each file system at most: until that one comes back,
// nobody else goes there. One in user space (FUSE) is not asked at all: whoever waits
// for it cannot even be killed.

// ErrNoAnswer says that a file system does not answer.
var ErrNoAnswer = errors.New("the file system does not answer")

// ErrUserSpace says that a file lies on a file system in user space.
var ErrUserSpace = errors.New("it is on a file system in user space (FUSE), which is not read: if it did not answer, slowray could not end")

// Bounds of the time that an answer is waited for. The budget of a look may be a part
// so small that no server over the network answers in it.
const (
	longWait  = 250 * time.Millisecond
	shortWait = 20 * time.Millisecond
)

// mounts is what is mounted below a root, read when it is first needed.
type mounts struct {
	root  string
	once  sync.Once
	table host.MountTable
	below string // of the table: where the root is in it
	known bool
}

// maxTable is what reading a table takes at most. Of one that is larger, or that the
// budget has no room for, every path may be on a file system that does not answer.
var maxTable = budget.Limits{Bytes: 4 << 20, Wall: 100 * time.Millisecond}

func (m *mounts) load(b *budget.Budget) {
	m.once.Do(func() {
		pid := os.Getpid()
		if of, ok := strings.CutSuffix(m.root, "/root"); ok && path.Dir(of) == "/proc" {
			if n, err := strconv.Atoi(path.Base(of)); err == nil {
				pid = n
			}
		} else {
			m.below = filepath.Clean(m.root)
		}
		table, err := host.Default().MountTableOf(b.Sub(maxTable), pid)
		m.table, m.known = table, err == nil
	})
}

// allAnswer says that nothing below the root can keep anybody waiting.
func (m *mounts) allAnswer(b *budget.Budget) bool {
	m.load(b)
	return !m.known || m.table.AllAnswer()
}

// inUserSpace says which file systems are not asked; tests ask all.
var inUserSpace = (*host.Mount).UserSpace

// away is the file system that a path lies on, "" where it answers. It follows no
// links.
func (m *mounts) away(name string) (string, error) {
	if m.table.Cut {
		return "?" + strconv.FormatUint(m.table.NS, 10), nil // some mount: which one is not known
	}
	mount, ok := m.table.Of(path.Join("/", m.below, name))
	switch {
	case !ok || !mount.MayHang():
		return "", nil
	case inUserSpace(&mount):
		return "", ErrUserSpace
	}
	return strconv.Itoa(int(mount.Major)) + ":" + strconv.Itoa(int(mount.Minor)), nil
}

// gate lets one caller at a time to a file system that may not answer.
type gate struct {
	fs    string
	turn  chan struct{} // of one
	users int           // that hold it, or wait for it
	stuck bool          // the one that holds it was left behind
}

var gates = struct {
	sync.Mutex
	at map[string]*gate
}{at: map[string]*gate{}}

// enter waits for its turn, for so long.
func enter(fs string, wait time.Duration) (*gate, error) {
	gates.Lock()
	g := gates.at[fs]
	if g == nil {
		g = &gate{fs: fs, turn: make(chan struct{}, 1)}
		gates.at[fs] = g
	}
	if g.stuck {
		gates.Unlock()
		return nil, ErrNoAnswer
	}
	g.users++
	gates.Unlock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case g.turn <- struct{}{}:
		return g, nil
	case <-timer.C:
		g.forget()
		return nil, ErrNoAnswer
	}
}

func (g *gate) leave() {
	<-g.turn
	g.forget()
}

func (g *gate) forget() {
	gates.Lock()
	defer gates.Unlock()
	if g.users--; g.users == 0 {
		delete(gates.at, g.fs)
	}
}

func (g *gate) setStuck(stuck bool) {
	gates.Lock()
	defer gates.Unlock()
	g.stuck = stuck
}

// op is one operation on a path. Its gate is that of the file system it is at.
type op struct {
	mounts *mounts // nil where all answer
	wait   time.Duration

	mu        sync.Mutex
	gate      *gate
	abandoned bool // nobody waits for it any more
	done      bool
}

// at is called before anything is done with a path, which holds no links.
func (o *op) at(name string) error {
	if o.mounts == nil {
		return nil
	}
	fs, err := o.mounts.away(name)
	if err != nil {
		return err
	}
	return o.enter(fs)
}

// enter changes to the gate of a file system. Only the goroutine that does the work
// calls it.
func (o *op) enter(fs string) error {
	o.mu.Lock()
	switch {
	case o.abandoned:
		o.mu.Unlock()
		return ErrNoAnswer
	case o.gate != nil && o.gate.fs == fs:
		o.mu.Unlock()
		return nil
	case o.gate != nil:
		o.gate.leave()
		o.gate = nil
	}
	o.mu.Unlock()
	if fs == "" {
		return nil
	}
	g, err := enter(fs, o.wait)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.abandoned {
		g.leave()
		return ErrNoAnswer
	}
	o.gate = g
	return nil
}

// mount is the file system that the operation ended at, "" where it answers.
func (o *op) mount() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.gate == nil {
		return ""
	}
	return o.gate.fs
}

// end gives the gate back. False: nobody waits for the result.
func (o *op) end() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.gate != nil {
		if o.abandoned {
			o.gate.setStuck(false)
		}
		o.gate.leave()
		o.gate = nil
	}
	o.done = true
	return !o.abandoned
}

// abandon leaves the operation behind. False: it has ended meanwhile.
func (o *op) abandon() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.done {
		return false
	}
	o.abandoned = true
	if o.gate != nil {
		o.gate.setStuck(true)
	}
	return true
}

// do makes one operation on a path of a root.
func do[T any](r Root, name, what string, work func(*op) (T, error)) (T, error) {
	if err := r.look.b.Node(); err != nil {
		var none T
		return none, err
	}
	if r.look.mounts.allAnswer(r.look.b) {
		return work(&op{})
	}
	o := &op{mounts: r.look.mounts, wait: min(longWait, max(shortWait, r.look.b.TimeLeft()))}
	v, err := aside(o, work)
	if errors.Is(err, ErrNoAnswer) {
		err = &fs.PathError{Op: what, Path: name, Err: ErrNoAnswer}
	}
	return v, err
}

// aside makes an operation in a goroutine that may be left behind.
func aside[T any](o *op, work func(*op) (T, error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	results := make(chan result, 1)
	go func() {
		v, err := work(o)
		if o.end() {
			results <- result{v, err}
			return
		}
		if c, ok := any(v).(io.Closer); ok && err == nil {
			c.Close()
		}
	}()
	timer := time.NewTimer(o.wait)
	defer timer.Stop()
	select {
	case got := <-results:
		return got.v, got.err
	case <-timer.C:
	}
	if !o.abandon() {
		got := <-results
		return got.v, got.err
	}
	var none T
	return none, ErrNoAnswer
}

// File is an open regular file. Where it lies on a file system that may not answer,
// its methods give up after a time (ErrNoAnswer).
type File struct {
	*os.File
	mount string // the file system that may not answer; "" where it does
}

// ReadAt implements io.ReaderAt.
func (f *File) ReadAt(p []byte, at int64) (int, error) {
	if f.mount == "" {
		return f.File.ReadAt(p, at)
	}
	return f.read(p, func(q []byte) (int, error) { return f.File.ReadAt(q, at) })
}

// Read implements io.Reader. After ErrNoAnswer the place in the file is not known.
func (f *File) Read(p []byte) (int, error) {
	if f.mount == "" {
		return f.File.Read(p)
	}
	return f.read(p, f.File.Read)
}

// read reads into memory of its own, which a read that was left behind may still
// write to.
func (f *File) read(p []byte, read func([]byte) (int, error)) (int, error) {
	got, err := aside(&op{wait: longWait}, func(o *op) ([]byte, error) {
		if err := o.enter(f.mount); err != nil {
			return nil, &fs.PathError{Op: "read", Path: f.Name(), Err: err}
		}
		b := make([]byte, len(p))
		n, err := read(b)
		return b[:n], err
	})
	if err == ErrNoAnswer {
		err = &fs.PathError{Op: "read", Path: f.Name(), Err: err}
	}
	return copy(p, got), err
}

var _ io.ReaderAt = (*File)(nil)

// Fstat describes the file.
func (f *File) Fstat() (unix.Stat_t, error) {
	work := func(o *op) (st unix.Stat_t, err error) {
		if err = o.enter(f.mount); err == nil {
			err = unix.Fstat(int(f.Fd()), &st)
		}
		return st, err
	}
	var st unix.Stat_t
	var err error
	if o := (&op{wait: longWait}); f.mount == "" {
		st, err = work(o)
	} else {
		st, err = aside(o, work)
	}
	if err != nil {
		err = &fs.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	return st, err
}
