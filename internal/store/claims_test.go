package store

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// forged is a stored file of requests, changed.
type forged struct {
	data []byte
	meta format.FileMetaData
}

func forge(t *testing.T, good []byte) *forged {
	t.Helper()
	size := int(binary.LittleEndian.Uint32(good[len(good)-8:]))
	f := &forged{data: bytes.Clone(good[:len(good)-8-size])}
	must(t, thrift.Unmarshal(&thrift.CompactProtocol{}, good[len(good)-8-size:len(good)-8], &f.meta))
	return f
}

// with gives a column the pages that follow, in the first row group.
func (f *forged) with(column string, pages ...[]byte) {
	for i := range f.meta.RowGroups[0].Columns {
		m := &f.meta.RowGroups[0].Columns[i].MetaData
		if m.PathInSchema[0] != column {
			continue
		}
		m.DataPageOffset, m.DictionaryPageOffset = int64(len(f.data)), 0
		f.data = append(f.data, bytes.Join(pages, nil)...)
		m.TotalCompressedSize = int64(len(f.data)) - m.DataPageOffset
	}
}

func (f *forged) bytes(t *testing.T) []byte {
	t.Helper()
	footer, err := thrift.Marshal(&thrift.CompactProtocol{}, &f.meta)
	must(t, err)
	return withFooter(f.data, footer)
}

func withFooter(data, footer []byte) []byte {
	out := append(bytes.Clone(data), footer...)
	out = binary.LittleEndian.AppendUint32(out, uint32(len(footer)))
	return append(out, "PAR1"...)
}

// page is a data page with a header that says what it likes.
func page(t *testing.T, h format.DataPageHeaderV2, plain, packed int32, body []byte) []byte {
	t.Helper()
	head := format.PageHeader{Type: format.DataPageV2, UncompressedPageSize: plain, CompressedPageSize: packed}
	head.DataPageHeaderV2.V, head.DataPageHeaderV2.Valid = h, true
	b, err := thrift.Marshal(&thrift.CompactProtocol{}, &head)
	must(t, err)
	return append(b, body...)
}

func packed(t *testing.T, plain []byte) []byte {
	t.Helper()
	z, err := zstd.NewWriter(nil)
	must(t, err)
	defer z.Close()
	return z.EncodeAll(plain, nil)
}

