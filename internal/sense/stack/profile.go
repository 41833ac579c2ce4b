package stack

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/bpf"
	"github.com/slowray/slowray/internal/observe"
)

// Hz is the sampling rate on each CPU: prime, so that it does not march in
// step with timers, and low enough to cost under 0.1 % of a CPU.
const Hz = 97

// portSearch are the kernel functions that look for a free local port
// (net/ipv4/inet_hashtables.c). __inet_hash_connect calls the others; they are
// listed because the compiler may have inlined it into its callers.
var portSearch = []string{"__inet_hash_connect", "__inet_check_established", "__inet6_check_established", "inet_hash_connect"}

// maxDepth is MAX_DEPTH of profile.bpf.c.
const maxDepth = 32

type (
	symbolRange struct{ start, end uint64 }
	sampleKey   struct {
		TGID  uint32
		Stack int32
	}
	sampleCount struct {
		Samples uint64
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

// Close stops sampling.
func (p *Profiler) Close() {
	for _, fd := range p.events {
		unix.Close(fd)
	}
	p.events = nil
	p.objects.Close()
}

// Read returns the samples since Start, busiest process first. Only with
// searchPorts are the stacks looked at, for which the kernel's symbols are
// read (about 50 ms; needs CAP_SYSLOG).
func (p *Profiler) Read(searchPorts bool) (*observe.Profile, []observe.Loss, error) {
	var ranges []symbolRange
	if searchPorts {
		var err error
		if ranges, err = kernelRanges("/proc/kallsyms", portSearch); err != nil {
			return nil, nil, fmt.Errorf("profile: %w", err)
		}
	}
	out := &observe.Profile{Hz: Hz}
	byPID := map[uint32]*observe.ProfileProcess{}
	var (
		key  sampleKey
		val  sampleCount
		iter = p.objects.Counts.Iterate()
	)
	for iter.Next(&key, &val) {
		one := byPID[key.TGID]
		if one == nil {
			name, _, _ := strings.Cut(string(val.Comm[:]), "\x00")
			one = &observe.ProfileProcess{PID: int(key.TGID), Comm: name}
			byPID[key.TGID] = one
		}
		one.Samples += val.Samples
		out.Samples += val.Samples
		if len(ranges) > 0 && key.Stack >= 0 && p.passes(uint32(key.Stack), ranges) {
			one.PortSearch += val.Samples
		}
	}
	if err := iter.Err(); err != nil {
		return nil, nil, fmt.Errorf("profile: read samples: %w", err)
	}
	for _, one := range byPID {
		out.Processes = append(out.Processes, *one)
	}
	slices.SortFunc(out.Processes, func(a, b observe.ProfileProcess) int {
		return cmp.Or(cmp.Compare(b.Samples, a.Samples), cmp.Compare(a.PID, b.PID))
	})
	var lost uint64
	var losses []observe.Loss
	if err := p.objects.LostSamples.Get(&lost); err == nil && lost > 0 {
		losses = append(losses, observe.Loss{What: "CPU samples of more than 16,384 (process, stack) pairs", Count: int64(lost)})
	}
	return out, losses, nil
}

// passes says whether a stack goes through one of the ranges.
func (p *Profiler) passes(id uint32, ranges []symbolRange) bool {
	var stack [maxDepth]uint64
	if err := p.objects.Stacks.Lookup(id, &stack); err != nil {
		return false // thrown out for another stack with the same hash
	}
	for _, ip := range stack {
		for _, r := range ranges {
			if ip >= r.start && ip < r.end {
				return true
			}
		}
	}
	return false
}

// kernelRanges finds the address ranges of the named functions in a file in
// the form of /proc/kallsyms. It fails when the addresses are hidden
// (kernel.kptr_restrict) or none of the functions exists.
func kernelRanges(path string, names []string) ([]symbolRange, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("kernel symbols: %w", err)
	}
	defer f.Close()
	return parseRanges(f, names)
}

func parseRanges(r io.Reader, names []string) ([]symbolRange, error) {
	// The file is sorted by address within vmlinux; a function ends where the
	// next text symbol with a larger address begins.
	var (
		out    []symbolRange
		open   []int // ranges whose end is not known yet
		hidden = true
		sc     = bufio.NewScanner(r)
	)
	for sc.Scan() {
		line := sc.Text()
		hex, rest, ok := strings.Cut(line, " ")
		if !ok || len(rest) < 3 {
			continue
		}
		addr, err := strconv.ParseUint(hex, 16, 64)
		if err != nil {
			continue
		}
		if addr != 0 {
			hidden = false
		}
		if len(open) > 0 {
			var still []int
			for _, i := range open {
				if addr > out[i].start {
					out[i].end = addr
				} else {
					still = append(still, i)
				}
			}
			open = still
		}
		kind, name := rest[0], rest[2:]
		if (kind == 't' || kind == 'T') && addr != 0 && slices.Contains(names, name) {
			open = append(open, len(out))
			out = append(out, symbolRange{start: addr})
		}
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("kernel symbols: %w", err)
	}
	for _, i := range open {
		out[i].end = out[i].start + 4096
	}
	switch {
	case len(out) > 0:
		return out, nil
	case hidden:
		return nil, errors.New("kernel symbols are hidden (kernel.kptr_restrict, or CAP_SYSLOG is missing)")
	}
	return nil, fmt.Errorf("kernel symbols: none of %s", strings.Join(names, ", "))
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
