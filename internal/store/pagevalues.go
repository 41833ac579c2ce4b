package store

import (
	"encoding/binary"
	"math"
	"reflect"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/rle"
)

// levelsOf decodes levels of 0 and 1; none where the column has none.
func levelsOf(into, packed []byte, n int64) ([]byte, error) {
	if len(packed) == 0 {
		return into[:0], nil
	}
	if !soundRuns(packed, 1, n) {
		return nil, errDamaged
	}
	into, err := (&rle.Encoding{BitWidth: 1}).DecodeLevels(into[:0], packed)
	if err != nil || int64(len(into)) < n {
		return nil, errDamaged
	}
	return into[:n], nil
}

// soundRuns says whether runs of values, repeated or packed, make no more than n
// values, but for the last ones of a packed run of eight.
// https://parquet.apache.org/docs/file-format/data-pages/encodings/#RLE
func soundRuns(b []byte, width uint64, n int64) bool {
	var total uint64
	for len(b) > 0 {
		head, size := binary.Uvarint(b)
		if size <= 0 || head>>1 > maxPageValues {
			return false
		}
		b = b[size:]
		count, bytes := head>>1, (width+7)/8
		if head&1 != 0 {
			count, bytes = 8*count, count*width
		}
		if bytes > uint64(len(b)) {
			return false
		}
		b = b[bytes:]
		if total += count; total >= uint64(n)+8 {
			return false
		}
	}
	return true
}

// soundDelta says whether numbers stored as differences are n.
// https://parquet.apache.org/docs/file-format/data-pages/encodings/#DELTAENC
func soundDelta(b []byte, n int) bool {
	r := thriftReader{b: b} // the same integers
	r.uint()
	r.uint()
	return r.uint() == uint64(n) && !r.bad
}

// values decodes n values of a page into c, whose lists are used again with the
// next page.
func (p *pageReader) values(c *column, encoding int64, plain []byte, n int) (err error) {
	c.index, c.ints, c.smalls, c.floats, c.bits, c.data, c.offsets = nil, nil, nil, nil, nil, nil, nil
	c.n = n
	switch {
	case n == 0:
		return nil
	case encoding == encodingDictionary && c.dict:
		if len(plain) == 0 || plain[0] > 32 || !soundRuns(plain[1:], uint64(plain[0]), int64(n)) {
			return errDamaged
		}
		p.index, err = parquet.RLEDictionary.DecodeInt32(p.index[:0], plain)
		return c.took(err, len(p.index), n, func() { c.index = p.index[:n] })
	case encoding == encodingDelta && c.kind == reflect.Int64 && soundDelta(plain, n):
		p.ints, err = parquet.DeltaBinaryPacked.DecodeInt64(p.ints[:0], plain)
		return c.took(err, len(p.ints), n, func() { c.ints = p.ints })
	case encoding == encodingDelta && c.kind == reflect.Int32 && soundDelta(plain, n):
		p.smalls, err = parquet.DeltaBinaryPacked.DecodeInt32(p.smalls[:0], plain)
		return c.took(err, len(p.smalls), n, func() { c.smalls = p.smalls })
	case encoding != encodingPlain:
		return errDamaged
	}
	return p.plainValues(c, plain, n)
}

// took keeps what was decoded, when it is enough.
func (c *column) took(err error, got, n int, keep func()) error {
	if err != nil || got < n {
		return errDamaged
	}
	keep()
	return nil
}

// plainValues are values as they are in memory.
func (p *pageReader) plainValues(c *column, plain []byte, n int) error {
	switch c.kind {
	case reflect.Int64:
		if len(plain) < 8*n {
			return errDamaged
		}
		p.ints = p.ints[:0]
		for i := range n {
			p.ints = append(p.ints, int64(binary.LittleEndian.Uint64(plain[8*i:])))
		}
		c.ints = p.ints
	case reflect.Int32:
		if len(plain) < 4*n {
			return errDamaged
		}
		p.smalls = p.smalls[:0]
		for i := range n {
			p.smalls = append(p.smalls, int32(binary.LittleEndian.Uint32(plain[4*i:])))
		}
		c.smalls = p.smalls
	case reflect.Float64:
		if len(plain) < 8*n {
			return errDamaged
		}
		c.floats = plain
	case reflect.Bool:
		if len(plain) < (n+7)/8 {
			return errDamaged
		}
		c.bits = plain
	case reflect.String:
		p.offsets = p.offsets[:0]
		at := 0
		for range n {
			if len(plain)-at < 4 || uint64(binary.LittleEndian.Uint32(plain[at:])) > uint64(len(plain)-at-4) {
				return errDamaged
			}
			p.offsets = append(p.offsets, uint32(at+4))
			at += 4 + int(binary.LittleEndian.Uint32(plain[at:]))
		}
		c.data, c.offsets = plain, append(p.offsets, uint32(at+4))
		p.offsets = c.offsets
	default:
		return errForeign
	}
	return nil
}

// realAt is number i of those in b, as they are in the file.
func realAt(b []byte, i int) float64 {
	return math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
}

// textAt is text i of a page.
func (c *column) textAt(i int) string {
	const length = 4 // of the next one, between the two
	return string(c.data[c.offsets[i] : c.offsets[i+1]-length])
}

// openDict takes the values of a dictionary.
func (c *column) openDict(plain []byte, n int) error {
	c.dict = true
	c.texts, c.longs, c.reals = c.texts[:0], c.longs[:0], c.reals[:0]
	switch c.kind {
	case reflect.String:
		for range n {
			if len(plain) < 4 || uint64(binary.LittleEndian.Uint32(plain)) > uint64(len(plain)-4) {
				return errDamaged
			}
			end := 4 + int(binary.LittleEndian.Uint32(plain))
			c.texts = append(c.texts, string(plain[4:end]))
			plain = plain[end:]
		}
	case reflect.Int64, reflect.Float64:
		if len(plain) < 8*n {
			return errDamaged
		}
		for i := range n {
			if c.kind == reflect.Int64 {
				c.longs = append(c.longs, int64(binary.LittleEndian.Uint64(plain[8*i:])))
			} else {
				c.reals = append(c.reals, realAt(plain, i))
			}
		}
	default:
		return errForeign
	}
	return nil
}