// A file that says that it is gigabytes is reported in a line, and takes no memory.
func TestFilesThatClaimTooMuch(t *testing.T) {
	source := t.TempDir()
	c := &clock{t: noon}
	s := openAt(t, source, Options{}, c)
	fill(t, s, c, newTraffic(6), noon, 5, 10)
	must(t, s.Close())
	list, err := segmentsIn(t, source, kindRequests)
	must(t, err)
	good, err := os.ReadFile(list[0].path)
	must(t, err)

	const huge = 1<<31 - 1
	type header = format.DataPageHeaderV2
	n := int32(forge(t, good).meta.RowGroups[0].NumRows)
	number := header{NumValues: n, NumRows: n, Encoding: format.DeltaBinaryPacked}
	runs := packed(t, []byte{1, 0xfe, 0xff, 0xff, 0xff, 0x0f, 0, 0xfe, 0xff, 0xff, 0xff, 0x0f, 0})
	many := binary.AppendUvarint(binary.AppendUvarint(nil, 128), 4)
	many = binary.AppendUvarint(append(binary.AppendUvarint(many, huge), 0), 0)
	bomb := packed(t, make([]byte, 200<<20))
	dictionary := func(values, plain int32, body []byte) []byte {
		head := format.PageHeader{Type: format.DictionaryPage, UncompressedPageSize: plain, CompressedPageSize: int32(len(body))}
		head.DictionaryPageHeader.V, head.DictionaryPageHeader.Valid = format.DictionaryPageHeader{NumValues: values}, true
		b, err := thrift.Marshal(&thrift.CompactProtocol{}, &head)
		must(t, err)
		return append(b, body...)
	}
	column := func(name string, pages ...[]byte) func(*forged) {
		return func(f *forged) { f.with(name, pages...) }
	}
	footer := func(b ...byte) func(*forged) {
		return func(f *forged) { f.data = withFooter(f.data, b); f.meta.Schema = nil }
	}
	cases := map[string]func(*forged){
		"packed":          column("total_us", page(t, number, 100, huge, nil)),
		"unpacked":        column("total_us", page(t, number, huge, 10, make([]byte, 10))),
		"values":          column("total_us", page(t, header{NumValues: huge, NumRows: n, Encoding: format.DeltaBinaryPacked}, 100, 10, make([]byte, 10))),
		"plain values":    column("comm", page(t, header{NumValues: huge, NumRows: n}, 10, int32(len(packed(t, make([]byte, 10)))), packed(t, make([]byte, 10)))),
		"differences":     column("total_us", page(t, number, int32(len(many)), int32(len(packed(t, many))), packed(t, many))),
		"levels":          column("total_us", page(t, header{NumValues: n, RepetitionLevelsByteLength: huge}, huge, 10, make([]byte, 10))),
		"runs":            column("comm", dictionary(1, 4, packed(t, make([]byte, 4))), page(t, header{NumValues: n, NumRows: n, Encoding: format.RLEDictionary}, 13, int32(len(runs)), runs)),
		"dictionary":      column("comm", dictionary(huge, 4, packed(t, make([]byte, 4)))),
		"bomb":            column("total_us", page(t, number, 100, int32(len(bomb)), bomb)),
		"bomb dictionary": column("comm", dictionary(1, 100, bomb)),
		"frames":          column("total_us", page(t, number, 50<<20, int32(5*len(bomb)), bytes.Repeat(bomb, 5))),
		"statistics": column("total_us", append(page(t, header{NumValues: n, NumRows: n, Statistics: format.Statistics{Max: make([]byte, 100<<10)}}, 100, 10, nil)[:200],
			0xff, 0xff, 0xff, 0x7f)),
		"chunk":        func(f *forged) { f.meta.RowGroups[0].Columns[1].MetaData.TotalCompressedSize = 1 << 60 },
		"before":       func(f *forged) { f.meta.RowGroups[0].Columns[1].MetaData.DataPageOffset = -1 << 60 },
		"rows":         func(f *forged) { f.meta.RowGroups[0].NumRows = 1 << 62 },
		"groups":       func(f *forged) { f.meta.RowGroups = make([]format.RowGroup, 10_000) },
		"footer list":  footer(0x15, 4, 0x19, 0xfc, 0xff, 0xff, 0xff, 0x7f, 0),
		"footer text":  footer(0x15, 4, 0x58, 0xff, 0xff, 0xff, 0x7f, 0),
		"footer depth": footer(bytes.Repeat([]byte{0x1c}, 1<<20)...),
	}
	for name, change := range cases {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			f := forge(t, good)
			change(f)
			data := f.data
			if f.meta.Schema != nil {
				data = f.bytes(t)
			}
			dir := t.TempDir()
			for i := range 2 {
				seg := segment{kind: kindRequests, first: noon.Unix(), last: noon.Unix() + 300, low: uint64(1 + i), high: uint64(1 + i)}
				path := filepath.Join(dir, seg.name())
				must(t, os.MkdirAll(filepath.Dir(path), 0o700))
				must(t, os.WriteFile(path, data, 0o600))
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			r, err := OpenReader(dir)
			must(t, err)
			rows := 0
			must(t, r.Requests(Query{}, func(*Request) bool { rows++; return true }))
			if _, err := r.Totals(Query{}); err != nil {
				t.Error(err)
			}
			if rows > 0 {
				t.Errorf("%d requests were read", rows)
			}
			if list := r.Skipped(); len(list) != 2 || strings.Contains(strings.Join(list, ""), "\n") {
				t.Errorf("told: %q", list)
			}
			// The writer merges files, and leaves these alone.
			c := &clock{t: noon.Add(3 * time.Hour)}
			s := openAt(t, dir, Options{}, c)
			oneLineOf(t, s.keep())
			list, err := segmentsIn(t, dir, kindRequests)
			if must(t, err); len(list) != 2 {
				t.Errorf("%d files are left of two", len(list))
			}
			s.Close()
			runtime.ReadMemStats(&after)
			const most = 400 << 20
			if took := after.TotalAlloc - before.TotalAlloc; took > most {
				t.Errorf("%d bytes were allocated", took)
			}
		})
	}
}
