package store

import (
	"errors"
	"io/fs"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/slowray/slowray/internal/safefile"
)

// Streams are those that have logs, by the names that Link, Durable and Follow take.
var Streams = []string{string(kindRequests), string(kindSeconds), string(kindFindings)}

// Link is a directory in which each log has a second name (link(2)), under which
// it stays when it has become a Parquet file, until somebody removes it there. It
// must exist.
type Link struct {
	Dir string // below the store's directory
	// Existing says that logs which are there when the store is opened are linked
	// too, from the number that From has for their stream on.
	Existing bool
	From     map[string]uint64
	// Past, if set, is another directory below it, in which all that there is when the store is opened has
	// second names, unless it was given them before: see PackedName, PastBegins, Unpack.
	Past string
	// Last is the last log of each stream that was ever taken from there, or is
	// there: no number is given twice, whatever was removed from the store.
	Last map[string]uint64
}

// Durable is how far a stream is on disk.
type Durable struct {
	Log   uint64 // the number of the log that is open, or of the next one
	Bytes int64  // of it that are durable; 0 while there is none
}

// Durable tells how far a stream is on disk. Logs with smaller numbers are ended.
func (s *Store) Durable(stream string) Durable {
	if st := s.streams[kind(stream)]; st != nil {
		return *st.shown.Load()
	}
	return Durable{}
}

// Follow gives a channel that has something when Durable tells something new.
func (s *Store) Follow(stream string) <-chan struct{} {
	c := make(chan struct{}, 1)
	s.followMu.Lock()
	defer s.followMu.Unlock()
	s.followers[kind(stream)] = append(s.followers[kind(stream)], c)
	return c
}

func (s *Store) tellFollowers(k kind) {
	s.followMu.Lock()
	defer s.followMu.Unlock()
	for _, c := range s.followers[k] {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// durable shows how far the stream is; false when that is known already.
func (s *stream) durable() bool {
	now := Durable{Log: s.number}
	if s.file != nil {
		now.Bytes = s.size
	}
	if old := s.shown.Load(); old != nil && *old == now {
		return false
	}
	s.shown.Store(&now)
	return true
}

// linker gives logs their second names. One that cannot be made now is tried again
// each second, as long as the log is there: the store itself does not suffer.
type linker struct {
	to     []Link
	home   func() *safefile.Dir
	missed atomic.Uint64

	mu      sync.Mutex
	pending map[string]bool // logs
}

// last is the greatest number that a log of a kind ever had.
func (l *linker) last(k kind) (n uint64) {
	for _, to := range l.to {
		n = max(n, to.Last[string(k)])
	}
	return n
}

// existing links logs that a killed writer left.
func (l *linker) existing(logs []openLog) error {
	for _, to := range l.to {
		if !to.Existing {
			continue
		}
		for _, log := range logs {
			if log.number < to.From[string(log.kind)] {
				continue
			}
			if err := linkInto(l.home(), to.Dir, log.path); err != nil {
				return err
			}
		}
		if err := l.home().SyncIn(to.Dir); err != nil {
			return err
		}
	}
	return nil
}

func linkInto(home *safefile.Dir, dir, path string) error {
	err := home.Link(path, filepath.Join(dir, filepath.Base(path)))
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// add links a log.
func (l *linker) add(path string) {
	if len(l.to) > 0 && !l.link(path) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.pending == nil {
			l.pending = map[string]bool{}
		}
		l.pending[path] = true
	}
}

func (l *linker) link(path string) bool {
	whole, home := true, l.home()
	for _, to := range l.to {
		err := linkInto(home, to.Dir, path)
		if errors.Is(err, fs.ErrNotExist) && home.MkdirAll(to.Dir, 0o700) == nil {
			err = linkInto(home, to.Dir, path) // the history was moved away and begun anew
		}
		if err == nil {
			err = home.SyncIn(to.Dir)
		}
		whole = whole && err == nil
	}
	return whole
}

// again tries what failed before.
func (l *linker) again() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for path := range l.pending {
		if l.link(path) {
			delete(l.pending, path)
		}
	}
}

// settle tries a last time to link a log that is removed now.
func (l *linker) settle(path string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.pending[path] {
		return
	}
	delete(l.pending, path)
	if !l.link(path) {
		l.missed.Add(1)
	}
}
