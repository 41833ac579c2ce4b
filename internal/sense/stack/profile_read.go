package stack

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// Detail says what of the samples is looked at closely. The zero Detail only
// counts.
type Detail struct {
	// PortSearch counts the samples inside the search for a free local port.
	PortSearch bool
	// Functions says for which processes the functions are named. It is asked
	// for processes with at least Least samples only.
	Functions func(pid int) bool
	Least     uint64
	// User names user functions; nil names none.
	User Symbols
}

// Symbols names functions of processes.
type Symbols interface {
	// Frame is the function at an address of a process, false when not known.
	Frame(pid int, ip uint64) (observe.Frame, bool)
}

// What of a process is kept.
const (
	maxThreads         = 4
	maxFunctions       = 12 // by themselves, and as many with what they call
	maxThreadFunctions = 3
)

// seenStack is one stack of one thread with how often it was sampled.
type seenStack struct {
	tid     uint32
	key     sampleKey
	samples uint64
}

// seenProcess is what was sampled of one process.
type seenProcess struct {
	observe.ProfileProcess
	threads map[uint32]*observe.ProfileThread
	stacks  []seenStack
}

// Read returns the samples since Start, busiest process first. Naming kernel
// functions reads the kernel's symbols (about 50 ms; needs CAP_SYSLOG); where
// that fails the samples are returned with the error.
func (p *Profiler) Read(d Detail) (*observe.Profile, []observe.Loss, error) {
	out := &observe.Profile{Hz: Hz}
	byPID, err := p.count(out)
	if err != nil {
		return nil, nil, err
	}
	procs := make([]*seenProcess, 0, len(byPID))
	for _, one := range byPID {
		one.keepThreads()
		procs = append(procs, one)
	}
	slices.SortFunc(procs, func(a, b *seenProcess) int {
		return cmp.Or(cmp.Compare(b.Samples, a.Samples), cmp.Compare(a.PID, b.PID))
	})
	err = p.look(procs, d)
	for _, one := range procs {
		out.Processes = append(out.Processes, one.ProfileProcess)
	}
	return out, p.losses(), err
}

// count sums the samples up by process.
func (p *Profiler) count(out *observe.Profile) (map[uint32]*seenProcess, error) {
	byPID := map[uint32]*seenProcess{}
	var (
		key  sampleKey
		val  sampleCount
		iter = p.objects.Counts.Iterate()
	)
	for iter.Next(&key, &val) {
		one := byPID[key.TGID]
		if one == nil {
			one = &seenProcess{threads: map[uint32]*observe.ProfileThread{}}
			one.PID, one.Parent = int(key.TGID), int(val.Parent)
			byPID[key.TGID] = one
		}
		name, _, _ := strings.Cut(string(val.Comm[:]), "\x00")
		// The process is called what its main thread is, if that was seen.
		if one.Comm == "" || key.TID == key.TGID {
			one.Comm = name
		}
		t := one.threads[key.TID]
		if t == nil {
			t = &observe.ProfileThread{TID: int(key.TID), Comm: name}
			one.threads[key.TID] = t
		}
		t.Samples += val.Samples
		one.Samples += val.Samples
		out.Samples += val.Samples
		if key.Kernel != userMode {
			one.Kernel += val.Samples
		}
		one.stacks = append(one.stacks, seenStack{tid: key.TID, key: key, samples: val.Samples})
	}
	if err := iter.Err(); err != nil {
		return nil, fmt.Errorf("profile: read samples: %w", err)
	}
	return byPID, nil
}

// userMode is sampleKey.Kernel of a CPU that was not in the kernel.
const userMode = -1

// keepThreads keeps the busiest threads of a process that has several.
func (s *seenProcess) keepThreads() {
	if len(s.threads) < 2 {
		return
	}
	for _, t := range s.threads {
		s.Threads = append(s.Threads, *t)
	}
	slices.SortFunc(s.Threads, func(a, b observe.ProfileThread) int {
		return cmp.Or(cmp.Compare(b.Samples, a.Samples), cmp.Compare(a.TID, b.TID))
	})
	s.Threads = s.Threads[:min(len(s.Threads), maxThreads)]
}

