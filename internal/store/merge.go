package store

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"

	"github.com/parquet-go/parquet-go"
)

// run is rows in order of time, from a row group or from a log, in lots whose
// memory is used again. It is opened only when its turn comes.
type run[T any] struct {
	path  string
	first int64 // µs since 1970: not later than the first row
	lots  iter.Seq2[[]T, error]
}

// cursor is a run under way.
type cursor[T any] struct {
	path string
	next func() ([]T, error, bool)
	stop func()
	lot  []T
}

// advance makes lot the next one that has rows; false when there is none.
func (c *cursor[T]) advance(failed func(path string, err error)) bool {
	for len(c.lot) == 0 {
		lot, err, ok := c.next()
		if err != nil {
			failed(c.path, err)
		}
		if !ok || err != nil {
			return false
		}
		c.lot = lot
	}
	return true
}

// merge gives the rows of all runs in order of time until f is false. A run that
// cannot be read ends there, and is asked to failed.
func merge[T any](runs []run[T], at func(*T) int64, failed func(path string, err error), f func(*T) bool) {
	slices.SortStableFunc(runs, func(a, b run[T]) int { return cmp.Compare(a.first, b.first) })
	var active []*cursor[T]
	defer func() {
		for _, c := range active {
			c.stop()
		}
	}()
	for {
		// The first of all heads, and up to where it is alone.
		least := -1
		const never = 1<<63 - 1
		head, bound := int64(never), int64(never)
		for i, c := range active {
			switch t := at(&c.lot[0]); {
			case least < 0 || t < head:
				bound, head, least = head, t, i
			case t < bound:
				bound = t
			}
		}
		if len(runs) > 0 && (least < 0 || runs[0].first <= head) {
			next, stop := iter.Pull2(runs[0].lots)
			c := &cursor[T]{path: runs[0].path, next: next, stop: stop}
			runs = runs[1:]
			if !c.advance(failed) {
				stop()
				continue
			}
			active = append(active, c)
			continue
		}
		if least < 0 {
			return
		}
		if len(runs) > 0 {
			bound = min(bound, runs[0].first)
		}
		c := active[least]
		for i := range c.lot {
			if i > 0 && at(&c.lot[i]) > bound {
				c.lot = c.lot[i:]
				break
			}
			if !f(&c.lot[i]) {
				return
			}
			if i == len(c.lot)-1 {
				c.lot = nil
				break
			}
		}
		if !c.advance(failed) {
			c.stop()
			active = slices.Delete(active, least, least+1)
		}
	}
}

// groupRuns are the row groups of a file that may have rows of a range and for
// which keep is true, each as a run.
func groupRuns[T any](seg *openSegment, from, to int64, want func(string) bool, keep func(parquet.RowGroup) bool) (runs []run[T], err error) {
	defer caught(&err)
	file, err := openParquet(seg.file)
	if err != nil {
		return nil, err
	}
	column, ok := file.Schema().Lookup(timeColumn)
	if !ok {
		return nil, errForeign
	}
	width := widthOf(seg.kind) * 1e6
	for _, g := range file.groups() {
		first := seg.first * 1e6
		if low, high, ok := boundsOfColumn(g.RowGroup, column.ColumnIndex); ok {
			if low >= to || high+width <= from {
				continue
			}
			first = low
		}
		if keep != nil && !keep(g.RowGroup) {
			continue
		}
		runs = append(runs, run[T]{path: seg.path, first: first, lots: func(yield func([]T, error) bool) {
			if err := safely(func() error {
				return readGroup(g, want, func(rows []T) bool { return yield(rows, nil) })
			}); err != nil {
				yield(nil, err)
			}
		}})
	}
	return runs, nil
}

// maxFooter bounds the footer of a Parquet file, which is read into memory as a
// whole: one of a hundred columns and a hundred row groups takes 2 MB.
const maxFooter = 16 << 20

// parquetFile is a Parquet file whose footer is sound.
type parquetFile struct {
	*parquet.File
	reader io.ReaderAt
}

// groups are the row groups of the file.
func (f *parquetFile) groups() []rowGroup {
	var list []rowGroup
	for i, g := range f.RowGroups() {
		list = append(list, rowGroup{g, f, i})
	}
	return list
}

// openParquet opens a Parquet file without reading more than its footer.
func openParquet(f *os.File) (*parquetFile, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	// The last eight bytes are the footer's length and a word.
	const ending = 8
	var end [ending]byte
	if _, err := f.ReadAt(end[:], st.Size()-ending); err != nil || string(end[4:]) != "PAR1" {
		return nil, errors.New("not a Parquet file, or cut off")
	}
	size := int64(binary.LittleEndian.Uint32(end[:]))
	if size > min(st.Size()-ending, maxFooter) {
		return nil, errDamaged
	}
	footer := make([]byte, size)
	if _, err := f.ReadAt(footer, st.Size()-ending-size); err != nil {
		return nil, err
	}
	if !soundFooter(footer) {
		return nil, fmt.Errorf("%w: its footer", errDamaged)
	}
	file, err := parquet.OpenFile(f, st.Size(), parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return nil, err
	}
	if !soundRows(file) {
		return nil, fmt.Errorf("%w: its footer", errDamaged)
	}
	return &parquetFile{file, f}, nil
}

// soundRows says whether a footer tells one number of rows wherever it tells it: where
// one was lost or changed, what is merged would not be all.
func soundRows(file *parquet.File) bool {
	meta := file.Metadata()
	var rows int64
	for i := range meta.RowGroups {
		g := &meta.RowGroups[i]
		if g.NumRows < 0 || g.NumRows > maxRowsPerGroup {
			return false
		}
		rows += g.NumRows
		for j := range g.Columns {
			// A list has more values than rows, or as many, one for an empty one.
			if c := &g.Columns[j].MetaData; c.NumValues < g.NumRows || len(c.PathInSchema) == 1 && c.NumValues != g.NumRows {
				return false
			}
		}
	}
	return rows == meta.NumRows
}

// boundsOfColumn are the least and the greatest value of a column of integers in
// a row group, where the file tells them.
func boundsOfColumn(g parquet.RowGroup, column int) (low, high int64, ok bool) {
	chunks := g.ColumnChunks()
	if column >= len(chunks) {
		return 0, 0, false
	}
	chunk, is := chunks[column].(*parquet.FileColumnChunk)
	if !is || chunk.Type().Kind() != parquet.Int64 {
		return 0, 0, false
	}
	a, b, ok := chunk.Bounds()
	if !ok {
		return 0, 0, false
	}
	return a.Int64(), b.Int64(), true
}

// safely turns a panic, which a damaged file can bring about in the decoder, into
// an error.
func safely(f func() error) (err error) {
	defer caught(&err)
	return f()
}

func caught(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: %.100v", errDamaged, p)
	}
}

// readable is a log that is open, as far as it is whole; false when there is
// nothing in it yet, or it cannot be read.
func (l *openedLog) readable(failed func(string, error)) (*logData, bool) {
	data, err := readLogFrom(l.file, l.path)
	if err != nil && (!errors.Is(err, errNotLog) || data.torn >= int64(len(logMagic))) {
		failed(l.path, err)
	}
	return &data, err == nil
}
