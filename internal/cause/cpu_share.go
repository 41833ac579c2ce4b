package cause

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// LowCPUWeight: the service has less right to the CPUs than what competes with
// it, by the weight of its control group or its nice value.
const LowCPUWeight ID = "low-cpu-weight"

var lowCPUWeight = Cause{
	ID:    LowCPUWeight,
	Title: "The service has a low CPU weight",
	Layer: LayerMachine,
	Class: ClassMachine | ClassLimit | ClassCPU,
	Needs: []observe.Kind{observe.KindRequests, observe.KindProcess, observe.KindCPU},
	Check: checkLowWeight,
	Try:   tryUsualWeight,
}

// AffinityTooNarrow: the service is pinned to too few CPUs, which are full
// while others have nothing to do.
const AffinityTooNarrow ID = "affinity-too-narrow"

var affinityTooNarrow = Cause{
	ID:    AffinityTooNarrow,
	Title: "The service is pinned to too few CPUs",
	Layer: LayerMachine,
	Class: ClassMachine | ClassLimit | ClassCPU,
	Needs: []observe.Kind{observe.KindRequests, observe.KindProcess, observe.KindCPU},
	// The CPU is full of that process.
	ConsequenceOf: []Parent{RealtimeHog},
	Folds:         true,
	Check:         checkAffinity,
	Try:           tryAllCPUs,
}

// RealtimeHog: a process of a real-time policy takes a CPU for itself.
const RealtimeHog ID = "realtime-hog"

var realtimeHog = Cause{
	ID:    RealtimeHog,
	Title: "A real-time process takes a whole CPU",
	Layer: LayerMachine,
	Class: ClassMachine | ClassLimit | ClassCPU,
	Needs: []observe.Kind{observe.KindRequests, observe.KindProcess, observe.KindCPU},
	Check: checkRealtime,
}

// CPUSteal: the hypervisor gives the machine's CPUs to others.
const CPUSteal ID = "cpu-steal"

var cpuSteal = Cause{
	ID:    CPUSteal,
	Title: "The hypervisor steals CPU time",
	Layer: LayerMachine,
	Class: ClassMachine | ClassLimit | ClassCPU,
	Needs: []observe.Kind{observe.KindRequests, observe.KindCPU},
	Check: checkSteal,
}

// lateForWant runs a check on the endpoints whose requests wait, noticeably,
// for threads that are ready and have no CPU.
func (v *View) lateForWant(check func(l *ledger, w *atWork, k cost) judged) Result {
	return v.judgeLedgers(fewRequests, func(l *ledger) judged {
		if l.called() {
			return judged{because: "no request is answered here", near: -1}
		}
		w := v.atWork(l)
		if len(w.threads) == 0 {
			return judged{because: fmt.Sprintf("the threads behind %s hardly ran", l.name()), near: 0}
		}
		top := slices.MaxFunc(w.threads, func(a, b busyThread) int { return cmp.Compare(a.delay, b.delay) })
		k := v.waitingForCPU(l, &w, top.delay)
		shown := l.followed() && l.noticed(l.serverCost(observe.ServerRunq), threadFloor)
		if v.fillsItsCPUs(l, &w) {
			k, shown = l.queuedInside(), true
		}
		if !l.noticed(k, threadFloor) || w.delay < delayFloor*v.loadedSeconds(l) || top.delay < queuedLeast && !shown {
			return judged{because: fmt.Sprintf("the threads behind %s were ready and had no CPU for %s, and ran for %s: no request is slow for that", l.name(), seconds(w.delay), seconds(w.cpu)), near: k.slowNS}
		}
		if c := v.throttled(&w); c != nil {
			return judged{because: fmt.Sprintf("the quota of %s holds the threads behind %s back", c.Path, l.name()), near: k.slowNS}
		}
		return check(l, &w, k)
	})
}

// fillsItsCPUs says that a process behind an endpoint is pinned to few CPUs and
// uses nearly all of their time by itself. A runtime that knows how many it has (Go, Java)
// starts no more threads than that: what is ready waits inside it.
func (v *View) fillsItsCPUs(l *ledger, w *atWork) bool {
	p := v.narrowed(w)
	return p != nil && p.CPUSeconds() >= narrowBusy*float64(len(cpuList(p.CPUs)))*v.loadedSeconds(l)
}

