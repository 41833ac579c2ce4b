package store

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/parquet-go/parquet-go"
	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/safefile"
)

// Small files cost more to open than to read. When an hour is over, its files of
// a kind become one, and where there is little in an hour, those of a day.

const (
	mergeBytes = 256 << 20 // of the files that are merged into one
	// Row groups that have this many rows on average are copied as they are,
	// without being decoded.
	copyRows = 16 << 10
)

// stretches are the lengths of time for which a kind's files become one, shortest
// first.
func stretches(k kind) []int64 {
	const hour, day = 3600, 86400
	if k == kindMinutes5 || k == kindFindings {
		return []int64{hour, day}
	}
	return []int64{hour}
}

// compact merges small files into larger ones.
func (s *Store) compact() error {
	home := s.home.Load()
	logs, err := openLogs(home.Root)
	if err != nil {
		return err
	}
	var errs []error
	for _, k := range parquetKinds {
		for _, stretch := range stretches(k) {
			list, failed, err := removeSuperseded(home, k)
			if err != nil {
				return err
			}
			errs = append(errs, failed...)
			groups := mergeable(list, stretch, s.now().Unix(), waiting(logs, k), s.damaged)
			for len(groups) > 0 {
				group := groups[0]
				groups = groups[1:]
				bad, err := s.mergeGroup(home, k, group)
				if err != nil {
					errs = append(errs, err)
				}
				if bad != "" {
					// What was written before and after it is merged all the same. Not
					// together: the name of that file would say that it holds this one too.
					s.damaged[bad] = true // it stays what it is, until it is too old
					at := slices.IndexFunc(group, func(seg segment) bool { return seg.path == bad })
					for _, part := range [][]segment{group[:at], group[at+1:]} {
						if len(part) > 1 {
							groups = append(groups, part)
						}
					}
				}
			}
		}
	}
	if len(errs) > 1 {
		return fmt.Errorf("%w (and %d more)", errs[0], len(errs)-1)
	}
	return cmp.Or(errs...)
}

// damagedSuffix is of a file that was set aside.
const damagedSuffix = ".damaged"

// removeSuperseded removes what a writer left that was killed between writing a merged
// file and removing what it was made from. list is what there is. A file that says
// that it holds others, and cannot be read, is set aside: they are all that is left of
// what it held; failed says so.
func removeSuperseded(home *safefile.Dir, k kind) (list []segment, failed []error, err error) {
	for {
		list, superseded, err := segments(home.Root, k)
		if err != nil || len(superseded) == 0 {
			return list, failed, err
		}
		before := len(failed)
		for _, seg := range superseded {
			at := slices.IndexFunc(list, func(s segment) bool { return s.low <= seg.low && seg.high <= s.high })
			wrong := readableFile(home, list[at].path)
			if wrong == nil {
				home.Remove(seg.path)
				continue
			}
			aside := list[at].path + damagedSuffix
			if err := home.Rename(list[at].path, aside); err != nil {
				return list, failed, err
			}
			failed = append(failed, fmt.Errorf("%s: %w: it is left as %s", pathIn(home.Root, list[at].path), wrong, filepath.Base(aside)))
			break
		}
		if len(failed) == before {
			return list, failed, nil
		}
	}
}

// readableFile says whether a Parquet file is whole, as far as the headers of its pages
// and their checksums tell.
func readableFile(home *safefile.Dir, path string) error {
	f, err := safefile.OpenRegular(home.Root, path)
	if err != nil {
		return err
	}
	defer f.Close()
	return safely(func() error {
		file, err := openParquet(f)
		if err != nil {
			return err
		}
		for _, g := range file.groups() {
			if err := g.sound(); err != nil {
				return err
			}
		}
		return nil
	})
}

// waiting is the number of the first log of a kind that is no file yet: what a
// merged file is named for must not go beyond.
func waiting(logs []openLog, k kind) uint64 {
	first := ^uint64(0)
	for _, l := range logs {
		if l.kind == k.source() {
			first = min(first, l.number)
		}
	}
	return first
}

