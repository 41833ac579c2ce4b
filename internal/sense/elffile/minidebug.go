package elffile

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/ulikunitz/xz/lzma"
)

// MiniDebug is the small file with a table of symbols that Fedora and its
// relatives pack into every stripped one (.gnu_debugdata); nil when there is
// none.
func (f *File) MiniDebug() (*File, error) {
	s := f.Section(".gnu_debugdata")
	if s == nil || s.Compressed() {
		return nil, nil
	}
	packed, err := s.Data()
	if err != nil {
		return nil, fmt.Errorf("packed symbols: %w", err)
	}
	data, err := f.unpackXZ(packed)
	if err != nil {
		return nil, fmt.Errorf("packed symbols: %w", err)
	}
	return New(f.budget, bytes.NewReader(data))
}

// The format of xz (https://tukaani.org/xz/xz-file-format-1.0.4.txt): a stream
// header, blocks, an index. Each block's header says how large a dictionary it
// needs, up to 4 GB, which the library's own reader of this format allocates at
// once: so the blocks are found here, and only what is in them is unpacked by
// the library.
const (
	xzMagic      = "\xfd7zXZ\x00"
	xzHeader     = 12
	xzFilter     = 0x21     // LZMA2, with one byte of properties
	maxXZDict    = 16 << 20 // bytes: xz -6, which is used for this, takes 8 MB
	maxMiniDebug = 16 << 20 // bytes: those of the largest programs unpack to some MB
	xzPackedSize = 0x40     // flags of a block: its header has these sizes
	xzSize       = 0x80     //
	xzFilters    = 0x3f     // more filters than one, or flags that are not known
)

// xzChecks is how long the sum after each block is, by its kind (2.1.1.2).
var xzChecks = [16]int{0, 4, 4, 4, 8, 8, 8, 16, 16, 16, 32, 32, 32, 64, 64, 64}

// unpackXZ unpacks a stream, whose sums are not checked: what is damaged has names
// that are wrong, as the author of a hostile file can give it anyway.
func (f *File) unpackXZ(packed []byte) ([]byte, error) {
	damaged := fmt.Errorf("%w: not as xz writes them", ErrDamaged)
	if len(packed) < xzHeader || string(packed[:len(xzMagic)]) != xzMagic {
		return nil, damaged
	}
	check := xzChecks[packed[7]&15]
	var out bytes.Buffer
	for rest := packed[xzHeader:]; ; {
		if len(rest) == 0 {
			return nil, damaged
		}
		if rest[0] == 0 { // the index: there are no more blocks
			return out.Bytes(), nil
		}
		size := (int(rest[0]) + 1) * 4
		if size > len(rest) {
			return nil, damaged
		}
		dict, ok := xzDictionary(rest[1:size])
		if !ok || dict > maxXZDict {
			return nil, fmt.Errorf("%w: it needs a dictionary of more than %d MB", ErrDamaged, maxXZDict>>20)
		}
		if err := f.budget.Unpack(dict); err != nil {
			return nil, err
		}
		rest = rest[size:]
		counted := &countedBytes{Reader: bufio.NewReader(bytes.NewReader(rest))}
		r, err := lzma.Reader2Config{DictCap: int(max(dict, lzma.MinDictCap))}.NewReader2(counted)
		if err != nil {
			return nil, f.damagedBy(err)
		}
		for {
			if out.Len() > maxMiniDebug {
				return nil, fmt.Errorf("%w: it unpacks to more than %d MB", ErrDamaged, maxMiniDebug>>20)
			}
			if err := f.budget.Unpack(unpackAtOnce); err != nil {
				return nil, err
			}
			if _, err := io.CopyN(&out, r, unpackAtOnce); err == io.EOF {
				break
			} else if err != nil {
				return nil, f.damagedBy(err)
			}
		}
		end := (counted.n+3)&^3 + check
		if end > len(rest) {
			return nil, damaged
		}
		rest = rest[end:]
	}
}

// xzDictionary is the size of the dictionary that the header of a block says it
// needs (3.1, 5.3.1), bytes; false of one with other filters than LZMA2.
func xzDictionary(header []byte) (int64, bool) {
	if len(header) < 1 || header[0]&xzFilters != 0 {
		return 0, false
	}
	flags, rest := header[0], header[1:]
	for _, size := range []byte{xzPackedSize, xzSize} {
		if flags&size != 0 {
			_, n := binary.Uvarint(rest)
			if n <= 0 {
				return 0, false
			}
			rest = rest[n:]
		}
	}
	if len(rest) < 3 || rest[0] != xzFilter || rest[1] != 1 {
		return 0, false
	}
	size, err := lzma.DecodeDictCap(rest[2])
	return size, err == nil
}

// countedBytes counts what is read.
type countedBytes struct {
	*bufio.Reader
	n int
}

func (c *countedBytes) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += n
	return n, err
}

func (c *countedBytes) ReadByte() (byte, error) {
	b, err := c.Reader.ReadByte()
	if err == nil {
		c.n++
	}
	return b, err
}
