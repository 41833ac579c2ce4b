package logtail

import (
	"bytes"
	"errors"
	"io"

	"github.com/slowray/slowray/internal/budget"
)

// MaxLine is the longest line given whole; of a longer one only the first
// MaxLine bytes are given.
const MaxLine = 64 << 10

// bufferBytes stays within the L2 cache of the machines of the last ten years.
const bufferBytes = 4 * MaxLine

// splitter cuts stretches of files into lines without allocating per line.
type splitter struct {
	b     *budget.Budget
	line  func([]byte)
	at    *int64 // where the line in hand begins: base + its offset in the file
	base  int64
	buf   []byte
	read  int64 // bytes read
	given int64 // bytes of lines given, line ends included
	lines int64
	cut   int64
}

// scan gives the lines of f from one offset to another. midLine: the stretch
// begins inside a line, which is skipped. toEnd: what follows the last line
// end is a line too.
func (s *splitter) scan(f io.ReaderAt, from, to int64, midLine, toEnd bool) error {
	if s.buf == nil {
		s.buf = make([]byte, bufferBytes)
	}
	have, skipping, counted := 0, midLine, false
	for from < to {
		if err := s.b.Err(); err != nil {
			return err
		}
		n, err := f.ReadAt(s.buf[have:have+int(min(int64(len(s.buf)-have), to-from))], from)
		if n == 0 && err != nil {
			if errors.Is(err, io.EOF) {
				break // truncated while being read
			}
			return err
		}
		if err := s.b.Read(int64(n)); err != nil {
			return err
		}
		s.read += int64(n)
		data := s.buf[:have+n]
		start := from - int64(have) // file offset of data[0]
		from += int64(n)
		used := 0
		if skipping {
			i := bytes.IndexByte(data, '\n')
			if counted {
				s.given += int64(i + 1)
				if i < 0 {
					s.given += int64(len(data))
				}
			}
			if i < 0 {
				have = 0
				continue
			}
			used, skipping, counted = i+1, false, false
		}
		whole, err := s.whole(data[used:], s.base+start+int64(used))
		if err != nil {
			return err
		}
		used += whole
		rest := data[used:]
		if len(rest) > MaxLine {
			*s.at = s.base + start + int64(used)
			s.give(rest)
			s.given += int64(len(rest))
			skipping, counted, have = true, true, 0
			continue
		}
		have = copy(s.buf, rest)
	}
	if have > 0 && toEnd {
		*s.at = s.base + from - int64(have)
		s.give(s.buf[:have])
		s.given += int64(have)
	}
	return nil
}

// whole gives all lines of data that have an end and returns their size.
func (s *splitter) whole(data []byte, at int64) (used int, err error) {
	for {
		i := bytes.IndexByte(data[used:], '\n')
		if i < 0 {
			break
		}
		if err = s.b.Node(); err != nil {
			break
		}
		*s.at = at + int64(used)
		s.give(data[used : used+i])
		used += i + 1
	}
	s.given += int64(used)
	return used, err
}

func (s *splitter) give(line []byte) {
	s.lines++
	// A file truncated under a writer that does not append begins with a hole.
	if len(line) > 0 && line[0] == 0 {
		line = bytes.TrimLeft(line, "\x00")
	}
	if len(line) > MaxLine {
		line = line[:MaxLine]
		s.cut++
	}
	s.line(line)
}
