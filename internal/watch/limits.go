package watch

import (
	"slices"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/sense/app/heap"
	"github.com/slowray/slowray/internal/sense/host"
)

// limits follows what the control groups of the services allow them over the
// window, so that it is known also of those that are gone at the end.
type limits struct {
	first, last []host.CgroupSample
	heaps       *heap.Watch
}

const limitsEvery = time.Second

// heapLimits are those of one look at the counters of all runtimes.
var heapLimits = budget.Limits{Bytes: 32 << 20, Nodes: 256 << 10, Wall: 60 * time.Millisecond}

// interesting are processes whose control groups are read: those that serve;
// and in groups with a limit of their own those that have begun lately, for they
// may be about to serve.
func (s *session) interesting(procs []host.ProcSample, pids []int) map[int]bool {
	out := map[int]bool{}
	for _, pid := range pids {
		out[pid] = true
	}
	var latest uint64
	for i := range procs {
		latest = max(latest, procs[i].StartTicks)
	}
	young := 0
	for i := range procs {
		p := &procs[i]
		if p.Kernel || young >= maxYoung {
			continue
		}
		if (p.Container != "" || strings.HasSuffix(p.Unit, ".service")) && p.StartTicks+youngTicks >= latest {
			out[p.PID] = true
			young++
		}
	}
	return out
}

const (
	maxYoung   = 256
	youngTicks = 120 * 100 // 2 min: a slow start under a small quota takes that long
)

// youngSpaces are the network namespaces of containers that began lately: what
// calls them is refused until they listen.
func (s *session) youngSpaces(procs []host.ProcSample) map[uint64]bool {
	young := s.interesting(procs, nil)
	out := map[uint64]bool{}
	for i := range procs {
		if p := &procs[i]; p.Container != "" && young[p.PID] {
			out[p.NetNS] = true
		}
	}
	return out
}

// begin takes the first reading.
func (l *limits) begin(s *session) error {
	l.first, _ = s.fs.Cgroups(s.procs, s.interesting(s.procs, s.serving))
	l.last = l.first
	l.heaps = heap.Begin(budget.New(s.ctx, heapLimits), s.fs.Proc, s.out.Host.MemoryBytes, l.heapProcesses(s))
	return nil
}

// heapProcesses are those that may have a heap of limited size, with the limit
// of the control group they are in.
func (l *limits) heapProcesses(s *session) []heap.Process {
	limit := map[int]uint64{}
	for i := range l.first {
		g := &l.first[i]
		if g.MemoryLimitBytes == 0 {
			continue
		}
		for _, pid := range g.PIDs {
			if old := limit[pid]; old == 0 || g.MemoryLimitBytes < old {
				limit[pid] = g.MemoryLimitBytes
			}
		}
	}
	var out []heap.Process
	for i := range s.procs {
		if p := &s.procs[i]; heap.Runtime(p.Comm) != "" || slices.Contains(s.serving, p.PID) {
			out = append(out, heap.Process{PID: p.PID, Comm: p.Comm, Threads: p.Threads, LimitBytes: limit[p.PID]})
		}
	}
	return out
}

// sample looks again.
func (l *limits) sample(s *session) {
	again := s.fs.CgroupsAgain(l.first)
	// What is gone keeps its last reading.
	for i := range l.last {
		old := &l.last[i]
		if !slices.ContainsFunc(again, func(g host.CgroupSample) bool { return g.Path == old.Path && g.Version == old.Version }) {
			again = append(again, *old)
		}
	}
	l.last = again
	l.heaps.Look(budget.New(s.ctx, heapLimits))
}

// end is what came of the groups of the services.
func (l *limits) end(s *session) {
	pids := slices.Clone(s.serving)
	for i := range s.out.Namespaces {
		for _, l := range s.out.Namespaces[i].Listeners {
			pids = append(pids, l.PIDs...)
		}
	}
	now, gaps := s.fs.Cgroups(s.last.procs, s.interesting(s.last.procs, pids))
	s.out.Gaps = append(s.out.Gaps, gaps...)
	s.out.Cgroups = host.CgroupsBetween(l.first, now, limited(l.last))
	s.out.Heaps = l.heaps.End(budget.New(s.ctx, heapLimits))
}

func limited(groups []host.CgroupSample) []host.CgroupSample {
	return slices.DeleteFunc(slices.Clone(groups), func(g host.CgroupSample) bool { return !g.Limited() })
}
