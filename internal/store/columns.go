package store

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"unsafe"

	"github.com/parquet-go/parquet-go"
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

var errForeign = errors.New("not a file of this store")

// readGroup gives the rows of a row group in lots; the lot and what it points to
// is used again. Columns for which want is false stay zero, and so do those that
// the file does not have. f ends it by false.
func readGroup[T any](g parquet.RowGroup, want func(path string) bool, f func(rows []T) bool) (err error) {
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

func openColumns[T any](g parquet.RowGroup, want func(path string) bool) ([]*column, error) {
	chunks := map[string]parquet.ColumnChunk{}
	all := g.ColumnChunks()
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
		chunks[name] = all[leaf.ColumnIndex]
	}
	var columns []*column
	for _, f := range rowFields[reflect.TypeFor[T]()] {
		chunk := chunks[f.path]
		if chunk == nil || want != nil && !want(f.path) {
			continue
		}
		if !fits(chunk.Type().Kind(), f.kind) {
			return columns, fmt.Errorf("column %s: %w", f.path, errForeign)
		}
		columns = append(columns, &column{field: f, pages: chunk.Pages()})
	}
	return columns, nil
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
	pages parquet.Pages
	page  parquet.Page
	at    int // values of the page that were read
	n     int // values in the page
	rep   []byte
	def   []byte
	level int // of the levels that were read

	ints    []int64
	smalls  []int32
	floats  []float64
	bits    []byte
	data    []byte
	offsets []uint32

	index []int32 // into the dictionary, nil where the page has none
	dict  parquet.Dictionary
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

func (c *column) close() {
	if c.page != nil {
		parquet.Release(c.page)
		c.page = nil
	}
	c.pages.Close()
}

// next goes on to a page that has values, or levels.
func (c *column) next() error {
	for {
		if c.page != nil {
			parquet.Release(c.page)
			c.page = nil
		}
		page, err := c.pages.ReadPage()
		if errors.Is(err, io.EOF) {
			return io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		c.page, c.at, c.level = page, 0, 0
		c.rep, c.def = page.RepetitionLevels(), page.DefinitionLevels()
		if err := c.open(); err != nil {
			return err
		}
		if page.NumValues() > 0 {
			return nil
		}
	}
}

// open takes the values out of the page.
func (c *column) open() error {
	c.index, c.ints, c.smalls, c.floats, c.bits, c.data, c.offsets = nil, nil, nil, nil, nil, nil, nil
	data := c.page.Data()
	if dict := c.page.Dictionary(); dict != nil {
		c.index = data.Int32()
		c.n = len(c.index)
		if dict != c.dict {
			c.dict = dict
			return c.openDict(dict)
		}
		return nil
	}
	switch c.kind {
	case reflect.Int64:
		c.ints = data.Int64()
		c.n = len(c.ints)
	case reflect.Int32:
		c.smalls = data.Int32()
		c.n = len(c.smalls)
	case reflect.Float64:
		c.floats = data.Double()
		c.n = len(c.floats)
	case reflect.Bool:
		c.bits = data.Boolean()
		c.n = min(int(c.page.NumValues()), 8*len(c.bits))
	case reflect.String:
		c.data, c.offsets = data.ByteArray()
		c.n = max(len(c.offsets)-1, 0)
	}
	return nil
}

func (c *column) openDict(dict parquet.Dictionary) error {
	values := dict.Page().Data()
	switch c.kind {
	case reflect.String:
		data, offsets := values.ByteArray()
		c.texts = make([]string, 0, len(offsets))
		for i := 1; i < len(offsets); i++ {
			c.texts = append(c.texts, string(data[offsets[i-1]:offsets[i]]))
		}
	case reflect.Float64:
		c.reals = append([]float64(nil), values.Double()...)
	case reflect.Int64:
		c.longs = append([]int64(nil), values.Int64()...)
	default:
		return errForeign
	}
	return nil
}
