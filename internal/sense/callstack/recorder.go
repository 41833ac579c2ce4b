package callstack

import (
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/bpf"
	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/sense/host"
	"github.com/slowray/slowray/internal/sense/symbol"
)

// Options say what to record.
type Options struct {
	PIDs   []int         // only these processes and what they start; empty = all but slowray
	OnCPU  bool          // what runs, by samples
	OffCPU bool          // what waits, each wait of at least Min
	Hz     int           // samples a second on each CPU, 1 to 10,000; 0 = 99
	Min    time.Duration // shortest wait that is recorded; 0 = 1 ms
	// Threads keeps the threads of a process apart.
	Threads bool
	// Unwinder starts a better unwinder of user stacks than frame pointers are,
	// if there is one. When it fails, that is a note of the result.
	Unwinder func(space *symbol.Space, pids []int) (Unwinder, error)
	// Requests tells, when the window is over, when threads were at work on
	// requests. With it only that time is returned.
	Requests func() Requests
	// Progress is called several times a second with the time since the start.
	Progress func(elapsed time.Duration)
}

const (
	// DefaultHz does not march in step with timers, which like round numbers.
	DefaultHz = 99
	// DefaultMin is the shortest wait that is recorded when nothing is said.
	DefaultMin = time.Millisecond

	pollEvery = 100 * time.Millisecond
)

// recorder holds the programs while they run.
type recorder struct {
	opt        Options
	collection *ebpf.Collection
	links      []io.Closer // kept: an unreferenced link is detached by its finalizer
	events     []int       // perf events
	reader     *ringbuf.Reader
	unwinder   Unwinder
	noKernel   bool // no kernel stacks of threads that wait
}

// start attaches the programs. It needs root, or CAP_BPF and CAP_PERFMON, and
// BTF.
func start(opt Options, u Unwinder) (*recorder, error) {
	r := &recorder{opt: opt, unwinder: u}
	if err := r.start(); err != nil {
		r.close()
		return nil, fmt.Errorf("stacks: %w", err)
	}
	return r, nil
}

func (r *recorder) start() error {
	err := r.load(true)
	if err != nil && !errors.Is(err, bpf.ErrNotPermitted) && r.opt.OffCPU {
		// Kernels that do not give the stack of another task to a tracing
		// program still give everything else.
		if again := r.load(false); again == nil {
			err, r.noKernel = nil, true
		}
	}
	if err != nil {
		return err
	}
	if r.reader, err = ringbuf.NewReader(r.collection.Maps[bpf.StacksMapRecords]); err != nil {
		return fmt.Errorf("open ring: %w", err)
	}
	targets := r.collection.Maps[bpf.StacksMapTargets]
	for _, pid := range r.opt.PIDs {
		if err := targets.Put(uint32(pid), uint8(1)); err != nil {
			return fmt.Errorf("more than %d processes", targets.MaxEntries())
		}
	}
	if r.unwinder != nil {
		if err := r.collection.Maps[bpf.StacksMapUnwinder].Put(uint32(0), r.unwinder.Program()); err != nil {
			return fmt.Errorf("set unwinder: %w", err)
		}
	}
	return r.attach()
}

