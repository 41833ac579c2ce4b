package symbol

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/procmem"
)

// Location is a place in code. Two samples at one place have equal Locations.
type Location struct {
	in *image
	at uint64 // kernel, code written at run time: address; file: offset; otherwise 0
}

// Kernel says that the location is in the kernel.
func (l Location) Kernel() bool {
	return l.in != nil && (l.in.kind == imageKernel || l.in.kind == imageFunction && l.in.frame.Kind == observe.FrameKernel)
}

// Known says that it is known what holds the location.
func (l Location) Known() bool { return l.in != nil && l.in.kind != imageNone }

// imageKind says what holds a location.
type imageKind uint8

const (
	imageNone    imageKind = iota // nothing is known: the process ended, or the stack led nowhere
	imageKernel                   //
	imageFile                     // a binary or library
	imageVDSO                     // what the kernel maps into every process
	imageRuntime                  // memory of a process into which it wrote code

	imageFunction // one function of which everything is known
)

// image is something with code in it.
type image struct {
	kind    imageKind
	name    string   // path as its process sees it
	file    *os.File // nil when it could not be opened
	root    procmem.RootDir
	perfMap *os.File // of a process that writes code at run time
	why     error    // why there is no file, or no map

	frame     observe.Frame // of one function
	byAddress bool          // places in the file are reported as it wants to be mapped, not by offset
}

// Space holds the processes and binaries that were met.
type Space struct {
	proc      string
	processes map[int]*Process
	images    map[imageKey]*image
	binaries  map[any]*image
	functions map[observe.Frame]*image
	open      int // files
	kernel    image
	vdso      image
	none      image
	ended     int // processes that ended before their memory map was read

	maps *budget.Budget // for the memory maps of all processes
}

type imageKey struct {
	device string
	inode  uint64
	path   string
}

// Why a file has no names.
var (
	errNotOpened = errors.New("it cannot be opened")
	errTooMany   = errors.New("too many files")
)

const (
	// maxOpen bounds the files that are held open for their symbols.
	maxOpen = 800
	// What is remembered at most: of processes, of files, and of functions that
	// somebody else named.
	maxProcesses = 16384
	maxImages    = 16384
	maxFunctions = 300_000
	// How often the memory map of a process is read again for addresses that
	// are not in it: less and less, when that does not help.
	rereadAfter  = 200 * time.Millisecond
	rereadAtLast = 10 * time.Second
)

// mapLimits is what reading memory maps may take as long as there is a Space,
// mapShare that of one process: a map has 65,530 lines of some 100 bytes, unless
// vm.max_map_count says otherwise, of which each may have a path of 4 KB.
var (
	mapLimits = budget.Limits{Bytes: 256 << 20, Nodes: 4 << 20, Wall: math.MaxInt64}
	mapShare  = budget.Limits{Bytes: 32 << 20, Nodes: 512 << 10}
)

// NewSpace returns an empty Space over a proc file system, "/proc".
func NewSpace(proc string) *Space {
	s := &Space{proc: proc, processes: map[int]*Process{}, images: map[imageKey]*image{},
		binaries: map[any]*image{}, functions: map[observe.Frame]*image{}, maps: budget.New(context.Background(), mapLimits)}
	s.kernel.kind, s.vdso.kind, s.none.kind = imageKernel, imageVDSO, imageNone
	return s
}

// Close gives the files back.
func (s *Space) Close() {
	for _, img := range s.images {
		if img.file != nil {
			img.file.Close()
		}
	}
	for _, img := range s.binaries {
		if img.file != nil {
			img.file.Close()
		}
	}
	for _, p := range s.processes {
		if p.runtime != nil && p.runtime.perfMap != nil {
			p.runtime.perfMap.Close()
		}
	}
}

// Kernel is the location of a kernel address.
func (s *Space) Kernel(address uint64) Location { return Location{&s.kernel, address} }

// Process is a process whose addresses are located.
type Process struct {
	space    *Space
	pid      int
	Comm     string // "" when it ended before it could be asked
	mappings []mapping
	read     time.Time
	reread   time.Duration // after how long it is worth it
	known    bool          // its memory map could be read
	runtime  *image
	maps     *budget.Budget
}

// Process is the process with this number, whose memory map is read when it is
// met first. Kernel threads have none.
func (s *Space) Process(pid int) *Process {
	p := s.processes[pid]
	if p != nil {
		return p
	}
	p = &Process{space: s, pid: pid, reread: rereadAfter, maps: s.maps.Sub(mapShare)}
	if len(s.processes) < maxProcesses {
		s.processes[pid] = p
	}
	p.load()
	if !p.known {
		s.ended++
	}
	return p
}

// Ended tells of how many processes no memory map could be read, because they
// ended too early.
func (s *Space) Ended() int { return s.ended }

