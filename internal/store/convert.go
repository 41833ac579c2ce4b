package store

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/slowray/slowray/internal/report"
)

// convertLogs makes Parquet files of the logs that are ended, then removes them.
// Whatever it is interrupted by, doing it again gives the same files: their
// names tell which log they are made from.
func (s *Store) convertLogs() error {
	logs, err := openLogs(s.dir)
	if err != nil {
		return err
	}
	s.syncing.Lock()
	limit := map[kind]uint64{}
	for k, st := range s.streams {
		limit[k] = st.number
	}
	s.syncing.Unlock()
	var errs []error
	for _, l := range logs {
		if l.number >= limit[l.kind] {
			continue
		}
		if err := convertLog(s.dir, l); err != nil {
			errs = append(errs, fmt.Errorf("%s log: %w", l.kind, err))
		}
	}
	return cmp.Or(errs...)
}

// convertLog makes the Parquet files of one log, and removes it.
func convertLog(dir string, l openLog) error {
	data, err := readLog(l.path)
	if errors.Is(err, errNotLog) {
		return os.Remove(l.path) // cut off before its first entry was durable
	}
	if err != nil {
		return err
	}
	switch l.kind {
	case kindRequests:
		err = convertRequests(dir, l.number, &data)
	case kindSeconds:
		err = convertSeconds(dir, l.number, &data)
	case kindFindings:
		err = convertFindings(dir, l.number, &data)
	}
	if err != nil {
		return err
	}
	if err := os.Remove(l.path); err != nil {
		return err
	}
	return syncDir(dir + "/" + openDir)
}

// entryRef is a request in a log: its start, its bytes, where the processes of
// its frame begin.
type entryRef struct {
	start int64 // µs
	entry []byte
	base  int
}

// convertRequests puts the requests of a log in order of their start.
func convertRequests(dir string, number uint64, data *logData) error {
	var refs []entryRef
	var procs []report.Process
	for _, frame := range data.frames {
		base := len(procs)
		entries(frame, func(kind byte, entry []byte) bool {
			switch kind {
			case entryProcess:
				p, _ := decodeProcess(entry)
				procs = append(procs, p)
			case entryRequest:
				d := decoder{b: entry}
				start := d.int()
				if n := d.small(); !d.bad && base+int(n) < len(procs) {
					refs = append(refs, entryRef{start, entry, base})
				}
			}
			return true
		})
	}
	if len(refs) == 0 {
		return nil
	}
	slices.SortStableFunc(refs, func(a, b entryRef) int { return cmp.Compare(a.start, b.start) })
	seg := segment{kind: kindRequests, low: number, high: number}
	seg.first, seg.last = secondOf(refs[0].start), secondOf(refs[len(refs)-1].start)
	return publish(dir, &seg, func(w *parquet.GenericWriter[requestRow]) error {
		var r Request
		var text words
		return writeRows(w, rowLot, func(yield func(*requestRow) bool) {
			var row requestRow
			for _, ref := range refs {
				if !decodeRequest(ref.entry, &r) {
					continue
				}
				n, _ := requestProcess(ref.entry)
				r.Process = procs[ref.base+int(n)]
				row.set(&r, &text)
				if !yield(&row) {
					return
				}
			}
		})
	})
}

// secondOf is the second of a moment, µs since 1970, as far as a name can tell it.
func secondOf(us int64) int64 { return nameable(time.UnixMicro(us).Unix()) }

// rowLot is how many rows are written at a time.
const rowLot = 256

// writeRows writes rows in lots of some.
func writeRows[T any](w *parquet.GenericWriter[T], lot int, rows func(yield func(*T) bool)) error {
	buf := make([]T, 0, lot)
	var err error
	flush := func() bool {
		_, err = w.Write(buf)
		buf = buf[:0]
		return err == nil
	}
	rows(func(row *T) bool {
		buf = append(buf, *row)
		return len(buf) < lot || flush()
	})
	if err == nil {
		flush()
	}
	return err
}

// convertSeconds also makes the sums of 10 s and of 5 min. They come first: as
// long as the log is there, all three can be made again.
func convertSeconds(dir string, number uint64, data *logData) error {
	var rows []*secondRow
	data.seconds(func(row *secondRow) bool {
		rows = append(rows, row)
		return true
	})
	if len(rows) == 0 {
		return nil
	}
	slices.SortStableFunc(rows, compareSeconds)
	for _, k := range []kind{kindMinutes5, kindSeconds10, kindSeconds} {
		list := rows
		if width := widthOf(k); width > 1 {
			list = rollUp(rows, width)
		}
		seg := segment{kind: k, low: number, high: number}
		seg.first, seg.last = secondOf(list[0].At), secondOf(list[len(list)-1].At)
		err := publish(dir, &seg, func(w *parquet.GenericWriter[secondRow]) error {
			return writeRows(w, rowLot, func(yield func(*secondRow) bool) {
				for _, row := range list {
					if k != kindMinutes5 {
						row.PartsHist = nil // they are half of all bytes, and are worth it in few rows
					}
					if !yield(row) {
						return
					}
				}
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// widthOf is how many seconds a row of a kind covers.
func widthOf(k kind) int64 {
	switch k {
	case kindSeconds10:
		return 10
	case kindMinutes5:
		return 300
	}
	return 1
}

func compareSeconds(a, b *secondRow) int {
	return cmp.Or(cmp.Compare(a.At, b.At), a.key().compare(b.key()))
}

// floorTo is the beginning of the stretch of a width in which a moment lies.
func floorTo(at, width int64) int64 {
	rest := at % width
	if rest < 0 {
		rest += width
	}
	return at - rest
}

// rollUp sums rows up by endpoint and stretches of this many seconds. It changes
// nothing in rows.
func rollUp(rows []*secondRow, width int64) []*secondRow {
	type cell struct {
		at  int64
		key endpointKey
	}
	sums := map[cell]*sum{}
	for _, row := range rows {
		c := cell{floorTo(row.At, width*1e6), row.key()}
		s := sums[c]
		if s == nil {
			s = &sum{}
			sums[c] = s
		}
		s.add(row)
	}
	out := make([]*secondRow, 0, len(sums))
	for c, s := range sums {
		sec := s.second(0)
		row := new(secondRow)
		row.set(&sec, int(width))
		row.At = c.at
		out = append(out, row)
	}
	slices.SortFunc(out, compareSeconds)
	return out
}

func convertFindings(dir string, number uint64, data *logData) error {
	var rows []*findingRow
	data.findings(func(row *findingRow) bool {
		rows = append(rows, row)
		return true
	})
	if len(rows) == 0 {
		return nil
	}
	slices.SortStableFunc(rows, func(a, b *findingRow) int { return cmp.Compare(a.Start, b.Start) })
	seg := segment{kind: kindFindings, low: number, high: number}
	seg.first, seg.last = secondOf(rows[0].Start), secondOf(rows[len(rows)-1].Start)
	return publish(dir, &seg, func(w *parquet.GenericWriter[findingRow]) error {
		return writeRows(w, rowLot, func(yield func(*findingRow) bool) {
			for _, row := range rows {
				if !yield(row) {
					return
				}
			}
		})
	})
}