// queuedInside is the time of an endpoint's requests in which they wait to be read, and
// for threads that wait for one another or for a CPU.
func (l *ledger) queuedInside() cost {
	c := l.cost(1, observe.AcceptWait, observe.RecvWait)
	if !l.followed() {
		return c
	}
	in := l.serverCost(observe.ServerRunq, observe.ServerLock, observe.ServerHandoff)
	return cost{share: c.share + in.share, slowShare: c.slowShare + in.slowShare, ns: c.ns + in.ns, slowNS: c.slowNS + in.slowNS, usual: c.usual + in.usual}
}

const withoutCPU = "waiting on the run queue"

func waitedEvidence(w *atWork) Evidence {
	return Evidence{Fact: "its threads were runnable but not running", Value: round(w.delay), Limit: round(w.delay + w.cpu), Unit: "s of those they could run", Source: "/proc/PID/task/TID/schedstat"}
}

func checkLowWeight(v *View) Result {
	return v.lateForWant(func(l *ledger, w *atWork, k cost) judged {
		outside := v.outside()
		group := v.lightGroup(l)
		nice := niceOf(w.procs)
		switch {
		case group == nil && nice < lowNice:
			return judged{because: fmt.Sprintf("the processes behind %s have nice %d, and no control group of theirs a low weight", l.name(), nice), near: k.slowNS}
		case outside < outsiderShare:
			return judged{because: fmt.Sprintf("only the service and its clients compete for the CPUs (others use %s)", percent(outside)), near: k.slowNS}
		}
		f := v.found(l, k, threadFloor, withoutCPU)
		f.Subject.Kind = "process"
		if group != nil {
			h := v.holderOfGroup(group)
			f.Subject.Kind, f.Subject.Path = "cgroup", group.Path
			f.Evidence = append(f.Evidence, Evidence{Fact: "CPU weight of " + h.text, Value: group.CPUWeight, Limit: 100, Unit: "by default", Source: "cpu.weight, cpu.shares"})
			f.Fix.Text = fmt.Sprintf("Give %s the usual weight, or what it competes with less.%s", h.text, h.setsWhere())
			f.Fix.Changes = weightChange(group)
			h.raise(&f.Fix, group.WeightFile, usualWeight(group), raised{docker: shell.Line("--cpu-shares 1024"), systemd: "CPUWeight=100", resource: "requests.cpu", amount: wantedRequest(h.pod)})
		}
		if nice >= lowNice {
			f.Evidence = append(f.Evidence, Evidence{Fact: "its nice value (low priority)", Value: nice, Source: "/proc/PID/stat"})
			f.Fix.Text = strings.TrimSpace(f.Fix.Text + fmt.Sprintf(" It runs with nice %d: run it with 0.", nice))
			f.Fix.Changes = append(f.Fix.Changes, usualNice(w.procs)...)
			f.Fix.Commands = append(f.Fix.Commands, renice(0, w.procs, w.procs[0].Comm))
		}
		f.Evidence = append(f.Evidence, waitedEvidence(w), Evidence{Fact: "CPU used by processes that take no part in the requests", Value: round(outside), Unit: "share", Source: "/proc/PID/stat"})
		if _, top := v.greediestPod(); top != nil {
			f.Evidence = append(f.Evidence, Evidence{Fact: "the greediest", Value: v.processesText([]*observe.Process{top}, 1), Source: "/proc/PID/stat"})
		}
		return judged{finding: f}
	})
}

// wantedRequest is the usual weight as a request of CPUs: one, which the kubelet turns into
// 1024 cpu.shares; no more than the limit, above which the API server refuses it.
func wantedRequest(at inPod) string {
	if c := at.container; c != nil && c.CPULimit > 0 && c.CPULimit < 1 {
		return fmt.Sprintf("%.3g", c.CPULimit)
	}
	return "1"
}

// lightGroup is the control group of an endpoint's processes with the least
// weight, when that is low, and others compete that are not in it; or nil.
func (v *View) lightGroup(l *ledger) *observe.Cgroup {
	var light *observe.Cgroup
	for _, c := range v.groupsOf(l) {
		if c.CPUWeight > 0 && c.CPUWeight <= lowWeight && c.Path != "/" && (light == nil || c.CPUWeight < light.CPUWeight) && v.competes(c) {
			light = c
		}
	}
	return light
}

// competes says that processes outside a group, which take no part in the
// requests, use the CPUs.
func (v *View) competes(c *observe.Cgroup) bool {
	return v.competing.of(c, func() bool { return v.findCompeting(c) })
}

func (v *View) findCompeting(c *observe.Cgroup) bool {
	var used float64
	for i := range v.Processes {
		p := &v.Processes[i]
		if v.outsider(p) && !yields(p) && !strings.HasPrefix(p.Cgroup+"/", c.Path+"/") {
			used += p.CPUSeconds()
		}
	}
	return ratio(used, v.Use.CPU.Total()) >= outsiderShare
}

