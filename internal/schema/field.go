package schema

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"unsafe"

	"github.com/slowray/slowray/internal/observe"
)

// Kind is what a field holds.
type Kind uint8

// The kinds.
const (
	Number Kind = iota
	Micros      // a time: ns in memory, µs in every form
	Moment      // ns since 1970 in memory, µs in every form
	Enum        // one of Names, by its number
	Flags       // bits with names, observe.RequestFlags
	Bool
	Port // of a netip.AddrPort
	Addr // the address of one
	Text
)

// Role is what a field is good for.
type Role uint8

// The roles.
const (
	Measure  Role = iota // something that is counted or measured
	Key                  // tells whose the request is: it comes again and again
	FreeText             // what was asked for: any text, and kept only when it is wanted
)

// Field is one value of a stored request.
type Field struct {
	Name   string // of the column, with the unit
	Kind   Kind
	Role   Role
	Signed bool     // of a Number
	Bits   int      // of a number: 8, 16, 32, 64
	Names  []string // of an Enum: that of First first
	First  int64    // of an Enum

	offset  uintptr
	derived bool // from others: the total
	width   uint8
	bytes   uint8 // of an ID, which is a text of twice as many digits
}

// integer is what numbers are in memory.
type integer interface {
	~int | ~int64 | ~uint8 | ~uint32 | ~uint64
}

func at[T any](value *T) uintptr {
	return uintptr(unsafe.Pointer(value)) - uintptr(unsafe.Pointer(&origin))
}

func number[T integer](name string, value *T) Field {
	bits, signed := 8*int(unsafe.Sizeof(*value)), T(0)-1 < 0
	f := Field{Name: name, Kind: Number, Signed: signed, Bits: bits, offset: at(value), width: uint8(bits)}
	if _, is := any(value).(*int); is {
		f.Bits = 32 // numbers of processes and codes of HTTP
	}
	return f
}

func (f Field) asKey() Field {
	f.Role = Key
	return f
}

func micros(name string, ns *int64) Field {
	f := number(name, ns)
	f.Kind = Micros
	return f
}

func moment(name string, ns *int64) Field {
	f := number(name, ns)
	f.Kind = Moment
	return f
}

func derived(name string, k Kind) Field {
	return Field{Name: name, Kind: k, Signed: true, Bits: 64, derived: true, width: 64}
}

// enum is a value that is one of names. A side begins at 1: none is the first one.
func enum[T ~uint8](name string, value *T, names ...string) Field {
	f := number(name, value)
	f.Kind, f.Names = Enum, names
	if _, is := any(value).(*observe.Side); is {
		f.First = 1
	}
	return f
}

func flags(name string, value *observe.RequestFlags) Field {
	return Field{Name: name, Kind: Flags, Role: Key, Bits: 32, offset: at(value), width: 32}
}

func boolean(name string, value *bool) Field {
	return Field{Name: name, Kind: Bool, Bits: 8, offset: at(value)}
}

func text(name string, value *string) Field {
	return Field{Name: name, Kind: Text, Role: Key, offset: at(value)}
}

func label(name string, value *string) Field {
	f := text(name, value)
	f.Role = FreeText
	return f
}

// digits is an ID, a text of hexadecimal digits in every form but memory; of zeros, it is none.
func digits(name string, id []byte) Field {
	return Field{Name: name, Kind: Text, Role: FreeText, offset: at(&id[0]), bytes: uint8(len(id))}
}

func addr(name string, value *netip.AddrPort) Field {
	return Field{Name: name, Kind: Addr, Role: Key, offset: at(value)}
}

func port(name string, value *netip.AddrPort) Field {
	return Field{Name: name, Kind: Port, Role: Key, Bits: 16, offset: at(value)}
}

// Fields are those of these names, in their order. A name that there is not is a
// mistake of the program.
func Fields(names ...string) []Field {
	list := make([]Field, len(names))
	for i, name := range names {
		at := slices.IndexFunc(Requests, func(f Field) bool { return f.Name == name })
		if at < 0 {
			panic(fmt.Sprintf("schema: there is no field %q", name))
		}
		list[i] = Requests[at]
	}
	return list
}

