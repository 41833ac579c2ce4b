package function

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/syscalls"
)

// addStaticProbes finds static probes in the files. Those that come in pairs, a
// begin and an end, are timed as one.
func (p *Plan) addStaticProbes(pat *pattern) error {
	if err := p.needFiles(pat); err != nil {
		return err
	}
	found := false
	var names []string
	for _, im := range p.images {
		byName := map[string][]staticProbe{}
		var order []string
		for _, s := range im.staticProbes() {
			if _, ok := im.offsetOf(s.addr); !ok {
				continue
			}
			key := s.provider + ":" + s.name
			if byName[key] == nil {
				order = append(order, key)
			}
			byName[key] = append(byName[key], s)
		}
		names = append(names, order...)
		paired := map[string]bool{}
		for _, key := range order {
			provider, name, _ := strings.Cut(key, ":")
			whole, end, ok := pairOf(name, func(n string) bool { return byName[provider+":"+n] != nil })
			if !ok || p.opt.CountOnly || !pat.isIn(provider) ||
				(!match(pat.name, whole) && !(match(pat.name, name) && match(pat.name, end))) {
				continue
			}
			found, paired[key], paired[provider+":"+end] = true, true, true
			p.addStatic(im, provider+":"+whole, byName[key], byName[provider+":"+end])
		}
		for _, key := range order {
			provider, name, _ := strings.Cut(key, ":")
			if !paired[key] && pat.isIn(provider) && match(pat.name, name) {
				found = true
				p.addStatic(im, key, byName[key], nil)
			}
		}
	}
	if !found {
		return missing(pat, p.where(), names)
	}
	return nil
}

// addStatic plans a static probe with all its places, and those that end it.
func (p *Plan) addStatic(im *image, name string, begins, ends []staticProbe) {
	for i := range p.probes {
		if p.probes[i].Kind == observe.FunctionUSDT && p.probes[i].Name == name && p.probes[i].Module == im.name {
			return
		}
	}
	f := observe.Function{Name: name, Module: im.name, Kind: observe.FunctionUSDT, Timed: len(ends) > 0}
	if f.Timed {
		f.Note = fmt.Sprintf("from %s to %s", begins[0].name, ends[0].name)
	}
	var args []Arg
	for _, a := range p.opt.Args {
		if a.Field == "" {
			args = append(args, a)
		}
	}
	n := p.add(f, args)
	plan := func(s staticProbe, program string) {
		offset, _ := im.offsetOf(s.addr)
		one := site{probe: n, image: im, offset: offset, program: program}
		if s.semaphore != 0 {
			one.counter, _ = im.dataOffsetOf(s.semaphore)
		}
		if program != progLeave {
			places := parseStaticArgs(im.elf.Machine, s.args)
			for _, a := range args {
				var at place
				if a.Number <= len(places) {
					at = places[a.Number-1]
				}
				one.args = append(one.args, at)
			}
		}
		p.sites = append(p.sites, one)
	}
	begin := progPass
	if f.Timed {
		begin = progEnter
	}
	for _, s := range begins {
		plan(s, begin)
	}
	for _, s := range ends {
		plan(s, progLeave)
	}
}

