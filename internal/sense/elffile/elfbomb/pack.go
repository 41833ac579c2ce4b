package elfbomb

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"hash/crc32"

	"github.com/ulikunitz/xz/lzma"
)

// Packed is a compressed section that says it unpacks to so many bytes.
func Packed(name string, method elf.CompressionType, says uint64, packed []byte) Section {
	b := binary.LittleEndian.AppendUint32(nil, uint32(method))
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = binary.LittleEndian.AppendUint64(b, says)
	b = binary.LittleEndian.AppendUint64(b, 1)
	return Section{Name: name, Type: elf.SHT_PROGBITS, Flags: elf.SHF_COMPRESSED, Data: append(b, packed...)}
}

// Zlib is a stream that unpacks to n zeros: 160 of them for each byte.
func Zlib(n int64) []byte {
	out := []byte{0x78, 0x01}
	var bits uint64
	var count uint
	put := func(code uint64, width uint) { // codes of Huffman begin with their highest bit
		for i := width; i > 0; i-- {
			bits |= (code >> (i - 1) & 1) << count
			if count++; count == 8 {
				out = append(out, byte(bits))
				bits, count = 0, 0
			}
		}
	}
	put(1, 1)          // the last block,
	put(0b10, 2)       // with the fixed codes (RFC 1951, 3.2.6)
	put(0b00110000, 8) // a zero, and then
	const longest = 258
	// 285 is a copy of 258 bytes, from a distance of 1: 13 bits.
	for n--; n >= longest; n -= longest {
		put(0b11000101, 8)
		put(0, 5)
	}
	for ; n > 0; n-- {
		put(0b00110000, 8)
	}
	put(0, 7) // the end
	for count != 0 {
		put(0, 1)
	}
	return append(out, 0, 0, 0, 0) // a sum, which nobody gets to
}

// Zstd is a stream that unpacks to n zeros: 32,000 of them for each byte.
func Zstd(n int64) []byte {
	// RFC 8878: the magic number, a header without the size of the contents, a
	// window of 1 MB, and blocks of one byte each that is repeated.
	out := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x50}
	const block, repeated = 128 << 10, 1
	for n > 0 {
		size := min(n, block)
		n -= size
		head := uint32(size)<<3 | repeated<<1
		if n == 0 {
			head |= 1
		}
		out = append(out, byte(head), byte(head>>8), byte(head>>16), 0)
	}
	return out
}

// XZ is a stream that unpacks to about n zeros, and says that it needs a
// dictionary of so many bytes as the code says (0x18 = 16 MB, 0x28 = 4 GB).
func XZ(n int64, dictionary byte) []byte {
	// One chunk of LZMA2 that begins with a new dictionary, again and again.
	const chunk = 1 << 20
	var one bytes.Buffer
	w, err := lzma.Writer2Config{DictCap: chunk}.NewWriter2(&one)
	if err != nil {
		panic(err)
	}
	if _, err := w.Write(make([]byte, chunk)); err != nil {
		panic(err)
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	data := one.Bytes()[:one.Len()-1] // without the end
	sum := func(b []byte, from int) []byte {
		return binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b[from:]))
	}
	out := sum([]byte("\xfd7zXZ\x00\x00\x00"), 6)
	out = sum(append(out, 2, 0, 0x21, 1, dictionary, 0, 0, 0), 12) // a block's header
	for ; n > 0; n -= chunk {
		out = append(out, data...)
	}
	out = append(out, 0)
	for len(out)%4 != 0 {
		out = append(out, 0)
	}
	return append(out, 0) // the index
}
