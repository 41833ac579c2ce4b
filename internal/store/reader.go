package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/slowray/slowray/internal/safefile"
)

// Reader reads a directory from any process, also while it is written to. Its
// methods may be called from any goroutine.
type Reader struct {
	dir string

	mu      sync.Mutex
	skipped map[string]string // by path: why it was not read
}

// OpenReader opens dir for reading.
func OpenReader(dir string) (*Reader, error) {
	root, err := safefile.OpenRoot(dir)
	if err == nil {
		_, err = readDir(root, ".")
		root.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	return &Reader{dir: dir, skipped: map[string]string{}}, nil
}

// Close gives back what the Reader holds.
func (r *Reader) Close() error { return nil }

// Skipped are files that are there and could not be read, with the reason, one line
// each.
func (r *Reader) Skipped() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []string
	for path, why := range r.skipped {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			delete(r.skipped, path)
			continue
		}
		list = append(list, path+": "+why)
	}
	slices.Sort(list)
	return list
}

func (r *Reader) skip(path string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	const enough = 1000
	if len(r.skipped) < enough {
		r.skipped[path] = err.Error()
	}
}

// snapshot is what there is of one kind at a moment: files that are open, so
// that nobody can take them away any more.
type snapshot struct {
	files []openSegment
	logs  []openedLog
}

type openSegment struct {
	segment
	file *os.File
}

type openedLog struct {
	openLog
	file *os.File
}

func (s *snapshot) close() {
	for _, f := range s.files {
		f.file.Close()
	}
	for _, l := range s.logs {
		l.file.Close()
	}
}

// errMoved says that files were merged or removed while they were looked up.
var errMoved = errors.New("files keep changing while they are read")

// fileRuns are the row groups of a snapshot's files, as groupRuns gives them; a
// file that cannot be read is skipped.
func fileRuns[T any](r *Reader, s *snapshot, from, to int64, want func(string) bool, keep func(parquet.RowGroup) bool) (runs []run[T]) {
	for i := range s.files {
		more, err := groupRuns[T](&s.files[i], from, to, want, keep)
		if err != nil {
			r.skip(s.files[i].path, err)
			continue
		}
		runs = append(runs, more...)
	}
	return runs
}

// snapshot opens all files of a kind that may have rows of a range (µs since
// 1970, to exclusive). Nothing is missed and nothing is reported twice, whatever the
// writer does meanwhile: logs are opened first, and those whose file is there
// already are left out.
func (r *Reader) snapshot(k kind, from, to int64) (*snapshot, error) {
	const tries = 20
	for try := range tries {
		s, err := r.trySnapshot(k, from, to)
		if err == nil || !errors.Is(err, errMoved) {
			return s, err
		}
		time.Sleep(time.Duration(try) * time.Millisecond)
	}
	return nil, fmt.Errorf("store: %w", errMoved)
}

func (r *Reader) trySnapshot(k kind, from, to int64) (_ *snapshot, err error) {
	s := &snapshot{}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	root, err := safefile.OpenRoot(r.dir)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	defer root.Close()
	logs, err := openLogs(root)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	for _, l := range logs {
		if l.kind != k.source() {
			continue
		}
		f, err := safefile.OpenRegular(root, l.path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, errMoved
		}
		if err != nil {
			r.skip(pathIn(root, l.path), err)
			continue
		}
		l.path = pathIn(root, l.path)
		s.logs = append(s.logs, openedLog{l, f})
	}
	list, _, err := segments(root, k)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	for _, seg := range list {
		if seg.first*1e6 >= to || (seg.last+widthOf(k))*1e6 <= from {
			continue
		}
		f, err := safefile.OpenRegular(root, seg.path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, errMoved
		}
		if err != nil {
			r.skip(pathIn(root, seg.path), err)
			continue
		}
		seg.path = pathIn(root, seg.path)
		s.files = append(s.files, openSegment{seg, f})
	}
	again, _, err := segments(root, k)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	same := func(a, b segment) bool { return a.path == b.path }
	if !slices.EqualFunc(list, again, same) {
		return nil, errMoved
	}
	s.logs = slices.DeleteFunc(s.logs, func(l openedLog) bool {
		if covers(list, l.number) {
			l.file.Close()
			return true
		}
		return false
	})
	return s, nil
}

// bounds are the range of a query in µs since 1970, to exclusive.
func (q *Query) bounds() (from, to int64) { return boundsOf(q.From, q.To) }

func boundsOf(fromTime, toTime time.Time) (from, to int64) {
	from, to = -1<<62, 1<<62
	if !fromTime.IsZero() {
		// A moment between two microseconds is not reached by the one before it.
		from = fromTime.UnixMicro()
		if fromTime.Nanosecond()%1000 != 0 {
			from++
		}
	}
	if !toTime.IsZero() {
		to = toTime.UnixMicro()
		if toTime.Nanosecond()%1000 != 0 {
			to++
		}
	}
	return from, to
}

// Span is from the first to the last stored second; both zero when there is none.
func (r *Reader) Span() (from, to time.Time, err error) {
	first, last := int64(1<<62), int64(-1<<62)
	begin := map[kind]int64{} // of sums, which begin on the grid of their width
	root, err := safefile.OpenRoot(r.dir)
	if err != nil {
		return from, to, fmt.Errorf("store: %w", err)
	}
	defer root.Close()
	for _, k := range parquetKinds {
		if k == kindFindings {
			continue
		}
		list, _, err := segments(root, k)
		if err != nil {
			return from, to, fmt.Errorf("store: %w", err)
		}
		for _, seg := range list {
			last = max(last, seg.last)
			if widthOf(k) == 1 {
				first = min(first, seg.first)
				continue
			}
			if b, ok := begin[k]; !ok || seg.first < b {
				begin[k] = seg.first
			}
		}
	}
	logs, err := openLogs(root)
	if err != nil {
		return from, to, fmt.Errorf("store: %w", err)
	}
	for _, l := range logs {
		if l.kind == kindFindings {
			continue
		}
		data, err := readLog(root, l.path)
		if err != nil {
			continue // empty as yet, or made a file meanwhile
		}
		if a, b, ok := data.span(); ok {
			first, last = min(first, secondOf(a)), max(last, secondOf(b))
		}
	}
	// Sums tell of what is before only where they reach further back than what they
	// were made of.
	for _, k := range []kind{kindSeconds10, kindMinutes5} {
		if b, ok := begin[k]; ok && b+widthOf(k) <= first {
			first = b
		}
	}
	if first > last {
		return time.Time{}, time.Time{}, nil
	}
	return time.Unix(first, 0).UTC(), time.Unix(last+1, 0).UTC(), nil
}

// span is from the first entry of a log to the last one, µs since 1970; they
// come in order of time, nearly.
func (l *logData) span() (first, last int64, ok bool) {
	if len(l.frames) == 0 {
		return 0, 0, false
	}
	first, last = 1<<62, -1<<62
	look := func(kind byte, entry []byte) bool {
		d := decoder{b: entry}
		if at := d.int(); kind != entryProcess && !d.bad {
			first, last = min(first, at), max(last, at)
		}
		return true
	}
	entries(l.frames[0], look)
	entries(l.frames[len(l.frames)-1], look)
	return first, last, first <= last
}
