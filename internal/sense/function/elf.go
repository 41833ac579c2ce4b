package function

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ianlancetaylor/demangle"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/sense/elffile"
	"github.com/slowray/slowray/internal/sense/procmem"
)

// elfFunc is a function in an ELF file.
type elfFunc struct {
	name   string // as in the file
	addr   uint64 // virtual, as the file has it
	size   uint64 // bytes; 0 = not known
	ifunc  bool   // it only chooses the function that is then called
	global bool
}

// shown is the name as people write it.
func (s *elfFunc) shown() string { return demangled(s.name) }

// maxShown bounds a demangled name, as a power of two: a name of some bytes may
// repeat its parts, and those theirs (Itanium C++ ABI, 5.1.10).
var maxShown = demangle.MaxLength(12)

// demangled is a C++ or Rust name as people write it, with parameters.
func demangled(name string) string {
	if !strings.HasPrefix(name, "_Z") && !strings.HasPrefix(name, "_R") {
		return name
	}
	return demangle.Filter(name, maxShown)
}

// called says whether a pattern means this function: by its name in the file,
// the demangled one, or that without parameters.
func (s *elfFunc) called(pattern string) bool {
	if match(pattern, s.name) {
		return true
	}
	full := s.shown()
	if full == s.name {
		return false
	}
	if match(pattern, full) {
		return true
	}
	return match(pattern, demangle.Filter(s.name, maxShown, demangle.NoParams, demangle.NoTemplateParams)) ||
		match(pattern, demangle.Filter(s.name, maxShown, demangle.NoParams))
}

// all visits the functions that a pattern means until visit returns false. The
// error is the budget's.
func (im *image) all(pattern string, visit func(*elfFunc) bool) error {
	for i := range im.symbols {
		if err := im.budget.Node(); err != nil {
			return fmt.Errorf("%s: %w", im.name, err)
		}
		if s := &im.symbols[i]; s.called(pattern) && !visit(s) {
			break
		}
	}
	return nil
}

// image is an ELF file that is open.
type image struct {
	file
	budget  *budget.Budget
	handle  *os.File
	elf     *elffile.File
	symbols []elfFunc  // by address
	golang  *goProgram // nil when it is none
	noted   bool
	probes  []staticProbe
	planned map[uint64]bool // addresses of functions that are planned already
}

// limits is what may be read of the files of one target: the names of a large
// program of C++ take 100 MB.
var limits = budget.Limits{Bytes: 2 << 30, Unpacked: 128 << 20, Nodes: 8 << 20, Wall: 20 * time.Second}

// openImage opens an ELF file and reads its symbols. The caller closes it.
func openImage(b *budget.Budget, f file) (*image, error) {
	handle, err := f.handle()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.name, unwrapPath(err))
	}
	im := &image{file: f, budget: b, handle: handle, planned: map[uint64]bool{}}
	if err := im.read(); err != nil {
		handle.Close()
		return nil, fmt.Errorf("%s: %w", f.name, err)
	}
	return im, nil
}

func (im *image) read() (err error) {
	if im.elf, err = elffile.New(im.budget, im.handle); err != nil {
		return err
	}
	if im.elf.Class != elf.ELFCLASS64 {
		return errors.New("a 32-bit file, which is not supported")
	}
	im.symbols = im.readSymbols(im.elf)
	im.golang = im.findGo()
	switch {
	case im.hasTable():
	case im.golang != nil:
		im.addGoFunctions()
	default:
		im.addDebugFile()
	}
	if err := im.budget.Err(); err != nil {
		return err // a part of the functions would be taken for all
	}
	slices.SortStableFunc(im.symbols, func(a, b elfFunc) int {
		switch {
		case a.addr != b.addr:
			return cmp.Compare(a.addr, b.addr)
		case a.global == b.global:
			return strings.Compare(a.name, b.name)
		case a.global: // first the names that others know it by
			return -1
		}
		return 1
	})
	im.symbols = slices.CompactFunc(im.symbols, func(a, b elfFunc) bool { return a.addr == b.addr && a.name == b.name })
	return nil
}

