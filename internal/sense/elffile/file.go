package elffile

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/slowray/slowray/internal/budget"
)

// ErrNotELF says that a file does not begin as an ELF file does.
var ErrNotELF = errors.New("not an ELF file")

// ErrDamaged says that what a file says of itself cannot be.
var ErrDamaged = errors.New("damaged")

// File is an ELF file. It is for one goroutine.
type File struct {
	elf.FileHeader
	Progs    []elf.ProgHeader
	Sections []Section

	raw    io.ReaderAt // not counted: whoever reads takes from the budget first
	budget *budget.Budget
}

// Section is one section of a file.
type Section struct {
	// SectionHeader is as in debug/elf: Size is that of the contents, unpacked,
	// as the file says; FileSize that of the bytes in the file.
	elf.SectionHeader

	file   *File
	method elf.CompressionType // 0 = not compressed
	skip   int64               // of the compression header, bytes
}

// Sizes of the structures of both classes (elf(5)), and bounds.
const (
	header32, header64   = 52, 64
	prog32, prog64       = 32, 56
	section32, section64 = 40, 64

	maxProgs    = 1024    // kernels accept 64 KB of them: 1,170 (fs/binfmt_elf.c)
	maxSections = 1 << 16 // without extended numbering
	maxName     = 256     // bytes of a section's name
	namesSize   = 4 << 20 // of the table of all sections' names
)

// New reads the headers of a file: b is what may be read of it, now and later.
func New(b *budget.Budget, r io.ReaderAt) (*File, error) {
	f := &File{raw: r, budget: b}
	var ident [elf.EI_NIDENT]byte
	if err := f.readAt(ident[:], 0); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, ErrNotELF
		}
		return nil, err
	}
	if string(ident[:4]) != elf.ELFMAG {
		return nil, ErrNotELF
	}
	f.Class, f.Data, f.Version = elf.Class(ident[elf.EI_CLASS]), elf.Data(ident[elf.EI_DATA]), elf.Version(ident[elf.EI_VERSION])
	f.OSABI, f.ABIVersion = elf.OSABI(ident[elf.EI_OSABI]), ident[elf.EI_ABIVERSION]
	switch f.Data {
	case elf.ELFDATA2LSB:
		f.ByteOrder = binary.LittleEndian
	case elf.ELFDATA2MSB:
		f.ByteOrder = binary.BigEndian
	default:
		return nil, fmt.Errorf("%w: its header has no order of bytes", ErrDamaged)
	}
	tables, err := f.header()
	if err != nil {
		return nil, err
	}
	if err := f.readProgs(tables); err != nil {
		return nil, err
	}
	return f, f.readSections(tables)
}

// tables is where a file has its tables of segments and sections.
type tables struct {
	progs, sections         int64
	progCount, sectionCount int
	progSize, sectionSize   int
	names                   int // index of the section with the names of sections
}

func (f *File) header() (t tables, err error) {
	size := header64
	if f.Class == elf.ELFCLASS32 {
		size = header32
	} else if f.Class != elf.ELFCLASS64 {
		return t, fmt.Errorf("%w: its header has no class", ErrDamaged)
	}
	b := make([]byte, size)
	if err := f.readAt(b, 0); err != nil {
		return t, fmt.Errorf("%w: its header ends early", ErrDamaged)
	}
	o := f.ByteOrder
	f.Type, f.Machine = elf.Type(o.Uint16(b[16:])), elf.Machine(o.Uint16(b[18:]))
	rest := b[52:] // e_ehsize, e_phentsize, e_phnum, e_shentsize, e_shnum, e_shstrndx
	if f.Class == elf.ELFCLASS32 {
		f.Entry, t.progs, t.sections = uint64(o.Uint32(b[24:])), int64(o.Uint32(b[28:])), int64(o.Uint32(b[32:]))
		rest = b[40:]
	} else {
		f.Entry, t.progs, t.sections = o.Uint64(b[24:]), int64(o.Uint64(b[32:])), int64(o.Uint64(b[40:]))
	}
	t.progSize, t.progCount = int(o.Uint16(rest[2:])), int(o.Uint16(rest[4:]))
	t.sectionSize, t.sectionCount, t.names = int(o.Uint16(rest[6:])), int(o.Uint16(rest[8:])), int(o.Uint16(rest[10:]))
	if t.progs < 0 || t.sections < 0 {
		return t, fmt.Errorf("%w: its tables lie beyond all files", ErrDamaged)
	}
	return t, nil
}

