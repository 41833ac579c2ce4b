package nl

import (
	"bytes"
	"encoding/binary"
	"errors"
	"iter"

	"golang.org/x/sys/unix"
)

// ErrMalformed says that a message is not one.
var ErrMalformed = errors.New("malformed netlink message")

// Message is one without the rest of its header (struct nlmsghdr).
type Message struct {
	Kind, Flags uint16
	Payload     []byte
}

// align rounds up to NLMSG_ALIGNTO, which is also NLA_ALIGNTO.
func align(n int) int { return (n + 3) &^ 3 }

func (m Message) pack(seq uint32) []byte {
	ne := binary.NativeEndian
	b := make([]byte, align(unix.NLMSG_HDRLEN+len(m.Payload)))
	ne.PutUint32(b, uint32(unix.NLMSG_HDRLEN+len(m.Payload)))
	ne.PutUint16(b[4:], m.Kind)
	ne.PutUint16(b[6:], m.Flags|unix.NLM_F_REQUEST)
	ne.PutUint32(b[8:], seq)
	copy(b[unix.NLMSG_HDRLEN:], m.Payload)
	return b
}

// Err is the error in a message of kind NLMSG_ERROR or NLMSG_DONE.
func (m Message) Err() error {
	if len(m.Payload) >= 4 {
		if code := int32(binary.NativeEndian.Uint32(m.Payload)); code < 0 && code > -4096 {
			return unix.Errno(-code)
		}
	}
	return nil
}

// Messages calls visit with every message of a datagram, until it wants no more.
func Messages(b []byte, visit func(seq uint32, m Message) (more bool, err error)) (more bool, err error) {
	ne := binary.NativeEndian
	for len(b) >= unix.NLMSG_HDRLEN {
		size := ne.Uint32(b)
		if size < unix.NLMSG_HDRLEN || uint64(size) > uint64(len(b)) {
			return false, ErrMalformed
		}
		m := Message{ne.Uint16(b[4:]), ne.Uint16(b[6:]), b[unix.NLMSG_HDRLEN:size]}
		if more, err := visit(ne.Uint32(b[8:]), m); err != nil || !more {
			return false, err
		}
		b = b[min(align(int(size)), len(b)):]
	}
	return true, nil
}

// KindMask is what of an attribute's kind is not a flag (NLA_F_NESTED,
// NLA_F_NET_BYTEORDER).
const KindMask = 1<<14 - 1

// RawAttrs are the attributes of b by kind, flags and all. What is malformed ends
// them.
func RawAttrs(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		ne := binary.NativeEndian
		for len(b) >= unix.NLA_HDRLEN {
			size := int(ne.Uint16(b))
			if size < unix.NLA_HDRLEN || size > len(b) || !yield(ne.Uint16(b[2:]), b[unix.NLA_HDRLEN:size]) {
				return
			}
			b = b[min(align(size), len(b)):]
		}
	}
}

// Attrs are the attributes of b by kind, without flags. What is malformed ends
// them.
func Attrs(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for kind, value := range RawAttrs(b) {
			if !yield(kind&KindMask, value) {
				return
			}
		}
	}
}

// Find is the value of the first attribute of a kind; nil when there is none.
func Find(b []byte, kind uint16) []byte {
	for k, value := range Attrs(b) {
		if k == kind {
			return value
		}
	}
	return nil
}

// Append appends an attribute, of at most 65,531 bytes.
func Append(b []byte, kind uint16, value []byte) []byte {
	ne := binary.NativeEndian
	b = ne.AppendUint16(b, uint16(unix.NLA_HDRLEN+len(value)))
	b = ne.AppendUint16(b, kind)
	b = append(b, value...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

// Text is the value of an attribute that is a string, with or without its NUL.
func Text(value []byte) string {
	value, _, _ = bytes.Cut(value, []byte{0})
	return string(value)
}
