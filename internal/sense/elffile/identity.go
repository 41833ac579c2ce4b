package elffile

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/budget"
)

// ID tells one content of a file from all others: whoever writes to a file
// changes the time of its last change (ctime), which nobody can set.
type ID struct {
	Dev, Ino     uint64
	Size         int64
	MTime, CTime unix.Timespec
}

// IDOf is the identity of an open file; false when it cannot be known.
func IDOf(f *os.File) (id ID, ok bool) {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return id, false
	}
	return ID{uint64(st.Dev), st.Ino, st.Size, st.Mtim, st.Ctim}, true
}

// OpenRegular opens a file that is nothing but bytes, and never blocks: not a
// FIFO, nor a device.
func OpenRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		f.Close()
		return nil, fmt.Errorf("%s: not a regular file", path)
	}
	return f, nil
}

// A file that took more than its budget is not read again for a while: a
// recorder looks at the same processes in each window. It is read again at last,
// for the host may have been busy, or the file on a slow disk.
const (
	tryAgain   = 5 * time.Minute
	maxRefused = 4096
)

// refused are the files that are not read now.
var refused = struct {
	sync.Mutex
	files map[ID]refusal
}{files: map[ID]refusal{}}

type refusal struct {
	err   error
	until time.Time
}

// Open is New for a file that is open; one that was refused lately is not read.
func Open(b *budget.Budget, file *os.File) (*File, error) {
	if id, ok := IDOf(file); ok {
		refused.Lock()
		r, is := refused.files[id]
		refused.Unlock()
		if is && time.Now().Before(r.until) {
			return nil, r.err
		}
	}
	return New(b, file)
}

// Refuse notes that reading a file ended with err, if that was because of what is
// in the file: it is over the limits of b itself. The file is not opened again for
// some minutes.
func Refuse(b *budget.Budget, file *os.File, err error) {
	id, ok := IDOf(file)
	if !ok || !budget.IsExceeded(err) || !b.Own() {
		return
	}
	refused.Lock()
	defer refused.Unlock()
	now := time.Now()
	if len(refused.files) >= maxRefused {
		for id, r := range refused.files {
			if now.After(r.until) {
				delete(refused.files, id)
			}
		}
	}
	if len(refused.files) < maxRefused {
		refused.files[id] = refusal{err, now.Add(tryAgain)}
	}
}
