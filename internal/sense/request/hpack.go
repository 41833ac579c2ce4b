package request

import (
	"bytes"
	"strconv"

	"golang.org/x/net/http2/hpack"

	"github.com/slowray/slowray/internal/observe"
)

// field is a header that is looked at. Values of others are never kept.
type field uint8

const (
	fieldUnknown field = iota // its name was in a block that was not seen
	fieldOther
	fieldMethod
	fieldPath
	fieldStatus
	fieldGRPCStatus
	fieldTraceparent
)

var fieldNames = map[string]field{
	":method": fieldMethod, ":path": fieldPath, ":status": fieldStatus, "grpc-status": fieldGRPCStatus, "traceparent": fieldTraceparent,
}

// fieldBytes is how much of a value is kept: a whole traceparent, and more of a path than a
// label shows.
const fieldBytes = 64

// entry is a header of HPACK's tables.
type entry struct {
	name  field
	len   uint8
	cut   bool // the value is longer
	value [fieldBytes]byte
}

func (e *entry) set(name field, value []byte) {
	*e = entry{name: name}
	if name > fieldOther || name == fieldUnknown {
		n := copy(e.value[:], value)
		e.len, e.cut = uint8(n), n < len(value)
	}
}

// static is the static table (RFC 7541, appendix A), by number.
var static = func() (table [62]entry) {
	decoder := hpack.NewDecoder(0, nil)
	for i := 1; i < len(table); i++ {
		fields, err := decoder.DecodeFull([]byte{0x80 | byte(i)})
		if err != nil {
			panic(err) // of the table there is in every version
		}
		name, known := fieldNames[fields[0].Name]
		if !known {
			name = fieldOther
		}
		table[i].set(name, []byte(fields[0].Value))
	}
	return table
}()

// tableEntries is how many headers of a dynamic table are kept, the newest: as many as fit
// into one of the usual size (4,096 bytes, 32 for each and its texts).
const tableEntries = 128

// unpacker unpacks the header blocks of one direction of a connection. It also works where
// blocks before were not seen: what it took in since is known by its distance from the newest.
type unpacker struct {
	entries [tableEntries]entry
	added   int // since the last block that was not seen
	huffman bytes.Buffer
	one     entry // that is not kept
}

// taker takes headers in; they are valid until it returns.
type taker interface{ take(*entry) }

// lost forgets the dynamic table: a block was not seen.
func (u *unpacker) lost() { u.added = 0 }

// at is the header of a number; nil where it is not known.
func (u *unpacker) at(i uint64) *entry {
	switch {
	case i == 0:
		return nil
	case i < uint64(len(static)):
		return &static[i]
	}
	back := i - uint64(len(static))
	if back >= uint64(min(u.added, tableEntries)) {
		return nil
	}
	return &u.entries[(u.added-1-int(back))%tableEntries]
}

// unpack gives each header of a block (RFC 7541, 6), but those of tables that are not known.
// ok is false where the block is malformed, or ends too early: then the table is lost.
func (u *unpacker) unpack(b []byte, to taker) (ok bool) {
	for len(b) > 0 {
		var n uint64
		switch first := b[0]; {
		case first&0x80 != 0: // a header of the tables
			if n, b, ok = integer(b, 7); !ok || n == 0 {
				u.lost()
				return false
			}
			if e := u.at(n); e != nil {
				to.take(e)
			}
			continue
		case first&0xe0 == 0x20: // the table's size
			if _, b, ok = integer(b, 5); !ok {
				u.lost()
				return false
			}
			continue
		}
		prefix, keep := 4, b[0]&0x40 != 0
		if keep {
			prefix = 6
		}
		n, b, ok = integer(b, prefix)
		name := fieldUnknown
		var text []byte
		if ok && n > 0 {
			if e := u.at(n); e != nil {
				name = e.name
			}
		} else if ok {
			if text, b, ok = u.text(b); ok {
				if name = fieldNames[string(text)]; name == 0 {
					name = fieldOther
				}
			}
		}
		if ok {
			text, b, ok = u.text(b)
		}
		if !ok {
			u.lost()
			return false
		}
		e := &u.one
		if keep {
			e = &u.entries[u.added%tableEntries]
			if u.added++; u.added == 2*tableEntries {
				u.added = tableEntries // as good
			}
		}
		e.set(name, text)
		to.take(e)
	}
	return true
}

// integer reads a number with a prefix of bits (RFC 7541, 5.1).
func integer(b []byte, prefix int) (n uint64, rest []byte, ok bool) {
	most := uint64(1)<<prefix - 1
	if n = uint64(b[0]) & most; n < most {
		return n, b[1:], true
	}
	for i := 1; i < len(b) && i <= 4; i++ {
		n += uint64(b[i]&0x7f) << (7 * (i - 1))
		if b[i]&0x80 == 0 {
			return n, b[i+1:], true
		}
	}
	return 0, nil, false
}

// text reads a string (RFC 7541, 5.2), which is valid until the next one is read.
func (u *unpacker) text(b []byte) (text, rest []byte, ok bool) {
	if len(b) == 0 {
		return nil, nil, false
	}
	packed := b[0]&0x80 != 0
	n, b, ok := integer(b, 7)
	if !ok || n > uint64(len(b)) {
		return nil, nil, false
	}
	text, rest = b[:n], b[n:]
	if packed {
		u.huffman.Reset()
		if _, err := hpack.HuffmanDecode(&u.huffman, text); err != nil {
			return nil, nil, false
		}
		text = u.huffman.Bytes()
	}
	return text, rest, true
}

// said is what the headers of a stream say.
type said struct {
	method  entry
	path    entry
	trace   observe.Trace
	guess   observe.Trace // of a header whose name is not known, and that has the form of a traceparent
	guesses uint8
	status  int // of HTTP, 0 = not said
	grpc    int // its status plus 1, 0 = not said
}

// take takes a header in.
func (s *said) take(e *entry) {
	value := e.value[:e.len]
	switch e.name {
	case fieldMethod:
		s.method = *e
	case fieldPath:
		s.path = *e
	case fieldStatus:
		if n, ok := digits(value); ok && len(value) == 3 {
			s.status = n
		}
	case fieldGRPCStatus:
		if n, ok := digits(value); ok {
			s.grpc = n + 1
		}
	case fieldTraceparent, fieldUnknown:
		t, ok := observe.ParseTraceparent(value)
		if !ok || e.cut {
			return
		}
		switch {
		case e.name == fieldTraceparent:
			s.trace = t
		case s.guesses == 0 || s.guess == t:
			s.guess, s.guesses = t, 1
		default: // two that differ: neither
			s.guess = observe.Trace{}
		}
	}
}

// digits reads a number of few digits.
func digits(b []byte) (n int, ok bool) {
	if len(b) == 0 || len(b) > 4 {
		return 0, false
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int(c-'0')
	}
	return n, true
}

// label is method and path, as of HTTP/1, and the status of gRPC.
func (s *said) label() string {
	if s.method.len == 0 || s.path.len == 0 {
		return ""
	}
	path := s.path.value[:s.path.len]
	end := bytes.IndexByte(path, '?')
	if end < 0 {
		end = len(path)
	}
	text := string(s.method.value[:s.method.len]) + " " + string(path[:end])
	if s.path.cut && end == len(path) {
		text += cut
	}
	if s.grpc > 0 {
		text += " gRPC " + strconv.Itoa(s.grpc-1)
	}
	return text
}
