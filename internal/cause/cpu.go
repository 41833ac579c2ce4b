package cause

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// CPUSaturated: the CPUs are full, and the processes that answer requests wait
// for one while processes that have nothing to do with the requests compute.
// CPUs that are full of the service's own work, or of its clients', are a
// machine that is used, not a fault.
const CPUSaturated ID = "cpu-saturated"

var cpuSaturated = Cause{
	ID:            CPUSaturated,
	Title:         "Other processes take the CPUs",
	Layer:         LayerMachine,
	Class:         ClassMachine | ClassShort | ClassCPU | ClassRunQueue,
	Needs:         []observe.Kind{observe.KindCPU, observe.KindProcess},
	ConsequenceOf: []Parent{LowCPUWeight, RealtimeHog, ScheduledJobCollision},
	Folds:         true,
	Check:         checkCPUSaturated,
	Try:           foundOnly,
}

// outsider says that a process takes no part in the requests. Neither kernel
// threads do, which have causes of their own, nor slowray itself, which is gone
// when its report is read.
func (v *View) outsider(p *observe.Process) bool {
	return !p.Kernel && p.PID != v.Self && !v.familyOnPath(p.PID)
}

// yields says that a process has a low priority of its own choice.
func yields(p *observe.Process) bool { return p.Nice >= niceMeansYield || p.Policy == "idle" }

func checkCPUSaturated(v *View) Result {
	all := v.Use.CPU.Total()
	idle := ratio(v.Use.CPU.Idle+v.Use.CPU.IOWait, all)
	servers := v.serversTime()
	var outsiders []*observe.Process
	var outside float64
	for i := range v.Processes {
		p := &v.Processes[i]
		if !v.outsider(p) || p.CPUSeconds() == 0 || yields(p) {
			continue
		}
		outside += p.CPUSeconds()
		outsiders = append(outsiders, p)
	}
	within, while := v.Window.Seconds, ""
	if spells, ok := v.fullSpells(); idle >= idleWhenFull && ok {
		// What is reported is those: what else was in the window hit no request.
		servers, within = spells.servers, spells.seconds
		all, idle, outside = spells.all, spells.idle, min(outside, spells.all*(1-spells.idle)-servers.cpu)
		while = fmt.Sprintf(", %s in which %s of the slow requests' time passed", seconds(within), percent(spells.slow))
	}
	delay := ratio(servers.delay, servers.delay+servers.cpu)
	switch {
	case idle >= idleWhenFull:
		return ruledOut(fmt.Sprintf("the CPUs were idle %s of the time", percent(idle)))
	case servers.cpu == 0 && servers.delay == 0:
		return ruledOut(fmt.Sprintf("the CPUs are full (%s idle), but no service with traffic ran", percent(idle)))
	case ratio(outside, all) < outsiderShare:
		return ruledOut(fmt.Sprintf("the CPUs are full (%s idle), but with the service and its clients: others use %s", percent(idle), percent(ratio(outside, all))))
	case servers.delay < delayFloor*within || servers.delay < delayPerCPU*servers.cpu && !v.oneWaitsForCPU():
		return ruledOut(fmt.Sprintf("others use %s of the CPUs, but the service waited for one only %s, and ran %s, in %s", percent(ratio(outside, all)),
			seconds(servers.delay), seconds(servers.cpu), seconds(within)))
	}
	late, because := v.lateForCPU()
	if because != "" {
		return ruledOut(fmt.Sprintf("others use %s of the CPUs, and the service's threads waited %s for one, but no request is slow for that: %s", percent(ratio(outside, all)), seconds(servers.delay), because))
	}
	slices.SortFunc(outsiders, func(a, b *observe.Process) int {
		return cmp.Or(cmp.Compare(b.CPUSeconds(), a.CPUSeconds()), cmp.Compare(a.PID, b.PID))
	})
	top := outsiders[0]
	f := supported(Subject{Kind: "process", PID: top.PID, Comm: top.Comm, NetNS: top.NetNS})
	// Part of the waiting is for each other: the outsiders answer for theirs.
	f.Weight = delay * ratio(outside, all)
	// A service that sleeps, or waits for an answer, hardly runs, and most of what it could
	// run it may wait: its requests lose no more than the waiting can have held them up.
	if most, of := v.lostForCPU(); of > 0 {
		f.Weight = min(f.Weight, ratio(most, of))
	}
	if while != "" {
		f.Title = fmt.Sprintf("%s takes the CPU in bursts", top.Comm)
	}
	f.Impact = Impact{Share: round(delay), Of: "the time the service could run", OfTime: true,
		Text: fmt.Sprintf("%s waits for a CPU; others use %s of them", v.waiting(), percent(ratio(outside, all)))}
	f.Evidence = []Evidence{
		{Fact: "CPU idle" + while, Value: round(idle), Unit: "share", Source: "/proc/stat"},
		{Fact: "the service's threads were runnable but not running, all together in " + seconds(within), Value: round(servers.delay), Unit: "s", Source: "/proc/PID/schedstat"},
		{Fact: "CPU used by processes that take no part in the requests", Value: round(outside), Limit: round(all), Unit: "CPU s", Source: "/proc/PID/stat"},
		{Fact: "the greediest", Value: v.processesText(outsiders, 3), Source: "/proc/PID/stat"},
	}
	if late != "" {
		f.Evidence = append(f.Evidence, Evidence{Fact: "requests, waiting for threads without a CPU", Value: late, Source: recorded + ", /proc/PID/schedstat"})
	}
	f.Fix.Text = fmt.Sprintf("If %s may give way, let it; else move it to another machine.", top.Comm)
	f.Fix.Commands = []shell.Command{renice(19, outsiders, top.Comm)}
	f.Fix.Changes = niceChanges(named(outsiders, top.Comm), 19)
	if at := v.podOf(top.Container, top.Cgroup); at.pod != nil {
		v.neighbourPod(&f, at, top)
	} else if top.Unit != "" {
		f.Fix.Persist = []shell.Command{shell.Line("systemctl set-property %s CPUWeight=10", shell.Unit(top.Unit))}
	}
	return Result{Findings: []Finding{f}}
}

