package threadcontext

import (
	"debug/elf"
	"errors"
	"fmt"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/sense/elffile"
	"github.com/slowray/slowray/internal/sense/procmem"
)

// tlsSymbol is the symbol in a file's table of dynamic symbols; its index is 0 where there
// is none.
type tlsSymbol struct {
	index uint32
	value uint64 // where it lies in the file's thread-local storage
}

// lookUp finds the symbol, as far as it is defined in the file.
func lookUp(image *elffile.File) (s tlsSymbol, err error) {
	t := image.Symbols(elf.SHT_DYNSYM)
	if t == nil {
		return s, nil
	}
	index := uint32(0)
	err = t.Each(func(sym *elffile.Symbol) bool {
		if elf.ST_TYPE(sym.Info) == elf.STT_TLS && sym.Section != elf.SHN_UNDEF && sym.Named() && t.NameOfMany(sym) == symbol {
			s = tlsSymbol{index, sym.Value}
			return false
		}
		index++
		return true
	})
	return s, err
}

var errNoSegment = errors.New("it has no thread-local storage")

// segment is the file's thread-local storage.
func segment(image *elffile.File) (*elf.ProgHeader, error) {
	for i := range image.Progs {
		if p := &image.Progs[i]; p.Type == elf.PT_TLS {
			if p.Align&(p.Align-1) != 0 || p.Align > maxStatic || p.Memsz > maxStatic {
				return nil, fmt.Errorf("%w that can be: %d bytes, aligned to %d", errNoSegment, p.Memsz, p.Align)
			}
			return p, nil
		}
	}
	return nil, errNoSegment
}

// maxStatic bounds distances from the thread pointer, bytes. Addresses of memory are
// higher than that, by which static knows them.
const maxStatic = 4 << 20

// ofProgram is the place in an executable, whose block lies next to the thread pointer
// (Drepper, ELF Handling For Thread-Local Storage, 3.4): below it on x86-64, and on arm64
// above the two words that it points to.
func ofProgram(image *elffile.File, s tlsSymbol) (at Place, err error) {
	p, err := segment(image)
	if err != nil {
		return at, err
	}
	if s.value >= p.Memsz {
		return at, errors.New("the symbol lies outside of the thread-local storage")
	}
	mask := max(p.Align, 1) - 1
	switch image.Machine {
	case elf.EM_X86_64:
		at.Offset = int64(s.value) - int64(p.Memsz+(-p.Vaddr-p.Memsz)&mask)
	case elf.EM_AARCH64:
		const words = 16
		at.Offset = int64(words + (p.Vaddr-words)&mask + s.value)
	default:
		return at, errMachine
	}
	return at, nil
}

var errMachine = errors.New("it is of another architecture")

// access is by what a library finds its variable: each is a relocation, whose slot the
// dynamic linker has filled.
type access int

const (
	byOffset     access = 1 + iota // a word: the distance from the thread pointer (initial exec)
	byDescriptor                   // two words, the second one is that distance, or leads to module and offset (TLSDESC)
	byModule                       // a word: the number of the module (general and local dynamic)
)

// relocations are their numbers (psABI of x86-64, 4.4.1; ELF for the Arm 64-bit
// Architecture, 5.7.12).
var relocations = map[elf.Machine]map[uint32]access{
	elf.EM_X86_64:  {uint32(elf.R_X86_64_TPOFF64): byOffset, uint32(elf.R_X86_64_TLSDESC): byDescriptor, uint32(elf.R_X86_64_DTPMOD64): byModule},
	elf.EM_AARCH64: {uint32(elf.R_AARCH64_TLS_TPREL64): byOffset, uint32(elf.R_AARCH64_TLSDESC): byDescriptor, uint32(elf.R_AARCH64_TLS_DTPMOD64): byModule},
}

