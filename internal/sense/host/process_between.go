package host

import (
	"cmp"
	"slices"

	"github.com/slowray/slowray/internal/observe"
)

// ProcessesBetween is what the processes did from a to b, in order of pid.
// Processes are distinguished by pid and start time, so that a pid used again is
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
		Policy: p.Policy, Program: p.Program,
	}
	if old == nil {
		o.StartedIn = true
		old = &ProcSample{IOKnown: true}
	}
	o.FDs = max(o.FDs, old.FDs)
	o.Program = cmp.Or(o.Program, old.Program)
	o.UserSeconds = float64(grown(old.UserTicks, p.UserTicks)) / userHZ
	o.SystemSeconds = float64(grown(old.SystemTicks, p.SystemTicks)) / userHZ
	o.MajorFaults = grown(old.MajorFaults, p.MajorFaults)
	if old.IOKnown && p.IOKnown {
		o.ReadBytes = grown(old.ReadBytes, p.ReadBytes)
		o.WriteBytes = grown(old.WriteBytes, p.WriteBytes)
	}
	o.ChildSeconds = float64(grown(old.ChildTicks, p.ChildTicks)) / userHZ
	o.Busiest = busiestBetween(old, p)
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
	threadsBetween(old.schedThreads(), p.schedThreads(), func(t threadSched) {
		delay += t.delay
		slices += t.slices
	})
	return delay, slices
}

// threadsBetween calls visit with what each thread of now did since was; both
// are in order of TID.
func threadsBetween(was, now []threadSched, visit func(threadSched)) {
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
		visit(threadSched{tid: t.tid, run: t.run - from.run, delay: grown(from.delay, t.delay), slices: grown(from.slices, t.slices)})
	}
}

const (
	maxBusiest   = 4
	leastBusiest = 100_000_000 // ns running or wanting to: less is not worth a line
)

// busiestBetween lists the threads that ran or wanted to run most, of a process
// that has several.
func busiestBetween(old, p *ProcSample) []observe.Thread {
	if len(p.threads) < 2 {
		return nil
	}
	var top []threadSched
	threadsBetween(old.schedThreads(), p.threads, func(t threadSched) {
		if t.run+t.delay >= leastBusiest {
			top = append(top, t)
		}
	})
	slices.SortFunc(top, func(a, b threadSched) int {
		return cmp.Or(cmp.Compare(b.run+b.delay, a.run+a.delay), cmp.Compare(a.tid, b.tid))
	})
	var out []observe.Thread
	for _, t := range top[:min(len(top), maxBusiest)] {
		out = append(out, observe.Thread{TID: t.tid, CPUSeconds: float64(t.run) / 1e9, RunDelaySeconds: float64(t.delay) / 1e9})
	}
	return out
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
