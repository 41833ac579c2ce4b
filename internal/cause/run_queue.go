package cause

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// RunQueueWait: threads that answer requests are ready and have no CPU, though
// no quota holds them back. CPUs that are full of the service's own work, and
// its clients', are a machine that is used; what is left is others' work, short
// bursts, or CPUs that the service may not run on.
const RunQueueWait ID = "run-queue-wait"

var runQueueWait = Cause{
	ID:    RunQueueWait,
	Title: "The service's threads wait on the run queue",
	Layer: LayerMachine,
	Class: ClassRunQueue | ClassCompute,
	Needs: []observe.Kind{observe.KindRequests, observe.KindProcess, observe.KindCPU},
	ConsequenceOf: []Parent{CPUQuotaThrottled, CPUSaturated, SoftirqSaturated, KernelThreadBusy, ShortLivedProcessStorm, LowCPUWeight,
		AffinityTooNarrow, RealtimeHog, CPUSteal, ClassScan},
	Folds: true,
	Check: checkRunQueue,
	Try:   tryAllCPUs,
}

func checkRunQueue(v *View) Result {
	return v.judgeLedgers(fewRequests, func(l *ledger) judged {
		if l.called() {
			return judged{because: "no request is answered here", near: -1}
		}
		w := v.atWork(l)
		because := fmt.Sprintf("the threads behind %s were ready and had no CPU for %s, and ran for %s", l.name(), seconds(w.delay), seconds(w.cpu))
		if len(w.threads) == 0 {
			return judged{because: because, near: 0}
		}
		top := slices.MaxFunc(w.threads, func(a, b busyThread) int { return cmp.Compare(a.delay, b.delay) })
		k := v.waitingForCPU(l, &w, top.delay)
		idle, full := v.cpuFull(l)
		narrow := v.narrowed(&w)
		// Of requests that were followed it is known.
		shown := l.followed() && l.noticed(l.serverCost(observe.ServerRunq), threadFloor)
		switch {
		case !l.noticed(l.cost(1, threadParts...), threadFloor):
			return judged{because: because + "; no request is slow for lack of a thread: " + l.whereTimeGoes(), near: k.slowNS}
		case !l.noticed(k, threadFloor) || w.delay < delayFloor*v.loadedSeconds(l) || top.delay < queuedLeast && !shown:
			return judged{because: because, near: k.slowNS}
		case v.throttled(&w) != nil:
			return judged{because: because + fmt.Sprintf("; the quota of %s is what holds them back", v.throttled(&w).Path), near: k.slowNS}
		case v.outside() < outsiderShare && narrow == nil && !l.noticed(k, floor{mean: ownFloor, slow: 2 * ownFloor}):
			return judged{because: because + "; its own threads take the CPUs from each other, for less than a healthy service may compute", near: k.slowNS}
		case full && v.outside() < outsiderShare && narrow == nil:
			return judged{because: fmt.Sprintf("%s: the CPUs are full (%s idle) with the service and its clients", because, percent(idle)), near: k.slowNS}
		}
		return judged{finding: v.runQueueFinding(l, &w, k, &top, narrow)}
	})
}

// throttled is the control group whose quota holds these processes back, or
// nil. One that is used up in most of its periods does so however long the threads wait,
// each of which counts its own delay: no right to the CPUs would give them more of it.
func (v *View) throttled(w *atWork) *observe.Cgroup {
	for _, c := range v.groupsHolding(w.procs) {
		if c.QuotaCPUs > 0 && ratio(c.ThrottledPeriods, c.Periods) >= throttledShare &&
			(c.ThrottledSeconds >= 0.5*w.delay || 2*c.ThrottledPeriods >= c.Periods) {
			return c
		}
	}
	return nil
}

// narrowed is a process that may not run on all CPUs, or nil.
func (v *View) narrowed(w *atWork) *observe.Process {
	for _, p := range w.procs {
		if p.CPUs != "" && p.RunDelaySeconds > 0 {
			return p
		}
	}
	return nil
}