// ofLibrary is the place in a library that the dynamic linker has given its storage. start
// is where the beginning of the file is mapped.
func (m *memory) ofLibrary(p procmem.Process, image *elffile.File, s tlsSymbol, start uint64) (at Place, err error) {
	slots, err := slotsOf(p.Budget, image, s)
	if err != nil {
		return at, err
	}
	base, ok := baseOf(image, start)
	if !ok {
		return at, errors.New("it has no segment that begins where the file does")
	}
	storage, err := segment(image)
	if err != nil {
		return at, err
	}
	switch {
	case slots[byOffset] != 0:
		return static(p.Word(base + slots[byOffset]))
	case slots[byDescriptor] != 0:
		argument := p.Word(base + slots[byDescriptor] + 8)
		if at, err := static(argument); err == nil {
			return at, nil
		}
		b := p.Bytes(argument, 16)
		if b == nil {
			return at, errors.New("its descriptor of the symbol cannot be read")
		}
		return m.dynamic(image.Machine, procmem.Long(b, 0), procmem.Long(b, 8), storage.Memsz)
	case slots[byModule] != 0:
		return m.dynamic(image.Machine, p.Word(base+slots[byModule]), s.value, storage.Memsz)
	}
	return at, errors.New("no relocation of it says where its threads have the symbol")
}

// static is the place at a distance from the thread pointer.
func static(distance uint64) (Place, error) {
	if d := int64(distance); d != 0 && d > -maxStatic && d < maxStatic {
		return Place{Offset: d}, nil
	}
	return Place{}, errors.New("the distance of the symbol from the thread pointer cannot be")
}

// maxModules bounds the number of a module: each is a library that is loaded.
const maxModules = 1 << 16

// dynamic is the place in the block of a module that threads get when they need it. Where
// the thread pointer has the vector of blocks is the C library's own: glibc,
// sysdeps/x86_64/nptl/tls.h and sysdeps/aarch64/nptl/tls.h (tcbhead_t), elf/dl-tls.c (an
// entry is two words, the one before the first has the number of the last); musl,
// src/internal/pthread_impl.h (struct pthread), ldso/dynlink.c (an entry is a word, the
// first has the number of the last).
func (m *memory) dynamic(machine elf.Machine, module, offset, size uint64) (Place, error) {
	if module == 0 || module > maxModules || offset >= size {
		return Place{}, errors.New("the number of its module, or the place there, cannot be")
	}
	at := Place{Offset: int64(offset), Module: uint32(module)}
	switch {
	case m.musl:
		at.Entry, at.Length = 8, 0
	default:
		at.Entry, at.Length = 16, -16
	}
	switch {
	case machine == elf.EM_X86_64:
		at.Vector = 8
	case m.musl:
		at.Vector = -8
	default:
		at.Vector = 0
	}
	return at, nil
}

// relaSize is sizeof(Elf64_Rela).
const relaSize = 24

// slotsOf is where the slots of the symbol's relocations lie, as the file counts addresses,
// by the kind of access.
func slotsOf(b *budget.Budget, image *elffile.File, s tlsSymbol) (slots [byModule + 1]uint64, err error) {
	kinds := relocations[image.Machine]
	if kinds == nil || image.Class != elf.ELFCLASS64 {
		return slots, errMachine
	}
	o := image.ByteOrder
	for i := range image.Sections {
		sec := &image.Sections[i]
		if sec.Type != elf.SHT_RELA || sec.Flags&elf.SHF_ALLOC == 0 || sec.Compressed() {
			continue
		}
		all, err := sec.Data()
		if err != nil {
			return slots, err
		}
		if err := b.Nodes(int64(len(all) / relaSize)); err != nil {
			return slots, err
		}
		for ; len(all) >= relaSize; all = all[relaSize:] {
			info, addend := o.Uint64(all[8:]), o.Uint64(all[16:])
			kind := kinds[uint32(info)]
			if kind == 0 || slots[kind] != 0 {
				continue
			}
			// Without a symbol it is of the file's own storage, at the addend.
			if of := uint32(info >> 32); of == s.index && addend == 0 || of == 0 && (kind == byModule || addend == s.value) {
				slots[kind] = o.Uint64(all)
			}
		}
	}
	return slots, nil
}

// baseOf is what is added to addresses of the file where its beginning is mapped at start.
func baseOf(image *elffile.File, start uint64) (uint64, bool) {
	for i := range image.Progs {
		if p := &image.Progs[i]; p.Type == elf.PT_LOAD && p.Off < 1<<12 {
			return start - (p.Vaddr - p.Off), true
		}
	}
	return 0, false
}
