package cpython

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/sense/elffile"
	"github.com/slowray/slowray/internal/sense/procmem"
)

// ErrNotPython says that no Python interpreter is in a process.
var ErrNotPython = errors.New("it is no Python interpreter")

// layout is where the fields of the interpreter's structures are, on 64-bit
// machines, as compilers of its headers say.
type layout struct {
	interpreters, threads, nativeID uint64
	cframe, current                 uint64 // of a thread; where cframe is 0 the thread itself has current
	code, previous, instruction     uint64 // of a frame
	owner                           uint64 // of a frame; 3 is one that C made
	firstLine, lines, instructions  uint64 // of a code object
	text                            uint64 // of a string that is ASCII
}

// layouts are by minor version of Python 3.
var layouts = map[string]layout{
	"3.11": {40, 16, 160, 56, 8, 32, 48, 56, 69, 72, 136, 184, 48},
	"3.12": {40, 72, 144, 56, 0, 0, 8, 56, 70, 68, 136, 192, 40},
	"3.13": {632, 7344, 160, 0, 72, 0, 8, 56, 70, 68, 136, 200, 40},
}

// Fields that are where they are in all of these versions.
const (
	threadNext   = 8
	codeFile     = 112
	codeName     = 128
	stringLength = 16
	bytesSize    = 16
	bytesData    = 32
)

// An Interpreter is a Python interpreter that runs. It is for one goroutine.
type Interpreter struct {
	Version string // "3.11"
	memory  procmem.Process
	layout
	runtime uint64           // address of _PyRuntime
	codes   map[uint64]*code // by address
}

var versionIn = regexp.MustCompile(`python(3\.\d+)`)

// runtimeMax is more than _PyRuntime takes, with the objects in it (3.11: 0.2 MB).
const runtimeMax = 1 << 20

// Runs says that a futex is of the interpreter's own lock (GIL): that lies in _PyRuntime
// (struct _gil_runtime_state, Include/internal/pycore_gil.h), all others where the program
// has its objects.
func (p *Interpreter) Runs(futex uint64) bool {
	return futex >= p.runtime && futex < p.runtime+runtimeMax
}

// Open finds the interpreter in a process below proc ("/proc"); ErrNotPython when
// there is none.
func Open(b *budget.Budget, proc string, pid int, memory procmem.Reader) (*Interpreter, error) {
	m, version, err := library(b, proc, pid)
	if err != nil {
		return nil, err
	}
	l, known := layouts[version]
	if !known {
		return nil, fmt.Errorf("stacks of Python %s are not read", version)
	}
	f, err := procmem.OpenFile(proc, pid, &m)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	at, err := runtimeIn(b, f, m.Start)
	if err != nil {
		elffile.Refuse(b, f, err)
		return nil, err
	}
	return &Interpreter{Version: version, memory: procmem.Process{PID: pid, Read: memory, Budget: b}, layout: l, runtime: at, codes: map[uint64]*code{}}, nil
}

// library is where the interpreter was loaded: a library, or the program itself,
// which may only call it.
func library(b *budget.Budget, proc string, pid int) (m procmem.Mapping, version string, err error) {
	m, err = procmem.Loaded(b, proc, pid, func(path string) (ok, done bool) {
		name := filepath.Base(path)
		v := versionIn.FindStringSubmatch(name)
		inLibrary := strings.HasPrefix(name, "libpython")
		if v == nil || !strings.HasPrefix(name, "python") && !inLibrary {
			return false, false
		}
		version = v[1]
		return true, inLibrary
	})
	if errors.Is(err, procmem.ErrNoMapping) {
		err = ErrNotPython
	}
	return m, version, err
}

// runtimeIn is the address of _PyRuntime in a file that was loaded at base.
func runtimeIn(b *budget.Budget, file *os.File, base uint64) (at uint64, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("its file is damaged: %v", r)
		}
	}()
	f, err := elffile.Open(b, file)
	if err != nil {
		return 0, err
	}
	if f.Type == elf.ET_EXEC {
		base = 0
	}
	for _, kind := range []elf.SectionType{elf.SHT_DYNSYM, elf.SHT_SYMTAB} {
		if s, ok := f.Lookup(kind, "_PyRuntime"); ok {
			return base + s.Value, nil
		}
	}
	return 0, cmp.Or(b.Err(), errors.New("it has no symbol _PyRuntime"))
}
