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
	Title:         "Other processes take the CPU: the service waits for its turn",
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

// yields says that a process gives way to others by itself.
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
		// What is told is those: what else was in the window hit no request.
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
	case servers.delay < delayPerCPU*servers.cpu || servers.delay < delayFloor*within:
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
	if while != "" {
		f.Title = fmt.Sprintf("%s takes the CPU in bursts: the service waits for its turn", top.Comm)
	}
	f.Impact = Impact{Share: round(delay), Of: "the time the service could run", OfTime: true,
		Text: fmt.Sprintf("%s waits for a CPU; others use %s of them", v.waiting(), percent(ratio(outside, all)))}
	f.Evidence = []Evidence{
		{Fact: "CPU idle" + while, Value: round(idle), Unit: "share", Source: "/proc/stat"},
		{Fact: "the service's threads were runnable but not running, all together in " + seconds(within), Value: round(servers.delay), Unit: "s", Source: "/proc/PID/schedstat"},
		{Fact: "CPU used by processes that take no part in the requests", Value: round(outside), Limit: round(all), Unit: "CPU s", Source: "/proc/PID/stat"},
		{Fact: "the greediest", Value: processesText(outsiders, 3), Source: "/proc/PID/stat"},
	}
	if late != "" {
		f.Evidence = append(f.Evidence, Evidence{Fact: "requests, waiting for threads without a CPU", Value: late, Source: recorded + ", /proc/PID/schedstat"})
	}
	f.Fix.Text = fmt.Sprintf("If %s may give way, let it; else move it to another machine.", top.Comm)
	f.Fix.Commands = []shell.Command{renice(19, outsiders, top.Comm)}
	f.Fix.Changes = niceChanges(named(outsiders, top.Comm), 19)
	if top.Unit != "" {
		f.Fix.Persist = []shell.Command{shell.Line("systemctl set-property %s CPUWeight=10", shell.Unit(top.Unit))}
	}
	return Result{Findings: []Finding{f}}
}

// fullSpells is the parts of a window in which the CPUs were full, where they are few.
type fullSpells struct {
	seconds   float64
	all, idle float64    // CPU seconds in them, and the share that was idle
	servers   threadTime // of the servers, in them
	slow      float64    // share of the slowest requests' time that passed in them, or next to them
}