func checkAffinity(v *View) Result {
	return v.lateForWant(func(l *ledger, w *atWork, k cost) judged {
		p := v.narrowed(w)
		if p == nil {
			return judged{because: fmt.Sprintf("the processes behind %s may run on all CPUs", l.name()), near: k.slowNS}
		}
		allowed := cpuList(p.CPUs)
		var busy, idle float64
		inside, others := 0, 0
		for cpu, t := range v.Use.PerCPU {
			if slices.Contains(allowed, cpu) {
				busy += ratio(t.Busy(), t.Total())
				inside++
			} else {
				// What has a nice value gives way.
				idle += ratio(t.Idle+t.IOWait+t.Nice, t.Total())
				others++
			}
		}
		text := fmt.Sprintf("%s (pid %d) may run on CPU %s of %d", p.Comm, p.PID, p.CPUs, v.Host.CPUs)
		if inside == 0 || others == 0 {
			return judged{because: text, near: k.slowNS}
		}
		// So would have been a CPU that slowray used.
		idle = min(idle+ratio(v.ownSeconds(), v.Window.Seconds), float64(others))
		busy, idle = busy/float64(inside), idle/float64(others)
		if busy < narrowBusy || idle < narrowIdle {
			return judged{because: fmt.Sprintf("%s; that was busy %s of the time, and the others idle %s", text, percent(busy), percent(idle)), near: k.slowNS}
		}
		f := v.found(l, k, threadFloor, withoutCPU)
		f.Subject.Kind = "process"
		f.Evidence = append(f.Evidence, Evidence{Fact: "CPUs it may run on", Value: p.CPUs, Limit: v.Host.CPUs, Unit: "CPUs there are", Source: "/proc/PID/status Cpus_allowed_list"},
			Evidence{Fact: "these were busy", Value: round(busy), Unit: "share of the time", Source: "/proc/stat"},
			Evidence{Fact: "the other CPUs were idle, or slowray used them", Value: round(idle), Unit: "share of the time", Source: "/proc/stat"}, waitedEvidence(w))
		f.Fix = v.widenFix(p)
		f.Fix.Changes = v.widerAffinity(w.procs)
		return judged{finding: f}
	})
}

// widenFix lets a process run on all CPUs, where the one thing that keeps it
// from them says so.
func (v *View) widenFix(p *observe.Process) Fix {
	all := fmt.Sprintf("0-%d", max(v.Host.CPUs-1, 0))
	fix := Fix{Text: fmt.Sprintf("Let %s run on more CPUs than %s.", p.Comm, p.CPUs), Commands: []shell.Command{}}
	if p.CPUSet == "" {
		fix.Commands = []shell.Command{shell.Line("taskset --all-tasks --cpu-list --pid %s %s", all, p.PID)}
		if p.Unit != "" {
			fix.Persist = []shell.Command{shell.Line("systemctl edit %s   # [Service] CPUAffinity=", shell.Unit(p.Unit))}
		}
		return fix
	}
	path := strings.TrimSuffix(p.CPUSet, "/cpuset.cpus")
	h := v.holderOf(path, p.Container, p.Unit)
	fix.Text += fmt.Sprintf(" A cpuset (%s) keeps it there: taskset does not help.%s", p.CPUSet, h.setsWhere())
	h.raise(&fix, p.CPUSet, all, raised{docker: shell.Line("--cpuset-cpus %s", all), systemd: "AllowedCPUs=" + all, kubelet: "cpuManagerPolicy, reservedSystemCPUs"})
	return fix
}

// cpuList reads "0-3,8"; of what is not such a list nothing.
func cpuList(s string) []int {
	var out []int
	for part := range strings.SplitSeq(s, ",") {
		first, last, isRange := strings.Cut(part, "-")
		a, ok := smallNumber(first)
		b := a
		if isRange {
			var ok2 bool
			b, ok2 = smallNumber(last)
			ok = ok && ok2
		}
		for cpu := a; ok && cpu <= b; cpu++ {
			out = append(out, cpu)
		}
	}
	return out
}

// smallNumber reads up to four digits.
func smallNumber(s string) (n int, ok bool) {
	if len(s) == 0 || len(s) > 4 {
		return 0, false
	}
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int(c-'0')
	}
	return n, true
}