// Executed tells that a process runs another program by now.
func (s *Space) Executed(pid int) {
	if p := s.processes[pid]; p != nil {
		// What it wrote before is not what it will write.
		p.runtime = nil
		p.load()
	}
}

func (p *Process) load() {
	p.read = time.Now()
	var list []mapping
	err := procmem.EachMapping(p.maps, p.space.proc, p.pid, func(m *procmem.Mapping) bool {
		if m.Executable {
			list = append(list, mappingOf(m))
		}
		return len(list) < maxMappings
	})
	// A process that is ending has a map that is empty. One that is too long has
	// what was read of it.
	if err == nil || budget.IsExceeded(err) {
		if len(list) > 0 || !p.known {
			p.mappings = list
		}
		p.known = true
	}
	dir := filepath.Join(p.space.proc, fmt.Sprint(p.pid))
	if comm, err := budget.Head(filepath.Join(dir, "comm"), maxComm); err == nil {
		p.Comm = clean(strings.TrimSuffix(string(comm), "\n"))
	}
}

// maxComm is more than the kernel keeps of a name: 15 bytes, of a worker thread of its
// own up to 64.
const maxComm = 128

// Location is that of an address in the memory of the process. An address that
// a call returns to lies behind the call: for those, give one less.
func (p *Process) Location(address uint64) Location {
	m := find(p.mappings, address)
	if m == nil && time.Since(p.read) > p.reread {
		p.load() // it may have loaded a library since
		if m = find(p.mappings, address); m == nil {
			// It is no address of code: the stack led astray, and may again.
			p.reread = min(2*p.reread, rereadAtLast)
		}
	}
	switch {
	case m == nil:
		return Location{&p.space.none, 0}
	case m.path == vdso:
		return Location{&p.space.vdso, address - m.start}
	case m.anonymous():
		return Location{p.runtimeImage(), address}
	}
	img := p.image(m)
	if img == &p.space.none {
		return p.space.Unknown()
	}
	return Location{img, address - m.start + m.offset}
}

// image is the file behind a mapping.
func (p *Process) image(m *mapping) *image {
	key := imageKey{m.device, m.inode, m.path}
	img := p.space.images[key]
	if img == nil && len(p.space.images) >= maxImages {
		return &p.space.none
	}
	if img == nil {
		img = &image{kind: imageFile, name: m.path, root: p.root()}
		img.file, img.why = p.openMapped(m)
		p.space.images[key] = img
	}
	return img
}

func (p *Process) root() procmem.RootDir { return procmem.Root(p.space.proc, p.pid) }

// openMapped opens the file behind a mapping.
func (p *Process) openMapped(m *mapping) (f *os.File, err error) {
	if p.space.open >= maxOpen {
		return nil, errTooMany
	}
	path := m.path
	if m.deleted {
		path += " (deleted)"
	}
	f, err = procmem.OpenFile(p.space.proc, p.pid, &procmem.Mapping{Start: m.start, End: m.end, Inode: m.inode, Path: path})
	if err != nil {
		return nil, errNotOpened
	}
	p.space.open++
	return f, nil
}

// runtimeImage is the code that the process wrote at run time, with the map
// that its compiler may write.
func (p *Process) runtimeImage() *image {
	if p.runtime != nil {
		return p.runtime
	}
	p.runtime = &image{kind: imageRuntime, name: p.Comm}
	p.runtime.perfMap, p.runtime.why = p.openPerfMap()
	return p.runtime
}

// Function is the location of a function of which everything is known.
func (s *Space) Function(f observe.Frame) Location {
	f.Name, f.Module, f.File = clean(f.Name), clean(f.Module), clean(f.File)
	img := s.functions[f]
	if img == nil && len(s.functions) >= maxFunctions {
		return s.Unknown()
	}
	if img == nil {
		img = &image{kind: imageFunction, frame: f}
		s.functions[f] = img
	}
	return Location{img, 0}
}

// KernelFunction is the location of a kernel function of which only the name
// is known.
func (s *Space) KernelFunction(name, module string) Location {
	if module == "" {
		module = "vmlinux"
	}
	return s.Function(observe.Frame{Name: name, Kind: observe.FrameKernel, Module: module})
}

// Binary is an address as the binary itself counts it. The binary is opened
// when it is met first: open may return nil when that is not possible. Key
// tells it from others.
func (s *Space) Binary(key any, name string, address uint64, open func() *os.File) Location {
	img := s.binaries[key]
	if img == nil {
		img = &image{kind: imageFile, name: name, byAddress: true, root: procmem.RootAt("/")}
		if s.open < maxOpen {
			img.file = open()
		}
		if img.file == nil {
			img.why = errNotOpened
		} else {
			s.open++
		}
		s.binaries[key] = img
	}
	return Location{img, address}
}

// Unknown is the location of what could not be located.
func (s *Space) Unknown() Location { return Location{&s.none, 0} }