// addTracepoints finds tracepoints of the kernel.
func (p *Plan) addTracepoints(pat *pattern) error {
	if err := p.needProcess(pat); err != nil {
		return err
	}
	if err := p.needTracefs(); err != nil {
		return err
	}
	names, err := p.tracefs.tracepoints()
	if err != nil {
		return err
	}
	found := false
	for _, full := range names {
		group, name, _ := strings.Cut(full, ":")
		if !match(pat.in, group) || !match(pat.name, name) {
			continue
		}
		found = true
		if p.hasNamed(observe.FunctionTracepoint, full) {
			continue
		}
		s := site{program: progPass, group: group, name: name, flags: inKernel}
		var args []Arg
		if len(p.opt.Args) > 0 {
			fields, order := p.tracefs.fields(group, name)
			for _, a := range p.opt.Args {
				field := a.Field
				if field == "" && a.Number <= len(order) {
					field = order[a.Number-1]
				}
				at, ok := fields[field]
				if !ok && !wild(pat.text) {
					return fmt.Errorf("tracepoint %s has no field %q; it has %s", full, a.label(), strings.Join(order, ", "))
				}
				a.Field = field
				s.args = append(s.args, at)
				args = append(args, a)
			}
		}
		s.probe = p.add(observe.Function{Name: full, Kind: observe.FunctionTracepoint}, args)
		p.sites = append(p.sites, s)
	}
	if !found {
		return missing(&pattern{text: pat.text, kind: pat.kind, name: pat.in + ":" + pat.name}, "the kernel", names)
	}
	return nil
}

func (p *Plan) needTracefs() error {
	if p.tracefs != nil {
		return nil
	}
	t, err := openTracefs()
	if err != nil {
		return fmt.Errorf("tracepoints: %w (needs root)", err)
	}
	p.tracefs = t
	return nil
}

func (p *Plan) hasNamed(kind observe.FunctionKind, name string) bool {
	for i := range p.probes {
		if p.probes[i].Kind == kind && p.probes[i].Name == name {
			return true
		}
	}
	return false
}

// addSyscalls finds system calls.
func (p *Plan) addSyscalls(pat *pattern) error {
	if err := p.needProcess(pat); err != nil {
		return err
	}
	numbers := syscalls.Numbers(runtime.GOARCH)
	if len(numbers) == 0 {
		return fmt.Errorf("%q: the numbers of this machine's system calls are not known", pat.text)
	}
	found := false
	names := syscalls.Names(runtime.GOARCH)
	for _, name := range names {
		if !match(pat.name, name) {
			continue
		}
		found = true
		if p.hasNamed(observe.FunctionSyscall, name) {
			continue
		}
		s := site{program: progEnter, flags: single, name: name, syscall: int(numbers[name]) + 1}
		var args []Arg
		for _, a := range p.opt.Args {
			if a.Field == "" {
				s.args = append(s.args, here.inRegisters(a, here.call, false))
				args = append(args, a)
			}
		}
		f := observe.Function{Name: name, Kind: observe.FunctionSyscall, Timed: true, Errors: "errno"}
		s.probe = p.add(f, args)
		p.sites = append(p.sites, s)
	}
	if !found {
		return missing(pat, "this machine's", names)
	}
	return nil
}

// addKernelFunctions finds functions of the kernel, where it has kprobes.
func (p *Plan) addKernelFunctions(pat *pattern) error {
	if err := p.needProcess(pat); err != nil {
		return err
	}
	if !haveKprobes() {
		return fmt.Errorf("%q: this kernel has no kprobes; tracepoints and system calls can be watched (--list)", pat.text)
	}
	names, err := kernelFunctions()
	if err != nil {
		return err
	}
	found := false
	for _, name := range names {
		if !match(pat.name, name) {
			continue
		}
		found = true
		if p.hasNamed(observe.FunctionKernel, name) || len(p.probes) > maxProbes {
			continue
		}
		f := observe.Function{Name: name, Kind: observe.FunctionKernel, Timed: !p.opt.CountOnly, Errors: p.opt.Errors}
		s := site{program: progEnter, name: name, flags: inKernel}
		if !f.Timed {
			s.program = progPass
		}
		var args []Arg
		for _, a := range p.opt.Args {
			if a.Field == "" {
				s.args = append(s.args, here.inRegisters(a, here.native, false))
				args = append(args, a)
			}
		}
		s.probe = p.add(f, args)
		p.sites = append(p.sites, s)
		if f.Timed {
			p.sites = append(p.sites, site{probe: s.probe, program: progLeave, ret: true, name: name})
		}
	}
	if !found {
		return missing(pat, "the kernel", names)
	}
	return nil
}
