package elffile

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"sort"
	"strings"
)

// GoFunctions is the table of functions that every Go program has, stripped or
// not (runtime.pclntab, of Go 1.2 and later; src/debug/gosym/pclntab.go). Its
// index is kept, all else is read when it is asked for: the table of a large
// program takes 100 MB.
type GoFunctions struct {
	file  *File
	table *Section
	order binary.ByteOrder

	form    goForm
	quantum int // of instructions, bytes
	pointer int // size, bytes
	text    uint64
	count   int
	field   int    // size of a number in the index
	index   []byte // pairs of numbers: where a function begins, where its description lies; and where the last one ends
	parts   goParts
}

// goForm is a form of the table, by the version of Go that had it first.
type goForm int

const (
	go12 goForm = iota
	go116
	go118
)

// goParts is where in the section the parts of the table begin.
type goParts struct{ names, units, files, values, data uint64 }

// GoFunction is a function of a Go program.
type GoFunction struct {
	Name       string
	Entry, End uint64 // addresses, as the file has them
}

// Forms by the first four bytes (internal/abi/symtab.go).
var goForms = map[uint32]goForm{0xfffffffb: go12, 0xfffffffa: go116, 0xfffffff0: go118, 0xfffffff1: go118}

// maxGoFunctions bounds the functions of a program, for the size of the index; the
// largest programs have some 500,000.
const maxGoFunctions = 2 << 20

// GoFunctions finds the table; nil when the file has none.
func (f *File) GoFunctions() (*GoFunctions, error) {
	t := f.goTable()
	text := f.Section(".text")
	if t == nil || text == nil {
		return nil, nil
	}
	g := &GoFunctions{file: f, table: t}
	damaged := fmt.Errorf("%w: its table of Go functions", ErrDamaged)
	head := make([]byte, 8+8*8)
	if n, err := t.ReadAt(head, 0); n < len(head) && err != io.EOF || n < 16 {
		return nil, damaged
	}
	g.order = binary.LittleEndian
	form, known := goForms[g.order.Uint32(head)]
	if !known {
		g.order = binary.BigEndian
		form, known = goForms[g.order.Uint32(head)]
	}
	g.form, g.quantum, g.pointer = form, int(head[6]), int(head[7])
	if !known || head[4] != 0 || head[5] != 0 || g.quantum != 1 && g.quantum != 2 && g.quantum != 4 || g.pointer != 4 && g.pointer != 8 {
		return nil, damaged
	}
	word := func(i int) uint64 { return g.number(head[8+i*g.pointer:], g.pointer) }
	count, at := word(0), uint64(0)
	g.field = g.pointer
	switch g.form {
	case go12:
		at = uint64(8 + g.pointer)
	case go116:
		g.parts = goParts{word(2), word(3), word(4), word(5), word(6)}
		at = g.parts.data
	default:
		g.parts = goParts{word(3), word(4), word(5), word(6), word(7)}
		at, g.field = g.parts.data, 4
		g.text = f.goText(t, text, word(2))
	}
	if count == 0 || count > maxGoFunctions {
		return nil, damaged
	}
	g.count = int(count)
	size := (2*g.count + 1) * g.field
	if at > t.FileSize || uint64(size) > t.FileSize-at {
		return nil, damaged
	}
	var err error
	if g.index, err = f.bytes(int64(t.Offset+at), int64(size)); err != nil {
		return nil, fmt.Errorf("table of Go functions: %w", err)
	}
	if g.form == go12 { // behind the index it says where the files are
		b := g.read(at+uint64(size), 4)
		if b == nil {
			return nil, damaged
		}
		g.parts.files = uint64(g.order.Uint32(b))
	}
	return g, nil
}

// goTable is the section with the table: that of a program that can be loaded
// anywhere has another name.
func (f *File) goTable() *Section {
	for i := range f.Sections {
		if s := &f.Sections[i]; strings.HasSuffix(s.Name, ".gopclntab") && !s.Compressed() && s.Type != elf.SHT_NOBITS && int64(s.Offset) >= 0 {
			return s
		}
	}
	return nil
}