func (v *View) runQueueFinding(l *ledger, w *atWork, k cost, top *busyThread, narrow *observe.Process) *Finding {
	f := v.found(l, k, threadFloor, "waiting on the run queue")
	f.Subject.Kind = "process"
	idle, _ := v.cpuFull(l)
	f.Evidence = append(f.Evidence,
		Evidence{Fact: "its threads were runnable but not running", Value: round(w.delay), Limit: round(w.delay + w.cpu), Unit: "s of those they could run", Source: "/proc/PID/task/TID/schedstat"},
		Evidence{Fact: top.String() + " waits for a CPU, while the slowest requests are under way", Value: round(top.delay), Limit: 1, Unit: "share of the time", Source: "/proc/PID/task/TID/schedstat"},
		Evidence{Fact: "CPU idle while its requests come in", Value: round(idle), Unit: "share", Source: "/proc/stat"},
		Evidence{Fact: "CPU used by processes that take no part in the requests", Value: round(v.outside()), Unit: "share", Source: "/proc/PID/stat"},
	)
	if each := v.eachCPU(); each != "" {
		f.Evidence = append(f.Evidence, Evidence{Fact: "each CPU is busy", Value: each, Source: "/proc/stat"})
	}
	f.Fix.Text = "Find what else runs on its CPUs, all the time or in bursts, and let that give way (a nice value, CPUWeight=), or give the service more CPUs."
	cpus := max(v.Host.CPUs, 1)
	ran := 0
	for _, p := range w.procs {
		ran += len(threadsOver(p, v.loadedSeconds(l)))
	}
	if narrow == nil && v.outside() < outsiderShare && ran > cpus {
		// Nothing else runs there: it is in its own way.
		f.Title = fmt.Sprintf("%s runs more threads than there are CPUs", f.Subject.Comm)
		f.Evidence = append(f.Evidence, Evidence{Fact: "threads and processes of it that ran", Value: ran, Limit: cpus, Unit: "CPUs there are", Source: "/proc/PID/task/TID/schedstat"})
		f.Fix.Text = fmt.Sprintf("Its own threads take the CPUs from each other, others hardly use them: let no more than %d compute at a time, or give it more CPUs.", cpus)
		if v.isDatabase(f.Subject.PID, "postgresql") {
			f.Fix.Text += " Parallel workers of a statement are among them (max_parallel_workers_per_gather)."
		}
	}
	if narrow != nil {
		f.Evidence = append(f.Evidence, Evidence{Fact: fmt.Sprintf("CPUs that pid %d may run on", narrow.PID), Value: narrow.CPUs, Limit: v.Host.CPUs, Unit: "CPUs there are", Source: "/proc/PID/status Cpus_allowed_list"})
		f.Fix.Text = fmt.Sprintf("It may only run on CPU %s of %d: let it run on more (taskset, AllowedCPUs=, cpuset, the container's --cpuset-cpus).", narrow.CPUs, v.Host.CPUs)
		f.Fix.Changes = v.widerAffinity(w.procs)
		f.Fix.Commands = []shell.Command{shell.Line("taskset --all-tasks --cpu-list --pid 0-%s %s", max(v.Host.CPUs-1, 0), narrow.PID)}
	} else if nice := niceOf(w.procs); nice > 0 {
		f.Evidence = append(f.Evidence, Evidence{Fact: "its nice value (low priority)", Value: nice, Source: "/proc/PID/stat"})
		f.Fix.Text = fmt.Sprintf("It runs with nice %d (low priority): run it with 0.", nice)
		f.Fix.Changes = usualNice(w.procs)
		f.Fix.Commands = []shell.Command{renice(0, w.procs, w.procs[0].Comm)}
	} else if at, top := v.greediestPod(); top != nil && v.outside() >= outsiderShare && v.takesMost(at.pod) {
		v.neighbourPod(f, at, top)
	}
	return f
}

func niceOf(procs []*observe.Process) int {
	nice := 0
	for _, p := range procs {
		nice = max(nice, p.Nice)
	}
	return nice
}

// eachCPU tells how busy each CPU is, of a machine with few of them.
func (v *View) eachCPU() string {
	if n := len(v.Use.PerCPU); n < 2 || n > 16 {
		return ""
	}
	var parts []string
	for cpu, t := range v.Use.PerCPU {
		parts = append(parts, fmt.Sprintf("%d: %s", cpu, percent(ratio(t.Busy(), t.Total()))))
	}
	return strings.Join(parts, ", ")
}
