package store

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"unsafe"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// Reading Parquet files row by row costs 1.6 µs a request, most of it for values
// that go through an interface one by one. Reading column by column into the
// same rows costs a tenth, and columns that are not asked for cost nothing.

// field is a column of a row type: a leaf of the struct, found by reflection, as
// parquet-go finds it.
type field struct {
	path   string // with dots
	offset uintptr
	kind   reflect.Kind // Int64, Int32, Bool, Float64, String
	list   *listField   // nil but for a leaf of a list
}

// listField is a leaf of a list of structs.
type listField struct {
	elem reflect.Type
	leaf uintptr // offset in an element
}

// fieldsOf lists the columns of a row type.
func fieldsOf(t reflect.Type, base uintptr) []field {
	var list []field
	for i := range t.NumField() {
		f := t.Field(i)
		offset := base + f.Offset
		if f.Anonymous {
			list = append(list, fieldsOf(f.Type, offset)...)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("parquet"), ",")
		if f.Type.Kind() != reflect.Slice {
			list = append(list, field{path: name, offset: offset, kind: f.Type.Kind()})
			continue
		}
		for _, leaf := range fieldsOf(f.Type.Elem(), 0) {
			list = append(list, field{
				path: name + ".list.element." + leaf.path, offset: offset, kind: leaf.kind,
				list: &listField{f.Type.Elem(), leaf.offset},
			})
		}
	}
	return list
}

var rowFields = map[reflect.Type][]field{
	reflect.TypeFor[requestRow](): fieldsOf(reflect.TypeFor[requestRow](), 0),
	reflect.TypeFor[secondRow]():  fieldsOf(reflect.TypeFor[secondRow](), 0),
	reflect.TypeFor[findingRow](): fieldsOf(reflect.TypeFor[findingRow](), 0),
}

// columnsOf is the columns of a row type by name.
func columnsOf[T any]() map[string]field {
	columns := map[string]field{}
	for _, c := range rowFields[reflect.TypeFor[T]()] {
		columns[c.path] = c
	}
	return columns
}

var errForeign = errors.New("not a file of this store")

// rowGroup is a row group of a file.
type rowGroup struct {
	parquet.RowGroup
	file *parquetFile
	at   int // in the file
}

// readGroup gives the rows of a row group in lots; the lot and what it points to
// is used again. Columns for which want is false stay zero, and so do those that
// the file does not have. f ends it by false.
func readGroup[T any](g rowGroup, want func(path string) bool, f func(rows []T) bool) (err error) {
	columns, err := openColumns[T](g, want)
	defer func() {
		for _, c := range columns {
			c.close()
		}
	}()
	if err != nil {
		return err
	}
	lot := int64(1024)
	for _, c := range columns {
		if c.list != nil {
			lot = 128 // rows with lists are long
		}
	}
	rows := make([]T, lot)
	for left := g.NumRows(); left > 0; {
		n := int(min(left, lot))
		clear(rows)
		for _, c := range columns {
			if err := c.fill(unsafe.Pointer(unsafe.SliceData(rows)), unsafe.Sizeof(rows[0]), n); err != nil {
				return fmt.Errorf("column %s: %w", c.path, err)
			}
		}
		left -= int64(n)
		if !f(rows[:n]) {
			return nil
		}
	}
	return nil
}

func openColumns[T any](g rowGroup, want func(path string) bool) ([]*column, error) {
	chunks, err := g.chunks()
	if err != nil {
		return nil, err
	}
	// Without it nothing but the number of rows, which may be anything, would
	// end the reading.
	if _, ok := chunks[timeColumn]; !ok || g.NumRows() < 0 || g.NumRows() > maxRowsPerGroup {
		return nil, errForeign
	}
	var columns []*column
	for _, f := range rowFields[reflect.TypeFor[T]()] {
		meta := chunks[f.path]
		if meta == nil || want != nil && f.path != timeColumn && !want(f.path) {
			continue
		}
		if !fits(parquet.Kind(meta.Type), f.kind) {
			return columns, fmt.Errorf("column %s: %w", f.path, errForeign)
		}
		c, err := chunkOf(g.file.reader, g.file.Size(), meta)
		if err != nil {
			return columns, fmt.Errorf("column %s: %w", f.path, err)
		}
		columns = append(columns, &column{field: f, pages: newPageReader(c)})
	}
	return columns, nil
}

// chunks are the columns of a row group that can be read, by path.
func (g *rowGroup) chunks() (map[string]*format.ColumnMetaData, error) {
	chunks := map[string]*format.ColumnMetaData{}
	all := g.file.Metadata().RowGroups[g.at].Columns
	for _, path := range g.Schema().Columns() {
		leaf, ok := g.Schema().Lookup(path...)
		if !ok || leaf.ColumnIndex >= len(all) {
			return nil, errForeign
		}
		name := strings.Join(path, ".")
		inList := strings.Contains(name, ".list.element.")
		if inList && (leaf.MaxRepetitionLevel != 1 || leaf.MaxDefinitionLevel != 1) || !inList && (leaf.MaxRepetitionLevel != 0 || leaf.MaxDefinitionLevel != 0) {
			continue // of another program: as if it were missing
		}
		chunks[name] = &all[leaf.ColumnIndex].MetaData
	}
	return chunks, nil
}

// fits says whether values as the file has them can be those of a field.
func fits(stored parquet.Kind, want reflect.Kind) bool {
	switch want {
	case reflect.Int64:
		return stored == parquet.Int64
	case reflect.Int32:
		return stored == parquet.Int32
	case reflect.Bool:
		return stored == parquet.Boolean
	case reflect.Float64:
		return stored == parquet.Double
	case reflect.String:
		return stored == parquet.ByteArray
	}
	return false
}

// column reads one column of a row group.
type column struct {
	field
	pages *pageReader
	at    int // values of the page that were read
	n     int // values in the page
	rep   []byte
	def   []byte
	level int // of the levels that were read

	ints    []int64
	smalls  []int32
	floats  []byte // as they are in the file
	bits    []byte
	data    []byte
	offsets []uint32 // of the beginnings of texts, and one more

	index []int32 // into the dictionary, nil where the page has none
	dict  bool
	texts []string // of the dictionary
	reals []float64
	longs []int64

	// Values of lists that were read, how many of them were given, and how long
	// the lists are.
	keptInts  []int64
	keptReals []float64
	keptTexts []string
	given     int
	sizes     []int
	room      reflect.Value // for the lists of a lot, where this is their first leaf
}

func (c *column) close() { c.pages.close() }

// next goes on to a page that has values, or levels.
func (c *column) next() error {
	for {
		err := c.pages.next(c)
		if errors.Is(err, io.EOF) {
			return io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		c.at, c.level = 0, 0
		if c.n > 0 || len(c.rep) > 0 {
			return nil
		}
	}
}
