package ship

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/safefile"
	"github.com/slowray/slowray/internal/store"
)

// destination is one target and all that waits for it.
type destination struct {
	Destination
	shipper  *Shipper
	dir      folder
	streams  []*stream
	host     atomic.Pointer[fleet.Host]
	gate     gate
	reporter errorReporter
	once     sync.Once // closing

	// Of keepBound's goroutine: what was reported for fleet.Refuser, and when.
	refused   uint64
	refusedAt time.Time
}

// destination opens or makes the directory of a target.
func (s *Shipper) destination(dir string, to Destination) (*destination, store.Link, error) {
	link := store.Link{Dir: filepath.Join(shipDir, to.Name), Existing: true, From: map[string]uint64{}, Last: map[string]uint64{}}
	made, err := safefile.MakeDir(dir, 0o700)
	if err != nil {
		return nil, link, err
	}
	defer made.Close()
	if err := beginPast(made, &to); err != nil {
		return nil, link, err
	}
	d := &destination{Destination: to, shipper: s, dir: folder(dir)}
	d.gate.first, d.gate.last = s.opt.firstWait, s.opt.lastWait
	d.reporter = errorReporter{title: to.Title, began: to.past, advice: to.Advice, say: s.opt.Say, again: s.opt.again, failing: map[string]string{}, said: map[string]time.Time{}}
	for _, name := range Streams {
		c, was, known, err := openCursor(made, string(name)+".cursor")
		if err != nil {
			d.close()
			return nil, link, err
		}
		// What is there when a target is first given is not sent.
		link.Existing = link.Existing && known
		link.From[string(name)] = logOf(was.Done)
		link.Last[string(name)] = logOf(max(was.Done, was.Last))
		d.streams = append(d.streams, newStream(d, name, c, was))
	}
	if !link.Existing && !to.past && to.History == nil && hasHistory(filepath.Dir(filepath.Dir(dir))) {
		d.reporter.note("is new here: what was recorded before is not sent to it without --to-history")
	}
	for _, f := range waiting(d.dir) {
		link.Last[string(f.stream)] = max(link.Last[string(f.stream)], f.number)
	}
	return d, link, made.Sync()
}

// hasHistory says whether anything was recorded below a directory.
func hasHistory(dir string) bool {
	for _, name := range Streams {
		if days, _ := os.ReadDir(filepath.Join(dir, string(name))); len(days) > 0 {
			return true
		}
	}
	logs, _ := os.ReadDir(filepath.Join(dir, "open"))
	return len(logs) > 0
}

// run ships until ctx ends, and a little longer.
func (d *destination) run(ctx context.Context) {
	d.host.Store(d.shipper.host())
	var all sync.WaitGroup
	for _, s := range d.streams {
		all.Go(func() { s.run(ctx) })
	}
	all.Go(func() { d.greet(ctx) })
	all.Go(func() { d.keepBound(ctx) })
	all.Wait()
	d.refusedAt = time.Time{}
	d.tellRefused(time.Now())
}

func (d *destination) close() {
	d.once.Do(func() {
		for _, s := range d.streams {
			s.mu.Lock()
			s.build.close()
			s.cursor.close()
			s.mu.Unlock()
		}
		if d.Target != nil {
			_ = d.Target.Close() // what it has taken it has
		}
		if d.History != nil {
			_ = d.History.Close()
		}
	})
}

// greet says Hello now and each minute.
func (d *destination) greet(ctx context.Context) {
	opt := &d.shipper.opt
	for {
		h := d.shipper.host()
		d.host.Store(h)
		try, cancel := context.WithTimeout(ctx, opt.timeout)
		err := d.Target.Hello(try, h, time.Now())
		cancel()
		wait := opt.hello
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			d.reporter.fails(hello, err)
			wait = min(opt.lastWait, opt.hello)
		default:
			d.reporter.works(hello)
			if d.past && len(waiting(d.dir)) == 0 {
				return // all was sent: the host itself says Hello
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// logFile is a log that waits.
type logFile struct {
	packed bool // a Parquet file, of which a log with this number is to be made
	stream fleet.Stream
	number uint64
	name   string
	bytes  int64
	at     time.Time // of the last write
}

// waiting lists the logs in a directory, those of a stream in the order of their numbers.
func waiting(dir folder) []logFile {
	var files []fs.DirEntry
	_ = dir.in(func(d *safefile.Dir) (err error) {
		files, err = fs.ReadDir(d.FS(), ".")
		return err
	})
	var list []logFile
	for _, f := range files {
		name, number, ok := store.ParseLogName(f.Name())
		packed := false
		if !ok {
			name, number, _, packed = store.ParsePackedName(f.Name())
			ok = packed
		}
		if !ok || !f.Type().IsRegular() || !slices.Contains(Streams, fleet.Stream(name)) {
			continue
		}
		info, err := f.Info()
		if err != nil {
			continue
		}
		list = append(list, logFile{packed, fleet.Stream(name), number, f.Name(), info.Size(), info.ModTime()})
	}
	slices.SortFunc(list, func(a, b logFile) int {
		return cmp.Or(cmp.Compare(a.stream, b.stream), cmp.Compare(a.number, b.number), compareBool(a.packed, b.packed))
	})
	return list
}

// compareBool is cmp.Compare for bools: false comes first.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// keepBound gives up the oldest of what waits when it is too much.
func (d *destination) keepBound(ctx context.Context) {
	for {
		d.giveUp()
		d.tellRefused(time.Now())
		select {
		case <-ctx.Done():
			return
		case <-time.After(d.shipper.opt.bound):
		}
	}
}

// tellRefused tells, once a minute at most, what the target has left out of what it took:
// that is lost, and nothing here can fix it.
func (d *destination) tellRefused(now time.Time) {
	r, ok := d.Target.(fleet.Refuser)
	if !ok || !d.refusedAt.IsZero() && now.Sub(d.refusedAt) < d.shipper.opt.again {
		return
	}
	n, why := r.Refused()
	if n == d.refused {
		return
	}
	d.reporter.note(fmt.Sprintf("has left out %s items of what it took, which are lost: %s", figure.Count(n-d.refused), cmp.Or(oneLine(errors.New(why)), "it does not say why")))
	d.refused, d.refusedAt = n, now
}

func (d *destination) giveUp() {
	var total int64
	byStream := map[fleet.Stream][]logFile{} // in the order of their numbers
	for _, f := range waiting(d.dir) {
		total += f.bytes
		byStream[f.stream] = append(byStream[f.stream], f)
	}
	var records uint64
	var since time.Time
	for total > d.shipper.opt.Buffer && len(byStream) > 0 {
		// The oldest goes, but never one of a stream before those that come before it.
		var f *logFile
		for _, list := range byStream {
			if f == nil || list[0].at.Before(f.at) {
				f = &list[0]
			}
		}
		i := slices.IndexFunc(d.streams, func(s *stream) bool { return s.name == f.stream })
		n, gone := d.streams[i].giveUp(f.number, f.name)
		if byStream[f.stream] = byStream[f.stream][1:]; !gone || len(byStream[f.stream]) == 0 {
			delete(byStream, f.stream)
		}
		if !gone {
			continue
		}
		total -= f.bytes
		if records == 0 {
			since = f.at
		}
		records += n
	}
	if records > 0 {
		d.reporter.note(fmt.Sprintf("gave up %s records, the oldest of about %s: more than %s waited (--to-buffer)",
			figure.Count(records), since.Local().Format(time.DateTime), figure.Bytes(d.shipper.opt.Buffer)))
	}
}
