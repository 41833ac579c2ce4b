package host

import (
	"slices"

	"github.com/slowray/slowray/internal/observe"
)

// ProcessesBetween is what the processes did from a to b, in order of pid.
// Processes are told apart by pid and start time, so that a pid used again is
// two processes. One that began in the window counts from its beginning; one
// that ended in it keeps its identity with zero counters, because nobody saw
// the end. Run delay is a lower bound: threads that ended in the window take
// theirs with them.
func ProcessesBetween(a, b []ProcSample) []observe.Process {
	type key struct {
		pid   int
		start uint64
	}
	before := make(map[key]*ProcSample, len(a))
	for i := range a {
		before[key{a[i].PID, a[i].StartTicks}] = &a[i]
	}
	out := make([]observe.Process, 0, len(b))
	for i := range b {
		p := &b[i]
		k := key{p.PID, p.StartTicks}
		old := before[k]
		delete(before, k)
		out = append(out, processBetween(old, p))
	}
	for i := range a {
		if p := &a[i]; before[key{p.PID, p.StartTicks}] == p {
			o := processBetween(p, p)
			o.EndedIn = true
			out = append(out, o)
		}
	}
	sortProcesses(out)
	return out
}

// processBetween is one process; old is nil when it began after the first
// sample.
func processBetween(old, p *ProcSample) observe.Process {
	o := observe.Process{
		PID: p.PID, PPID: p.PPID, Comm: p.Comm, Cmdline: p.Cmdline, State: string(rune(p.State)),
		Kernel: p.Kernel, Threads: p.Threads, NetNS: p.NetNS, Cgroup: p.Cgroup, Container: p.Container, Unit: p.Unit,
		Nice: p.Nice, RSSBytes: p.RSSBytes, FDs: max(p.FDs, 0), FDLimit: p.FDLimit, FDHard: p.FDHard,
	}
	if old == nil {
		o.StartedIn = true
		old = &ProcSample{IOKnown: true}
	}
	o.FDs = max(o.FDs, old.FDs)
	o.UserSeconds = float64(grown(old.UserTicks, p.UserTicks)) / userHZ
	o.SystemSeconds = float64(grown(old.SystemTicks, p.SystemTicks)) / userHZ
	o.MajorFaults = grown(old.MajorFaults, p.MajorFaults)
	if old.IOKnown && p.IOKnown {
		o.ReadBytes = grown(old.ReadBytes, p.ReadBytes)
		o.WriteBytes = grown(old.WriteBytes, p.WriteBytes)
	}
	delay, slices := schedBetween(old, p)
	o.RunDelaySeconds = float64(delay) / 1e9
	o.Timeslices = slices
	return o
}

// schedBetween sums run delay and time slices over the threads of p, each
// compared with itself: a sum over all threads would fall when one ends.
func schedBetween(old, p *ProcSample) (delay, slices uint64) {
	if p.threads == nil && old.threads == nil {
		return grown(old.RunDelayNS, p.RunDelayNS), grown(old.Timeslices, p.Timeslices)
	}
	was, now := old.schedThreads(), p.schedThreads()
	i := 0
	for _, t := range now {
		for i < len(was) && was[i].tid < t.tid {
			i++
		}
		var from threadSched
		// A time on the CPU that fell means that the TID is another thread.
		if i < len(was) && was[i].tid == t.tid && was[i].run <= t.run {
			from = was[i]
		}
		delay += grown(from.delay, t.delay)
		slices += grown(from.slices, t.slices)
	}
	return delay, slices
}

// schedThreads is the process's threads; one that had a single thread then has
// it under its pid.
func (p *ProcSample) schedThreads() []threadSched {
	if p.threads != nil || p.PID == 0 {
		return p.threads
	}
	return []threadSched{{tid: p.PID, run: p.RunNS, delay: p.RunDelayNS, slices: p.Timeslices}}
}

func sortProcesses(ps []observe.Process) {
	slices.SortStableFunc(ps, func(a, b observe.Process) int {
		if a.PID != b.PID {
			return a.PID - b.PID
		}
		// The one that ended made room for the one that began.
		switch {
		case a.EndedIn == b.EndedIn:
			return 0
		case a.EndedIn:
			return -1
		}
		return 1
	})
}