// unwrapPath takes the path out of an error: the one that is opened says less
// than the file's name.
func unwrapPath(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// path is where the kernel finds the very file that was read, whatever its name
// leads to by now.
func (im *image) path() string { return fmt.Sprintf("/proc/self/fd/%d", im.handle.Fd()) }

func (im *image) close() { im.handle.Close() }

func (im *image) hasTable() bool {
	s := im.elf.SectionByType(elf.SHT_SYMTAB)
	return s != nil && s.Size > 0
}

// readSymbols reads the functions of both tables of symbols; a broken table is
// as good as none.
func (im *image) readSymbols(from *elffile.File) []elfFunc {
	var out []elfFunc
	for _, kind := range []elf.SectionType{elf.SHT_SYMTAB, elf.SHT_DYNSYM} {
		t := from.Symbols(kind)
		if t == nil {
			continue
		}
		_ = t.Each(func(s *elffile.Symbol) bool {
			kind := elf.ST_TYPE(s.Info)
			if kind != elf.STT_FUNC && kind != elf.STT_GNU_IFUNC || s.Section == elf.SHN_UNDEF || s.Value == 0 || !s.Named() {
				return true
			}
			name, _, _ := strings.Cut(t.NameOfMany(s), "@")
			if name != "" {
				out = append(out, elfFunc{name: name, addr: s.Value, size: s.Size, ifunc: kind == elf.STT_GNU_IFUNC, global: elf.ST_BIND(s.Info) != elf.STB_LOCAL})
			}
			return true
		})
	}
	return out
}

// addGoFunctions takes the functions of a stripped Go program from its own table.
func (im *image) addGoFunctions() {
	table, err := im.elf.GoFunctions()
	if err != nil || table == nil {
		return // a broken one is as good as none
	}
	_ = table.Each(func(f elffile.GoFunction) bool {
		if f.Entry != 0 && f.End > f.Entry && f.Name != "" {
			im.symbols = append(im.symbols, elfFunc{name: f.Name, addr: f.Entry, size: f.End - f.Entry})
		}
		return true
	})
}

// addDebugFile takes the symbols of a stripped file from the file that a
// distribution's package of debug symbols has installed for it.
func (im *image) addDebugFile() {
	id := im.elf.BuildID()
	if len(id) < 3 {
		return
	}
	roots := []procmem.RootDir{procmem.RootAt("/")}
	if im.pid != 0 {
		roots = append(roots, procmem.Root("/proc", im.pid))
	}
	for _, root := range roots {
		f, err := root.Open(filepath.Join("/usr/lib/debug/.build-id", id[:2], id[2:]+".debug"))
		if err != nil {
			continue
		}
		defer f.Close()
		if d, err := elffile.New(im.budget, f); err == nil {
			im.symbols = append(im.symbols, im.readSymbols(d)...)
			return
		}
	}
}

// offsetOf is where in the file the code at a virtual address is.
func (im *image) offsetOf(addr uint64) (uint64, bool) {
	for _, p := range im.elf.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && addr >= p.Vaddr && addr-p.Vaddr < p.Filesz {
			return addr - p.Vaddr + p.Off, true
		}
	}
	return 0, false
}

// dataOffsetOf is as offsetOf, for data that is loaded from the file.
func (im *image) dataOffsetOf(addr uint64) (uint64, bool) {
	for _, p := range im.elf.Progs {
		if p.Type == elf.PT_LOAD && addr >= p.Vaddr && addr-p.Vaddr < p.Memsz {
			return addr - p.Vaddr + p.Off, true
		}
	}
	return 0, false
}

// code reads the code of a function, nil when it cannot be read.
func (im *image) code(s *elfFunc) []byte {
	if s.size == 0 || s.size > maxCode {
		return nil
	}
	code := im.elf.Loaded(s.addr, s.size)
	if uint64(len(code)) != s.size {
		return nil
	}
	return code
}

// maxCode bounds the code of one function, bytes.
const maxCode = 16 << 20

// maxOverlaps is how many symbols before an address are asked whether it is theirs.
const maxOverlaps = 256

// at is the function at an address, nil when there is none.
func (im *image) at(addr uint64) *elfFunc {
	i, _ := slices.BinarySearchFunc(im.symbols, addr+1, func(s elfFunc, a uint64) int { return cmp.Compare(s.addr, a) })
	least := max(i-maxOverlaps, 0)
	for i--; i >= least; i-- {
		s := &im.symbols[i]
		switch {
		case addr-s.addr < s.size, s.size == 0 && addr-s.addr < 4096:
			for i > 0 && im.symbols[i-1].addr == s.addr {
				i--
				s = &im.symbols[i]
			}
			return s
		case addr-s.addr > 1<<20:
			return nil
		}
	}
	return nil
}