// moduleText is where runtime.moduledata has the beginning of the code.
const moduleText = 176

// goText is where the code begins that the table tells of. With code of C in it
// that is not where the section begins: then a symbol says it, the table itself (said, to
// Go 1.25), or what the runtime has of the module (since Go 1.26 in a section of its own).
func (f *File) goText(table, text *Section, said uint64) uint64 {
	at := text.Addr
	found := false
	if t := f.Symbols(elf.SHT_SYMTAB); t != nil {
		t.Each(func(s *Symbol) bool {
			if s.Size != 0 || elf.ST_TYPE(s.Info) != elf.STT_FUNC || s.Value-text.Addr >= text.Size || t.Name(s) != "runtime.text" {
				return true
			}
			at, found = s.Value, true
			return false
		})
	}
	if module := f.Section(".go.module"); !found && said == 0 && module != nil {
		if b := f.Loaded(module.Addr, moduleText+8); len(b) == moduleText+8 && f.ByteOrder.Uint64(b) == table.Addr {
			said = f.ByteOrder.Uint64(b[moduleText:])
		}
	}
	if !found && said > text.Addr && said-text.Addr < text.Size {
		at = said
	}
	return at
}

// number is one of four bytes or of eight.
func (g *GoFunctions) number(b []byte, size int) uint64 {
	if size == 4 {
		return uint64(g.order.Uint32(b))
	}
	return g.order.Uint64(b)
}

// read reads from the table; nil where it is not all there.
func (g *GoFunctions) read(at, size uint64) []byte {
	if at > g.table.FileSize || size > g.table.FileSize-at {
		return nil
	}
	b := make([]byte, size)
	if n, _ := g.table.ReadAt(b, int64(at)); uint64(n) < size {
		return nil
	}
	return b
}

// readText is text of the table that ends with a zero.
func (g *GoFunctions) readText(at uint64) string {
	for size := uint64(128); at < g.table.FileSize; size *= 4 {
		size = min(size, MaxSymbolName)
		b := g.read(at, min(size, g.table.FileSize-at))
		if end := bytes.IndexByte(b, 0); end >= 0 {
			return string(b[:end])
		}
		if b == nil || size == MaxSymbolName || uint64(len(b)) < size {
			return string(b)
		}
	}
	return ""
}

// entry is where a function begins; that of the one behind the last is where it ends.
func (g *GoFunctions) entry(i int) uint64 {
	return g.text + g.number(g.index[2*i*g.field:], g.field)
}

// description is what the table has of a function (runtime._func); nil where it
// is not there.
func (g *GoFunctions) description(i int) *goDescription {
	first := g.pointer
	if g.form == go118 {
		first = 4
	}
	const fields = 8 // of four bytes, behind the first
	b := g.read(g.parts.data+g.number(g.index[(2*i+1)*g.field:], g.field), uint64(first+4*fields))
	if b == nil {
		return nil
	}
	return &goDescription{b[first:], g.order}
}

type goDescription struct {
	fields []byte
	order  binary.ByteOrder
}

// Fields of runtime._func, counted from 1.
const (
	goName  = 1
	goStack = 4
	goFiles = 5
	goLines = 6
	goUnit  = 8
)

func (d *goDescription) field(n int) uint32 { return d.order.Uint32(d.fields[4*(n-1):]) }

// At is the function that holds an address; false when there is none.
func (g *GoFunctions) At(addr uint64) (fn GoFunction, file string, line int, ok bool) {
	i := g.at(addr)
	d := g.description(max(i, 0))
	if i < 0 || d == nil {
		return fn, "", 0, false
	}
	fn = GoFunction{Name: g.readText(g.parts.names + uint64(d.field(goName))), Entry: g.entry(i), End: g.entry(i + 1)}
	if n, ok := g.first(d.field(goLines)); ok {
		line = n
	}
	return fn, g.fileOf(d), line, fn.Name != ""
}

