package nginx

import (
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail"
)

// reading is what the lines of all logs of an instance add up to.
type reading struct {
	window   observe.Window
	errors   logtail.Counts
	statuses *statuses
}

func newReading(w observe.Window) *reading {
	return &reading{window: w, statuses: newStatuses(w)}
}

// readLogs reads every log within the bound on bytes, which is shared out as
// it goes: what a quiet log leaves is there for the next.
func (in *Instance) readLogs(b *budget.Budget, r *reading) []observe.LogFile {
	var out []observe.LogFile
	left := in.MaxBytes
	for i, f := range in.followed {
		if f.tail == nil {
			out = append(out, observe.LogFile{Path: f.spec.path, What: f.spec.what, Problem: f.problem})
			continue
		}
		share, b := left/int64(len(in.followed)-i), b.Share(len(in.followed)-i)
		var file observe.LogFile
		if f.spec.what == whatError {
			file = r.readErrors(b, f, share)
		} else {
			file = in.readAccess(b, r, f, share)
		}
		left = max(0, left-file.ReadBytes)
		if skipped := file.GrownBytes - file.ReadBytes; skipped > 0 {
			in.loss("bytes of "+f.spec.path+" not read", skipped)
		}
		out = append(out, file)
	}
	return out
}

func logFile(f *followed, s logtail.Stats, err error) observe.LogFile {
	if err != nil {
		s.Notes = append(s.Notes, logtail.Reason(err))
	}
	return s.LogFile(f.spec.path, f.spec.what)
}

func (r *reading) readErrors(b *budget.Budget, f *followed, maxBytes int64) observe.LogFile {
	var times stamps
	var unparsed int64
	clock := logtail.NewClock(r.window)
	stats, err := f.tail.Read(b, maxBytes, func(line []byte) {
		l, ok := parseErrorLine(line)
		if !ok {
			unparsed++
			return
		}
		second, ok := times.errorTime(l.stamp)
		if ok {
			if second, ok = clock.In(second); !ok {
				return
			}
		}
		if kind, upstream, figure := l.classify(); kind != "" {
			r.errors.Add(kind, upstream, second, figure, line)
			if kind == KindLimitReq || kind == KindLimitConn {
				r.errors.AddClient(kind, upstream, l.client())
			}
		}
	})
	r.errors.Settle(stats.Scale)
	file := logFile(f, stats, err)
	file.Unparsed = unparsed
	return file
}

// lateBy is how far the last line of a buffered log may lie before the end of
// the window without a note.
const lateBy = 2

func (in *Instance) readAccess(b *budget.Budget, r *reading, f *followed, maxBytes int64) observe.LogFile {
	var times stamps
	var e entry
	var unparsed, last int64
	from := r.window.Start.Unix()
	to := r.window.Start.Add(time.Duration(r.window.Seconds * float64(time.Second))).Unix()
	stats, err := f.tail.Read(b, maxBytes, func(line []byte) {
		if !f.spec.extract(line, &times, &e) {
			unparsed++
			return
		}
		offset := int(f.tail.Share() * r.window.Seconds)
		if e.second != 0 {
			if e.second < from-1 || e.second > to+1 {
				return // a buffered log holds lines of the time before
			}
			last = max(last, e.second)
			offset = int(e.second - from)
		}
		if f.spec.counted {
			r.statuses.add(offset, e.status)
		}
	})
	r.statuses.settle(stats.Scale)
	if f.spec.buffered && last < to-lateBy {
		in.gap(f.spec.path, true, "%s is written in blocks (buffer=): its last lines of the window were not on disk yet", f.spec.path)
	}
	file := logFile(f, stats, err)
	file.Unparsed = unparsed
	return file
}

// extract reads a line by the formats of the log, else by guessing.
func (s *logSpec) extract(line []byte, times *stamps, e *entry) bool {
	for _, f := range s.formats {
		if f.extract(line, times, e) {
			return true
		}
	}
	return guess(line, times, e)
}
