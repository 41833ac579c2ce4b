package elffile

import (
	"debug/elf"
	"encoding/binary"
	"strings"
)

// Of the section with which Go's linker marks a program (debug/buildinfo): its
// first bytes, and bounds of what it is read for.
const (
	goMagic      = "\xff Go buildinf:"
	goHeader     = 32
	goInline     = 2 // flag: the texts are in the section (since Go 1.18)
	goBigEndian  = 1
	maxGoVersion = 256 // bytes
)

// IsGo says whether Go's linker made a file, which it marks (go version -m).
func (f *File) IsGo() bool { return f.Section(".go.buildinfo") != nil }

// GoVersion is the version of Go that built a 64-bit program, "go1.24.9"; ""
// when it cannot be known.
func (f *File) GoVersion() string {
	s := f.Section(".go.buildinfo")
	if s == nil || s.Compressed() || s.Type == elf.SHT_NOBITS {
		return ""
	}
	b := make([]byte, goHeader+binary.MaxVarintLen64+maxGoVersion)
	n, _ := s.ReadAt(b, 0)
	if b = b[:n]; n < goHeader || string(b[:len(goMagic)]) != goMagic {
		return ""
	}
	pointer, flags := b[14], b[15]
	if flags&goInline != 0 {
		size, n := binary.Uvarint(b[goHeader:])
		if b = b[goHeader+max(n, 0):]; n <= 0 || size > maxGoVersion || size > uint64(len(b)) {
			return ""
		}
		return version(b[:size])
	}
	if pointer != 8 {
		return ""
	}
	o := binary.ByteOrder(binary.LittleEndian)
	if flags&goBigEndian != 0 {
		o = binary.BigEndian
	}
	text := f.Loaded(o.Uint64(b[16:]), 16) // a string: where it is, its length
	if len(text) < 16 || o.Uint64(text[8:]) > maxGoVersion {
		return ""
	}
	return version(f.Loaded(o.Uint64(text), o.Uint64(text[8:])))
}

// version is text as it may be shown.
func version(text []byte) string {
	if strings.ContainsFunc(string(text), func(r rune) bool { return r < ' ' || r > '~' }) {
		return ""
	}
	return string(text)
}
