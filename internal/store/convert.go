package store

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/slowray/slowray/internal/safefile"
)

// convertLogs makes Parquet files of the logs that are ended, then removes them.
// Whatever it is interrupted by, doing it again gives the same files: their
// names tell which log they are made from.
func (s *Store) convertLogs() error {
	home := s.home.Load()
	logs, err := openLogs(home.Root)
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
		s.links.settle(l.path)
		if err := convertLog(home, l); err != nil {
			errs = append(errs, fmt.Errorf("%s log: %w", l.kind, err))
		}
	}
	return cmp.Or(errs...)
}

// convertLog makes the Parquet files of one log, and removes it.
func convertLog(home *safefile.Dir, l openLog) error {
	data, err := readLog(home.Root, l.path)
	if errors.Is(err, errNotLog) {
		return setAside(home, l, err)
	}
	if err != nil {
		return err
	}
	switch l.kind {
	case kindRequests:
		err = convertRequests(home, l.number, &data)
	case kindSeconds:
		err = convertSeconds(home, l.number, &data)
	case kindFindings:
		err = convertFindings(home, l.number, &data)
	}
	if err != nil {
		return err
	}
	if err := home.Remove(l.path); err != nil {
		return err
	}
	return home.SyncIn(openDir)
}

// setAside takes a log that has not the header of one out of the way. What was cut
// off before its first entry was durable is removed; what somebody else wrote, as
// another version of slowray, is kept under a name that is not looked at.
func setAside(home *safefile.Dir, l openLog, why error) error {
	f, err := safefile.OpenRegular(home.Root, l.path)
	if err != nil {
		return err
	}
	cutOff, err := noEntry(f)
	f.Close()
	if err != nil {
		return err
	}
	if cutOff {
		return home.Remove(l.path)
	}
	if err := home.Rename(l.path, l.path+".unknown"); err != nil {
		return err
	}
	return fmt.Errorf("%s: %w: it is left as %s.unknown", pathIn(home.Root, l.path), why, filepath.Base(l.path))
}

// noEntry says that a log holds a part of its header, and zeros where entries were to be.
func noEntry(r io.Reader) (bool, error) {
	in := bufio.NewReader(r)
	header := true
	for i := 0; ; i++ {
		c, err := in.ReadByte()
		if err == io.EOF {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		header = header && i < len(logMagic) && isLogByte(i, c)
		if !header && c != 0 {
			return false, nil
		}
	}
}

// convertRequests puts the requests of a log in order of their start.
func convertRequests(home *safefile.Dir, number uint64, data *logData) error {
	refs, procs := data.inOrder(entryRequest, math.MinInt64, math.MaxInt64)
	if len(refs) == 0 {
		return nil
	}
	seg := segment{kind: kindRequests, low: number, high: number}
	seg.first, seg.last = secondOf(refs[0].at), secondOf(refs[len(refs)-1].at)
	return publish(home, &seg, func(w *parquet.GenericWriter[requestRow]) (err error) {
		requestsOf(refs, procs, func(rows []requestRow) bool {
			_, err = w.Write(rows)
			return err == nil
		})
		return err
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
func convertSeconds(home *safefile.Dir, number uint64, data *logData) error {
	refs, _ := data.inOrder(entrySecond, math.MinInt64, math.MaxInt64)
	if len(refs) == 0 {
		return nil
	}
	for _, k := range []kind{kindMinutes5, kindSeconds10, kindSeconds} {
		width := widthOf(k)
		seg := segment{kind: k, low: number, high: number}
		seg.first, seg.last = secondOf(floorTo(refs[0].at, width*1e6)), secondOf(floorTo(refs[len(refs)-1].at, width*1e6))
		err := publish(home, &seg, func(w *parquet.GenericWriter[secondRow]) error {
			return writeRows(w, 1, func(yield func(*secondRow) bool) {
				// The histograms of all parts are half of all bytes, and are worth it in
				// few rows.
				hists := wholeHists
				if k == kindMinutes5 {
					hists = partHists
				}
				if width == 1 {
					secondsOf(refs, hists, yield)
				} else {
					rollUp(refs, width, hists, yield)
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

// floorTo is the beginning of the stretch of a width in which a moment lies.
func floorTo(at, width int64) int64 {
	rest := at % width
	if rest < 0 {
		rest += width
	}
	return at - rest
}

// rollUp sums rows, which are in order of time, up by endpoint and stretches of
// this many seconds.
func rollUp(refs []entryRef, width int64, hists histograms, f func(*secondRow) bool) {
	var spare spareSums
	sums := newSums(spare.get, spare.put)
	begin := int64(0) // of the stretch that sums is of
	more := true
	flush := func() {
		var row secondRow
		for _, s := range sums.sorted() {
			sec := s.second(0)
			row.set(&sec, int(width))
			row.At = begin
			if more = more && f(&row); !more {
				break
			}
			spare.put(s)
		}
		sums.clear()
	}
	secondsOf(refs, hists, func(row *secondRow) bool {
		if at := floorTo(row.At, width*1e6); at != begin {
			flush()
			begin = at
		}
		if more {
			sums.add(row)
		}
		return more
	})
	if more {
		flush()
	}
}

func convertFindings(home *safefile.Dir, number uint64, data *logData) error {
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
	return publish(home, &seg, func(w *parquet.GenericWriter[findingRow]) error {
		return writeRows(w, rowLot, func(yield func(*findingRow) bool) {
			for _, row := range rows {
				if !yield(row) {
					return
				}
			}
		})
	})
}
