package goroutine

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/sense/elffile"
	"github.com/slowray/slowray/internal/sense/host"
	"github.com/slowray/slowray/internal/sense/procmem"
)

// ErrNotGo says that a process does not execute a Go program.
var ErrNotGo = errors.New("it is no Go program")

// A Program is a Go program that runs. It is for one goroutine.
type Program struct {
	PID     int
	Version string // "go1.24.9"

	memory procmem.Process
	file   *os.File
	elf    *elffile.File
	bias   uint64 // of the program's addresses: where it was loaded, less where its file has it
	quantum,
	linkSize uint64 // of an instruction at least; of a return address on the stack that a call leaves there
	layout
	functions
	allGs  uint64 // address of runtime.allgs
	causes map[uint8]Wait
	stacks map[uint64][]Frame // by program counter: what is inlined there, innermost first
	std    string             // where the files of the standard library are
	sizes  map[uint64]int64   // of frames, by program counter; -1 of one that is not known
	held   int                // bytes of text in stacks
	room   uint64             // bytes of goroutines' stacks that may still be kept
}

// maxSearched bounds the variables of a program that are searched, in bytes.
const maxSearched = 32 << 20

// Open finds the goroutines of a process below proc ("/proc"). ErrNotGo is
// returned for what is no Go program.
func Open(b *budget.Budget, proc string, pid int, memory procmem.Reader) (p *Program, err error) {
	file, err := host.FS{Proc: proc}.OpenExe(pid)
	if err != nil {
		return nil, err
	}
	p = &Program{PID: pid, memory: procmem.Process{PID: pid, Read: memory, Budget: b}, file: file, causes: map[uint8]Wait{}, stacks: map[uint64][]Frame{}}
	defer func() {
		// The file may be anything, and not all that reads it expects that.
		if r := recover(); r != nil {
			err = fmt.Errorf("its file is damaged: %v", r)
		}
		if err != nil {
			elffile.Refuse(b, file, b.Err())
			file.Close()
			p = nil
		}
	}()
	p.elf, err = elffile.Open(b, file)
	switch {
	case budget.IsExceeded(err):
		return nil, err
	case err != nil || !p.elf.IsGo():
		return nil, ErrNotGo
	case p.elf.Class != elf.ELFCLASS64:
		return nil, errors.New("it is a 32-bit program")
	case p.elf.Machine == elf.EM_X86_64:
		p.quantum, p.linkSize = 1, 8
	case p.elf.Machine == elf.EM_AARCH64:
		p.quantum = 4
	default:
		return nil, fmt.Errorf("it is a program for %s", p.elf.Machine)
	}
	if p.Version = p.elf.GoVersion(); p.Version == "" {
		return nil, errors.New("its build information does not tell its version of Go")
	}
	if p.layout, err = layoutOf(b, p.Version, p.elf); err != nil {
		return nil, err
	}
	if p.bias, err = p.loadedAt(b, proc); err != nil {
		return nil, err
	}
	module, err := p.findModule()
	if err == nil {
		err = p.openFunctions(module)
	}
	if err == nil {
		p.allGs, err = p.findAllGs(module)
	}
	if over := b.Err(); over != nil {
		return nil, over // what was not found may be there
	}
	return p, err
}

// within makes b what may be read from now on.
func (p *Program) within(b *budget.Budget) {
	p.memory.Budget = b
	p.elf.Within(b)
}

// Close gives the program's file back.
func (p *Program) Close() error { return p.file.Close() }

// loadedAt is the bias of a position-independent program.
func (p *Program) loadedAt(b *budget.Budget, proc string) (uint64, error) {
	if p.elf.Type != elf.ET_DYN {
		return 0, nil
	}
	first := ^uint64(0)
	for _, s := range p.elf.Progs {
		if s.Type == elf.PT_LOAD {
			first = min(first, s.Vaddr-s.Off%max(s.Align, 1))
		}
	}
	exe, err := os.Readlink(filepath.Join(proc, fmt.Sprint(p.PID), "exe"))
	if err != nil {
		return 0, err
	}
	m, err := procmem.Loaded(b, proc, p.PID, func(path string) (ok, done bool) { return path == exe, true })
	if err != nil {
		return 0, fmt.Errorf("where the program was loaded: %w", err)
	}
	return m.Start - first&^uint64(os.Getpagesize()-1), nil
}

