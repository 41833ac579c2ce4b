package function

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/gocode"
)

// Options say what to watch.
type Options struct {
	Target       string // a pid, a path, a name, or "kernel"
	PID          int    // of a file or of the kernel only what this process calls; 0 = all
	Symbols      []string
	Args         []Arg         // to keep of the slowest calls, at most MaxArgs
	Slow         time.Duration // calls shorter than this are not listed
	Top          int           // how many calls are listed for each function
	MaxRate      int           // hits per second at which watching ends
	Errors       string        // what result is an error: "negative", "null", "nonzero"; "" = not known
	CountOnly    bool          // no durations: half the price
	ReturnProbes bool          // also where stacks are walked
	NoStacks     bool
	Requests     bool // also say how much of slow requests' time was spent inside; of one process
}

// Bounds of what is watched at once.
const (
	maxProbes = 1000
	maxSites  = 8000

	// Giving a tracepoint back takes the kernel a tenth of a second.
	maxTracepoints = 128
)

// Kinds of programs in function.bpf.c.
const (
	progEnter = "enter"
	progLeave = "leave"
	progPass  = "pass"
)

// Flags of struct site.
const (
	byStack     = 1 << iota // entries are distinguished by the stack pointer
	goroutine               // a thread is a goroutine
	restarts                // the entry is passed again when the stack grows
	single                  // a thread is in one call at a time
	afterReturn             // the return address is off the stack
	noCPU                   // CPU time of a call is not known
	inKernel                // the kernel's stack says something
)

// failed of struct site.
var failedKinds = map[string]uint8{"": 0, "negative": 1, "null": 2, "errno": 3, "nonzero": 4}

// probe is one function, or what is counted like one.
type probe struct {
	observe.Function
	wanted []Arg // of the values that are kept, in their order
}

// site is a place that is watched.
type site struct {
	probe   int
	program string
	ret     bool // by a return probe
	image   *image
	offset  uint64 // in the file
	counter uint64 // where the counter of a static probe is in the file; 0 = none
	flags   uint8
	args    []place

	group, name string // of a tracepoint; name also of a kernel function
	syscall     int    // 1 + number; 0 = none
}

// forceInstructions watches return instructions everywhere, for tests.
var forceInstructions bool

// Plan is what will be watched.
type Plan struct {
	opt     Options
	target  *target
	images  []*image
	tracefs *tracefs
	probes  []probe
	sites   []site
	unsafe  bool // stacks may be walked in the target
	notes   []string
}

