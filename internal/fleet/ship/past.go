package ship

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"time"

	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/safefile"
	"github.com/slowray/slowray/internal/store"
)

// What was recorded before a target was first given is sent as a history of its own, of
// the same host: it has positions of its own, so that each record of it arrives once, and
// what is recorded now does not wait for it. It is all below DIR/ship/TARGET/past: second
// names of the store's Parquet files, of which one at a time is made a log again, and of
// the logs that were no file yet.

const (
	pastName = "past"
	// pastShare is how much of one CPU this process takes at most while it sends what was
	// recorded before.
	pastShare = 0.1
	// unpackAtOnce is how much CPU time a log may take before it pauses.
	unpackAtOnce = 20 * time.Millisecond
)

// pastID is the ID of what was recorded before a target was first given.
func pastID(id string) string {
	b := sha256.Sum256([]byte("slowray: recorded before " + id))
	b[6], b[8] = b[6]&0x0f|0x80, b[8]&0x3f|0x80 // RFC 9562, version 8
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

// ended is the store of what was recorded before: no log of it is written any more.
type ended struct{}

func (ended) Durable(string) store.Durable  { return store.Durable{Log: math.MaxUint32} }
func (ended) Follow(string) <-chan struct{} { return nil }

// beginPast makes the directory for what was recorded before a target was given, before
// anything else is there: by it, an attempt that was interrupted is known.
func beginPast(dir *safefile.Dir, to *Destination) error {
	if to.History == nil {
		return nil
	}
	for _, name := range Streams {
		if _, err := dir.Lstat(string(name) + ".cursor"); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := dir.MkdirAll(pastName, 0o700); err != nil {
		return err
	}
	return dir.Sync()
}

// planPast says what is to be linked of what was recorded before, and makes what sends it.
// link is what is linked for the target otherwise.
func (s *Shipper) planPast(d *destination, link *store.Link) error {
	dir := folder(filepath.Join(string(d.dir), pastName))
	var first map[string]uint64
	var whole, begun bool
	err := d.dir.in(func(in *safefile.Dir) (err error) {
		first, whole, err = store.PastBegins(in.Root, pastName)
		_, missing := in.Lstat(pastName)
		begun = missing == nil
		return err
	})
	if err != nil {
		return err
	}
	for stream, number := range first {
		// Logs that are no file yet may be of that time.
		link.From[stream] = max(link.From[stream], number)
	}
	if d.History == nil {
		var bytes int64
		for _, f := range waiting(dir) {
			bytes += f.bytes
		}
		if bytes > 0 {
			d.reporter.note(fmt.Sprintf("%s that were recorded before it was given wait (--to-history goes on sending them; or remove %s)", figure.Bytes(bytes), dir))
		}
		return nil
	}
	switch {
	case whole && len(waiting(dir)) == 0:
		return nil // all of it was sent
	case whole:
	case begun && d.unused():
		link.Past, link.Existing = filepath.Join(link.Dir, pastName), false
	default:
		d.reporter.note("was sent to before --to-history was given: what was recorded before that is not sent to it")
		return nil
	}
	if s.past == nil {
		opt := s.opt
		opt.Buffer, opt.share = math.MaxInt64, min(opt.share, opt.pastShare)
		s.past = &Shipper{opt: opt, id: pastID(s.id)}
	}
	p, _, err := s.past.destination(string(dir), Destination{Target: d.History, Name: d.Name, Title: d.Title + " (history)", Advice: d.Advice, past: true})
	if err != nil {
		return err
	}
	d.History = nil // it is p's to close
	s.past.to = append(s.past.to, p)
	return nil
}

// unused says that nothing was ever linked for a target, or sent to it.
func (d *destination) unused() bool {
	for _, s := range d.streams {
		if s.state != (state{}) {
			return false
		}
	}
	return len(waiting(d.dir)) == 0
}

// unpack makes a log of the Parquet file that comes next. It takes care that this process
// leaves the CPU to others.
func (s *stream) unpack(ctx context.Context) {
	f := s.packed
	s.packed = nil
	log := store.LogName(string(s.name), f.number)
	begun := processCPU()
	var bad error
	err := s.to.dir.in(func(dir *safefile.Dir) (err error) {
		bad, err = store.Unpack(dir, f.name, string(s.name), log, func() error {
			if cost := processCPU() - begun; cost >= unpackAtOnce {
				s.leaveCPU(ctx, cost)
				begun = processCPU()
			}
			return ctx.Err()
		})
		return err
	})
	what := string(s.name) + " recorded before"
	switch {
	case ctx.Err() != nil:
		return
	case errors.Is(err, fs.ErrNotExist):
		return // somebody removed it
	case err != nil:
		s.to.reporter.fails(what, fleet.Permanent(err))
		s.await(ctx, nil, s.to.shipper.opt.lastWait)
		return
	}
	s.to.reporter.works(what)
	if bad != nil {
		s.to.reporter.note(fmt.Sprintf("some %s that were recorded before cannot be read, and are not sent: %s", s.name, oneLine(bad)))
	}
	s.to.dir.remove(f.name)
}
