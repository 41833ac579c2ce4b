package elfbomb

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
)

// Section is a section of a file to be made.
type Section struct {
	Name  string
	Type  elf.SectionType
	Flags elf.SectionFlag
	Addr  uint64
	Link  uint32 // number of another, counted from 1
	// Data is what it holds; nil of one that has Offset and Size of its own, or
	// shares the bytes of the section before it.
	Data         []byte
	Offset, Size uint64
	// NameAt, if not 0, is where its name begins in the table of names: Name is
	// appended there.
	NameAt uint32
}

const (
	headerSize  = 64
	sectionSize = 64
)

// With gives a 64-bit little-endian program other sections than it has. They are
// behind its end, so that all that is loaded of it stays where it is.
func With(base []byte, list ...Section) []byte { return with(base, nil, list) }

// with is With with a table of names of its own.
func with(base []byte, names *Section, list []Section) []byte {
	out := bytes.Clone(base)
	text := []byte{0}
	own := Section{Name: ".shstrtab", Type: elf.SHT_STRTAB}
	if names != nil {
		own = *names
		text = own.Data
	}
	at := make([]uint32, 0, len(list)+1)
	for _, s := range append(list, own) {
		if s.NameAt != 0 {
			at = append(at, s.NameAt)
			continue
		}
		at = append(at, uint32(len(text)))
		text = append(append(text, s.Name...), 0)
	}
	own.Data = text
	headers := make([]byte, sectionSize) // the first is none
	var offset, size uint64
	for i, s := range append(list, own) {
		switch {
		case s.Data != nil:
			for len(out)%16 != 0 {
				out = append(out, 0)
			}
			offset, size = uint64(len(out)), uint64(len(s.Data))
			out = append(out, s.Data...)
		case s.Size != 0:
			offset, size = s.Offset, s.Size
		}
		headers = binary.LittleEndian.AppendUint32(headers, at[i])
		headers = binary.LittleEndian.AppendUint32(headers, uint32(s.Type))
		for _, v := range []uint64{uint64(s.Flags), s.Addr, offset, size} {
			headers = binary.LittleEndian.AppendUint64(headers, v)
		}
		headers = binary.LittleEndian.AppendUint32(headers, s.Link)
		headers = binary.LittleEndian.AppendUint32(headers, 0)
		headers = binary.LittleEndian.AppendUint64(headers, 1)
		headers = binary.LittleEndian.AppendUint64(headers, 24)
	}
	for len(out)%16 != 0 {
		out = append(out, 0)
	}
	binary.LittleEndian.PutUint64(out[40:], uint64(len(out)))    // e_shoff
	binary.LittleEndian.PutUint16(out[58:], sectionSize)         // e_shentsize
	binary.LittleEndian.PutUint16(out[60:], uint16(len(list)+2)) // e_shnum
	binary.LittleEndian.PutUint16(out[62:], uint16(len(list)+1)) // e_shstrndx
	return append(out, headers...)
}

// Small is a file that is nothing but the header of a program, with one segment
// of code at address 0x1000 that is 1 MB long.
func Small() []byte {
	const code, size = 0x1000, 1 << 20
	b := make([]byte, headerSize+56)
	copy(b, elf.ELFMAG)
	b[elf.EI_CLASS], b[elf.EI_DATA], b[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), 1
	o := binary.LittleEndian
	o.PutUint16(b[16:], uint16(elf.ET_DYN))
	o.PutUint16(b[18:], uint16(elf.EM_X86_64))
	o.PutUint32(b[20:], 1)
	o.PutUint64(b[32:], headerSize) // e_phoff
	o.PutUint16(b[52:], headerSize)
	o.PutUint16(b[54:], 56)
	o.PutUint16(b[56:], 1)
	p := b[headerSize:]
	o.PutUint32(p, uint32(elf.PT_LOAD))
	o.PutUint32(p[4:], uint32(elf.PF_R|elf.PF_X))
	for i, v := range []uint64{0, code, code, size, size, 0x1000} {
		o.PutUint64(p[8+8*i:], v)
	}
	return b
}

// Own gives the sections that a program has, with their contents: some of them
// can be kept, as those by which a program is known to be one of Go.
func Own(base []byte, want func(name string) bool) []Section {
	f, err := elf.NewFile(bytes.NewReader(base))
	if err != nil {
		return nil
	}
	var out []Section
	for _, s := range f.Sections {
		if s.Type == elf.SHT_NULL || s.Size == 0 || !want(s.Name) || s.Flags&elf.SHF_COMPRESSED != 0 {
			continue
		}
		out = append(out, Section{Name: s.Name, Type: s.Type, Flags: s.Flags, Addr: s.Addr, Offset: s.Offset, Size: s.FileSize})
	}
	return out
}