func (f *File) readProgs(t tables) error {
	least := prog64
	if f.Class == elf.ELFCLASS32 {
		least = prog32
	}
	switch {
	case t.progCount == 0:
		return nil
	case t.progSize < least || t.progCount > maxProgs:
		return fmt.Errorf("%w: %d segments of %d bytes each", ErrDamaged, t.progCount, t.progSize)
	}
	b, err := f.bytes(t.progs, int64(t.progCount*t.progSize))
	if err != nil {
		return fmt.Errorf("table of segments: %w", err)
	}
	o := f.ByteOrder
	f.Progs = make([]elf.ProgHeader, t.progCount)
	for i := range f.Progs {
		p, e := &f.Progs[i], b[i*t.progSize:]
		p.Type = elf.ProgType(o.Uint32(e))
		if f.Class == elf.ELFCLASS32 {
			p.Off, p.Vaddr, p.Paddr = uint64(o.Uint32(e[4:])), uint64(o.Uint32(e[8:])), uint64(o.Uint32(e[12:]))
			p.Filesz, p.Memsz, p.Flags, p.Align = uint64(o.Uint32(e[16:])), uint64(o.Uint32(e[20:])), elf.ProgFlag(o.Uint32(e[24:])), uint64(o.Uint32(e[28:]))
			continue
		}
		p.Flags, p.Off, p.Vaddr, p.Paddr = elf.ProgFlag(o.Uint32(e[4:])), o.Uint64(e[8:]), o.Uint64(e[16:]), o.Uint64(e[24:])
		p.Filesz, p.Memsz, p.Align = o.Uint64(e[32:]), o.Uint64(e[40:]), o.Uint64(e[48:])
	}
	return nil
}

// readSections reads the table of sections. A file without one, as one that was
// stripped of it, has none.
func (f *File) readSections(t tables) error {
	least := section64
	if f.Class == elf.ELFCLASS32 {
		least = section32
	}
	if t.sections == 0 {
		return nil
	}
	if t.sectionSize < least {
		return fmt.Errorf("%w: sections of %d bytes each", ErrDamaged, t.sectionSize)
	}
	if t.sectionCount == 0 || t.names == int(elf.SHN_XINDEX) { // extended numbering: the first section tells
		b, err := f.bytes(t.sections, int64(t.sectionSize))
		if err != nil {
			return fmt.Errorf("table of sections: %w", err)
		}
		var first Section
		f.section(b, &first)
		if t.sectionCount == 0 {
			t.sectionCount = int(min(first.FileSize, maxSections+1))
		}
		if t.names == int(elf.SHN_XINDEX) {
			t.names = int(first.Link)
		}
	}
	if t.sectionCount > maxSections {
		return fmt.Errorf("%w: more than %d sections", ErrDamaged, maxSections)
	}
	if err := f.budget.Nodes(int64(t.sectionCount)); err != nil {
		return err
	}
	b, err := f.bytes(t.sections, int64(t.sectionCount)*int64(t.sectionSize))
	if err != nil {
		return fmt.Errorf("table of sections: %w", err)
	}
	f.Sections = make([]Section, t.sectionCount)
	names := make([]uint32, t.sectionCount)
	for i := range f.Sections {
		e := b[i*t.sectionSize:]
		names[i] = f.ByteOrder.Uint32(e)
		f.section(e, &f.Sections[i])
	}
	if err := f.nameSections(t.names, names); err != nil {
		return err
	}
	for i := range f.Sections {
		if s := &f.Sections[i]; s.Flags&elf.SHF_COMPRESSED != 0 && s.Type != elf.SHT_NOBITS {
			if err := s.compression(); err != nil {
				return err
			}
		}
	}
	return nil
}

// section reads an entry of the table of sections, without its name.
func (f *File) section(e []byte, s *Section) {
	o := f.ByteOrder
	s.file = f
	s.Type = elf.SectionType(o.Uint32(e[4:]))
	if f.Class == elf.ELFCLASS32 {
		s.Flags, s.Addr, s.Offset, s.FileSize = elf.SectionFlag(o.Uint32(e[8:])), uint64(o.Uint32(e[12:])), uint64(o.Uint32(e[16:])), uint64(o.Uint32(e[20:]))
		s.Link, s.Info, s.Addralign, s.Entsize = o.Uint32(e[24:]), o.Uint32(e[28:]), uint64(o.Uint32(e[32:])), uint64(o.Uint32(e[36:]))
	} else {
		s.Flags, s.Addr, s.Offset, s.FileSize = elf.SectionFlag(o.Uint64(e[8:])), o.Uint64(e[16:]), o.Uint64(e[24:]), o.Uint64(e[32:])
		s.Link, s.Info, s.Addralign, s.Entsize = o.Uint32(e[40:]), o.Uint32(e[44:]), o.Uint64(e[48:]), o.Uint64(e[56:])
	}
	s.Size = s.FileSize
}

