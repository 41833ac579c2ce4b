package function

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/bpf"
)

// kernel is what this kernel can do.
type kernel struct {
	cookies bool // since Linux 5.15
	multi   bool // many places with one link, since Linux 6.6
}

func probeKernel() kernel {
	return kernel{
		cookies: features.HaveProgramHelper(ebpf.Kprobe, asm.FnGetAttachCookie) == nil,
		multi:   features.HaveBPFLinkUprobeMulti() == nil,
	}
}

// maxSingles bounds the places that are attached to one by one: giving one back
// takes a tenth of a second, one after the other, in which the target still
// runs into its breakpoint.
const maxSingles = 64

// spec is the collection with its sizes and constants.
func (t *Tracer) spec(multi bool, fixed int) (*ebpf.CollectionSpec, error) {
	spec, err := bpf.LoadFunction()
	if err != nil {
		return nil, err
	}
	probes := uint32(len(t.plan.probes) + 1) // and one to measure the price
	for _, name := range []string{bpf.FunctionMapSums, bpf.FunctionMapHistograms, bpf.FunctionMapLimits} {
		spec.Maps[name].MaxEntries = probes
	}
	spec.Maps[bpf.FunctionMapSites].MaxEntries = uint32(len(t.plan.sites) + 1)
	for name, v := range map[string]any{
		bpf.FunctionVarMachine:      here.number,
		bpf.FunctionVarWithCookie:   oneIf(t.kernel.cookies),
		bpf.FunctionVarWithArgs:     oneIf(t.withArgs),
		bpf.FunctionVarWithStacks:   oneIf(!t.plan.opt.NoStacks),
		bpf.FunctionVarFixedSite:    uint32(fixed),
		bpf.FunctionVarOnlyTgid:     uint32(t.plan.target.pid),
		bpf.FunctionVarWindowNs:     uint64(rateWindow),
		bpf.FunctionVarRegSp:        here.sp,
		bpf.FunctionVarRegResult:    here.result,
		bpf.FunctionVarRegGoroutine: here.g,
	} {
		if err := spec.Variables[name].Set(v); err != nil {
			return nil, fmt.Errorf("set %s: %w", name, err)
		}
	}
	if t.plan.opt.Requests {
		spec.Maps[bpf.FunctionMapIntervals].MaxEntries = 1 << 22
		if err := spec.Variables[bpf.FunctionVarIntervalNs].Set(uint64(shortest)); err != nil {
			return nil, fmt.Errorf("set %s: %w", bpf.FunctionVarIntervalNs, err)
		}
	}
	if t.withArgs {
		spec.Maps[bpf.FunctionMapArguments].MaxEntries = 8192
	}
	if multi {
		for _, name := range []string{progEnter, progLeave, progPass} {
			spec.Programs[name].AttachType = ebpf.AttachTraceUprobeMulti
		}
	}
	return spec, nil
}

func oneIf(on bool) uint8 {
	if on {
		return 1
	}
	return 0
}

// load loads the programs that the plan needs.
func (t *Tracer) load() error {
	spec, err := t.spec(t.kernel.multi, 0)
	if err != nil {
		return err
	}
	needs := map[string]bool{progEnter: true, progLeave: true, progPass: true}
	for i := range t.plan.sites {
		s := &t.plan.sites[i]
		needs["pass_tracepoint"] = needs["pass_tracepoint"] || s.group != ""
		needs["enter_syscall"] = needs["enter_syscall"] || s.syscall > 0
	}
	needs["leave_syscall"] = needs["enter_syscall"]
	for name := range spec.Programs {
		if !needs[name] {
			delete(spec.Programs, name)
		}
	}
	t.objects, err = bpf.LoadCollection(spec)
	var refused *ebpf.VerifierError
	if errors.As(err, &refused) {
		return fmt.Errorf("%s", err) // no matter of rights, as its number would say
	}
	return err
}

// copyOf is a program that shares all maps with the others, but is not made for
// links of many places, or has its site as a constant.
func (t *Tracer) copyOf(program string, multi bool, fixed int) (*ebpf.Program, error) {
	spec, err := t.spec(multi, fixed)
	if err != nil {
		return nil, err
	}
	for name := range spec.Programs {
		if name != program {
			delete(spec.Programs, name)
		}
	}
	shared := map[string]*ebpf.Map{}
	for name, m := range t.objects.Maps {
		// Constants are its own, and so is what all must be of one kind for.
		if name != ".rodata" && m.Type() != ebpf.ProgramArray {
			shared[name] = m
		}
	}
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: shared})
	if err != nil {
		return nil, fmt.Errorf("load BPF programs: %w", err)
	}
	prog := c.DetachProgram(program)
	c.Close()
	t.closers = append(t.closers, prog)
	return prog, nil
}