// look gives the stacks a meaning, as far as d asks for it.
func (p *Profiler) look(procs []*seenProcess, d Detail) error {
	var named []*seenProcess
	var ips []uint64
	inKernel := map[int32][]uint64{}
	kernelStack := func(id int32) []uint64 {
		if _, ok := inKernel[id]; !ok {
			inKernel[id] = p.stack(p.objects.Stacks, id)
			ips = append(ips, inKernel[id]...)
		}
		return inKernel[id]
	}
	for _, one := range procs {
		name := d.Functions != nil && one.Samples >= d.Least && d.Functions(one.PID)
		if name {
			named = append(named, one)
		}
		for _, s := range one.stacks {
			if (name || d.PortSearch) && s.key.Kernel >= 0 {
				kernelStack(s.key.Kernel)
			}
		}
	}
	if len(ips) == 0 && len(named) == 0 {
		return nil
	}
	var kernel kernelNames
	var err error
	if len(ips) > 0 {
		if kernel, err = kernelSymbols("/proc/kallsyms", ips); err != nil {
			err = fmt.Errorf("profile: %w", err)
		}
	}
	if d.PortSearch {
		for _, one := range procs {
			for _, s := range one.stacks {
				if slices.ContainsFunc(inKernel[s.key.Kernel], kernel.searchesPort) {
					one.PortSearch += s.samples
				}
			}
		}
	}
	for _, one := range named {
		p.name(one, kernel, inKernel, d.User)
	}
	return err
}

// name fills in the functions of a process and of its busiest threads.
func (p *Profiler) name(one *seenProcess, kernel kernelNames, inKernel map[int32][]uint64, user Symbols) {
	all := tally{}
	threads := map[uint32]tally{}
	for i := range one.Threads {
		threads[uint32(one.Threads[i].TID)] = tally{}
	}
	names := map[uint64]observe.Frame{}
	unnamed := observe.Frame{Kind: observe.FrameUnknown}
	for _, s := range one.stacks {
		var frames []observe.Frame
		for _, ip := range inKernel[s.key.Kernel] {
			frames = append(frames, kernel.frame(ip))
		}
		if s.key.Kernel == notKept {
			frames = append(frames, unnamed)
		}
		for _, ip := range p.stack(p.objects.UserStacks, s.key.User) {
			f, ok := names[ip]
			if !ok {
				f = unnamed
				if user != nil {
					if known, ok := user.Frame(one.PID, ip); ok {
						f = known
					}
				}
				names[ip] = f
			}
			frames = append(frames, f)
		}
		if len(frames) == 0 || frames[0] == unnamed {
			one.Unnamed += s.samples
		}
		all.add(frames, s.samples)
		if t, ok := threads[s.tid]; ok {
			t.add(frames, s.samples)
		}
	}
	one.Functions = all.most(maxFunctions)
	for i := range one.Threads {
		one.Threads[i].Functions = threads[uint32(one.Threads[i].TID)].most(maxThreadFunctions)
	}
}

// notKept is sampleKey.Kernel of a kernel stack there was no room for.
const notKept = -2

// stack returns the addresses of a stack, leaf first; none when it was thrown
// out for another one with the same hash.
func (p *Profiler) stack(m lookup, id int32) []uint64 {
	if id < 0 {
		return nil
	}
	var ips [maxDepth]uint64
	if err := m.Lookup(uint32(id), &ips); err != nil {
		return nil
	}
	n := slices.Index(ips[:], 0)
	if n < 0 {
		n = maxDepth
	}
	return slices.Clone(ips[:n])
}

// lookup is a BPF map.
type lookup interface {
	Lookup(key, value any) error
}

func (p *Profiler) losses() []observe.Loss {
	var losses []observe.Loss
	var n uint64
	if err := p.objects.LostSamples.Get(&n); err == nil && n > 0 {
		losses = append(losses, observe.Loss{What: "CPU samples of more than 32,768 (thread, stack) pairs", Count: int64(n)})
	}
	if err := p.objects.LostStacks.Get(&n); err == nil && n > 0 {
		losses = append(losses, observe.Loss{What: "stacks of CPU samples there was no room for", Count: int64(n)})
	}
	return losses
}
