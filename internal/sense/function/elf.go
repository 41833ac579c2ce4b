package function

import (
	"cmp"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ianlancetaylor/demangle"
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

// demangled is a C++ or Rust name as people write it, with parameters.
func demangled(name string) string {
	if !strings.HasPrefix(name, "_Z") && !strings.HasPrefix(name, "_R") {
		return name
	}
	return demangle.Filter(name)
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
	return match(pattern, demangle.Filter(s.name, demangle.NoParams, demangle.NoTemplateParams)) ||
		match(pattern, demangle.Filter(s.name, demangle.NoParams))
}

// image is an ELF file that is open.
type image struct {
	file
	handle  *os.File
	elf     *elf.File
	symbols []elfFunc  // by address
	golang  *goProgram // nil when it is none
	noted   bool
	probes  []staticProbe
	planned map[uint64]bool // addresses of functions that are planned already
}

// maxText bounds what is read of a file at once.
const maxText = 1 << 30

// openImage opens an ELF file and reads its symbols. The caller closes it.
func openImage(f file) (*image, error) {
	handle, err := os.Open(f.open)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.name, unwrapPath(err))
	}
	im := &image{file: f, handle: handle, planned: map[uint64]bool{}}
	if im.elf, err = elf.NewFile(handle); err != nil {
		handle.Close()
		var format *elf.FormatError
		if errors.As(err, &format) || errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%s: not an ELF file", f.name)
		}
		return nil, fmt.Errorf("%s: %w", f.name, err)
	}
	if im.elf.Class != elf.ELFCLASS64 {
		handle.Close()
		return nil, fmt.Errorf("%s: a 32-bit file, which is not supported", f.name)
	}
	im.symbols = im.readSymbols(im.elf)
	im.golang = im.findGo()
	if im.golang != nil && !im.hasTable() {
		im.symbols = append(im.symbols, im.golang.symbols()...)
	} else if !im.hasTable() {
		im.addDebugFile()
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
	return im, nil
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

func (im *image) close() { im.handle.Close() }

func (im *image) hasTable() bool {
	s := im.elf.SectionByType(elf.SHT_SYMTAB)
	return s != nil && s.Size > 0
}

// readSymbols reads the functions of both symbol tables.
func (im *image) readSymbols(from *elf.File) []elfFunc {
	static, _ := from.Symbols() // a broken table is as good as none
	dynamic, _ := from.DynamicSymbols()
	seen := make(map[elfFunc]bool, len(static)+len(dynamic))
	out := make([]elfFunc, 0, len(static)+len(dynamic))
	for _, s := range append(static, dynamic...) {
		kind := elf.ST_TYPE(s.Info)
		if kind != elf.STT_FUNC && kind != elf.STT_GNU_IFUNC || s.Section == elf.SHN_UNDEF || s.Value == 0 || s.Name == "" {
			continue
		}
		name, _, _ := strings.Cut(s.Name, "@")
		one := elfFunc{name: name, addr: s.Value, size: s.Size, ifunc: kind == elf.STT_GNU_IFUNC, global: elf.ST_BIND(s.Info) != elf.STB_LOCAL}
		if !seen[one] {
			seen[one] = true
			out = append(out, one)
		}
	}
	return out
}

// addDebugFile takes the symbols of a stripped file from the file that a
// distribution's package of debug symbols has installed for it.
func (im *image) addDebugFile() {
	id := im.buildID()
	if len(id) < 3 {
		return
	}
	text := hex.EncodeToString(id)
	roots := []string{""}
	if i := strings.Index(im.open, "/map_files/"); i > 0 {
		roots = append(roots, im.open[:i]+"/root")
	} else if root, ok := strings.CutSuffix(im.open, "/exe"); ok {
		roots = append(roots, root+"/root")
	}
	for _, root := range roots {
		f, err := elf.Open(filepath.Join(root, "/usr/lib/debug/.build-id", text[:2], text[2:]+".debug"))
		if err != nil {
			continue
		}
		im.symbols = append(im.symbols, im.readSymbols(f)...)
		f.Close()
		return
	}
}

// buildID is the file's unique number, nil when it has none.
func (im *image) buildID() []byte {
	s := im.elf.Section(".note.gnu.build-id")
	if s == nil || s.Size > 4096 {
		return nil
	}
	data, err := s.Data()
	if err != nil || len(data) < 16 {
		return nil
	}
	size := im.elf.ByteOrder.Uint32(data[4:])
	if uint64(size) > uint64(len(data)-16) {
		return nil
	}
	return data[16 : 16+size]
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
	off, ok := im.offsetOf(s.addr)
	if !ok || s.size == 0 || s.size > 16<<20 {
		return nil
	}
	code := make([]byte, s.size)
	if _, err := im.handle.ReadAt(code, int64(off)); err != nil {
		return nil
	}
	return code
}

// at is the function at an address, nil when there is none.
func (im *image) at(addr uint64) *elfFunc {
	i, _ := slices.BinarySearchFunc(im.symbols, addr+1, func(s elfFunc, a uint64) int { return cmp.Compare(s.addr, a) })
	for i--; i >= 0; i-- {
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
