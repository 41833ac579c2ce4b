package symbol

import (
	"os"
	"sync"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/sense/elffile"
)

// cache keeps what was found in binaries, also that nothing was: a recorder asks
// for the functions of the same services in each window, and reading the symbols
// of a large one takes longer than all else.
type cache struct {
	mu    sync.Mutex
	known map[fileID]*cached
	bytes int   // of the names in it
	turn  int64 // counts uses, to find what was not used for longest
}

// fileID is a file, and how places in it are named.
type fileID struct {
	elffile.ID
	byAddress bool
}

// cached is what is known of one file.
type cached struct {
	names map[uint64]function // by offset or address; empty where nothing is there
	bytes int
	used  int64
	why   error     // why some have no name
	until time.Time // before it is not read again
}

const (
	maxCachedFiles = 1024
	maxCachedBytes = 8 << 20
	functionBytes  = 96 // of a function, without its text
	// A file that took more than its budget is read again after some time, for the
	// host may have been busy; one of which little was read, because it had to share
	// with others, sooner.
	tryAgain     = 5 * time.Minute
	tryAgainSoon = time.Minute
	littleTime   = 20 * time.Millisecond
)

// binaries is the cache of this process.
var binaries = cache{known: map[fileID]*cached{}}

// look gives what is known of offsets of a file. rest are those that have to be
// looked for; why says why others have no name.
func (c *cache) look(id fileID, offsets []uint64) (names map[uint64]function, rest []uint64, why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	names = map[uint64]function{}
	of := c.known[id]
	if of == nil {
		return names, offsets, nil
	}
	c.turn++
	of.used = c.turn
	for _, o := range offsets {
		if fn, ok := of.names[o]; !ok {
			rest = append(rest, o)
		} else if fn != (function{}) {
			names[o] = fn
		}
	}
	if time.Now().Before(of.until) {
		rest = nil
	}
	return names, rest, of.why
}

// keep notes what was found of the offsets that were looked for, and how the
// search ended. spent is nothing where it will be tried again at once.
func (c *cache) keep(id fileID, offsets []uint64, names map[uint64]function, err error, spent time.Duration) {
	over := budget.IsExceeded(err)
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.known[id]
	if of == nil {
		of = &cached{names: map[uint64]function{}}
		c.known[id] = of
	}
	c.turn++
	of.used, of.why = c.turn, err
	switch {
	case err == nil || err == errStripped || spent == 0:
	case spent < littleTime:
		of.until = time.Now().Add(tryAgainSoon)
	default:
		of.until = time.Now().Add(tryAgain)
	}
	for _, o := range offsets {
		fn, ok := names[o]
		if over && !ok {
			continue
		}
		if _, known := of.names[o]; !known {
			size := functionBytes + len(fn.name) + len(fn.file)
			of.bytes += size
			c.bytes += size
		}
		of.names[o] = fn
	}
	for len(c.known) > maxCachedFiles || c.bytes > maxCachedBytes {
		c.forget()
	}
}

// waiting is why a file is not read now, nil when it is: of one whose names are
// not kept, as that to which a compiler adds all the time.
func (c *cache) waiting(f *os.File) error {
	id, ok := elffile.IDOf(f)
	_, rest, why := c.look(growing(id), []uint64{0})
	if !ok || len(rest) > 0 {
		return nil
	}
	return why
}

// wait notes that such a file took more than its budget.
func (c *cache) wait(f *os.File, err error, spent time.Duration) {
	if id, ok := elffile.IDOf(f); ok {
		c.keep(growing(id), nil, nil, err, spent)
	}
}

// growing is a file whatever is in it.
func growing(id elffile.ID) fileID { return fileID{ID: elffile.ID{Dev: id.Dev, Ino: id.Ino}} }

// forget drops what was not used for longest.
func (c *cache) forget() {
	var oldest fileID
	least := int64(1<<63 - 1)
	for id, of := range c.known {
		if of.used < least {
			oldest, least = id, of.used
		}
	}
	c.bytes -= c.known[oldest].bytes
	delete(c.known, oldest)
}