// neighbourPod says whose pod takes the CPUs, and what its manifest allows it.
func (v *View) neighbourPod(f *Finding, at inPod, p *observe.Process) {
	set := func(cpus float64) string {
		if cpus == 0 {
			return "none"
		}
		return fmt.Sprintf("%.3g CPUs", cpus)
	}
	limit, request := "none", "none"
	if c := at.container; c != nil {
		limit, request = set(c.CPULimit), set(c.CPURequest)
	}
	f.Evidence = slices.Insert(f.Evidence, 0,
		Evidence{Fact: "CPU limit of " + at.text(), Value: limit, Source: at.field("resources.limits.cpu")},
		// Its share of full CPUs (cpu.weight, cpu.shares) is made of this.
		Evidence{Fact: "CPU request of " + at.text(), Value: request, Source: at.field("resources.requests.cpu")})
	want := max(0.1, math.Floor(5*p.CPUSeconds()/max(v.Window.Seconds, 1))/10) // half of what it uses
	h := holder{what: "pod", pod: at}
	h.raise(&f.Fix, "", "", cpuSetting(want))
}

// greediestPod is the process that takes most of the CPUs and no part in the requests, and its
// pod; nil where it is in none.
func (v *View) greediestPod() (at inPod, top *observe.Process) {
	for i := range v.Processes {
		if p := &v.Processes[i]; v.outsider(p) && !yields(p) && (top == nil || p.CPUSeconds() > top.CPUSeconds()) {
			top = p
		}
	}
	if top != nil {
		at = v.podOf(top.Container, top.Cgroup)
	}
	if at.pod == nil {
		return inPod{}, nil
	}
	return at, top
}

// takesMost says that a pod has at least half of the CPU time of processes that take no part in
// the requests.
func (v *View) takesMost(pod *observe.Pod) bool {
	var own, all float64
	for i := range v.Processes {
		if p := &v.Processes[i]; v.outsider(p) && !yields(p) {
			all += p.CPUSeconds()
			if v.podOf(p.Container, p.Cgroup).pod == pod {
				own += p.CPUSeconds()
			}
		}
	}
	return 2*own >= all
}

// oneWaitsForCPU says that requests are late at a service whose own threads wait that
// long, though those of all services together do not.
func (v *View) oneWaitsForCPU() bool {
	for _, l := range v.ledgers {
		if l.called() || l.Requests < fewRequests {
			continue
		}
		w := v.atWork(l)
		k := v.waitingForCPU(l, &w, ratio(w.delay, w.delay+w.cpu))
		if w.delay >= delayPerCPU*w.cpu && w.delay >= delayFloor*v.Window.Seconds && l.noticed(k, threadFloor) {
			return true
		}
	}
	return false
}