// load sizes and loads what the options ask for.
func (r *recorder) load(taskStack bool) error {
	spec, err := bpf.LoadStacks()
	if err != nil {
		return err
	}
	if !r.opt.OnCPU {
		delete(spec.Programs, bpf.StacksProgSample)
	}
	if !r.opt.OffCPU {
		delete(spec.Programs, bpf.StacksProgSwitched)
		delete(spec.Programs, bpf.StacksProgWoken)
	}
	if !r.opt.OffCPU || r.unwinder == nil {
		delete(spec.Programs, bpf.StacksProgLeaving)
	}
	if r.opt.OffCPU {
		spec.Maps[bpf.StacksMapOff].MaxEntries = uint32(roomForThreads())
	} else {
		spec.Maps[bpf.StacksMapOff].MaxEntries = 1
	}
	spec.Maps[bpf.StacksMapRecords].MaxEntries = ringBytes(runtime.NumCPU())
	for name, value := range map[string]any{
		bpf.StacksVarSomePids:     flag(len(r.opt.PIDs) > 0),
		bpf.StacksVarHasPrevState: flag(switchTellsState()),
		bpf.StacksVarHasTaskStack: flag(taskStack),
		bpf.StacksVarWithWaits:    flag(r.opt.OffCPU),
		bpf.StacksVarHasUnwinder:  flag(r.unwinder != nil),
		bpf.StacksVarSelf:         uint32(os.Getpid()),
		bpf.StacksVarMinNs:        uint64(r.opt.Min),
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	r.collection, err = bpf.LoadCollection(spec)
	return err
}

func flag(on bool) uint8 {
	if on {
		return 1
	}
	return 0
}

// ringBytes is room for what comes between two looks at the ring, at 1,600
// bytes a record and as often as a CPU can switch threads that waited a
// millisecond.
func ringBytes(cpus int) uint32 {
	return 1 << min(max(bits.Len(uint(cpus<<20-1)), 22), 26)
}

// roomForThreads is how many threads that wait there is room for: twice as
// many as there are, at 1 KiB each.
func roomForThreads() int {
	const least, most = 2048, 65536
	data, err := budget.Head("/proc/loadavg", 256)
	if err != nil {
		return most
	}
	// "0.52 0.58 0.51 4/115 19053": the fourth is running/all.
	if f := strings.Fields(string(data)); len(f) > 3 {
		if _, all, ok := strings.Cut(f[3], "/"); ok {
			if n, ok := host.ParseSmall([]byte(all)); ok {
				return min(max(2*n, least), most)
			}
		}
	}
	return most
}

// switchTellsState says whether the tracepoint sched_switch has the state of
// the thread that leaves as its last argument (fa2c3254d7cf, Linux 5.18; since
// then the state in the task may have changed already).
func switchTellsState() bool {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return false
	}
	var t *btf.Typedef
	if spec.TypeByName("btf_trace_sched_switch", &t) != nil {
		return false
	}
	pointer, ok := t.Type.(*btf.Pointer)
	if !ok {
		return false
	}
	proto, ok := pointer.Target.(*btf.FuncProto)
	return ok && len(proto.Params) >= 5 // with the void pointer that comes first
}

func (r *recorder) attach() error {
	for _, name := range []string{bpf.StacksProgExecuted, bpf.StacksProgForked, bpf.StacksProgWoken, bpf.StacksProgSwitched} {
		prog := r.collection.Programs[name]
		if prog == nil {
			continue
		}
		l, err := link.AttachTracing(link.TracingOptions{Program: prog})
		if err != nil {
			return fmt.Errorf("attach %s: %w", name, err)
		}
		r.links = append(r.links, l)
	}
	if err := r.event(bpf.StacksProgLeaving, unix.PerfEventAttr{Config: unix.PERF_COUNT_SW_CONTEXT_SWITCHES, Sample: 1}); err != nil {
		return fmt.Errorf("context switches: %w", err)
	}
	clock := unix.PerfEventAttr{Config: unix.PERF_COUNT_SW_CPU_CLOCK, Sample: uint64(r.opt.Hz), Bits: unix.PerfBitFreq}
	if err := r.event(bpf.StacksProgSample, clock); err != nil {
		return fmt.Errorf("CPU clock: %w", err)
	}
	return nil
}

// event runs a program, if it is loaded, for a software event on each CPU.
func (r *recorder) event(program string, attr unix.PerfEventAttr) error {
	prog := r.collection.Programs[program]
	if prog == nil {
		return nil
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("count CPUs: %w", err)
	}
	attr.Type, attr.Size = unix.PERF_TYPE_SOFTWARE, uint32(unix.PERF_ATTR_SIZE_VER5)
	for cpu := range cpus {
		fd, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if errors.Is(err, unix.ENODEV) {
			continue // offline
		}
		if err != nil {
			return fmt.Errorf("open event on CPU %d: %w", cpu, err)
		}
		r.events = append(r.events, fd)
		if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_BPF, prog.FD()); err != nil {
			return fmt.Errorf("set program: %w", err)
		}
		if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0); err != nil {
			return fmt.Errorf("enable event: %w", err)
		}
	}
	return nil
}

// stop ends recording; what is in the ring can still be read.
func (r *recorder) stop() {
	for _, fd := range r.events {
		unix.Close(fd)
	}
	r.events = nil
	for _, l := range r.links {
		l.Close()
	}
	r.links = nil
}

func (r *recorder) close() {
	r.stop()
	if r.reader != nil {
		r.reader.Close()
	}
	if r.collection != nil {
		r.collection.Close()
	}
}

// counter reads a variable of the programs; one that cannot be read counts
// nothing.
func (r *recorder) counter(name string) int64 {
	var n uint64
	if v := r.collection.Variables[name]; v != nil {
		_ = v.Get(&n)
	}
	return int64(n)
}

// existing leaves out of pids what is no process, and tells whether one is left.
func existing(pids []int) bool {
	for _, pid := range pids {
		if _, err := os.Stat(filepath.Join("/proc", fmt.Sprint(pid))); err == nil {
			return true
		}
	}
	return false
}
