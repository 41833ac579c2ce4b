package clickhouse

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/ClickHouse/ch-go/proto"

	"github.com/slowray/slowray/internal/budget"
)

// Answers come in FORMAT Native: blocks of columns, each the number of columns and of
// rows, and for each column its name, its type and its values (ClickHouse's
// src/Formats/NativeReader.cpp). ch-go takes memory for as many values as a block says
// that it has before it reads the first of them, 100 million rows or a text of any
// length: a dozen bytes of whoever answers at the address end the process. Here memory
// is only taken for what has come, and of a block no more than maxBlock.

const (
	// maxPassed bounds an answer whose rows are looked at one by one, bytes; maxKept one of
	// which all rows are kept, some 300 bytes of memory for 100 of the answer; maxBuckets
	// the histograms of what is kept.
	maxPassed, maxKept, maxBuckets = 4 << 30, 128 << 20, 1 << 30
	// maxBlock bounds the memory of a block's values, bytes. The largest that are known
	// are those of Totals: an old server gives all groups of a small aggregation as one.
	maxBlock = 192 << 20
	// maxName bounds the name of a column and of its type, bytes.
	maxName = 4 << 10
	// valuesAtOnce is how many values memory is taken for at a time.
	valuesAtOnce = 8 << 10
)

// answerReader reads the blocks of an answer.
type answerReader struct {
	ctx  context.Context
	in   *bufio.Reader
	left *budget.Budget // of the block
	buf  []byte
}

// newAnswerReader reads an answer of at most so many bytes.
func newAnswerReader(ctx context.Context, r io.Reader, most int64) *answerReader {
	all := budget.New(ctx, budget.Limits{Bytes: most, Wall: queryTimeout})
	return &answerReader{ctx: ctx, in: bufio.NewReaderSize(all.Reader(r), 128<<10), buf: make([]byte, 8*valuesAtOnce)}
}

// block reads the next block into the columns of results, and says how many rows it
// has. The error is io.EOF, and nothing else, where the answer ends between two blocks.
// After another error the columns may not be looked at.
func (r *answerReader) block(results proto.Results) (rows int, err error) {
	for _, c := range results {
		c.Data.Reset()
	}
	r.left = budget.New(r.ctx, budget.Limits{Bytes: maxBlock, Wall: queryTimeout})
	columns, err := binary.ReadUvarint(r.in)
	if err != nil {
		return 0, err // io.EOF when there is not a byte
	}
	n, err := r.number()
	switch {
	case err != nil:
		return 0, err
	case columns == 0 && n == 0:
		return 0, nil
	case columns != uint64(len(results)):
		return 0, fmt.Errorf("has %d columns, and %d were asked for", columns, len(results))
	case n > maxBlock:
		return 0, fmt.Errorf("has a block of %d rows", n)
	}
	for i := range results {
		if err := r.column(&results[i], int(n)); err != nil {
			return 0, err
		}
	}
	return int(n), nil
}

// column reads one column of a block. Its name is that of the first block.
func (r *answerReader) column(c *proto.ResultColumn, rows int) error {
	name, err := r.text()
	if err != nil {
		return err
	}
	typ, err := r.text()
	if err != nil {
		return err
	}
	if c.Name == "" {
		c.Name = name
	}
	if name != c.Name {
		return fmt.Errorf("has a column %.60q, and not %.60q", name, c.Name)
	}
	if want := c.Data.Type(); proto.ColumnType(typ) != want {
		return fmt.Errorf("has a column %.60q of type %.60q, and not %s", name, typ, want)
	}
	switch v := c.Data.(type) {
	case *proto.ColStr:
		return r.texts(v, rows)
	case *proto.ColArr[uint16]:
		return array(r, v, rows)
	case *proto.ColArr[uint64]:
		return array(r, v, rows)
	}
	return r.values(c.Data, rows)
}

// values reads the values of a column of numbers.
func (r *answerReader) values(c any, rows int) error {
	switch v := c.(type) {
	case *proto.ColUInt16:
		return numbers(r, (*[]uint16)(v), rows, 2, binary.LittleEndian.Uint16)
	case *proto.ColInt16:
		return numbers(r, (*[]int16)(v), rows, 2, func(b []byte) int16 { return int16(binary.LittleEndian.Uint16(b)) })
	case *proto.ColUInt32:
		return numbers(r, (*[]uint32)(v), rows, 4, binary.LittleEndian.Uint32)
	case *proto.ColUInt64:
		return numbers(r, (*[]uint64)(v), rows, 8, binary.LittleEndian.Uint64)
	case *proto.ColInt64:
		return numbers(r, (*[]int64)(v), rows, 8, func(b []byte) int64 { return int64(binary.LittleEndian.Uint64(b)) })
	case *proto.ColFloat64:
		return numbers(r, (*[]float64)(v), rows, 8, func(b []byte) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(b)) })
	}
	return fmt.Errorf("a column of %T is not read", c)
}

// numbers appends values of a width in bytes.
func numbers[T any](r *answerReader, to *[]T, rows, width int, value func([]byte) T) error {
	if err := r.left.Read(int64(rows) * int64(width)); err != nil {
		return err
	}
	for rows > 0 {
		n := min(rows, valuesAtOnce)
		b := r.buf[:n*width]
		if _, err := io.ReadFull(r.in, b); err != nil {
			return cutOff(err)
		}
		for ; len(b) > 0; b = b[width:] {
			*to = append(*to, value(b))
		}
		rows -= n
	}
	return nil
}

// array reads a column of lists: where the values of each row end, and all values.
func array[T any](r *answerReader, c *proto.ColArr[T], rows int) error {
	if err := r.values(&c.Offsets, rows); err != nil {
		return err
	}
	before := uint64(0)
	for _, end := range c.Offsets {
		if end < before || end > maxBlock {
			return errors.New("is malformed: lists end before they begin")
		}
		before = end
	}
	return r.values(c.Data, int(before))
}

// positionBytes is what a text takes next to its bytes (proto.Position).
const positionBytes = 16

// texts reads a column of texts.
func (r *answerReader) texts(c *proto.ColStr, rows int) error {
	for range rows {
		size, err := r.number()
		if err != nil {
			return err
		}
		if size > maxBlock {
			return fmt.Errorf("has a text of %d bytes", size)
		}
		if err := r.left.Read(int64(size) + positionBytes); err != nil {
			return err
		}
		start := len(c.Buf)
		for left := int(size); left > 0; {
			n := min(left, len(r.buf))
			if _, err := io.ReadFull(r.in, r.buf[:n]); err != nil {
				return cutOff(err)
			}
			c.Buf = append(c.Buf, r.buf[:n]...)
			left -= n
		}
		c.Pos = append(c.Pos, proto.Position{Start: start, End: len(c.Buf)})
	}
	return nil
}

// text reads a name.
func (r *answerReader) text() (string, error) {
	size, err := r.number()
	if err != nil {
		return "", err
	}
	if size > maxName {
		return "", fmt.Errorf("has a name of %d bytes", size)
	}
	if _, err := io.ReadFull(r.in, r.buf[:size]); err != nil {
		return "", cutOff(err)
	}
	return string(r.buf[:size]), nil
}

func (r *answerReader) number() (uint64, error) {
	n, err := binary.ReadUvarint(r.in)
	return n, cutOff(err)
}

// cutOff is the error of an answer that ends within a block.
func cutOff(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
