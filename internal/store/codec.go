package store

import (
	"encoding/binary"
	"math"
)

// encoder appends values to an entry of a log: numbers as varints, text with
// its length before it.
type encoder struct{ b []byte }

func (e *encoder) byte(v byte)   { e.b = append(e.b, v) }
func (e *encoder) uint(v uint64) { e.b = binary.AppendUvarint(e.b, v) }
func (e *encoder) int(v int64)   { e.b = binary.AppendVarint(e.b, v) }
func (e *encoder) text(v string) {
	e.b = binary.AppendUvarint(e.b, uint64(len(v)))
	e.b = append(e.b, v...)
}

// decoder takes them out again. Once an entry turns out to be too short or
// malformed, bad is set and everything reads as zero.
type decoder struct {
	b     []byte
	bad   bool
	words vocabulary // nil: texts are made each time
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.bad = true
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) int() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

// small is a number of 32 bits.
func (d *decoder) small() uint32 {
	v := d.uint()
	if v > math.MaxUint32 {
		d.bad, d.b = true, nil
		return 0
	}
	return uint32(v)
}

// bytes are the entry's own memory.
func (d *decoder) bytes() []byte {
	n := d.uint()
	if n > uint64(len(d.b)) {
		d.bad, d.b = true, nil
		return nil
	}
	v := d.b[:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) text() string {
	if d.words != nil {
		return d.words.text(d.bytes())
	}
	return string(d.bytes())
}

// ended says whether the entry was whole and holds nothing else.
func (d *decoder) ended() bool { return !d.bad && len(d.b) == 0 }
