package watch

import (
	"slices"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/heap"
	"github.com/slowray/slowray/internal/sense/container"
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

// beginLimits takes the first reading.
func (s *session) beginLimits() {
	s.limits.first, _ = s.fs.Cgroups(s.procs, s.interesting(s.procs, s.serving))
	s.limits.last = s.limits.first
	s.limits.heaps = heap.Begin(budget.New(s.ctx, heapLimits), s.fs.Proc, s.out.Host.MemoryBytes, s.heapProcesses())
}

// heapProcesses are those that may have a heap of limited size, with the limit
// of the control group they are in.
func (s *session) heapProcesses() []heap.Process {
	limit := map[int]uint64{}
	for i := range s.limits.first {
		g := &s.limits.first[i]
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
		if p := &s.procs[i]; heap.Runtime(p.Comm) != "" {
			out = append(out, heap.Process{PID: p.PID, Comm: p.Comm, Threads: p.Threads, LimitBytes: limit[p.PID]})
		}
	}
	return out
}

// cpuSetOf is the file that keeps a process from some CPUs.
func (s *session) cpuSetOf(pid int) string {
	for i := range s.procs {
		if s.procs[i].PID == pid {
			return s.fs.CPUSetOf(s.procs[i].Groups, s.out.Host.CPUs)
		}
	}
	return ""
}

// endStarts says of the processes that began lately when that was.
func (s *session) endStarts(procs []host.ProcSample) {
	ticks := map[int]uint64{}
	var latest uint64
	for i := range procs {
		ticks[procs[i].PID] = procs[i].StartTicks
		latest = max(latest, procs[i].StartTicks)
	}
	for i := range s.out.Processes {
		p := &s.out.Processes[i]
		if t := ticks[p.PID]; t > 0 && !p.EndedIn && t+youngTicks >= latest {
			p.StartedAt = s.fs.StartedAt(t).Sub(s.out.Window.Start).Seconds()
		}
	}
}

// sampleLimits looks again.
func (s *session) sampleLimits() {
	again := s.fs.CgroupsAgain(s.limits.first)
	// What is gone keeps its last reading.
	for i := range s.limits.last {
		old := &s.limits.last[i]
		if !slices.ContainsFunc(again, func(g host.CgroupSample) bool { return g.Path == old.Path && g.Version == old.Version }) {
			again = append(again, *old)
		}
	}
	s.limits.last = again
	s.limits.heaps.Look(budget.New(s.ctx, heapLimits))
}

// endLimits is what came of the groups of these processes.
func (s *session) endLimits(procs []host.ProcSample, pids []int) {
	now, gaps := s.fs.Cgroups(procs, s.interesting(procs, append(pids, s.serving...)))
	s.out.Gaps = append(s.out.Gaps, gaps...)
	s.out.Cgroups = host.CgroupsBetween(s.limits.first, now, limited(s.limits.last))
	s.out.Heaps = s.limits.heaps.End(budget.New(s.ctx, heapLimits))
}

func limited(groups []host.CgroupSample) []host.CgroupSample {
	return slices.DeleteFunc(slices.Clone(groups), func(g host.CgroupSample) bool { return !g.Limited() })
}

// containerReader asks this host's engines.
func (s *session) containerReader() container.Reader {
	return container.Reader{Proc: s.fs.Proc, Root: "/", HostBytes: s.out.Host.MemoryBytes}
}

func engineProcesses(procs []host.ProcSample) []container.Process {
	var out []container.Process
	for i := range procs {
		if !procs[i].Kernel {
			out = append(out, container.Process{PID: procs[i].PID, Comm: procs[i].Comm})
		}
	}
	return out
}

// resolveContainer puts the id of the container that the filter names in place
// of its name. known says that an engine knows it, whether or not it runs.
func (s *session) resolveContainer() (known bool) {
	f := &s.opt.Filter
	if f.Container == "" {
		return false
	}
	list, _ := s.containerReader().Look(s.ctx, engineProcesses(s.procs), nil, time.Now().Add(-container.Lately), time.Now())
	running, _ := s.containerReader().Names(budget.New(s.ctx, container.Limits), engineProcesses(s.procs), nil)
	list = append(running, list...)
	f.Container = container.Find(list, f.Container)
	s.out.Filter = *f
	return slices.ContainsFunc(list, func(c observe.Container) bool { return f.InContainer(c.ID) })
}

// ended is what was asked after the window, beside the other readings.
type ended struct {
	containers []observe.Container
	errs       []error
	kills      []observe.OOMKill
	killsErr   error
}

// askEngines asks the engines, and the kernel log, while the rest is read.
func (s *session) askEngines(procs []host.ProcSample) <-chan ended {
	out := make(chan ended, 1)
	origin := s.out.Window.Start
	since := time.Now().Add(-container.Lately)
	engines := engineProcesses(procs)
	var ids []string
	note := func(id string) {
		if id != "" && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	note(s.opt.Filter.Container)
	for _, list := range [][]host.ProcSample{procs, s.procs} {
		for i := range list {
			note(list[i].Container)
		}
	}
	reader := s.containerReader()
	go func() {
		var e ended
		e.kills, e.killsErr = host.OOMKills("/dev/kmsg", since, origin)
		for i := range e.kills {
			note(e.kills[i].Container)
		}
		e.containers, e.errs = reader.Look(s.ctx, engines, ids, since, origin)
		out <- e
	}()
	return out
}

// endContainers takes what was asked.
func (s *session) endContainers(answer <-chan ended) {
	e := <-answer
	s.out.Containers, s.out.OOMKills = e.containers, e.kills
	if s.out.Waits != nil {
		name := func(id string) string {
			if i := slices.IndexFunc(e.containers, func(c observe.Container) bool { return c.ID == id }); i >= 0 {
				return e.containers[i].Name
			}
			return ""
		}
		for i := range s.out.Waits.Shares {
			container.NameHops(s.out.Waits.Shares[i].Chain.Hops, name)
		}
	}
	for _, err := range e.errs {
		s.partialGap(observe.KindEngines, 0, "container engine", err)
	}
	if e.killsErr != nil && s.kmsg != nil {
		s.partialGap(observe.KindKernelLog, 0, "", e.killsErr)
	}
}