// nameSections gives the sections their names. All of them may begin in one long
// text of the table, so each takes its bytes from the budget.
func (f *File) nameSections(table int, names []uint32) error {
	if table == 0 || len(f.Sections) == 0 {
		return nil // no names (SHN_UNDEF)
	}
	if table >= len(f.Sections) || f.Sections[table].Type != elf.SHT_STRTAB || f.Sections[table].Flags&elf.SHF_COMPRESSED != 0 || f.Sections[table].FileSize > namesSize {
		return fmt.Errorf("%w: its table of section names", ErrDamaged)
	}
	text, err := f.Sections[table].Data()
	if err != nil {
		return fmt.Errorf("names of sections: %w", err)
	}
	for i, at := range names {
		if int64(at) >= int64(len(text)) {
			return fmt.Errorf("%w: a section's name lies outside of their table", ErrDamaged)
		}
		name := text[at:]
		end := bytes.IndexByte(name[:min(len(name), maxName)], 0)
		if end < 0 {
			end = min(len(name), maxName) // none that anybody asks for
		}
		if err := f.budget.Unpack(int64(end)); err != nil {
			return err
		}
		f.Sections[i].Name = string(name[:end])
	}
	return nil
}

// Within makes b what may be read from now on: for a file that stays open.
func (f *File) Within(b *budget.Budget) { f.budget = b }

// Section is the first one of a name; nil when there is none.
func (f *File) Section(name string) *Section {
	for i := range f.Sections {
		if f.Sections[i].Name == name {
			return &f.Sections[i]
		}
	}
	return nil
}

// SectionByType is the first one of a type; nil when there is none.
func (f *File) SectionByType(t elf.SectionType) *Section {
	for i := range f.Sections {
		if f.Sections[i].Type == t {
			return &f.Sections[i]
		}
	}
	return nil
}

// Executable is the segment with code in which an address lies, as the file
// counts addresses; nil when there is none.
func (f *File) Executable(addr uint64) *elf.ProgHeader {
	for i := range f.Progs {
		if p := &f.Progs[i]; p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && addr >= p.Vaddr && addr-p.Vaddr < p.Memsz {
			return p
		}
	}
	return nil
}

// Loaded reads what is loaded at an address, as the file counts addresses: up to
// size bytes, as many as its segment has of them in the file; nil where nothing
// is.
func (f *File) Loaded(addr, size uint64) []byte {
	for i := range f.Progs {
		p := &f.Progs[i]
		if p.Type != elf.PT_LOAD || addr < p.Vaddr || addr-p.Vaddr >= p.Filesz {
			continue
		}
		at, n := p.Off+addr-p.Vaddr, min(size, p.Filesz-(addr-p.Vaddr))
		if int64(at) < 0 || int64(n) < 0 {
			return nil
		}
		b, _ := f.some(int64(at), int64(n))
		return b
	}
	return nil
}

// ReadAt reads from the file (io.ReaderAt).
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	if err := f.budget.Read(int64(len(p))); err != nil {
		return 0, err
	}
	return f.raw.ReadAt(p, off)
}

func (f *File) readAt(p []byte, off int64) error {
	if off < 0 {
		return io.EOF
	}
	n, err := f.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// piece is how much is asked for at once: a file that says more of itself than it
// has must not take that memory.
const piece = 1 << 20

// bytes reads so many bytes; an error where there are fewer.
func (f *File) bytes(off, size int64) ([]byte, error) {
	b, err := f.some(off, size)
	if err == nil && int64(len(b)) < size {
		err = fmt.Errorf("%w: the file ends early", ErrDamaged)
	}
	return b, err
}

// some reads as many of so many bytes as there are.
func (f *File) some(off, size int64) ([]byte, error) {
	if off < 0 || size < 0 {
		return nil, fmt.Errorf("%w: it lies beyond all files", ErrDamaged)
	}
	b := make([]byte, 0, min(size, piece))
	for int64(len(b)) < size {
		n := int(min(size-int64(len(b)), piece))
		if cap(b)-len(b) < n {
			b = append(make([]byte, 0, min(2*int64(len(b)+n), size)), b...)
		}
		got, err := f.ReadAt(b[len(b):len(b)+n], off+int64(len(b)))
		b = b[:len(b)+got]
		if got < n {
			if errors.Is(err, io.EOF) {
				return b, nil
			}
			return b, err
		}
	}
	return b, nil
}