func checkRealtime(v *View) Result {
	var hog *observe.Process
	for i := range v.Processes {
		p := &v.Processes[i]
		if p.Policy != "" && p.Policy != "idle" && v.outsider(p) && (hog == nil || p.CPUSeconds() > hog.CPUSeconds()) {
			hog = p
		}
	}
	if hog == nil {
		return ruledOut("no process of a real-time policy takes CPU time, but those on the requests' way")
	}
	share := ratio(hog.CPUSeconds(), v.Window.Seconds)
	if share < realtimeShare {
		return ruledOut(fmt.Sprintf("%s (pid %d, %s) uses %s of a CPU", hog.Comm, hog.PID, hog.Policy, percent(share)))
	}
	return heaviest(v.lateForWant(func(l *ledger, w *atWork, k cost) judged {
		if !v.takesFrom(hog, l, w) {
			return judged{because: fmt.Sprintf("%s (pid %d, %s) uses %s of a CPU, but not of those that the threads behind %s wait for", hog.Comm, hog.PID, hog.Policy, percent(share), l.name()), near: k.slowNS}
		}
		f := v.found(l, k, threadFloor, withoutCPU)
		f.Subject = Subject{Kind: "process", PID: hog.PID, Comm: hog.Comm, NetNS: l.NetNS}
		f.Evidence = append(f.Evidence, Evidence{Fact: fmt.Sprintf("CPU time of %s (pid %d), policy %s", hog.Comm, hog.PID, hog.Policy), Value: round(share), Limit: 1, Unit: "CPU", Source: "/proc/PID/stat"}, waitedEvidence(w))
		f.Fix.Text = fmt.Sprintf("Give %s an ordinary policy, or CPUs of its own.", hog.Comm)
		f.Fix.Commands = []shell.Command{shell.Line("chrt --all-tasks --other --pid 0 %s", hog.PID)}
		if hog.Unit != "" {
			f.Fix.Persist = []shell.Command{shell.Line("systemctl edit %s   # [Service] CPUSchedulingPolicy=other", shell.Unit(hog.Unit))}
		}
		return judged{finding: f}
	}))
}

// takesFrom says whether a process that goes first takes the CPUs that the threads behind an
// endpoint wait for: those that they are pinned to, else much of all, for any other would do.
func (v *View) takesFrom(hog *observe.Process, l *ledger, w *atWork) bool {
	p := v.narrowed(w)
	if p == nil {
		return ratio(hog.CPUSeconds(), v.Use.CPU.Total()) >= outsiderShare
	}
	if v.fillsItsCPUs(l, w) {
		return false
	}
	others := -w.cpu
	for _, cpu := range cpuList(p.CPUs) {
		if cpu >= len(v.Use.PerCPU) {
			return true // not known
		}
		others += v.Use.PerCPU[cpu].Busy()
	}
	return others >= hog.CPUSeconds()/2
}

func checkSteal(v *View) Result {
	steal := ratio(v.Use.CPU.Steal, v.Use.CPU.Total())
	if steal < stealShare {
		return ruledOut(fmt.Sprintf("the hypervisor took %s of the CPUs' time", percent(steal)))
	}
	// What was wanted of the CPUs is what they gave, and what was stolen.
	lost := ratio(v.Use.CPU.Steal, v.Use.CPU.Total()-v.Use.CPU.Idle-v.Use.CPU.IOWait)
	return heaviest(v.judgeLedgers(fewRequests, func(l *ledger) judged {
		if l.called() {
			return judged{because: "no request is answered here", near: -1}
		}
		computing, known := v.computing(l)
		if !known {
			computing = 1
		}
		k := scaled(l.cost(1, threadParts...), computing*lost)
		if share := max(k.share, k.slowShare); share < wasteShare || max(k.ns, k.slowNS) < threadFloor.mean {
			return judged{because: fmt.Sprintf("the hypervisor took %s of the CPUs' time; of the requests on %s that is %s", percent(steal), l.name(), percent(share)), near: k.slowNS}
		}
		f := v.found(l, k, threadFloor, "stolen by the hypervisor")
		f.Subject = Subject{Kind: "host", NetNS: l.NetNS}
		f.Evidence = append(f.Evidence, Evidence{Fact: "CPU time that the hypervisor took", Value: round(steal), Limit: 1, Unit: "share of all", Source: "/proc/stat steal"},
			Evidence{Fact: "of the time that the CPUs were wanted", Value: round(lost), Limit: 1, Unit: "share", Source: "/proc/stat"})
		f.Fix.Text = "Move the machine to a host that is less full, or to an instance type with CPUs of its own; with burst credits, wait for them or buy more."
		return judged{finding: f}
	}))
}