// fileOf is the file in which a function begins.
func (g *GoFunctions) fileOf(d *goDescription) string {
	n, ok := g.first(d.field(goFiles))
	if !ok || n < 0 {
		return ""
	}
	if g.form == go12 {
		if b := g.read(g.parts.files+4*uint64(n), 4); n > 0 && b != nil {
			return g.readText(uint64(g.order.Uint32(b)))
		}
		return ""
	}
	const none = ^uint32(0)
	if b := g.read(g.parts.units+4*(uint64(d.field(goUnit))+uint64(n)), 4); b != nil && g.order.Uint32(b) != none {
		return g.readText(g.parts.files + uint64(g.order.Uint32(b)))
	}
	return ""
}

// first is the value of a table of values at the beginning of a function: the
// tables are steps from -1 on (runtime.pcvalue).
func (g *GoFunctions) first(table uint32) (int, bool) {
	at := g.parts.values + uint64(table)
	if table == 0 || at >= g.table.FileSize {
		return 0, false
	}
	step, n := binary.Uvarint(g.read(at, min(5, g.table.FileSize-at)))
	if n <= 0 {
		return 0, false
	}
	value := uint32(step >> 1)
	if step&1 != 0 {
		value = ^value
	}
	return int(int32(value) - 1), true
}

// maxValues bounds what is read of a function's table of values, bytes.
const maxValues = 4096

// LeftByCall says whether before the instruction at an address the return address of its
// function is still where the call left it: on top of the stack (x86-64), in a register
// (arm64). That is so while the function has nothing on the stack. known is false where no
// function of Go is.
func (g *GoFunctions) LeftByCall(addr uint64) (left, known bool) {
	i := g.at(addr)
	if i < 0 {
		return false, false
	}
	d := g.description(i)
	if d == nil {
		return false, false
	}
	table := d.field(goStack)
	at := g.parts.values + uint64(table)
	if table == 0 || at >= g.table.FileSize {
		return false, true
	}
	b := g.read(at, min(maxValues, g.table.FileSize-at))
	pc, depth := g.entry(i), int32(-1)
	for first := true; len(b) > 0; first = false {
		step, n := binary.Uvarint(b)
		if n <= 0 || step == 0 && !first {
			break
		}
		width, m := binary.Uvarint(b[n:])
		if m <= 0 {
			break
		}
		b = b[n+m:]
		depth += int32(step>>1) ^ -int32(step&1)
		if pc += width * uint64(g.quantum); addr < pc {
			return depth == 0, true
		}
	}
	return false, true
}

// at is the number of the function that holds an address; -1 when there is none.
func (g *GoFunctions) at(addr uint64) int {
	if addr < g.entry(0) || addr >= g.entry(g.count) {
		return -1
	}
	return sort.Search(g.count, func(i int) bool { return g.entry(i) > addr }) - 1
}

// Each visits all functions in order of address until visit returns false. Each
// takes an item of the budget. Names that are twice as long as the whole table
// all together are one text many times over: the linker writes each name once
// (cmd/link/internal/ld/pcln.go), and few functions share one.
func (g *GoFunctions) Each(visit func(GoFunction) bool) error {
	var names uint64
	for i := range g.count {
		if err := g.file.budget.Node(); err != nil {
			return err
		}
		d := g.description(i)
		if d == nil {
			continue
		}
		fn := GoFunction{Name: g.readText(g.parts.names + uint64(d.field(goName))), Entry: g.entry(i), End: g.entry(i + 1)}
		if err := g.file.budget.Unpack(int64(len(fn.Name))); err != nil {
			return err
		}
		if names += uint64(len(fn.Name)); names/2 > g.table.FileSize {
			return fmt.Errorf("%w: names in its table of Go functions", ErrDamaged)
		}
		if !visit(fn) {
			return nil
		}
	}
	return g.file.budget.Err()
}
