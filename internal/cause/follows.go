package cause

import (
	"slices"
	"sync"

	"github.com/slowray/slowray/internal/observe"
)

// What one finding may be the reason of another is declared (ConsequenceOf), and
// narrowed by the findings (MayFollow). Beyond that, figures that were measured
// may rule it out: a quota of another service's group, a CPU that none of the
// service's threads waited for, a disk that none of them was blocked on, a limit
// of a process that is not on the way of the requests. What was not measured
// rules nothing out.

// noDelay is the time in which the threads of a service waited for a CPU, in s
// for each s of the window, below which a lack of CPUs is not why it is slow.
const noDelay = 0.01

// lackOfCPU are the causes that slow a service down only as far as its threads
// wait for a CPU.
var lackOfCPU = []string{"cpu-saturated", "run-queue-wait", "short-lived-process-storm"}

// Reasons gives a function that says of another finding whether it may be why f
// was found, as far as what was measured of the processes that f is about tells.
func (v *View) Reasons(f *Finding) func(p *Finding) bool {
	// Of full CPUs the subject may be who takes them, which nothing slows down.
	if v == nil || f.Subject.PID == 0 || f.Cause == cpuSaturated.ID {
		return func(*Finding) bool { return true }
	}
	way := sync.OnceValue(func() map[int]bool { return v.wayOf(f.Subject.PID) })
	return func(p *Finding) bool {
		// A chain of waits says itself whom it holds up.
		return slices.Contains(waitCauses, p.Cause) || v.mayBringAbout(p, way())
	}
}

// mayBringAbout says whether p may be why something on this way is slow.
func (v *View) mayBringAbout(p *Finding, way map[int]bool) bool {
	switch {
	case slices.Contains(killCauses, p.Cause):
		return true // what is gone, or not there yet, is on nobody's way
	case p.Subject.Kind == "cgroup" && p.Subject.Path != "":
		i := slices.IndexFunc(v.Cgroups, func(c observe.Cgroup) bool { return c.Path == p.Subject.Path })
		return i < 0 || len(v.Cgroups[i].PIDs) == 0 || slices.ContainsFunc(v.Cgroups[i].PIDs, func(pid int) bool { return way[pid] })
	case slices.Contains(lackOfCPU, p.Cause):
		delay, known := v.delayOf(way)
		return !known || delay >= noDelay*v.Window.Seconds
	case p.Cause == diskSaturated.ID:
		blocked, samples := v.blockedOf(way)
		return samples == 0 || blocked > 0
	case slices.Contains(machineCauses, p.Cause), p.Subject.PID == 0, v.Connects == nil:
		return true
	}
	switch p.Subject.Kind {
	case "process", "pool", "listener":
		return way[p.Subject.PID] || way[v.Master(p.Subject.PID)]
	}
	return true
}

// wayOf is the processes that requests to this one may depend on, on this host:
// its family, all that these call, and what those call; and who calls it.
func (v *View) wayOf(pid int) map[int]bool {
	way := map[int]bool{}
	var queue []int
	add := func(pid int) {
		if pid != 0 && !way[pid] {
			way[pid] = true
			queue = append(queue, pid)
		}
	}
	addFamily := func(pid int) {
		master := v.Master(pid)
		add(pid)
		add(master)
		for _, child := range v.children[master] {
			if v.Master(child) == master {
				add(child)
			}
		}
	}
	addFamily(pid)
	callers := make([][]int, len(v.Services))
	for i, s := range v.Services {
		callers[i] = v.callers(s)
		if slices.ContainsFunc(s.PIDs, func(pid int) bool { return way[pid] }) {
			for _, pid := range append(slices.Clone(s.PIDs), callers[i]...) {
				addFamily(pid)
			}
		}
	}
	for len(queue) > 0 {
		pid := queue[0]
		queue = queue[1:]
		for i, s := range v.Services {
			if _, calls := slices.BinarySearch(callers[i], pid); calls {
				for _, one := range s.PIDs {
					addFamily(one)
				}
			}
		}
		for _, l := range v.ledgers {
			if l.called() && (l.pid == pid || slices.Contains(l.PIDs, pid)) {
				if there := v.servedHere(l); there != nil {
					addFamily(there.pid)
				}
			}
		}
	}
	return way
}

// delayOf is the time in which these processes waited for a CPU, in s; known when
// any of them was measured to run or to wait.
func (v *View) delayOf(way map[int]bool) (delay float64, known bool) {
	for pid := range way {
		if p := v.Process(pid); p != nil {
			delay += p.RunDelaySeconds
			known = known || p.RunDelaySeconds > 0 || p.CPUSeconds() > 0
		}
	}
	return delay, known
}

// blockedOf is in how many looks at their threads these processes were blocked on
// storage.
func (v *View) blockedOf(way map[int]bool) (blocked, samples int) {
	for pid := range way {
		if p := v.Process(pid); p != nil && p.States != nil {
			blocked += p.States.Disk
			samples += p.States.Samples
		}
	}
	return blocked, samples
}
