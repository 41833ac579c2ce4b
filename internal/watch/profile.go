package watch

import (
	"cmp"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
	"github.com/slowray/slowray/internal/sense/stack"
)

// leastNamed is the share of a CPU that the processes of a service have to use
// together for their functions to be named: what takes less makes nobody wait.
const leastNamed = 0.10

// profile samples what the CPUs execute, with user stacks of what serves.
type profile struct{ profiler *stack.Profiler }

func (p *profile) begin(s *session) (err error) {
	if p.profiler, err = stack.Start(); err != nil {
		return err
	}
	if err := p.profiler.Want(s.serving...); err != nil {
		s.partialGap(observe.KindProfile, 0, "user stacks", err)
	}
	return nil
}

func (p *profile) close(*session) { p.profiler.Close() }

// stop reads the samples, and names the functions of what serves, and of
// kernel threads, where they use a good part of a CPU.
func (p *profile) stop(s *session) {
	procs := map[int]*host.ProcSample{}
	for i := range s.procs {
		procs[s.procs[i].PID] = &s.procs[i]
	}
	serving := map[int]bool{}
	for _, pid := range s.serving {
		serving[pid] = true
	}
	for i := range s.out.Endpoints {
		if e := &s.out.Endpoints[i]; e.Side == observe.Served.String() {
			for _, pid := range append([]int{e.PID}, e.PIDs...) {
				serving[pid] = true
			}
		}
	}
	search := s.manyTimeWait()
	out, losses, err := p.profiler.Read(stack.Detail{
		PortSearch: search,
		Functions: func(pid int) int {
			if one := procs[pid]; !serving[pid] && (one == nil || !one.Kernel) {
				return 0
			}
			return topmost(procs, pid)
		},
		Least:  uint64(leastNamed * stack.Hz * s.out.Window.Seconds),
		Unread: func(err error) { s.partialGap(observe.KindProfile, 0, "functions of binaries", err) },
	})
	switch {
	case err != nil && (out == nil || search):
		s.gap(observe.KindProfile, "", err)
	case err != nil:
		s.partialGap(observe.KindProfile, 0, "functions of the kernel", err)
	}
	s.out.Profile = out
	for i := range losses {
		if out != nil {
			losses[i].Of = int64(out.Samples)
		}
	}
	s.out.Losses = append(s.out.Losses, losses...)
}

// manyTimeWait says whether any namespace has so many sockets in TIME_WAIT
// towards one destination that the search for a port could matter.
func (s *session) manyTimeWait() bool {
	const many = 500
	for _, sp := range s.spaces {
		for k, g := range sp.groups {
			if !k.served && g.states["TIME_WAIT"] >= many {
				return true
			}
		}
	}
	return false
}

// topmost is the ancestor of a process that runs the same program and has no
// parent that does.
func topmost(procs map[int]*host.ProcSample, pid int) int {
	for range 16 {
		p := procs[pid]
		if p == nil || p.Kernel || procs[p.PPID] == nil || p.PPID == 1 || procs[p.PPID].Comm != p.Comm {
			break
		}
		pid = p.PPID
	}
	return pid
}

const maxShortLived = 16

// sumShortLived sums up the sampled processes that began and ended within the
// window, and so are in neither list of processes.
func (s *session) sumShortLived() {
	p := s.out.Profile
	if p == nil {
		return
	}
	comm := map[int]string{}
	for _, list := range [][]host.ProcSample{s.last.procs, s.procs} {
		for i := range list {
			comm[list[i].PID] = list[i].Comm
		}
	}
	// A parent may have been short-lived itself: whoever is left above it
	// answers for all.
	parent := map[int]int{}
	for i := range p.Processes {
		parent[p.Processes[i].PID] = p.Processes[i].Parent
	}
	lasting := func(pid int) int {
		for range 16 {
			up, sampled := parent[pid]
			if _, known := comm[pid]; known || !sampled {
				break
			}
			pid = up
		}
		return pid
	}
	type kind struct {
		comm         string
		parent, nice int
	}
	sums := map[kind]*observe.ProfileShort{}
	p.Processes = slices.DeleteFunc(p.Processes, func(one observe.ProfileProcess) bool {
		if _, known := comm[one.PID]; known {
			return false
		}
		k := kind{one.Comm, lasting(one.Parent), one.Nice}
		if sums[k] == nil {
			sums[k] = &observe.ProfileShort{Comm: k.comm, Parent: k.parent, ParentComm: comm[k.parent], Nice: k.nice}
		}
		sums[k].Processes++
		sums[k].Samples += one.Samples
		return true
	})
	for _, one := range sums {
		p.ShortLived = append(p.ShortLived, *one)
	}
	slices.SortFunc(p.ShortLived, func(a, b observe.ProfileShort) int {
		return cmp.Or(cmp.Compare(b.Samples, a.Samples), strings.Compare(a.Comm, b.Comm), cmp.Compare(a.Parent, b.Parent), cmp.Compare(a.Nice, b.Nice))
	})
	p.ShortLived = p.ShortLived[:min(len(p.ShortLived), maxShortLived)]
}
