package stack

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/bpf"
)

// Hz is the sampling rate on each CPU: prime, so that it does not march in
// step with timers, and low enough to cost under 0.1 % of a CPU.
const Hz = 97

// maxDepth is MAX_DEPTH of profile.bpf.c.
const maxDepth = 32

// The records of profile.bpf.c.
type (
	sampleKey struct {
		TGID, TID    uint32
		Kernel, User int32
	}
	sampleCount struct {
		Samples uint64
		Parent  uint32
		Nice    int32
		Comm    [16]byte
	}
)

// Profiler holds the running events.
type Profiler struct {
	objects bpf.ProfileObjects
	events  []int
}

// Start begins sampling on every CPU. It needs root or CAP_BPF and
// CAP_PERFMON.
func Start() (*Profiler, error) {
	spec, err := bpf.LoadProfile()
	if err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	p := &Profiler{}
	if err := bpf.Load(spec, &p.objects); err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	cpus, err := onlineCPUs("/sys/devices/system/cpu/online")
	if err != nil {
		p.Close()
		return nil, fmt.Errorf("profile: %w", err)
	}
	for _, cpu := range cpus {
		if err := p.attach(cpu); err != nil {
			p.Close()
			return nil, fmt.Errorf("profile: cpu %d: %w", cpu, err)
		}
	}
	return p, nil
}

func (p *Profiler) attach(cpu int) error {
	fd, err := unix.PerfEventOpen(&unix.PerfEventAttr{
		Type:   unix.PERF_TYPE_SOFTWARE,
		Config: unix.PERF_COUNT_SW_CPU_CLOCK,
		Size:   uint32(unix.PERF_ATTR_SIZE_VER5),
		Sample: Hz,
		Bits:   unix.PerfBitFreq,
	}, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if errors.Is(err, unix.ENODEV) {
		return nil // went offline just now
	}
	if err != nil {
		return fmt.Errorf("open event: %w", err)
	}
	p.events = append(p.events, fd)
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_BPF, p.objects.Sample.FD()); err != nil {
		return fmt.Errorf("set program: %w", err)
	}
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0); err != nil {
		return fmt.Errorf("enable event: %w", err)
	}
	return nil
}

// Want asks for the user stacks of processes and of their children, from now
// on. At most 4,096 processes can be asked for.
func (p *Profiler) Want(pids ...int) error {
	for _, pid := range pids {
		if err := p.objects.Wanted.Put(uint32(pid), uint8(1)); err != nil {
			return fmt.Errorf("profile: ask for the stacks of process %d: %w", pid, err)
		}
	}
	return nil
}

// Close stops sampling.
func (p *Profiler) Close() {
	for _, fd := range p.events {
		unix.Close(fd)
	}
	p.events = nil
	p.objects.Close()
}

// onlineCPUs reads a CPU list as "0-3,8".
func onlineCPUs(path string) ([]int, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("online CPUs: %w", err)
	}
	return parseCPUList(strings.TrimSpace(string(data)))
}

func parseCPUList(list string) ([]int, error) {
	var cpus []int
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		a, err := strconv.Atoi(first)
		if err != nil {
			return nil, fmt.Errorf("online CPUs: malformed list %q", list)
		}
		b := a
		if isRange {
			if b, err = strconv.Atoi(last); err != nil || b < a || b-a > 1<<16 {
				return nil, fmt.Errorf("online CPUs: malformed list %q", list)
			}
		}
		for cpu := a; cpu <= b; cpu++ {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}