// lateForCPU tells which requests are late because their threads wait for a
// CPU; or, when there are requests and none is, where their time goes. Both are
// empty where no request was recorded.
func (v *View) lateForCPU() (late, because string) {
	most, near := 0.0, -1.0
	var all cost // of all services, as one request pays it that goes through them
	var outer *ledger
	for _, l := range v.ledgers {
		if l.called() || l.Requests < fewRequests {
			continue
		}
		if outer == nil || l.TimeNS() > outer.TimeNS() {
			outer = l
		}
		w := v.atWork(l)
		k := v.waitingForCPU(l, &w, ratio(w.delay, w.delay+w.cpu))
		all.ns += k.ns*float64(l.Requests) + ratio(w.delay, w.delay+w.cpu)*v.lateToCall(l)
		switch {
		case l.noticed(k, wireFloor) && k.ns*float64(l.Requests) > most:
			most = k.ns * float64(l.Requests)
			late = fmt.Sprintf("%s: %s of %s on average", l.one(), nanoseconds(k.ns), nanoseconds(l.TimeNS()/float64(l.Requests)))
		case k.slowNS > near:
			because, near = l.whereTimeGoes(), k.slowNS
		}
	}
	if late == "" && outer != nil {
		all.share = ratio(all.ns, outer.TimeNS())
		// Time that others take is mere waste.
		if all.ns /= float64(outer.Requests); all.share >= wasteShare && all.ns >= wireFloor.mean {
			late = fmt.Sprintf("%s: %s of %s on average, in all services on its way", outer.one(), nanoseconds(all.ns), nanoseconds(outer.TimeNS()/float64(outer.Requests)))
		}
	}
	if late != "" {
		because = ""
	}
	return late, because
}

// lateToCall is the time, in ns, in which requests of an endpoint had begun to call
// another service and the call had not begun: an event loop connects, and sends with its
// next turn.
func (v *View) lateToCall(l *ledger) float64 {
	if !l.followed() {
		return 0
	}
	ns := l.Split.ShareNS(observe.ServerCall, l.MeanNS(observe.Server)) * float64(l.Requests)
	for _, o := range v.calledOf[l.pid] {
		ns -= o.TimeNS()
	}
	return max(0, ns)
}

// waiting names the serving program that waits longest for a CPU.
func (v *View) waiting() string {
	delay := map[string]float64{}
	longest := ""
	for i := range v.Processes {
		p := &v.Processes[i]
		if !v.Serving(p.PID) {
			continue
		}
		delay[p.Comm] += p.RunDelaySeconds
		if longest == "" || delay[p.Comm] > delay[longest] {
			longest = p.Comm
		}
	}
	for _, s := range v.Services {
		if v.Comm(s.Listeners[0].PID) == longest {
			return longest + " (" + s.Name() + ")"
		}
	}
	return longest
}

// renice gives all threads of the processes of one program, at most eight, a nice
// value: setpriority(2) takes the number of a process for that of its first thread.
func renice(nice int, procs []*observe.Process, comm string) shell.Command {
	return shell.Line("renice -n %s -p $(ps -L -o lwp= -p %s)", nice, pidList(procs, comm))
}

// pidList lists the processes of one program as ps(1) takes them, at most eight.
func pidList(procs []*observe.Process, comm string) string {
	var pids []string
	for _, p := range procs {
		if p.Comm == comm && len(pids) < 8 {
			pids = append(pids, itoa(p.PID))
		}
	}
	return strings.Join(pids, ",")
}

// threadTime is what the processes that answer requests did with the CPU.
type threadTime struct {
	cpu, delay float64 // seconds
}

// serversTime adds up the serving processes.
func (v *View) serversTime() threadTime {
	var t threadTime
	for i := range v.Processes {
		p := &v.Processes[i]
		if v.Serving(p.PID) {
			t.cpu += p.CPUSeconds()
			t.delay += p.RunDelaySeconds
		}
	}
	return t
}

// familyOnPath says whether a process, or an ancestor or child of the same
// program, takes part in the requests.
func (v *View) familyOnPath(pid int) bool {
	if v.OnPath(pid) || v.OnPath(v.Master(pid)) {
		return true
	}
	return slices.ContainsFunc(v.children[pid], v.OnPath)
}

func (v *View) processesText(procs []*observe.Process, most int) string {
	var parts []string
	for _, p := range procs[:min(most, len(procs))] {
		parts = append(parts, v.whose(p)+" "+seconds(p.CPUSeconds()))
	}
	return strings.Join(parts, ", ")
}