// attachAll attaches to all places: ends first, so that no call that is seen to
// begin is not seen to end.
func (t *Tracer) attachAll() error {
	type group struct {
		image   *image
		program string
		ret     bool
	}
	groups := map[group][]int{}
	var order []group
	for _, program := range []string{progLeave, progPass, progEnter} {
		for i := range t.plan.sites {
			s := &t.plan.sites[i]
			if s.program != program || s.image == nil {
				continue
			}
			g := group{s.image, s.program, s.ret}
			if groups[g] == nil {
				order = append(order, g)
			}
			groups[g] = append(groups[g], i)
		}
	}
	for _, g := range order {
		if err := t.attachFile(g.image, g.program, g.ret, groups[g]); err != nil {
			return err
		}
	}
	return t.attachKernel()
}

// attachFile attaches one program to places in a file. Places that the kernel
// refuses are left out, and told.
func (t *Tracer) attachFile(im *image, program string, ret bool, sites []int) error {
	ex, err := link.OpenExecutable(im.path())
	if err != nil {
		return fmt.Errorf("%s: %w", im.name, unwrapPath(err))
	}
	if !t.multi {
		if len(t.links)+len(sites) > maxSingles {
			return fmt.Errorf("more than %d places (entries and returns) at once need Linux 6.6: narrow it down, or give --count", maxSingles)
		}
		for _, i := range sites {
			if err := t.attachOne(ex, program, ret, i); err != nil {
				if err = t.refused(i, err); err != nil {
					return err
				}
			}
		}
		return nil
	}
	opt := &link.UprobeMultiOptions{PID: uint32(t.plan.target.pid)}
	counted := false
	for _, i := range sites {
		counted = counted || t.plan.sites[i].counter != 0
	}
	for _, i := range sites {
		s := &t.plan.sites[i]
		opt.Addresses = append(opt.Addresses, s.offset)
		opt.Cookies = append(opt.Cookies, uint64(i))
		if counted {
			opt.RefCtrOffsets = append(opt.RefCtrOffsets, s.counter)
		}
	}
	attach := ex.UprobeMulti
	if ret {
		attach = ex.UretprobeMulti
	}
	l, err := attach(nil, t.objects.Programs[program], opt)
	if err == nil {
		t.links = append(t.links, l)
		return nil
	}
	if errors.Is(err, os.ErrNotExist) && t.plan.target.pid != 0 {
		return fmt.Errorf("process %d: %w", t.plan.target.pid, ErrNoProcess)
	}
	if len(sites) == 1 {
		return t.refused(sites[0], err)
	}
	// One of them is refused: find it by halves.
	half := len(sites) / 2
	if err := t.attachFile(im, program, ret, sites[:half]); err != nil {
		return err
	}
	return t.attachFile(im, program, ret, sites[half:])
}

// attachOne attaches to one place, with an event of its own.
func (t *Tracer) attachOne(ex *link.Executable, program string, ret bool, i int) error {
	s := &t.plan.sites[i]
	prog, err := t.single(program, i)
	if err != nil {
		return err
	}
	opt := &link.UprobeOptions{Address: s.offset, PID: t.plan.target.pid, RefCtrOffset: s.counter}
	if t.kernel.cookies {
		opt.Cookie = uint64(i)
	}
	attach := ex.Uprobe
	if ret {
		attach = ex.Uretprobe
	}
	l, err := attach("", prog, opt)
	if err != nil {
		return err
	}
	t.links = append(t.links, l)
	return nil
}

// single is a program for one place.
func (t *Tracer) single(program string, site int) (*ebpf.Program, error) {
	switch {
	case !t.kernel.cookies:
		return t.copyOf(program, false, site)
	case !t.kernel.multi:
		return t.objects.Programs[program], nil
	case t.singles[program] == nil:
		prog, err := t.copyOf(program, false, 0)
		if err != nil {
			return nil, err
		}
		t.singles[program] = prog
	}
	return t.singles[program], nil
}

// notSupported is ENOTSUPP, which the kernel gives for an instruction that it
// cannot execute elsewhere; it has no name outside of the kernel.
const notSupported = syscall.Errno(524)