// fullSpells adds up the spans in which the CPUs were full; false where the slow requests
// are slow at other times too.
func (v *View) fullSpells() (s fullSpells, ok bool) {
	course := v.Use.Course
	full := make([]bool, len(course))
	var idle float64
	begin := 0.0
	for i, span := range course {
		if full[i] = ratio(span.Idle, span.Busy+span.Idle) < idleWhenFull; full[i] {
			s.seconds += span.Seconds - begin
			s.all += span.Busy + span.Idle
			idle += span.Idle
		}
		begin = span.Seconds
	}
	s.idle = ratio(idle, s.all)
	// at is the part of a time, in s of the window, that was full, or next to that.
	at := func(from, to float64, beside bool) (both float64) {
		begin := 0.0
		for i, span := range course {
			if full[i] || beside && (i > 0 && full[i-1] || i+1 < len(full) && full[i+1]) {
				both += max(min(to, span.Seconds)-max(from, begin), 0)
			}
			begin = span.Seconds
		}
		return both
	}
	for i := range v.Processes {
		if p := &v.Processes[i]; v.Serving(p.PID) {
			begin := 0.0
			for _, span := range p.Course {
				share := ratio(at(begin, span.Seconds, false), span.Seconds-begin)
				s.servers.cpu += share * span.CPU
				s.servers.delay += share * span.Delay
				begin = span.Seconds
			}
		}
	}
	var slow, within float64
	for _, l := range v.fronts {
		least := slowerThan * float64(l.Total.Quantile(0.5))
		for j := range l.Slowest {
			if q := &l.Slowest[j]; float64(q.TotalNS) >= least {
				from := float64(q.StartNS-v.Window.Start.UnixNano()) / 1e9
				slow += float64(q.TotalNS) / 1e9
				within += at(from, from+float64(q.TotalNS)/1e9, true)
			}
		}
	}
	s.slow = ratio(within, slow)
	return s, s.all > 0 && s.slow >= burstSlow && s.seconds <= burstShare*v.Window.Seconds
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
		k := l.waitingForCPU(&w, ratio(w.delay, w.delay+w.cpu), observe.ServerRunq)
		all.ns += k.ns * float64(l.Requests)
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

func processesText(procs []*observe.Process, most int) string {
	var parts []string
	for _, p := range procs[:min(most, len(procs))] {
		parts = append(parts, fmt.Sprintf("%s (pid %d) %s", p.Comm, p.PID, seconds(p.CPUSeconds())))
	}
	return strings.Join(parts, ", ")
}

// CPUQuotaThrottled: a cgroup that has used its quota for the period does not
// run until the next one (CFS bandwidth control, Documentation/scheduler/
// sched-bwc.rst), however idle the machine is.
const CPUQuotaThrottled ID = "cpu-quota-throttled"

var cpuQuotaThrottled = Cause{
	ID:    CPUQuotaThrottled,
	Title: "A CPU quota holds the service back: it is throttled",
	Layer: LayerMachine,
	Class: ClassMachine | ClassShort | ClassCPU,
	Needs: []observe.Kind{observe.KindCgroup},
	Check: checkCPUQuota,
	Try:   inGroups((*View).moreQuota),
}

func checkCPUQuota(v *View) Result {
	r := ruledOut("no service runs under a CPU quota")
	for i := range v.Cgroups {
		c := &v.Cgroups[i]
		if c.QuotaCPUs <= 0 || !slices.ContainsFunc(c.PIDs, v.Serving) {
			continue
		}
		share := ratio(c.ThrottledPeriods, c.Periods)
		if share < throttledShare || c.ThrottledSeconds < throttledSeconds*v.Window.Seconds {
			r.RuledOut = fmt.Sprintf("%s may use %.3g CPUs and was throttled in %s of its periods", c.Path, c.QuotaCPUs, percent(share))
			continue
		}
		t := v.throttledTime(c)
		if t.requests > 0 && t.worst == nil {
			r.RuledOut = fmt.Sprintf("%s may use %.3g CPUs and was throttled in %s of its periods, for %s in all, but no request of it is slow for that: %s",
				c.Path, c.QuotaCPUs, percent(share), seconds(c.ThrottledSeconds), t.because)
			continue
		}
		r.Findings = append(r.Findings, quotaFinding(v, c, share, t))
	}
	return r
}

// throttledTime is what a quota costs the requests of the services under it.
type throttledTime struct {
	requests uint64  // that they answered
	worst    *ledger // the endpoint that loses most, nil when none is slow
	held     float64 // share of the time its threads could run in which the quota held them back
	always   bool    // its requests in general lose it, not just the slowest
	share    float64 // of the requests' time, or of the slowest requests'
	ns       float64 // a request, or one of the slowest
	because  string  // when none is slow, where the time goes
}

// throttledTime judges by the time threads of the group waited for a CPU while
// it was throttled: run delays hold that time too, and other waits for a CPU.
func (v *View) throttledTime(c *observe.Cgroup) throttledTime {
	var t throttledTime
	inside := map[int]bool{}
	for _, pid := range c.PIDs {
		inside[pid] = true
	}
	for _, l := range v.workedBy(c.PIDs...) {
		if l.Requests < fewRequests {
			continue
		}
		var cpu, delay float64
		for _, p := range v.workers(l) {
			if inside[p.PID] {
				cpu += p.CPUSeconds()
				delay += p.RunDelaySeconds
			}
		}
		if cpu+delay == 0 {
			continue
		}
		t.requests += l.Requests
		k := l.cost(1, threadParts...)
		t.because = l.whereTimeGoes()
		if !l.noticed(k, threadFloor) {
			continue
		}
		// A group that is throttled all the time waits for all of it, however
		// many threads there are.
		held := max(ratio(min(c.ThrottledSeconds, delay), cpu+delay), ratio(c.ThrottledSeconds, v.Window.Seconds*float64(max(v.Host.CPUs, 1))))
		server, slow := held*l.MeanNS(observe.Server), held*l.SlowNS(observe.Server)
		if sp := l.Split; sp != nil && sp.Requests >= fewRequests {
			server, slow = sp.ShareNS(observe.ServerThrottled, l.MeanNS(observe.Server)), sp.SlowShareNS(observe.ServerThrottled, l.SlowNS(observe.Server))
		}
		k.ns = server + held*(k.ns-l.MeanNS(observe.Server))
		k.slowNS = slow + held*(k.slowNS-l.SlowNS(observe.Server))
		share, ns, always := ratio(k.slowNS, l.SlowTotalNS()), k.slowNS, l.always(k, threadFloor)
		if always {
			share, ns = ratio(k.ns*float64(l.Requests), l.TimeNS()), k.ns
		}
		if share >= wasteShare && share > t.share {
			t.worst, t.held, t.always, t.share, t.ns = l, held, always, share, ns
		}
	}
	return t
}

// wantedCPUs is the quota that is proposed for a group: as much as its threads ran, or
// wanted to, and no less than twice what it has.
func (v *View) wantedCPUs(c *observe.Cgroup) float64 {
	return min(float64(v.Host.CPUs), max(1, 2*c.QuotaCPUs, math.Ceil(10*v.wantsCPUs(c))/10))
}

// wantsCPUs is on how many CPUs the threads of a group ran in the window, or wanted to.
func (v *View) wantsCPUs(c *observe.Cgroup) float64 {
	var s float64
	for _, pid := range c.PIDs {
		if p := v.Process(pid); p != nil {
			s += p.CPUSeconds() + p.RunDelaySeconds
		}
	}
	return s / max(v.Window.Seconds, 1)
}

// quotaText is a quota as the group's file takes it, in µs.
func quotaText(c *observe.Cgroup, cpus float64) string {
	period := c.PeriodNS / 1000
	if period == 0 {
		period = 100000
	}
	if c.Version == 2 {
		return fmt.Sprintf("%d %d", int64(cpus*float64(period)), period)
	}
	return fmt.Sprint(int64(cpus * float64(period)))
}

func quotaFinding(v *View, c *observe.Cgroup, share float64, t throttledTime) Finding {
	f := supported(Subject{Kind: "cgroup", Path: c.Path})
	for _, pid := range c.PIDs {
		if s := v.ServiceOf(pid); s != nil {
			m := v.Master(pid)
			f.Subject.PID, f.Subject.Comm, f.Subject.NetNS, f.Subject.Port = m, v.Comm(m), s.NS.Inode, s.Port()
			break
		}
	}
	f.Weight = share
	f.Impact = Impact{Share: round(share), Of: "slow time", OfTime: true, Text: fmt.Sprintf("held back in %s of its periods, for %s in all", percent(share), seconds(c.ThrottledSeconds))}
	f.Evidence = []Evidence{
		{Fact: "periods in which it was throttled", Value: c.ThrottledPeriods, Limit: c.Periods, Unit: "periods", Source: "cpu.stat nr_throttled, nr_periods"},
		{Fact: "time throttled", Value: round(c.ThrottledSeconds), Unit: "s", Source: "cpu.stat"},
		{Fact: "quota", Value: c.QuotaCPUs, Unit: "CPUs", Source: c.QuotaFile},
		{Fact: "CPU of the machine idle", Value: round(ratio(v.Use.CPU.Idle+v.Use.CPU.IOWait, v.Use.CPU.Total())), Unit: "share", Source: "/proc/stat"},
	}
	if l := t.worst; l != nil {
		f.Subject.PID, f.Subject.Comm, f.Subject.NetNS, f.Subject.Port = l.pid, v.commOf(l), l.NetNS, l.Port
		f.Weight = t.share
		who, whole := l.one(), l.TimeNS()/float64(l.Requests)
		f.Impact.Of, f.Impact.OfTime = "the requests' time", true
		if !t.always {
			who, whole, f.Impact.Of = l.slowest(), l.SlowTotalNS(), "slow time"
		}
		f.Impact.Share = round(t.share)
		f.Impact.Text = fmt.Sprintf("%s: %s on average, about %s of it held back by the quota, in %s of its periods", who, nanoseconds(whole), nanoseconds(t.ns), percent(share))
		f.Evidence = append(f.Evidence,
			Evidence{Fact: "time that its threads could run and the quota held them back", Value: round(t.held), Limit: 1, Unit: "share", Source: "/proc/PID/schedstat, cpu.stat"},
			Evidence{Fact: "of the requests' time, held back by the quota", Value: round(t.ns / 1e6), Limit: round(whole / 1e6), Unit: "ms", Source: recorded + ", cpu.stat"})
	}
	want := v.wantedCPUs(c)
	f.Fix.Text = fmt.Sprintf("Raise the quota from %.3g to %.3g CPUs.", c.QuotaCPUs, want)
	if c.QuotaFile != "" {
		f.Fix.Commands = []shell.Command{shell.Write(quotaText(c, want), shell.Path(c.QuotaFile))}
	}
	if p := v.Process(f.Subject.PID); p != nil {
		switch {
		case p.Container != "":
			f.Fix.Persist = []shell.Command{shell.Line("docker update --cpus %s %s   # or the limit in its pod or compose file", fmt.Sprintf("%.3g", want), shell.Operand(p.Container))}
		case p.Unit != "":
			f.Fix.Persist = []shell.Command{shell.Line("systemctl set-property %s CPUQuota=%s%%", shell.Unit(p.Unit), math.Round(want*100))}
		}
	}
	return f
}