// bytes is memory of the process; nil when not all of it can be read.
func (p *Program) bytes(addr, size uint64) []byte {
	if size > maxSearched {
		return nil
	}
	return p.memory.Bytes(addr, size)
}

// moduleSections are where the description of a program is, the likely first.
var moduleSections = []string{".go.module", ".noptrdata", ".data", ".data.rel.ro"}

// findModule is the runtime's description of the program (runtime.moduledata). It
// has no name in a program that was stripped: it is found by how it begins, with
// the address of the table of functions and that of what follows the table's head.
func (p *Program) findModule() ([]byte, error) {
	left := uint64(maxSearched)
	for _, name := range moduleSections {
		s := p.elf.Section(name)
		if s == nil || s.Type == elf.SHT_NOBITS {
			continue
		}
		size := min(s.Size, left)
		left -= size
		b := p.memory.Some(s.Addr+p.bias, size)
		for o := uint64(0); o+moduleSize <= uint64(len(b)) && p.memory.Budget.Node() == nil; o += 8 {
			m := b[o : o+moduleSize]
			head := procmem.Long(m, moduleHeader)
			if names := procmem.Long(m, moduleHeader+8); names <= head || names-head > 128 || procmem.Long(m, 16) != procmem.Long(m, 24) {
				continue
			}
			functions, text, end := procmem.Long(m, moduleFunctions), procmem.Long(m, moduleText), procmem.Long(m, moduleTextEnd)
			if functions > head && text < end && p.executable(text-p.bias) && p.isTable(head) {
				return m, nil
			}
		}
	}
	return nil, errors.New("the runtime's description of the program was not found in its memory")
}

// isTable says whether a table of functions begins at an address, of the forms
// since Go 1.18.
func (p *Program) isTable(addr uint64) bool {
	h := p.static(addr, 8)
	return h != nil && (procmem.Half(h, 0) == 0xfffffff0 || procmem.Half(h, 0) == 0xfffffff1) && h[7] == 8
}

func (p *Program) executable(addr uint64) bool { return p.elf.Executable(addr) != nil }

// findAllGs is the address of runtime.allgs, the slice of all goroutines. Only
// programs that were not stripped have its name; it is found by what is in it:
// the first goroutine is number 1, and all have a stack.
func (p *Program) findAllGs(module []byte) (uint64, error) {
	left := uint64(maxSearched)
	for i := uint64(0); i < 3; i++ {
		from, to := procmem.Long(module, moduleData+16*i), procmem.Long(module, moduleData+16*i+8)
		if to <= from {
			continue
		}
		size := min(to-from, left)
		left -= size
		b := p.memory.Some(from, size)
		for o := uint64(0); o+24 <= uint64(len(b)) && p.memory.Budget.Node() == nil; o += 8 {
			list, n, room := procmem.Long(b, o), procmem.Long(b, o+8), procmem.Long(b, o+16)
			if n >= 1 && n <= room && room < 1<<24 && list&7 == 0 && list > 1<<16 && list>>48 == 0 && p.areGs(list, n) {
				return from + o, nil
			}
		}
	}
	return 0, errors.New("the list of its goroutines was not found in its memory")
}

// areGs says whether a list of pointers is one of goroutines.
func (p *Program) areGs(list, n uint64) bool {
	b := p.bytes(list, 8*min(n, 4))
	if b == nil {
		return false
	}
	for i := range uint64(len(b)) / 8 {
		addr := procmem.Long(b, 8*i)
		if addr&7 != 0 || addr>>48 != 0 {
			return false
		}
		g := p.bytes(addr, p.gSize())
		if g == nil || procmem.Half(g, p.status)&^statusScan > statusLast || i == 0 && procmem.Long(g, p.id) != 1 {
			return false
		}
		low, high := procmem.Long(g, gStackLow), procmem.Long(g, gStackHigh)
		if dead := procmem.Half(g, p.status)&^statusScan == statusDead; !dead && (low >= high || high-low > 1<<30) {
			return false
		}
	}
	return true
}

// gSize is as much of a goroutine's structure as is read.
func (p *Program) gSize() uint64 { return p.reason + 8 }
