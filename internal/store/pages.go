package store

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/format"
)

// Pages are taken out of a file here, and only their encodings are decoded by
// parquet-go: its own reader of pages allocates what a header says, up to 2 GB a
// page, and what a run of one value repeated says, up to 8 GB a run. Here nothing is
// allocated that is not in the file, or comes out of its compression within
// bounds.

const (
	maxPageBytes  = 64 << 20 // of a page, compressed or not; a writer's have 64 KB and a row, or what a log entry may have
	maxPageValues = 8 << 20
	maxHeader     = 64 << 10
	readAhead     = 64 << 10
	keptBytes     = 1 << 20 // of memory that is kept for the next column
)

// chunk is a column of a row group in a file.
type chunk struct {
	file       io.ReaderAt
	from, to   int64 // bytes in the file
	compressed bool
}

// chunkOf is a column chunk as its file describes it; size is that of the file.
func chunkOf(file io.ReaderAt, size int64, meta *format.ColumnMetaData) (chunk, error) {
	c := chunk{file: file, from: meta.DataPageOffset, compressed: meta.Codec == format.Zstd}
	if meta.DictionaryPageOffset != 0 {
		c.from = min(c.from, meta.DictionaryPageOffset)
	}
	if meta.Codec != format.Zstd && meta.Codec != format.Uncompressed {
		return c, errForeign
	}
	if c.from < 0 || meta.TotalCompressedSize < 0 || meta.TotalCompressedSize > size-c.from {
		return c, errDamaged
	}
	c.to = c.from + meta.TotalCompressedSize
	return c, nil
}

// pageReader reads the pages of a column one after the other. What a page gave
// lasts until the next one.
type pageReader struct {
	chunk
	*pageMemory
	buffered []byte // of the file, before from
}

// pageMemory is used again from one column to the next.
type pageMemory struct {
	raw, plain []byte
	rep, def   []byte
	index      []int32
	ints       []int64
	smalls     []int32
	offsets    []uint32
}

var pageMemories = sync.Pool{New: func() any { return &pageMemory{} }}

// unpacker takes many pages at a time; it allocates no more than a page may have.
var unpacker = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderMaxMemory(maxPageBytes))
	if err != nil {
		panic(err) // only options can be wrong
	}
	return d
})

func newPageReader(c chunk) *pageReader {
	return &pageReader{chunk: c, pageMemory: pageMemories.Get().(*pageMemory)}
}

func (p *pageReader) close() {
	m := p.pageMemory
	if m == nil {
		return
	}
	p.pageMemory = nil
	if cap(m.raw)+cap(m.plain)+cap(m.rep)+cap(m.def)+4*cap(m.index)+8*cap(m.ints)+4*cap(m.smalls)+4*cap(m.offsets) <= keptBytes {
		pageMemories.Put(m)
	}
}

// ensure has n bytes of the chunk in buffered, or as many as there are.
func (p *pageReader) ensure(n int) error {
	if len(p.buffered) >= n || p.from == p.to {
		return nil
	}
	more := int(min(max(int64(n-len(p.buffered)), readAhead), p.to-p.from))
	if size := len(p.buffered) + more; cap(p.raw) < size {
		p.raw = append(make([]byte, 0, size), p.buffered...)
	} else {
		p.raw = append(p.raw[:0], p.buffered...) // to the beginning of the memory that it lies in
	}
	held := len(p.raw)
	p.raw = p.raw[:held+more]
	if _, err := p.file.ReadAt(p.raw[held:], p.from); err != nil {
		return err
	}
	p.from += int64(more)
	p.buffered = p.raw
	return nil
}

// header reads the next page's header; io.EOF at the end of the chunk.
func (p *pageReader) header() (h pageHeader, err error) {
	for _, enough := range [...]int{256, maxHeader} {
		if err := p.ensure(enough); err != nil {
			return h, err
		}
		if len(p.buffered) == 0 {
			return h, io.EOF
		}
		var size int
		var ok bool
		if h, size, ok = readPageHeader(p.buffered[:min(len(p.buffered), enough)]); ok {
			p.buffered = p.buffered[size:]
			return h, h.check(p)
		}
	}
	return h, errDamaged
}

