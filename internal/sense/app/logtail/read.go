package logtail

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail/rootfs"
)

// Stats is what a Read did.
type Stats struct {
	GrownBytes int64   // written in the window, rotated files included
	ReadBytes  int64   // of those, read
	Lines      int64   // given to the function
	Cut        int64   // of those, longer than MaxLine: only the beginning was given
	Scale      float64 // counts × Scale estimate the whole; 1 when everything was read
	Notes      []string
}

// Estimated says that only a part of the growth was read.
func (s Stats) Estimated() bool { return s.Scale > 1 }

// LogFile is the statistics as they are kept in an Observation.
func (s Stats) LogFile(path, what string) observe.LogFile {
	return observe.LogFile{Path: path, What: what, GrownBytes: s.GrownBytes, ReadBytes: s.ReadBytes,
		Lines: s.Lines, Problem: strings.Join(s.Notes, "; ")}
}

// maxChunks is into how many pieces, evenly spread over the growth, a reading
// of a part is divided; smaller pieces than minChunk would mostly be cut lines.
const (
	maxChunks = 64
	minChunk  = 64 << 10
)

// Read gives the function every line written since Open, without its line
// end. The slice is only valid during the call. Of a growth of more than
// maxBytes only evenly spread pieces, whole lines, are given: Scale says by
// how much to multiply. A line belongs to the window in which it begins.
// Read closes the Tail. Errors: reading failed, or the budget was over; the
// statistics then cover what was read.
func (t *Tail) Read(b *budget.Budget, maxBytes int64, line func([]byte)) (Stats, error) {
	t.root = t.root.With(b)
	parts, notes, err := t.parts()
	err = cmp.Or(b.Err(), err)
	defer func() {
		t.Close()
		for _, p := range parts {
			p.file.Close()
		}
	}()
	stats := Stats{Scale: 1, Notes: notes}
	if err != nil {
		return stats, err
	}
	for _, p := range parts {
		stats.GrownBytes += p.to - p.from
	}
	t.grown = stats.GrownBytes
	s := splitter{line: line, at: &t.at, b: b}
	maxBytes = min(maxBytes, b.Left())
	if stats.GrownBytes <= maxBytes {
		err = t.readAll(&s, parts)
	} else {
		err = t.readChunks(&s, parts, max(maxBytes, 0))
		if s.given > 0 {
			stats.Scale = max(1, float64(stats.GrownBytes)/float64(s.given))
		} else {
			stats.Notes = append(stats.Notes, "no whole line was found in the parts that were read")
		}
	}
	stats.ReadBytes, stats.Lines, stats.Cut = s.read, s.lines, s.cut
	return stats, err
}

func (t *Tail) readAll(s *splitter, parts []part) error {
	var base int64
	for _, p := range parts {
		s.base = base - p.from
		if err := s.scan(p.file, p.from, p.to, p.midLine, true); err != nil {
			return err
		}
		base += p.to - p.from
	}
	return nil
}

func (t *Tail) readChunks(s *splitter, parts []part, maxBytes int64) error {
	n := max(1, min(maxChunks, maxBytes/minChunk))
	size := maxBytes / n
	for i := range n {
		var begin int64 // the first piece begins with the growth, the last ends with it
		if n > 1 {
			begin = (t.grown - size) / (n - 1) * i
		}
		var base int64
		for _, p := range parts {
			length := p.to - p.from
			if begin >= base+length {
				base += length
				continue
			}
			from := p.from + begin - base
			to := min(from+size, p.to)
			s.base = base - p.from
			if err := s.scan(p.file, from, to, p.midLine || from > p.from, to == p.to); err != nil {
				return err
			}
			break
		}
	}
	return nil
}

// Reason is a sentence on why a log cannot be followed.
func Reason(err error) string {
	var pe *fs.PathError
	switch {
	case err == nil:
		return ""
	case errors.Is(err, rootfs.ErrNotRegular) && errors.As(err, &pe):
		what := strings.TrimSuffix(pe.Err.Error(), ": "+rootfs.ErrNotRegular.Error())
		return fmt.Sprintf("%s leads to %s, not to a file: nothing can be read back", pe.Path, what)
	case errors.Is(err, os.ErrPermission) && errors.As(err, &pe):
		return fmt.Sprintf("no permission to read %s", pe.Path)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return "reading was stopped before the end"
	case budget.IsExceeded(err):
		return "reading was stopped before the end: " + err.Error()
	}
	return err.Error()
}

func sortSiblings(s []sibling) {
	slices.SortStableFunc(s, func(a, b sibling) int {
		return cmp.Or(cmp.Compare(a.mtime, b.mtime), cmp.Compare(a.born, b.born), cmp.Compare(a.name, b.name))
	})
}
