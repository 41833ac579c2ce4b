package store

import "encoding/binary"

// The footer of a Parquet file and the headers of its pages are in Thrift's
// compact protocol. A file may be damaged, or made to do harm: what parquet-go
// would allocate because a length says so is looked at first, and page headers
// are read by this alone.

// Types of the compact protocol.
// https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
const (
	thriftStop   = 0
	thriftTrue   = 1
	thriftFalse  = 2
	thriftByte   = 3
	thriftI16    = 4
	thriftI32    = 5
	thriftI64    = 6
	thriftDouble = 7
	thriftBinary = 8
	thriftList   = 9
	thriftSet    = 10
	thriftMap    = 11
	thriftStruct = 12
)

// Bounds of a footer: far more than this store's files have.
const (
	thriftDepth     = 16
	maxElements     = 300_000 // of all lists together
	maxSchema       = 1000    // columns and groups of them
	maxRowGroups    = 4096
	maxRowsPerGroup = 16 << 20
)

// thriftReader reads what it was given and no further. Once something is wrong,
// bad stays true and all that is read is nothing.
type thriftReader struct {
	b        []byte
	bad      bool
	depth    int
	elements int
}

func (r *thriftReader) fail() {
	r.bad, r.b = true, nil
}

func (r *thriftReader) byte() byte {
	if len(r.b) == 0 {
		r.fail()
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

func (r *thriftReader) uint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

// int reads an integer of any width.
func (r *thriftReader) int() int64 {
	v := r.uint()
	return int64(v>>1) ^ -int64(v&1)
}

func (r *thriftReader) drop(n uint64) {
	if n > uint64(len(r.b)) {
		r.fail()
		return
	}
	r.b = r.b[n:]
}

// fields gives the fields of a struct. What f does not read, saying false, is
// left out.
func (r *thriftReader) fields(f func(id int64, kind byte) bool) {
	if r.depth++; r.depth > thriftDepth {
		r.fail()
	}
	var id int64
	for !r.bad {
		head := r.byte()
		if head == thriftStop {
			break
		}
		if delta := int64(head >> 4); delta != 0 {
			id += delta
		} else {
			id = r.int()
		}
		if kind := head & 15; !r.bad && !f(id, kind) {
			r.skip(kind)
		}
	}
	r.depth--
}

// list is the head of a list: how many elements of which type follow. Each takes
// a byte at least.
func (r *thriftReader) list() (n int, kind byte) {
	head := r.byte()
	size := uint64(head >> 4)
	if size == 15 {
		size = r.uint()
	}
	if size > uint64(len(r.b)) || r.elements+int(size) > maxElements {
		r.fail()
		return 0, 0
	}
	r.elements += int(size)
	return int(size), head & 15
}

func nothingOf(int64, byte) bool { return false }

// skip leaves a value out, having looked at all lengths in it.
func (r *thriftReader) skip(kind byte) {
	switch kind {
	case thriftTrue, thriftFalse: // the type is the value
	case thriftByte:
		r.byte()
	case thriftI16, thriftI32, thriftI64:
		r.uint()
	case thriftDouble:
		r.drop(8)
	case thriftBinary:
		r.drop(r.uint())
	case thriftStruct:
		r.fields(nothingOf)
	case thriftList, thriftSet:
		if r.depth++; r.depth > thriftDepth {
			r.fail()
		}
		for n, of := r.list(); n > 0 && !r.bad; n-- {
			r.element(of)
		}
		r.depth--
	case thriftMap:
		// No file of Parquet has one.
		if r.byte() != 0 {
			r.fail()
		}
	default:
		r.fail()
	}
}

// element leaves an element of a list out: there a truth takes a byte.
func (r *thriftReader) element(kind byte) {
	if kind == thriftTrue || kind == thriftFalse {
		kind = thriftByte
	}
	r.skip(kind)
}

// soundFooter says whether a footer is one that parquet-go can be given: no
// length in it is more than there is, and there are no more columns and row
// groups than any file of this store has.
func soundFooter(footer []byte) bool {
	r := thriftReader{b: footer}
	r.fields(func(id int64, kind byte) bool {
		most := 0
		switch {
		case kind != thriftList:
			return false
		case id == 2:
			most = maxSchema
		case id == 4:
			most = maxRowGroups
		default:
			return false
		}
		n, of := r.list()
		if n > most {
			r.fail()
		}
		for ; n > 0 && !r.bad; n-- {
			r.element(of)
		}
		return true
	})
	return !r.bad
}

// pageHeader is what is needed of a page's header.
type pageHeader struct {
	kind       int64 // 0 data, 2 dictionary, 3 data of version 2
	plain      int64 // bytes of what it holds, levels included
	packed     int64 // bytes in the file
	crc        uint32
	checked    bool // crc is known
	values     int64
	nulls      int64
	encoding   int64
	defLength  int64 // bytes
	repLength  int64
	compressed bool
}

// Kinds of pages and encodings that this store's files have.
const (
	dictionaryPage = 2
	dataPageV2     = 3

	encodingPlain      = 0
	encodingDelta      = 5
	encodingDictionary = 8
)

// readPageHeader reads a page's header. size is how many bytes it takes; false
// when it is none, or longer than what was given.
func readPageHeader(b []byte) (h pageHeader, size int, ok bool) {
	h.compressed = true
	r := thriftReader{b: b}
	number := func(into *int64) bool {
		*into = r.int()
		return true
	}
	r.fields(func(id int64, kind byte) bool {
		switch {
		case id == 1 && kind == thriftI32:
			return number(&h.kind)
		case id == 2 && kind == thriftI32:
			return number(&h.plain)
		case id == 3 && kind == thriftI32:
			return number(&h.packed)
		case id == 4 && kind == thriftI32:
			h.crc, h.checked = uint32(r.int()), true
			return true
		case (id == 7 || id == 8) && kind == thriftStruct:
			r.fields(func(id int64, kind byte) bool { return h.detail(&r, id, kind, number) })
			return true
		}
		return false
	})
	return h, len(b) - len(r.b), !r.bad
}

// detail reads a field of the header of a dictionary or data page; the first two
// of a dictionary are the number of values and the encoding.
func (h *pageHeader) detail(r *thriftReader, id int64, kind byte, number func(*int64) bool) bool {
	if h.kind == dictionaryPage {
		switch {
		case id == 1 && kind == thriftI32:
			return number(&h.values)
		case id == 2 && kind == thriftI32:
			return number(&h.encoding)
		}
		return false
	}
	switch {
	case id == 7:
		h.compressed = kind == thriftTrue
		return true
	case kind != thriftI32:
		return false
	case id == 1:
		return number(&h.values)
	case id == 2:
		return number(&h.nulls)
	case id == 4:
		return number(&h.encoding)
	case id == 5:
		return number(&h.defLength)
	case id == 6:
		return number(&h.repLength)
	}
	return false
}
