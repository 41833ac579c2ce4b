package goroutine

import (
	"errors"
	"slices"
	"sort"
	"strings"

	"github.com/slowray/slowray/internal/printable"
	"github.com/slowray/slowray/internal/sense/procmem"
)

// functions is the table of functions of a program (runtime/symtab.go): the
// index is kept, everything else is read from the file when it is asked for.
type functions struct {
	text, textEnd uint64 // in the process
	index         []byte // pairs of offsets: of code from text, of its description from the table
	base          uint64 // of descriptions, in the process
	names, units, // where the parts of the table are, in the process
	files, values uint64
	inline  uint64 // moduledata.gofunc
	entries int
}

// Frame is a function that is on a stack.
type Frame struct {
	Function string // "main.(*Server).book"
	File     string // "orders.go" with its directories, as the compiler saw them
	Line     int    // of the call, or where it waits
	entry    uint64 // of the function's code
	inlined  bool
}

// maxFunctions bounds the functions of a program: 8 bytes of each are kept.
const maxFunctions = 2 << 20

func (p *Program) openFunctions(module []byte) error {
	p.text, p.textEnd = procmem.Long(module, moduleText), procmem.Long(module, moduleTextEnd)
	p.base = procmem.Long(module, moduleFunctions)
	header := procmem.Long(module, moduleHeader)
	p.inline = procmem.Long(module, p.goFunc)
	h := p.static(header, 72)
	if h == nil {
		return errors.New("its table of functions is of a form that is not known")
	}
	n := procmem.Long(h, 8)
	if n == 0 || n > maxFunctions {
		return errors.New("its table of functions is of a size that cannot be")
	}
	p.names, p.units, p.files, p.values = header+procmem.Long(h, 32), header+procmem.Long(h, 40), header+procmem.Long(h, 48), header+procmem.Long(h, 56)
	p.entries = int(n)
	if p.index = p.static(procmem.Long(module, moduleTable), 8*n); p.index == nil {
		return errors.New("its table of functions could not be read")
	}
	if f := p.frames(p.text); len(f) > 0 {
		p.std = stdOf(p)
	}
	return nil
}

// static is a part of what never changes of a program, from its file: addresses
// are those of the process. Nil when it is not all there.
func (p *Program) static(addr, size uint64) []byte {
	if b := p.staticUpTo(addr, size); uint64(len(b)) == size {
		return b
	}
	return nil
}

// staticUpTo is as much of it as there is.
func (p *Program) staticUpTo(addr, size uint64) []byte {
	return p.elf.Loaded(addr-p.bias, size)
}

// staticText is text that ends with a zero.
func (p *Program) staticText(addr uint64) string {
	for _, size := range []uint64{128, 1024, 8192} {
		b := p.staticUpTo(addr, size)
		if s, _, ended := strings.Cut(string(b), "\x00"); ended {
			return s
		}
	}
	return ""
}

// function is the description of one function (runtime._func).
type function struct {
	entry  uint64
	at     uint64 // of the description
	fields []byte
	fixed  uint64 // size of its part that all have
}

// functionAt finds the function that holds a program counter.
func (p *Program) functionAt(pc uint64) (f function, ok bool) {
	if pc < p.text || pc >= p.textEnd {
		return f, false
	}
	off := uint32(pc - p.text)
	i := sort.Search(p.entries, func(i int) bool { return procmem.Half(p.index, 8*uint64(i)) > off }) - 1
	if i < 0 {
		return f, false
	}
	f.entry = p.text + uint64(procmem.Half(p.index, 8*uint64(i)))
	f.at = p.base + uint64(procmem.Half(p.index, 8*uint64(i)+4))
	f.fixed = 40
	if p.inlined {
		f.fixed = 44
	}
	f.fields = p.staticUpTo(f.at, 128)
	return f, uint64(len(f.fields)) >= f.fixed
}

// Offsets in runtime._func.
const (
	funcName  = 4
	funcSP    = 16
	funcFile  = 20
	funcLine  = 24
	funcUnits = 32

	inlinedPerPC = 2 // PCDATA_InlTreeIndex
	inlinedCalls = 3 // FUNCDATA_InlTree
)

// pcData is where one of the function's tables of values begins, 0 for none.
func (f *function) pcData(n uint64) uint32 {
	if count := procmem.Half(f.fields, 28); uint64(count) <= n || f.fixed+4*n+4 > uint64(len(f.fields)) {
		return 0
	}
	return procmem.Half(f.fields, f.fixed+4*n)
}

// funcData is the address of one of the function's tables.
func (p *Program) funcData(f *function, n uint64) uint64 {
	count := uint64(f.fields[f.fixed-1])
	at := f.fixed + 4*uint64(procmem.Half(f.fields, 28)) + 4*n
	if count <= n || at+4 > uint64(len(f.fields)) {
		return 0
	}
	if off := procmem.Half(f.fields, at); off != ^uint32(0) {
		return p.inline + uint64(off)
	}
	return 0
}

