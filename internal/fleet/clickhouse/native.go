package clickhouse

import (
	"encoding/binary"
	"strings"

	"github.com/ClickHouse/ch-go/compress"
)

// column collects the values of a column, in the very bytes of FORMAT Native. A
// column in which nothing but zeros or empty texts came is not sent: the server puts
// in the same. Most columns of most batches are.
type column struct {
	name, typ string
	width     int // bytes of a value; 0 is a text
	used      bool
	b         []byte
}

func (c *column) reset() { c.b, c.used = c.b[:0], false }

// begin fills in the rows before the first one that is not empty.
func (c *column) begin(row int) {
	c.used = true
	n := row * max(c.width, 1) // an empty text is its length, one byte
	for len(c.b) < n {
		c.b = append(c.b, zeros[:min(n-len(c.b), len(zeros))]...)
	}
}

var zeros [4096]byte

// takes says whether a row's value has to be written: it is something, or follows on
// something.
func (c *column) takes(row int, something bool) bool {
	if !c.used && something {
		c.begin(row)
	}
	return c.used
}

// put writes a number as wide as the column's values are.
func (c *column) put(row int, v uint64) {
	switch c.width {
	case 8:
		c.put64(row, v)
	case 4:
		c.put32(row, uint32(v))
	case 2:
		c.put16(row, uint16(v))
	default:
		c.put8(row, uint8(v))
	}
}

func (c *column) put64(row int, v uint64) {
	if c.takes(row, v != 0) {
		c.b = binary.LittleEndian.AppendUint64(c.b, v)
	}
}

func (c *column) put32(row int, v uint32) {
	if c.takes(row, v != 0) {
		c.b = binary.LittleEndian.AppendUint32(c.b, v)
	}
}

func (c *column) put16(row int, v uint16) {
	if c.takes(row, v != 0) {
		c.b = binary.LittleEndian.AppendUint16(c.b, v)
	}
}

func (c *column) put8(row int, v uint8) {
	if c.takes(row, v != 0) {
		c.b = append(c.b, v)
	}
}

func (c *column) putText(row int, s string) {
	if !c.takes(row, s != "") {
		return
	}
	if len(s) < 0x80 {
		c.b = append(c.b, byte(len(s)))
	} else {
		c.b = binary.AppendUvarint(c.b, uint64(len(s)))
	}
	c.b = append(c.b, s...)
}

// bucketColumn collects the histograms of a column: two arrays of the same lengths.
type bucketColumn struct {
	name            string
	used            bool
	ends            []byte // UInt64 for each row: buckets up to its end
	buckets, counts []byte
	total           uint64
}

func (c *bucketColumn) reset() {
	c.used, c.total = false, 0
	c.ends, c.buckets, c.counts = c.ends[:0], c.buckets[:0], c.counts[:0]
}

// put adds a bucket to the row that is next to end.
func (c *bucketColumn) put(bucket uint16, n uint64) {
	c.used = true
	c.buckets = binary.LittleEndian.AppendUint16(c.buckets, bucket)
	c.counts = binary.LittleEndian.AppendUint64(c.counts, n)
	c.total++
}

// end ends a row.
func (c *bucketColumn) end() { c.ends = binary.LittleEndian.AppendUint64(c.ends, c.total) }

// block is rows of a table.
type block struct {
	table   string
	columns []*column
	buckets []*bucketColumn
	rows    int
	whole   bool // all columns are sent: a gateway puts only rows of the same columns together

	raw, out []byte
	lz4      *compress.Writer
	list     []string // of the columns of the last encode
}

// newBlock makes a block of columns.
func newBlock(table string, defs []columnDef) (*block, map[string]*column, map[string]*bucketColumn) {
	b := &block{table: table, lz4: compress.NewWriter(compress.LevelZero, compress.LZ4)}
	byName, buckets_ := map[string]*column{}, map[string]*bucketColumn{}
	for _, d := range defs {
		if d.kind == buckets {
			c := &bucketColumn{name: d.name}
			b.buckets, buckets_[d.name] = append(b.buckets, c), c
			continue
		}
		c := &column{name: d.name, typ: d.typ, width: widthOf(d.typ)}
		b.columns, byName[d.name] = append(b.columns, c), c
	}
	return b, byName, buckets_
}

func widthOf(typ string) int {
	switch typ {
	case "String":
		return 0
	case "UInt8":
		return 1
	case "UInt16", "Date":
		return 2
	case "UInt32", "Int32", "DateTime":
		return 4
	}
	if strings.HasPrefix(typ, "Enum8(") {
		return 1
	}
	return 8
}

func (b *block) reset() {
	b.rows = 0
	for _, c := range b.columns {
		c.reset()
	}
	for _, c := range b.buckets {
		c.reset()
	}
}

// frameBytes is how much is compressed at once.
const frameBytes = 1 << 20

// encode gives the rows as a body, in LZ4 frames or as they are, and the columns that
// are in it. Both are valid until the next one.
func (b *block) encode(lz4 bool) (body []byte, columns []string, err error) {
	b.raw, b.out, b.list = b.raw[:0], b.out[:0], b.list[:0]
	n := 0
	for _, c := range b.columns {
		if c.used || b.whole || n == 0 {
			c.begin(b.rows) // at least one column tells how many rows there are
			n++
		}
	}
	for _, c := range b.buckets {
		if c.used || b.whole {
			n += 2
		}
	}
	b.raw = binary.AppendUvarint(b.raw, uint64(n))
	b.raw = binary.AppendUvarint(b.raw, uint64(b.rows))
	for _, c := range b.columns {
		if c.used {
			b.head(c.name, c.typ)
			if err := b.write(c.b, lz4); err != nil {
				return nil, nil, err
			}
		}
	}
	for _, c := range b.buckets {
		if !c.used && !b.whole {
			continue
		}
		for i, part := range [][]byte{c.buckets, c.counts} {
			b.head(c.name+[]string{".bucket", ".n"}[i], []string{"Array(UInt16)", "Array(UInt64)"}[i])
			if err := b.write(c.ends, lz4); err != nil {
				return nil, nil, err
			}
			if err := b.write(part, lz4); err != nil {
				return nil, nil, err
			}
		}
	}
	if !lz4 {
		return b.raw, b.list, nil
	}
	err = b.flush()
	return b.out, b.list, err
}

func (b *block) head(name, typ string) {
	b.list = append(b.list, name)
	for _, s := range [2]string{name, typ} {
		b.raw = binary.AppendUvarint(b.raw, uint64(len(s)))
		b.raw = append(b.raw, s...)
	}
}

func (b *block) write(data []byte, lz4 bool) error {
	for lz4 && len(b.raw)+len(data) >= frameBytes {
		n := max(frameBytes-len(b.raw), 0)
		b.raw = append(b.raw, data[:n]...)
		data = data[n:]
		if err := b.flush(); err != nil {
			return err
		}
	}
	b.raw = append(b.raw, data...)
	return nil
}

// flush ends a frame.
func (b *block) flush() error {
	if len(b.raw) == 0 {
		return nil
	}
	if err := b.lz4.Compress(b.raw); err != nil {
		return err
	}
	b.out = append(b.out, b.lz4.Data...)
	b.raw = b.raw[:0]
	return nil
}