// Plain says where in a request a number is that SetValue writes as it is or times
// scale, 64 bits wide or 32: what reads very many of them does so without a call for
// each. ok is false for others.
func (f *Field) Plain() (offset uintptr, wide bool, scale int64, ok bool) {
	scale = 1
	if f.Kind == Micros || f.Kind == Moment {
		scale = 1000
	}
	return f.offset, f.width == 64, scale, !f.derived && f.Kind != Enum && f.Kind != Flags && f.width >= 32
}

func (f *Field) in(r *Request) unsafe.Pointer { return unsafe.Add(unsafe.Pointer(r), f.offset) }

// Int is the field's number as it is in memory: ns of a time, the number of an enum,
// the bits of flags, 1 for true.
func (f *Field) Int(r *Request) int64 {
	p := f.in(r)
	switch f.width {
	case 64:
		if f.derived {
			return r.TotalNS()
		}
		return *(*int64)(p)
	case 32:
		return int64(*(*uint32)(p))
	case 8:
		return int64(*(*uint8)(p))
	}
	if f.Kind == Port {
		return int64((*netip.AddrPort)(p).Port())
	}
	if *(*bool)(p) {
		return 1
	}
	return 0
}

// SetInt is the inverse; what is derived stays.
func (f *Field) SetInt(r *Request, n int64) {
	p := f.in(r)
	switch {
	case f.derived:
	case f.width == 64:
		*(*int64)(p) = n
	case f.width == 32:
		*(*uint32)(p) = uint32(n)
	case f.width == 8:
		*(*uint8)(p) = uint8(n)
	case f.Kind == Port:
		a := (*netip.AddrPort)(p)
		*a = netip.AddrPortFrom(a.Addr(), uint16(n))
	default:
		*(*bool)(p) = n != 0
	}
}

// Value is the number as every form but memory has it: times are whole µs, cut off.
func (f *Field) Value(r *Request) int64 {
	n := f.Int(r)
	if (f.Kind == Micros || f.Kind == Moment) && n != 0 {
		return n / 1000
	}
	return n
}

// SetValue is the inverse of Value.
func (f *Field) SetValue(r *Request, n int64) {
	if f.Kind == Micros || f.Kind == Moment {
		n *= 1000
	}
	f.SetInt(r, n)
}

// Text is that of a Text.
func (f *Field) Text(r *Request) string {
	if f.bytes == 0 {
		return *(*string)(f.in(r))
	}
	id := f.id(r)
	for _, b := range id {
		if b != 0 {
			return hex.EncodeToString(id)
		}
	}
	return ""
}

// SetText is the inverse; what is no ID is none.
func (f *Field) SetText(r *Request, s string) {
	if f.bytes == 0 {
		*(*string)(f.in(r)) = s
		return
	}
	id := f.id(r)
	if n := hex.DecodedLen(len(s)); n != len(id) {
		clear(id)
	} else if _, err := hex.Decode(id, []byte(s)); err != nil {
		clear(id)
	}
}

func (f *Field) id(r *Request) []byte { return unsafe.Slice((*byte)(f.in(r)), f.bytes) }

// Addr is that of an Addr.
func (f *Field) Addr(r *Request) netip.Addr { return (*netip.AddrPort)(f.in(r)).Addr() }

// SetAddr is the inverse; the port stays.
func (f *Field) SetAddr(r *Request, a netip.Addr) {
	p := (*netip.AddrPort)(f.in(r))
	*p = netip.AddrPortFrom(a, p.Port())
}

// EnumName is the name of an Enum's value; what has none has that of the nearest.
func (f *Field) EnumName(r *Request) string {
	return f.Names[min(max(f.Int(r)-f.First, 0), int64(len(f.Names)-1))]
}

// SetEnumName is the inverse; a name that is not known is the first one.
func (f *Field) SetEnumName(r *Request, name string) {
	n := f.First
	for i := range f.Names {
		if f.Names[i] == name {
			n = f.First + int64(i)
		}
	}
	f.SetInt(r, n)
}