// Prepare finds what is asked for, until ctx ends. The plan has to be closed.
func Prepare(ctx context.Context, opt Options) (*Plan, error) {
	p, err := newPlan(ctx, opt)
	if err != nil {
		return nil, err
	}
	if err := p.fill(); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

func newPlan(ctx context.Context, opt Options) (*Plan, error) {
	if opt.Requests && opt.CountOnly {
		return nil, errors.New("how much of the requests' time is spent inside cannot be known by counting only")
	}
	files := len(opt.Symbols) == 0
	for _, text := range opt.Symbols {
		pat, err := parsePattern(text)
		if err != nil {
			return nil, err
		}
		files = files || !pat.ofKernel()
	}
	b := budget.New(ctx, limits)
	t, err := findTarget(b, opt.Target, opt.PID, files)
	if err != nil {
		return nil, err
	}
	if opt.Requests && t.pid == 0 {
		return nil, errors.New("requests are those of one process: give a pid as target, or --pid")
	}
	p := &Plan{opt: opt, target: t, unsafe: forceInstructions}
	var failed error
	for _, f := range t.files {
		im, err := openImage(b, f)
		if err != nil {
			failed = errors.Join(failed, err)
			if len(t.files) > 1 {
				p.notes = append(p.notes, "not read: "+err.Error())
			}
			continue
		}
		p.images = append(p.images, im)
		p.unsafe = p.unsafe || isUnwinder(f.base()) || im.walksStacks() || (t.pid == 0 && im.isLibrary())
	}
	if len(p.images) == 0 && failed != nil {
		return nil, failed
	}
	return p, nil
}

// Close closes the files.
func (p *Plan) Close() {
	for _, im := range p.images {
		im.close()
	}
	p.tracefs.close()
}

// Size is how many functions, and how many places in them, will be watched.
func (p *Plan) Size() (functions, places int) { return len(p.probes), len(p.sites) }

// PID is the process that is watched, 0 when it is more than one.
func (p *Plan) PID() int { return p.target.pid }

// fill finds the places of all names.
func (p *Plan) fill() error {
	for _, text := range p.opt.Symbols {
		pat, err := parsePattern(text)
		if err != nil {
			return err
		}
		before := len(p.probes)
		switch pat.kind {
		case observe.FunctionTracepoint:
			err = p.addTracepoints(&pat)
		case observe.FunctionSyscall:
			err = p.addSyscalls(&pat)
		case observe.FunctionKernel:
			err = p.addKernelFunctions(&pat)
		case observe.FunctionUSDT:
			err = p.addStaticProbes(&pat)
		default:
			err = p.addFunctions(&pat)
		}
		if err != nil {
			return err
		}
		if len(p.probes) == before {
			continue // all of them were there already
		}
		if len(p.probes) > maxProbes {
			return fmt.Errorf("%q is more than %d functions: narrow it down (--list shows them)", text, maxProbes)
		}
		if pat.kind == observe.FunctionTracepoint && len(p.probes)-before > maxTracepoints {
			return fmt.Errorf("%q is more than %d tracepoints: narrow it down (system calls have syscall:NAME)", text, maxTracepoints)
		}
		if len(p.sites) > maxSites {
			return fmt.Errorf("%q is left at more than %d places: narrow it down, or give --count", text, maxSites)
		}
	}
	return nil
}

func (p *Plan) where() string {
	switch {
	case p.opt.Target == kernelTarget:
		return "the kernel"
	case p.target.pid != 0:
		return fmt.Sprintf("process %d (%d files)", p.target.pid, len(p.images))
	}
	return p.images[0].name
}

func (p *Plan) needFiles(pat *pattern) error {
	if len(p.images) == 0 {
		return fmt.Errorf("%q is in a program or library: give its path or a pid as target, not %q", pat.text, p.opt.Target)
	}
	return nil
}

func (p *Plan) needProcess(pat *pattern) error {
	if p.target.pid == 0 && len(p.images) > 0 {
		return fmt.Errorf("%q is in the kernel: give a pid as target, or %q for all processes", pat.text, kernelTarget)
	}
	return nil
}

// addFunctions finds functions in the files.
func (p *Plan) addFunctions(pat *pattern) error {
	if err := p.needFiles(pat); err != nil {
		return err
	}
	found, why := false, error(nil)
	for _, im := range p.images {
		if !pat.isIn(im.base()) {
			continue
		}
		err := im.all(pat.name, func(s *elfFunc) bool {
			offset, ok := im.offsetOf(s.addr)
			switch {
			case !ok:
				return true
			case s.ifunc:
				why = fmt.Errorf("%q in %s is chosen among variants when the program starts (IFUNC): no probe on the name sees its calls; its variants may have names of their own%s",
					s.name, im.name, near(s.name, im))
				return true
			}
			found = true
			p.addFunction(im, s, offset)
			return len(p.probes) <= maxProbes
		})
		if err != nil {
			return err
		}
		if len(p.probes) > maxProbes {
			return nil
		}
	}
	switch {
	case why != nil && (!found || !wild(pat.name)):
		return why
	case found:
		return nil
	}
	return missing(pat, p.where(), p.functionNames(pat.in))
}

// near names the variants of a function that is chosen at run time.
func near(name string, im *image) string {
	var names []string
	for i := range im.symbols {
		if s := im.symbols[i].name; s != name && strings.HasPrefix(strings.TrimLeft(s, "_"), name+"_") {
			names = append(names, s)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return ": " + strings.Join(names[:min(5, len(names))], ", ")
}

func (p *Plan) functionNames(in string) []string {
	var names []string
	for _, im := range p.images {
		if in != "" && !match(in, im.base()) {
			continue
		}
		for i := range im.symbols {
			name := im.symbols[i].shown()
			if im.budget.Unpack(int64(len(name))) != nil {
				break // names that are near are an offer, no more
			}
			names = append(names, name)
		}
	}
	return names
}

// add notes a probe and returns its number.
func (p *Plan) add(f observe.Function, wanted []Arg) int {
	p.probes = append(p.probes, probe{Function: f, wanted: wanted})
	return len(p.probes) - 1
}

// addFunction plans one function of a file, once for all its names.
func (p *Plan) addFunction(im *image, s *elfFunc, offset uint64) {
	if im.planned[s.addr] {
		return
	}
	im.planned[s.addr] = true
	f := observe.Function{Name: s.shown(), Module: im.name, Kind: observe.FunctionNative, Errors: p.opt.Errors}
	isGo := im.golang != nil && im.golang.has(s.addr)
	regs, flags := here.native, uint8(byStack)
	if isGo {
		f.Kind, regs, flags = observe.FunctionGo, here.golang, byStack|goroutine|noCPU
	}
	enter := site{image: im, offset: offset, flags: flags, program: progEnter}
	var args []Arg
	for _, a := range p.opt.Args {
		if a.Field == "" {
			enter.args = append(enter.args, here.inRegisters(a, regs, !isGo))
			args = append(args, a)
		}
	}
	leaves := p.leavesOf(im, s, &enter, &f, isGo)
	if f.Timed = leaves != nil; !f.Timed {
		enter.program = progPass
		f.Errors = ""
	}
	n := p.add(f, args)
	enter.probe = n
	p.sites = append(p.sites, enter)
	for _, l := range leaves {
		l.probe = n
		p.sites = append(p.sites, l)
	}
}

// leavesOf are the places by which a function is left; nil, and a note, when its
// calls can only be counted. It moves the entry to where it is passed once
// for each call.
func (p *Plan) leavesOf(im *image, s *elfFunc, enter *site, f *observe.Function, isGo bool) []site {
	var code []byte
	if isGo || p.unsafe {
		code = im.code(s)
	}
	if isGo {
		if at, sure := gocode.AfterStackCheck(im.elf.Machine, code); sure {
			enter.offset += at
		} else {
			enter.flags |= restarts
		}
	}
	switch {
	case p.opt.CountOnly:
		return nil
	case slices.Contains(keepsReturnAddress, s.name):
		f.Note = "counted only: it keeps its return address, or never returns"
		return nil
	case isGo && !im.golang.registers:
		f.Note = "counted only: built by a Go before 1.17, or one that does not tell"
		return nil
	case !isGo && (!p.unsafe || p.opt.ReturnProbes) && im.golang == nil:
		return []site{{image: im, offset: enter.offset, flags: enter.flags | afterReturn, program: progLeave, ret: true}}
	}
	at, ok := im.exits(s, code)
	switch {
	case !ok && isGo, !ok && im.golang != nil:
		f.Note = "counted only: it has instructions that the disassembler does not know, so its returns are not found"
		return nil
	case !ok:
		f.Note = "counted only: it has instructions that the disassembler does not know, and a return probe would end a program that throws an exception through it (--return-probes takes the risk)"
		return nil
	case len(at) == 0:
		f.Note = "no return is in it"
	}
	out := make([]site, 0, len(at))
	for _, off := range at {
		fileOffset, inside := im.offsetOf(s.addr + off)
		if inside {
			out = append(out, site{image: im, offset: fileOffset, flags: enter.flags, program: progLeave})
		}
	}
	return out
}
