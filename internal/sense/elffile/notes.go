package elffile

import (
	"bytes"
	"debug/elf"
	"encoding/hex"
)

// Bounds of what is read for the build ID and for the libraries that a file needs.
const (
	maxNotes     = 64
	maxNote      = 64 << 10 // bytes of a section of notes
	maxBuildID   = 64       // bytes: a SHA-512
	maxDynamic   = 64 << 10 // bytes of the dynamic section: 4,096 entries
	maxLibraries = 1024
	maxLibrary   = 256 // bytes of a library's name
)

// BuildID is the file's identity that its linker gave it (NT_GNU_BUILD_ID), in
// hexadecimal; "" when it has none, or one that is longer than any.
func (f *File) BuildID() string {
	notes := 0
	for i := range f.Sections {
		s := &f.Sections[i]
		if s.Type != elf.SHT_NOTE || s.Size > maxNote || notes == maxNotes {
			continue
		}
		notes++
		data, err := s.Data()
		if err != nil {
			continue
		}
		// Elf64_Nhdr: lengths of name and description, type; then both, each
		// filled up to a multiple of four.
		for len(data) >= 12 {
			name, desc, kind := f.ByteOrder.Uint32(data), f.ByteOrder.Uint32(data[4:]), f.ByteOrder.Uint32(data[8:])
			body := data[12:]
			padded := func(n uint32) uint64 { return (uint64(n) + 3) &^ 3 }
			if padded(name)+padded(desc) > uint64(len(body)) {
				break
			}
			const gnuBuildID = 3
			if kind == gnuBuildID && name == 4 && string(body[:4]) == "GNU\x00" {
				if desc > maxBuildID {
					return ""
				}
				return hex.EncodeToString(body[4 : 4+desc])
			}
			data = body[padded(name)+padded(desc):]
		}
	}
	return ""
}

// Libraries are the libraries that a 64-bit file says it needs (DT_NEEDED).
func (f *File) Libraries() []string {
	s := f.SectionByType(elf.SHT_DYNAMIC)
	if s == nil || f.Class != elf.ELFCLASS64 || s.Size > maxDynamic || int64(s.Link) >= int64(len(f.Sections)) {
		return nil
	}
	data, err := s.Data()
	if err != nil {
		return nil
	}
	var out []string
	for ; len(data) >= 16 && len(out) < maxLibraries; data = data[16:] {
		if elf.DynTag(f.ByteOrder.Uint64(data)) != elf.DT_NEEDED {
			continue
		}
		name := make([]byte, maxLibrary)
		n, _ := f.Sections[s.Link].ReadAt(name, int64(f.ByteOrder.Uint64(data[8:])))
		if end := bytes.IndexByte(name[:n], 0); end > 0 {
			out = append(out, string(name[:end]))
		}
	}
	return out
}