// value is that of a table of values at a program counter (runtime.pcvalue).
func (p *Program) value(f *function, table uint32, pc uint64) (int32, bool) {
	if table == 0 {
		return -1, false
	}
	b := p.staticUpTo(p.values+uint64(table), 4096)
	at, value := f.entry, int32(-1)
	varint := func() (v uint32) {
		for shift := 0; len(b) > 0 && shift < 32; shift += 7 {
			c := b[0]
			b = b[1:]
			v |= uint32(c&0x7f) << shift
			if c&0x80 == 0 {
				break
			}
		}
		return v
	}
	for first := true; len(b) > 0; first = false {
		delta := varint()
		if delta == 0 && !first {
			break
		}
		value += int32(-(delta & 1) ^ delta>>1)
		at += uint64(varint()) * p.quantum
		if pc < at {
			return value, true
		}
	}
	return -1, false
}

// frameSize is how much the function has on the stack at a program counter,
// without the return address.
func (p *Program) frameSize(f *function, pc uint64) (uint64, bool) {
	n, ok := p.value(f, procmem.Half(f.fields, funcSP), pc)
	return uint64(n), ok && n >= 0
}

// fileAt is the file and line of a program counter.
func (p *Program) fileAt(f *function, pc uint64) (string, int) {
	line, _ := p.value(f, procmem.Half(f.fields, funcLine), pc)
	n, ok := p.value(f, procmem.Half(f.fields, funcFile), pc)
	if !ok || n < 0 {
		return "", 0
	}
	b := p.static(p.units+4*(uint64(procmem.Half(f.fields, funcUnits))+uint64(n)), 4)
	if b == nil || procmem.Half(b, 0) == ^uint32(0) {
		return "", int(max(line, 0))
	}
	return printable.Name(p.staticText(p.files+uint64(procmem.Half(b, 0))), maxName), int(max(line, 0))
}

// maxInlined bounds the functions that are one within the other.
const maxInlined = 32

// frames is the functions at a program counter within a call instruction: those
// that were inlined there, innermost first, and the one they were inlined in.
func (p *Program) frames(pc uint64) []Frame {
	if known, ok := p.stacks[pc]; ok {
		return known
	}
	var out []Frame
	if f, ok := p.functionAt(pc); ok {
		at := pc
		calls := uint64(0)
		if p.inlined {
			calls = p.funcData(&f, inlinedCalls)
		}
		for range maxInlined {
			file, line := p.fileAt(&f, at)
			frame := Frame{File: file, Line: line, entry: f.entry}
			n, inlined := p.value(&f, f.pcData(inlinedPerPC), at)
			if calls == 0 || !inlined || n < 0 {
				frame.Function = printable.Name(p.staticText(p.names+uint64(procmem.Half(f.fields, funcName))), maxName)
				if !p.inlined && p.std != "" && strings.HasPrefix(file, p.std) && p.own(&Frame{Function: frame.Function, File: p.std}) {
					// What is inlined is not told: rather where the function begins.
					frame.File, frame.Line = p.fileAt(&f, f.entry)
				}
				out = append(out, frame)
				break
			}
			call := p.static(calls+16*uint64(n), 16)
			if call == nil {
				break
			}
			frame.Function, frame.inlined = printable.Name(p.staticText(p.names+uint64(procmem.Half(call, 4))), maxName), true
			out = append(out, frame)
			at = f.entry + uint64(procmem.Half(call, 8))
		}
	}
	for i := range out {
		p.held += len(out[i].Function) + len(out[i].File)
	}
	if len(p.stacks) > 1<<16 || p.held > maxHeld {
		clear(p.stacks)
		p.held = 0
	}
	if p.memory.Budget.Err() == nil { // else some of it may be missing
		p.stacks[pc] = out
	}
	return out
}

const (
	maxName = 512     // bytes of a name out of a file
	maxHeld = 8 << 20 // bytes of all names of functions that are kept
)

// standard are the directories of the standard library.
var standard = []string{
	"archive", "bufio", "bytes", "cmp", "compress", "container", "context", "crypto", "database", "debug", "embed", "encoding", "errors", "expvar", "flag", "fmt", "go",
	"hash", "html", "image", "index", "internal", "io", "iter", "log", "maps", "math", "mime", "net", "os", "path", "plugin", "reflect", "regexp", "runtime", "slices",
	"sort", "strconv", "strings", "structs", "sync", "syscall", "testing", "text", "time", "unicode", "unique", "unsafe", "vendor", "weak",
}

// stdOf is where the standard library's files are, "" when their names are
// without directories (-trimpath).
func stdOf(p *Program) string {
	for i := range min(p.entries, 64) {
		for _, f := range p.frames(p.text + uint64(procmem.Half(p.index, 8*uint64(i)))) {
			for _, dir := range []string{"/runtime/", "/internal/"} {
				if root, _, ok := strings.Cut(f.File, "/src"+dir); ok {
					return root + "/src/"
				}
			}
		}
	}
	return ""
}

// own says that a function is the program's, or of a library that it uses: not
// of Go's standard library.
func (p *Program) own(f *Frame) bool {
	dir, _, _ := strings.Cut(f.Function, ".")
	dir, _, _ = strings.Cut(dir, "/")
	return !slices.Contains(standard, dir) || p.std != "" && !strings.HasPrefix(f.File, p.std)
}