// refused notes that a place could not be attached to; what is no matter of
// this place alone is returned.
func (t *Tracer) refused(i int, err error) error {
	s := &t.plan.sites[i]
	pr := &t.plan.probes[s.probe]
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("attach to %s: not permitted (needs root, or CAP_BPF, CAP_PERFMON and CAP_SYS_ADMIN)", pr.Name)
	case errors.Is(err, unix.ESRCH):
		return fmt.Errorf("process %d: %w", t.plan.target.pid, ErrNoProcess)
	}
	why := err.Error()
	if errors.Is(err, notSupported) || errors.Is(err, unix.EOPNOTSUPP) {
		why = "the instruction cannot be replaced by a breakpoint"
	}
	t.attachErrors++
	t.lastRefusal = fmt.Errorf("attach to %s: %s", pr.Name, why)
	if s.program == progLeave {
		pr.Note = "some of its returns are not seen: " + why
	} else {
		pr.Note = "not watched: " + why
		t.unattached++
	}
	return nil
}

// attachKernel attaches to tracepoints, system calls and kernel functions.
func (t *Tracer) attachKernel() error {
	syscalls := false
	for i := range t.plan.sites {
		s := &t.plan.sites[i]
		var l io.Closer
		var err error
		switch {
		case s.syscall > 0:
			syscalls = true
			if err := t.objects.Maps[bpf.FunctionMapSyscallSites].Put(uint32(s.syscall-1), uint32(i+1)); err != nil {
				return fmt.Errorf("system call %s: %w", s.name, err)
			}
			continue
		case s.group != "":
			l, err = t.attachTracepoint(s, i)
		case s.image == nil:
			var prog *ebpf.Program
			if prog, err = t.single(s.program, i); err == nil {
				opt := &link.KprobeOptions{}
				if t.kernel.cookies {
					opt.Cookie = uint64(i)
				}
				attach := link.Kprobe
				if s.ret {
					attach = link.Kretprobe
				}
				l, err = attach(s.name, prog, opt)
			}
		default:
			continue
		}
		if err != nil {
			if err = t.refused(i, err); err != nil {
				return err
			}
			continue
		}
		t.links = append(t.links, l)
	}
	if !syscalls {
		return nil
	}
	for _, at := range []struct{ program, point string }{{"leave_syscall", "sys_exit"}, {"enter_syscall", "sys_enter"}} {
		l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: at.point, Program: t.objects.Programs[at.program]})
		if err != nil {
			return fmt.Errorf("attach to system calls: %w", err)
		}
		t.links = append(t.links, l)
	}
	return nil
}

// attachTracepoint attaches to a tracepoint with a cookie, or with a program of
// its own.
func (t *Tracer) attachTracepoint(s *site, i int) (io.Closer, error) {
	const program = "pass_tracepoint"
	prog := t.objects.Programs[program]
	if !t.kernel.cookies {
		var err error
		if prog, err = t.copyOf(program, false, i); err != nil {
			return nil, err
		}
	}
	id, err := t.plan.tracefs.id(s.group, s.name)
	if err != nil {
		return nil, err
	}
	// A program on a tracepoint's event runs for every hit, on whatever CPU
	// (perf_trace_run_bpf_submit).
	fd, err := unix.PerfEventOpen(&unix.PerfEventAttr{
		Type: unix.PERF_TYPE_TRACEPOINT, Config: id, Size: uint32(unix.PERF_ATTR_SIZE_VER5), Sample: 1, Wakeup: 1,
	}, -1, 0, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	event := os.NewFile(uintptr(fd), s.name)
	if !t.kernel.cookies {
		err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_BPF, prog.FD())
		if err == nil {
			err = unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0)
		}
		if err != nil {
			event.Close()
			return nil, err
		}
		return event, nil
	}
	l, err := linkPerfEvent(fd, prog.FD(), uint64(i))
	if err != nil {
		event.Close()
		return nil, err
	}
	return both{l, event}, nil
}

type both struct{ a, b io.Closer }

func (c both) Close() error { return errors.Join(c.a.Close(), c.b.Close()) }

// linkPerfEvent makes a link between a program and an event, with a cookie
// (bpf(2), BPF_LINK_CREATE; union bpf_attr.link_create.perf_event).
func linkPerfEvent(event, program int, cookie uint64) (io.Closer, error) {
	const (
		linkCreate = 28
		perfEvent  = 41 // BPF_PERF_EVENT
	)
	attr := struct {
		program, target, kind, flags uint32
		cookie                       uint64
	}{uint32(program), uint32(event), perfEvent, 0, cookie}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, linkCreate, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	if errno != 0 {
		return nil, errno
	}
	unix.CloseOnExec(int(fd))
	return os.NewFile(fd, "link"), nil
}
