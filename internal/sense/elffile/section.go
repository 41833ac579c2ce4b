package elffile

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// Sizes of the header of a compressed section (Elf32_Chdr, Elf64_Chdr), and of
// that of the older form, whose name begins with ".zdebug": "ZLIB" and the size.
const (
	chdr32, chdr64 = 12, 24
	zdebug         = 12
)

// compression reads the header of a compressed section.
func (s *Section) compression() error {
	b := make([]byte, chdr64)
	if s.file.Class == elf.ELFCLASS32 {
		b = b[:chdr32]
	}
	if s.FileSize < uint64(len(b)) {
		return fmt.Errorf("%w: a compressed section without its header", ErrDamaged)
	}
	if err := s.file.readAt(b, int64(s.Offset)); err != nil {
		return fmt.Errorf("compressed section: %w", err)
	}
	o := s.file.ByteOrder
	s.method, s.skip = elf.CompressionType(o.Uint32(b)), int64(len(b))
	if s.file.Class == elf.ELFCLASS32 {
		s.Size, s.Addralign = uint64(o.Uint32(b[4:])), uint64(o.Uint32(b[8:]))
	} else {
		s.Size, s.Addralign = o.Uint64(b[8:]), o.Uint64(b[16:])
	}
	return nil
}

// Compressed says that the contents are compressed in the file.
func (s *Section) Compressed() bool { return s.method != 0 }

// ErrNoBits says that a section has no bytes in the file.
var ErrNoBits = errors.New("the section has no contents in the file")

// Data reads all of a section into memory, which counts as unpacked bytes of the
// budget. The size that it says it has is taken from there before anything is read
// or unpacked, and no more than that is.
func (s *Section) Data() ([]byte, error) {
	switch {
	case s.Type == elf.SHT_NOBITS:
		return nil, ErrNoBits
	case int64(s.Offset) < 0 || int64(s.FileSize) < 0 || int64(s.Size) < 0:
		return nil, fmt.Errorf("%w: section %s lies beyond all files", ErrDamaged, s.Name)
	case s.method == 0:
		if err := s.file.budget.Unpack(int64(s.FileSize)); err != nil {
			return nil, err
		}
		return s.file.bytes(int64(s.Offset), int64(s.FileSize))
	}
	packed := io.NewSectionReader(s.file, int64(s.Offset)+s.skip, int64(s.FileSize)-s.skip)
	return s.file.unpack(packed, s.method, int64(s.Size))
}

// Unpacked reads a section of debugging information by the name that it has when
// it is not compressed, ".debug_info", also where the older form of compression
// gave it another name; nil when there is none.
func (f *File) Unpacked(name string) ([]byte, error) {
	if s := f.Section(name); s != nil {
		return s.Data()
	}
	if len(name) < 2 {
		return nil, nil
	}
	s := f.Section(".z" + name[1:])
	if s == nil || s.FileSize < zdebug {
		return nil, nil
	}
	head, err := f.bytes(int64(s.Offset), zdebug)
	if err != nil {
		return nil, err
	}
	if string(head[:4]) != "ZLIB" {
		return nil, fmt.Errorf("%w: section %s", ErrDamaged, s.Name)
	}
	size := int64(0)
	for _, c := range head[4:] { // big-endian in all files
		size = size<<8 | int64(c)
	}
	packed := io.NewSectionReader(f, int64(s.Offset)+zdebug, int64(s.FileSize)-zdebug)
	return f.unpack(packed, elf.COMPRESS_ZLIB, size)
}

// unpackAtOnce is between two looks at the clock: some ms of work.
const unpackAtOnce = 256 << 10

// unpack unpacks exactly so many bytes.
func (f *File) unpack(packed io.Reader, method elf.CompressionType, size int64) ([]byte, error) {
	if err := f.budget.Unpack(size); err != nil {
		return nil, err
	}
	var r io.Reader
	switch method {
	case elf.COMPRESS_ZLIB:
		z, err := zlib.NewReader(packed)
		if err != nil {
			return nil, f.damagedBy(err)
		}
		defer z.Close()
		r = z
	case elf.COMPRESS_ZSTD:
		z, err := zstd.NewReader(packed, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderMaxMemory(uint64(size)+maxWindow))
		if err != nil {
			return nil, f.damagedBy(err)
		}
		defer z.Close()
		r = z
	default:
		return nil, fmt.Errorf("compressed by a method that is not known (%d)", method)
	}
	var out bytes.Buffer
	for int64(out.Len()) < size {
		if err := f.budget.Err(); err != nil {
			return nil, err
		}
		if _, err := io.CopyN(&out, r, min(size-int64(out.Len()), unpackAtOnce)); err != nil {
			return nil, f.damagedBy(err)
		}
	}
	return out.Bytes(), nil
}

// maxWindow bounds what a decoder of zstd keeps, bytes: that of level 19, and
// eight times what linkers use.
const maxWindow = 8 << 20

// damagedBy is the budget's own error, if it is that which ended unpacking.
func (f *File) damagedBy(err error) error {
	if over := f.budget.Err(); over != nil {
		return over
	}
	return fmt.Errorf("%w: a compressed section: %v", ErrDamaged, err)
}

// ReadAt reads from a section that is not compressed (io.ReaderAt).
func (s *Section) ReadAt(p []byte, off int64) (int, error) {
	if s.Compressed() || s.Type == elf.SHT_NOBITS {
		return 0, ErrNoBits
	}
	if off < 0 || uint64(off) >= s.FileSize || int64(s.Offset)+off < 0 {
		return 0, io.EOF
	}
	cut := false
	if left := s.FileSize - uint64(off); uint64(len(p)) > left {
		p, cut = p[:left], true
	}
	n, err := s.file.ReadAt(p, int64(s.Offset)+off)
	if err == nil && cut {
		err = io.EOF
	}
	return n, err
}
