package stack

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/symbol"
)

// Detail says what of the samples is looked at closely. The zero Detail only
// counts.
type Detail struct {
	// PortSearch counts the samples inside the search for a free local port.
	PortSearch bool
	// Functions says for which processes the functions are named, and which
	// belong together: those with the same number, which is not 0. They are
	// named where they have at least Least samples together.
	Functions func(pid int) int
	Least     uint64
	// Unread, if set, is called with why some functions have no names, where more
	// would have had to be read of binaries than there is a budget for.
	Unread func(error)
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
	frames  []int // those that are looked at, innermost first
}

// seenProcess is what was sampled of one process.
type seenProcess struct {
	observe.ProfileProcess
	threads map[uint32]*observe.ProfileThread
	stacks  []seenStack
	group   int // see Detail.Functions; 0 = its functions are not named
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
			one.PID, one.Parent, one.Nice = int(key.TGID), int(val.Parent), int(val.Nice)
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
	if !d.PortSearch && d.Functions == nil {
		return nil
	}
	space := symbol.NewSpace("/proc")
	defer space.Close()
	var locations []symbol.Location
	index := map[symbol.Location]int{}
	inKernel := map[int32][]int{} // indices into locations
	note := func(l symbol.Location) int {
		i, met := index[l]
		if !met {
			i = len(locations)
			index[l] = i
			locations = append(locations, l)
		}
		return i
	}
	together := map[int]uint64{}
	for _, one := range procs {
		if d.Functions != nil {
			one.group = d.Functions(one.PID)
			together[one.group] += one.Samples
		}
	}
	var named []*seenProcess
	for _, one := range procs {
		name := one.group != 0 && together[one.group] >= d.Least
		if name {
			named = append(named, one)
		}
		if !name && !d.PortSearch {
			continue
		}
		for i := range one.stacks {
			s := &one.stacks[i]
			if _, met := inKernel[s.key.Kernel]; !met {
				for n, ip := range p.stack(p.objects.Stacks, s.key.Kernel) {
					inKernel[s.key.Kernel] = append(inKernel[s.key.Kernel], note(space.Kernel(called(ip, n > 0))))
				}
			}
			s.frames = inKernel[s.key.Kernel]
			if name {
				user := p.stack(p.objects.UserStacks, s.key.User)
				s.frames = slices.Clone(s.frames)
				for n, ip := range user {
					s.frames = append(s.frames, note(space.Process(one.PID).Location(called(ip, n > 0))))
				}
			}
		}
	}
	frames, missing := space.Frames(budget.New(context.Background(), symbol.Limits), locations)
	if err := symbol.Unread(missing); err != nil && d.Unread != nil {
		d.Unread(err)
	}
	if d.PortSearch {
		for _, one := range procs {
			for _, s := range one.stacks {
				if slices.ContainsFunc(s.frames, func(i int) bool { return searchesPort(&frames[i]) }) {
					one.PortSearch += s.samples
				}
			}
		}
	}
	for _, one := range named {
		one.name(frames)
	}
	for _, m := range missing {
		if m.Where == "the kernel" && m.Why != "" {
			return fmt.Errorf("profile: symbols of the kernel: %s", m.Why)
		}
	}
	return nil
}

// called is an address inside the function that an address of a stack belongs
// to: that of an outer frame is where a call returns to, behind the call.
func called(ip uint64, outer bool) uint64 {
	if outer {
		return ip - 1
	}
	return ip
}

// portSearch are the kernel functions that look for a free local port
// (net/ipv4/inet_hashtables.c). __inet_hash_connect calls the others; they are
// listed because the compiler may have inlined it into its callers.
var portSearch = []string{"__inet_hash_connect", "__inet_check_established", "__inet6_check_established", "inet_hash_connect"}

func searchesPort(f *observe.Frame) bool {
	return f.Kind == observe.FrameKernel && slices.Contains(portSearch, f.Name)
}

// name fills in the functions of a process and of its busiest threads.
func (s *seenProcess) name(frames []observe.Frame) {
	all := tally{}
	threads := map[uint32]tally{}
	for i := range s.Threads {
		threads[uint32(s.Threads[i].TID)] = tally{}
	}
	for _, one := range s.stacks {
		stack := make([]observe.Frame, 0, len(one.frames))
		for _, i := range one.frames {
			stack = append(stack, known(frames[i]))
		}
		if len(stack) == 0 || stack[0].Name == "" || one.key.Kernel == notKept {
			s.Unnamed += one.samples
		}
		all.add(stack, one.samples)
		if t, ok := threads[one.tid]; ok {
			t.add(stack, one.samples)
		}
	}
	s.Functions = all.most(maxFunctions)
	for i := range s.Threads {
		s.Threads[i].Functions = threads[uint32(s.Threads[i].TID)].most(maxThreadFunctions)
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