// check says whether the sizes in a header can be.
func (h *pageHeader) check(p *pageReader) error {
	left := int64(len(p.buffered)) + p.to - p.from
	levels := h.repLength + h.defLength
	switch {
	case h.packed < 0 || h.packed > left || h.packed > maxPageBytes,
		h.plain < 0 || h.values < 0 || h.nulls < 0 || h.nulls > h.values,
		h.repLength < 0 || h.defLength < 0 || levels > h.packed || levels > h.plain:
		return errDamaged
	case h.plain > maxPageBytes || h.values > maxPageValues:
		return fmt.Errorf("%w: a page says that it has %d bytes and %d values", errDamaged, h.plain, h.values)
	case h.kind != dictionaryPage && h.kind != dataPageV2:
		return errForeign
	}
	return nil
}

// body reads what a header is of, as it is in the file. It lasts until more is
// read.
func (p *pageReader) body(h *pageHeader) ([]byte, error) {
	if err := p.ensure(int(h.packed)); err != nil {
		return nil, err
	}
	body := p.buffered[:h.packed]
	p.buffered = p.buffered[h.packed:]
	if h.checked && crc32.ChecksumIEEE(body) != h.crc {
		return nil, errDamaged
	}
	return body, nil
}

// unpack is the values of a page, still encoded.
func (p *pageReader) unpack(h *pageHeader, packed []byte, levels int64) ([]byte, error) {
	if !p.compressed || !h.compressed {
		return packed, nil
	}
	want := h.plain - levels
	if want == 0 && len(packed) == 0 {
		return nil, nil
	}
	// What is more than the header says is noticed where it is unpacked, and no
	// more is allocated than maxPageBytes.
	var err error
	if p.plain, err = unpacker().DecodeAll(packed, p.plain[:0]); err != nil || int64(len(p.plain)) != want {
		return nil, errDamaged
	}
	return p.plain, nil
}

// next reads the next page into c; io.EOF at the end.
func (p *pageReader) next(c *column) error {
	h, err := p.header()
	if err != nil {
		return err
	}
	body, err := p.body(&h)
	if err != nil {
		return err
	}
	if h.kind == dictionaryPage {
		plain, err := p.unpack(&h, body, 0)
		if err != nil {
			return err
		}
		c.rep, c.def, c.n = nil, nil, 0
		return c.openDict(plain, int(h.values))
	}
	if p.rep, err = levelsOf(p.rep, body[:h.repLength], h.values); err != nil {
		return err
	}
	if p.def, err = levelsOf(p.def, body[h.repLength:h.repLength+h.defLength], h.values); err != nil {
		return err
	}
	c.rep, c.def = p.rep, p.def
	n := int(h.values - h.nulls)
	plain, err := p.unpack(&h, body[h.repLength+h.defLength:], h.repLength+h.defLength)
	if err != nil {
		return err
	}
	return p.values(c, h.encoding, plain, n)
}

// sound looks at all columns of a row group before parquet-go is given them whole.
func (g *rowGroup) sound() error {
	columns := g.file.Metadata().RowGroups[g.at].Columns
	for i := range columns {
		meta := &columns[i].MetaData
		c, err := chunkOf(g.file.reader, g.file.Size(), meta)
		if err != nil {
			return err
		}
		switch values, err := c.sound(); {
		case err != nil:
			return err
		case values != meta.NumValues:
			return fmt.Errorf("%w: a column has %d values where %d are declared", errDamaged, values, meta.NumValues)
		}
	}
	return nil
}

// sound looks at the headers of all pages of a chunk, and at what their compression
// says they unpack to: what parquet-go is given whole must not take memory by what
// it says of itself. values is how many they say they have.
func (c chunk) sound() (values int64, err error) {
	p := newPageReader(c)
	defer p.close()
	for {
		h, err := p.header()
		if errors.Is(err, io.EOF) {
			return values, nil
		}
		if err != nil {
			return 0, err
		}
		body, err := p.body(&h)
		if err != nil {
			return 0, err
		}
		if h.kind != dictionaryPage {
			values += h.values
		}
		if !c.compressed || !h.compressed {
			continue
		}
		var frame zstd.Header
		packed := body[h.repLength+h.defLength:]
		if len(packed) == 0 {
			continue
		}
		if err := frame.Decode(packed); err != nil || frame.HasFCS && frame.FrameContentSize > uint64(h.plain) || frame.WindowSize > maxPageBytes {
			return 0, errDamaged
		}
	}
}
