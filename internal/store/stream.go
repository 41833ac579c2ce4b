package store

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/safefile"
)

// stream takes entries of one kind: into memory at once, into its log when it is
// synced.
type stream struct {
	kind kind
	home func() *safefile.Dir // of the store

	mu      sync.Mutex // of the following
	active  *batch     // what came since the last sync
	dropped uint64

	spare *batch // the other batch; the following is the syncing goroutine's

	file    *os.File
	number  uint64 // of the log that is open, or the next one
	opened  time.Time
	size    int64
	created func(path string) // told of each log before anything is in it; may be nil

	shown atomic.Pointer[Durable] // what followers may read
}

func newStream(home func() *safefile.Dir, k kind, limit int, next uint64) *stream {
	s := &stream{kind: k, home: home, active: newBatch(limit), spare: newBatch(limit), number: next}
	s.durable()
	return s
}

// put takes an entry, or counts it as dropped where there is no room.
func (s *stream) put(kind byte, entry []byte) bool {
	s.mu.Lock()
	ok := s.active.put(kind, entry)
	if !ok {
		s.dropped++
	}
	s.mu.Unlock()
	return ok
}

// putRequest is put for a request.
func (s *stream) putRequest(r *Request) bool {
	s.mu.Lock()
	ok := s.active.putRequest(r)
	if !ok {
		s.dropped++
	}
	s.mu.Unlock()
	return ok
}

// sync writes what came to the log and to the disk. What cannot be written is
// dropped and counted, and the log is cut back to what is whole.
func (s *stream) sync(now time.Time) error {
	s.mu.Lock()
	b := s.active
	s.active, s.spare = s.spare, b
	s.mu.Unlock()
	defer b.reset()
	b.seal()
	if len(b.buf) == 0 {
		return nil
	}
	err := s.write(b.buf, now)
	if err != nil {
		s.mu.Lock()
		s.dropped += b.entries
		s.mu.Unlock()
	}
	return err
}

func (s *stream) write(frames []byte, now time.Time) error {
	if s.file == nil {
		if err := s.create(now); err != nil {
			return err
		}
	}
	if _, err := s.file.Write(frames); err != nil {
		s.cut()
		return fmt.Errorf("write %s log: %w", s.kind, err)
	}
	if err := unix.Fdatasync(int(s.file.Fd())); err != nil {
		s.cut()
		return fmt.Errorf("sync %s log: %w", s.kind, err)
	}
	s.size += int64(len(frames))
	return nil
}

// cut takes back a write that failed. Where that fails too, the log is closed:
// its reader ends where it is no longer whole.
func (s *stream) cut() {
	err := s.file.Truncate(s.size)
	if err == nil {
		_, err = s.file.Seek(s.size, 0)
	}
	if err != nil {
		s.rotate()
	}
}

// create begins a log.
func (s *stream) create(now time.Time) error {
	home, path := s.home(), logPath(s.kind, s.number)
	f, err := home.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("create %s log: %w", s.kind, err)
	}
	_, err = f.WriteString(logMagic)
	if err == nil {
		err = home.SyncIn(openDir)
	}
	if err != nil {
		f.Close()
		home.Remove(path)
		return fmt.Errorf("create %s log: %w", s.kind, err)
	}
	s.file, s.opened, s.size = f, now, int64(len(logMagic))
	if s.created != nil {
		s.created(path)
	}
	return nil
}

// rotate ends the open log, if there is one: the next sync begins another.
func (s *stream) rotate() (ended bool) {
	if s.file == nil {
		return false
	}
	s.file.Close()
	s.file = nil
	s.number++
	return true
}

// due says whether the open log has what one segment holds: a stretch of time
// that is cut from the day, so that a clock that jumps ends it too; or bytes.
func (s *stream) due(now time.Time, stretch time.Duration, maxBytes int64) bool {
	return s.file != nil && (s.size >= maxBytes || !now.Truncate(stretch).Equal(s.opened.Truncate(stretch)))
}
