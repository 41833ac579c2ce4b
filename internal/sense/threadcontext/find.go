package threadcontext

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/sense/elffile"
	"github.com/slowray/slowray/internal/sense/procmem"
)

// Place is where the threads of a process keep their pointer, as struct publisher of
// thread_context.h. Distances are in bytes.
type Place struct {
	// Offset is from the thread pointer, or, where Module is not 0, from the beginning of
	// the module's block of the thread.
	Offset int64
	// Vector is where from the thread pointer the address of the thread's vector of blocks
	// lies (dtv), Length where from the vector the number of its last entry lies.
	Vector, Length int64
	Module         uint32 // number of the entry; 0 = in the block that every thread has from its beginning
	Entry          uint32 // size of an entry
}

// ErrNone says that a process publishes no context of its threads.
var ErrNone = errors.New("it publishes no thread context")

// ErrChanging says that a process is about to change what it publishes.
var ErrChanging = errChanging

// limits is what may be read of one process and its files, fileLimits of one of them.
var (
	limits     = budget.Limits{Bytes: 128 << 20, Unpacked: 64 << 20, Files: maxFiles, Nodes: 4 << 20, Wall: 2 * time.Second}
	fileLimits = budget.Limits{Wall: time.Second}
)

const (
	maxContexts = 4   // mappings that look like a process context
	maxFiles    = 512 // ELF files of one process
)

// symbol is the thread-local pointer to the record (OTEP 4947, Thread-Local Variable).
const symbol = "otel_thread_ctx_v1"

// Find looks for the place of a process. The error is ErrNone where it publishes nothing,
// ErrChanging where it is to be asked again; any other says why the place is not known.
func Find(ctx context.Context, pid int) (Place, error) {
	return find(budget.New(ctx, limits), "/proc", pid, procmem.Read)
}

// loaded is an ELF file in a process's memory: its mapping of the file's beginning.
type loaded struct {
	procmem.Mapping
	executable bool // some of it is code
}

// memory is what is of interest of a process's mappings.
type memory struct {
	contexts []uint64
	files    []*loaded
	musl     bool // its C library is musl, else glibc
}

func find(b *budget.Budget, proc string, pid int, read procmem.Reader) (Place, error) {
	m, err := lookAt(b, proc, pid)
	if err != nil {
		return Place{}, err
	}
	p := procmem.Process{PID: pid, Read: read, Budget: b}
	err = ErrNone
	for _, at := range m.contexts {
		if err = publishes(p, at); err == nil {
			break
		}
	}
	if over := b.Err(); over != nil {
		return Place{}, over
	}
	if err != nil {
		return Place{}, err
	}
	return m.place(p, proc)
}

// lookAt reads the mappings of a process. Files are of interest only where there is a
// process context.
func lookAt(b *budget.Budget, proc string, pid int) (m memory, err error) {
	type id struct {
		device string
		inode  uint64
	}
	files := map[id]*loaded{}
	err = procmem.EachMapping(b, proc, pid, func(at *procmem.Mapping) bool {
		if isContext(at.Path) {
			if len(m.contexts) < maxContexts {
				m.contexts = append(m.contexts, at.Start)
			}
			return true
		}
		if at.Inode == 0 || !strings.HasPrefix(at.Path, "/") {
			return true
		}
		f := files[id{at.Device, at.Inode}]
		switch {
		case f != nil:
			f.executable = f.executable || at.Executable
		case at.Offset == 0 && len(m.files) < maxFiles:
			f = &loaded{*at, at.Executable}
			files[id{at.Device, at.Inode}] = f
			m.files = append(m.files, f)
		}
		name := filepath.Base(at.Path)
		m.musl = m.musl || strings.HasPrefix(name, "ld-musl-") || strings.HasPrefix(name, "libc.musl-")
		return true
	})
	return m, err
}

// place finds the symbol in the files. That of the executable is everybody's; of several
// libraries that have one each it is not known which one is used.
func (m *memory) place(p procmem.Process, proc string) (Place, error) {
	program, _ := os.Readlink(filepath.Join(proc, fmt.Sprint(p.PID), "exe")) // without it the executable is a file as others are
	var found Place
	var in string
	var last error
	for _, f := range m.files {
		if !f.executable {
			continue
		}
		at, ok, err := m.placeIn(p, proc, f, f.Path == program)
		if over := p.Budget.Err(); over != nil {
			return Place{}, over
		}
		switch {
		case err != nil:
			last = fmt.Errorf("%s: %w", f.Path, err)
		case !ok:
		case f.Path == program:
			return at, nil
		case in != "":
			return Place{}, fmt.Errorf("both %s and %s have the symbol %s", in, f.Path, symbol)
		default:
			found, in = at, f.Path
		}
	}
	switch {
	case last != nil:
		return Place{}, last
	case in == "":
		return Place{}, fmt.Errorf("none of its files has the symbol %s", symbol)
	}
	return found, nil
}

// placeIn looks into one file; ok is false where it has not the symbol.
func (m *memory) placeIn(p procmem.Process, proc string, f *loaded, program bool) (at Place, ok bool, err error) {
	if err := p.Budget.File(); err != nil {
		return at, false, err
	}
	file, err := procmem.OpenFile(proc, p.PID, &f.Mapping)
	if err != nil {
		return at, false, nil // what is mapped need not be a library
	}
	defer file.Close()
	b := p.Budget.Sub(fileLimits)
	image, err := elffile.Open(b, file)
	if err != nil {
		elffile.Refuse(b, file, err)
		if budget.IsExceeded(err) {
			return at, false, err
		}
		return at, false, nil
	}
	s, err := lookUp(image)
	if err != nil || s.index == 0 {
		elffile.Refuse(b, file, err)
		return at, false, err
	}
	if program {
		at, err = ofProgram(image, s)
	} else {
		at, err = m.ofLibrary(p, image, s, f.Start)
	}
	return at, err == nil, err
}