// mergeable are groups of files that were written one after the other, begin in
// the same stretch of time, and are to become one. A stretch that is not over yet
// is left alone.
func mergeable(list []segment, stretch, now int64, waiting uint64, damaged map[string]bool) (groups [][]segment) {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b segment) int { return cmp.Compare(a.low, b.low) })
	var group []segment
	var bytes int64
	end := func() {
		if len(group) > 1 {
			groups = append(groups, group)
		}
		group, bytes = nil, 0
	}
	for _, seg := range list {
		window := floorTo(seg.first, stretch)
		if len(group) > 0 && (floorTo(group[0].first, stretch) != window || bytes+seg.bytes > mergeBytes) {
			end()
		}
		if window == floorTo(now, stretch) || seg.high >= waiting || damaged[seg.path] {
			end()
			continue
		}
		group = append(group, seg)
		bytes += seg.bytes
	}
	end()
	return groups
}

// mergeGroup makes one file of a group and removes the others. bad is the path of one
// that cannot be read: then nothing is made, and nothing removed.
func (s *Store) mergeGroup(home *safefile.Dir, k kind, group []segment) (bad string, err error) {
	switch k {
	case kindRequests:
		bad, err = mergeFiles(home, k, group, func(r *requestRow) int64 { return r.Start })
	case kindFindings:
		bad, err = mergeFiles(home, k, group, func(r *findingRow) int64 { return r.Start })
	default:
		bad, err = mergeFiles(home, k, group, func(r *secondRow) int64 { return r.At })
	}
	if err != nil {
		return bad, fmt.Errorf("merge %s: %w", k, err)
	}
	for _, seg := range group {
		home.Remove(seg.path)
		home.Remove(filepath.Dir(seg.path)) // the day's folder, when it was the last one
	}
	return "", nil
}

// mergeFiles makes one file of a group. bad is the path of one that cannot be
// read.
func mergeFiles[T any](home *safefile.Dir, k kind, group []segment, at func(*T) int64) (bad string, err error) {
	merged := segment{kind: k, first: group[0].first, last: group[0].last, low: group[0].low, high: group[len(group)-1].high}
	files := make([]*os.File, 0, len(group))
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	type source struct {
		first int64
		path  string
		group rowGroup
	}
	var sources []source
	var runs []run[T]
	var rows int64
	for _, seg := range group {
		merged.first, merged.last = min(merged.first, seg.first), max(merged.last, seg.last)
		f, err := safefile.OpenRegular(home.Root, seg.path)
		switch {
		case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM):
			return "", err // not for what the file is
		case err != nil:
			return seg.path, err
		}
		files = append(files, f)
		err = safely(func() error {
			file, err := openParquet(f)
			if err != nil {
				return err
			}
			column, ok := file.Schema().Lookup(timeColumn)
			if !ok {
				return errForeign
			}
			for _, g := range file.groups() {
				first := seg.first * 1e6
				if low, _, ok := boundsOfColumn(g.RowGroup, column.ColumnIndex); ok {
					first = low
				}
				sources = append(sources, source{first, seg.path, g})
				rows += g.NumRows()
			}
			return nil
		})
		if err != nil {
			return seg.path, fmt.Errorf("%s: %w", pathIn(home.Root, seg.path), err)
		}
		more, err := groupRuns[T](&openSegment{seg, f}, -1<<62, 1<<62, nil, nil)
		if err != nil {
			return seg.path, fmt.Errorf("%s: %w", pathIn(home.Root, seg.path), err)
		}
		runs = append(runs, more...)
	}
	same := parquet.SchemaOf(new(T))
	rewritten := slices.ContainsFunc(sources, func(s source) bool { return !parquet.EqualNodes(s.group.Schema(), same) }) // by another version
	copied := !rewritten && len(sources) > 0 && rows/int64(len(sources)) >= copyRows
	err = publish(home, &merged, func(w *parquet.GenericWriter[T]) error {
		return safely(func() error {
			if !copied {
				var failed error
				lot := rowLot
				if k != kindRequests && k != kindFindings {
					lot = 1 // the lists of a row are gone when its lot is
				}
				err := writeRows(w, lot, func(yield func(*T) bool) {
					merge(runs, at, func(path string, err error) {
						bad, failed = path, fmt.Errorf("%s: %w", pathIn(home.Root, path), err)
					}, func(row *T) bool { return failed == nil && yield(row) })
				})
				return cmp.Or(failed, err)
			}
			slices.SortStableFunc(sources, func(a, b source) int { return cmp.Compare(a.first, b.first) })
			for _, src := range sources {
				if err := src.group.sound(); err != nil {
					bad = src.path
					return fmt.Errorf("%s: %w", pathIn(home.Root, src.path), err)
				}
				if _, err := w.WriteRowGroup(src.group.RowGroup); err != nil {
					return err
				}
			}
			return nil
		})
	})
	return bad, err
}
