package request

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/net/http2/hpack"
)

// seenFields notes headers as name and value.
type seenFields []string

func (s *seenFields) take(e *entry) {
	name := "other"
	for text, f := range fieldNames {
		if f == e.name {
			name = text
		}
	}
	if e.name == fieldUnknown {
		name = "unknown"
	}
	*s = append(*s, fmt.Sprintf("%s %s %v", name, e.value[:e.len], e.cut))
}

// wanted is what of headers is looked at.
func wanted(fields []hpack.HeaderField) (list seenFields) {
	for _, f := range fields {
		if fieldNames[f.Name] == 0 {
			list = append(list, "other  false")
		} else {
			list = append(list, fmt.Sprintf("%s %s %v", f.Name, f.Value[:min(len(f.Value), fieldBytes)], len(f.Value) > fieldBytes))
		}
	}
	return list
}

var someFields = []hpack.HeaderField{
	{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: "/shop.Cart/Get"}, {Name: "content-type", Value: "application/grpc"},
	{Name: "authorization", Value: "Bearer secret", Sensitive: true}, {Name: "traceparent", Value: parentOf(someTrace)},
}

func TestUnpack(t *testing.T) {
	var packed bytes.Buffer
	encoder := hpack.NewEncoder(&packed)
	var u unpacker
	for i := range 400 { // the table is full after some
		fields := append([]hpack.HeaderField{}, someFields...)
		fields[2].Value = fmt.Sprint("/", strings.Repeat("a", i))
		fields[5].Value = parentOf(fmt.Sprintf("%032x", i+1))
		packed.Reset()
		for _, f := range fields {
			_ = encoder.WriteField(f)
		}
		var got seenFields
		if ok := u.unpack(packed.Bytes(), &got); !ok {
			t.Fatalf("block %d is malformed", i)
		}
		if want := wanted(fields); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Fatalf("block %d:\n%s\nwant\n%s", i, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	for i := range u.entries {
		if bytes.Contains(u.entries[i].value[:], []byte("secret")) {
			t.Error("the value of a header that is not looked at is kept")
		}
	}
}

// TestUnpackAfterLoss: after a block that was not seen no header is taken for another one, and
// what is spelled out again is known.
func TestUnpackAfterLoss(t *testing.T) {
	var packed bytes.Buffer
	encoder := hpack.NewEncoder(&packed)
	block := func(i int) []byte {
		packed.Reset()
		fields := append([]hpack.HeaderField{}, someFields...)
		fields[5].Value = parentOf(fmt.Sprintf("%032x", i+1))
		for _, f := range fields {
			_ = encoder.WriteField(f)
		}
		return packed.Bytes()
	}
	var u unpacker
	var one said
	u.unpack(block(0), &one)
	block(1)
	u.lost()
	one = said{}
	if ok := u.unpack(block(2), &one); !ok {
		t.Fatal("malformed")
	}
	// The path is in the table from before; the trace is spelled out, its name is not.
	if one.path.len != 0 || one.trace.Known() || one.guess.ID[15] != 3 {
		t.Errorf("%q, %x, %x", one.path.value[:one.path.len], one.trace.ID, one.guess.ID)
	}
}

// FuzzUnpack packs headers and unpacks them, and whatever else there is.
func FuzzUnpack(f *testing.F) {
	f.Add([]byte("\x82\x86\x84"), "traceparent", parentOf(someTrace), true)
	f.Add([]byte{0x40, 0x8a, 0x25}, "grpc-status", "14", false)
	f.Fuzz(func(t *testing.T, raw []byte, name, value string, sensitive bool) {
		var u unpacker
		var packed bytes.Buffer
		encoder := hpack.NewEncoder(&packed)
		for range 3 {
			packed.Reset()
			fields := append([]hpack.HeaderField{{Name: name, Value: value, Sensitive: sensitive}, {Name: value, Value: name}}, someFields...)
			for _, field := range fields {
				_ = encoder.WriteField(field)
			}
			var got seenFields
			if ok := u.unpack(packed.Bytes(), &got); !ok || strings.Join(got, "\n") != strings.Join(wanted(fields), "\n") {
				t.Fatalf("%v: %q, want %q", ok, got, wanted(fields))
			}
		}
		var one said
		u.unpack(raw, &one)
		one.label()
		var h headers // pieces of whatever
		for i := 0; i+6 < len(raw); i += 6 {
			n := min(len(raw), i+6+int(raw[i]))
			h.take(pieceOf(&block{number: uint32(raw[i+1] & 7), stream: uint32(raw[i+2]), answers: raw[i+3], flags: raw[i+4] & 3, len: uint16(n - i - 5)}, raw[i+5:n]))
		}
	})
}

// pieceOf is a piece as it comes out of the ring.
func pieceOf(b *block, bytes []byte) []byte {
	return append(append([]byte{}, (*[blockHeader]byte)(unsafe.Pointer(b))[:]...), bytes...)
}

func BenchmarkUnpack(b *testing.B) {
	var packed bytes.Buffer
	encoder := hpack.NewEncoder(&packed)
	var blocks [][]byte
	for i := range 64 {
		packed.Reset()
		for _, f := range someFields[:5] {
			_ = encoder.WriteField(f)
		}
		_ = encoder.WriteField(hpack.HeaderField{Name: "traceparent", Value: parentOf(fmt.Sprintf("%032x", i+1))})
		blocks = append(blocks, bytes.Clone(packed.Bytes()))
	}
	for i := range blocks {
		blocks[i] = pieceOf(&block{headers: 1, flags: blockBegins | blockEnds, len: uint16(len(blocks[i]))}, blocks[i])
	}
	var h headers
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		raw := blocks[i%64]
		binary.LittleEndian.PutUint32(raw[8:], uint32(i+1))
		binary.LittleEndian.PutUint32(raw[12:], uint32(2*i+1))
		h.take(raw)
		h.forget(stream{1, uint32(2*i + 1)})
	}
	if h.lost > 0 {
		b.Fatal("lost")
	}
}
