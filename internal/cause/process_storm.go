package cause

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// ShortLivedProcessStorm: programs are started again and again, and end at
// once. Each is gone before top(1) shows it; together they take the CPU that
// requests need, or the time of the requests that start them.
const ShortLivedProcessStorm ID = "short-lived-process-storm"

var shortLivedProcessStorm = Cause{
	ID:            ShortLivedProcessStorm,
	Title:         "Short-lived processes take the CPU",
	Layer:         LayerMachine,
	Class:         ClassMachine | ClassCPU | ClassRunQueue,
	Needs:         []observe.Kind{observe.KindCPU, observe.KindProcess, observe.KindRequests},
	ConsequenceOf: []Parent{CPUQuotaThrottled},
	Check:         checkProcessStorm,
}

// starter is a process whose children come and go.
type starter struct {
	pid       int
	comm      string
	cpu       float64 // s of CPU of its children
	processes int     // seen of them: a lower bound
	programs  []string
	others    []int // processes of that name that start the same program
}

func checkProcessStorm(v *View) Result {
	rate := 0.0
	if v.Window.Seconds > 0 {
		rate = float64(v.Use.Forks) / v.Window.Seconds
	}
	top := v.topStarter()
	all := v.Use.CPU.Total()
	share := ratio(top.cpu, all)
	because := fmt.Sprintf("%.3g processes and threads began each second, and processes that ended at once took %s of the CPUs", rate, percent(share))
	if top.comm != "" {
		because += fmt.Sprintf(" at most (those of %s)", top.comm)
	}
	spells, bursts := v.fullSpells()
	fullAtTimes := spells.seconds >= spellsLeast*v.Window.Seconds
	if bursts || fullAtTimes && top.cpu > 0 {
		share = ratio(top.cpu, spells.all)
		because += fmt.Sprintf(", %s of them while they were full", percent(share))
	}
	if rate < stormRate || top.processes < stormSeen || share < stormShare && top.cpu < 0.5*v.Window.Seconds {
		return ruledOut(because)
	}
	r := v.judgeLedgers(fewRequests, func(l *ledger) judged {
		if l.called() {
			return judged{because: because, near: -1}
		}
		k := l.cost(1, threadParts...)
		w := v.atWork(l)
		own := l.pid == top.pid || v.Master(top.pid) == l.pid
		for _, p := range w.procs {
			own = own || p.PID == top.pid
		}
		each := top.cpu * 1e9 / float64(l.Requests) // ns of its children for a request
		delayed := ratio(w.delay, w.delay+w.cpu)
		wait := v.waitingForCPU(l, &w, delayed)
		ready := v.readyCost(l)
		idle, _ := v.cpuFull(l)
		switch {
		case !l.noticed(k, threadFloor):
			return judged{because: because + "; no request is slow for lack of a thread: " + l.whereTimeGoes(), near: 0}
		case bursts:
			// They answer for what the service itself does not take.
			k = scaled(k, ratio(top.cpu, spells.all*(1-spells.idle)-spells.servers.cpu))
			return judged{finding: v.stormFinding(l, k, &top, rate, share, fmt.Sprintf("the CPUs are full (%s idle) for %s, in which %s of the slow requests' time passed", percent(spells.idle), seconds(spells.seconds), percent(spells.slow)))}
		case own && each >= stormOwn*l.TimeNS()/float64(l.Requests):
			k = scaled(k, min(1, each/k.ns))
			return judged{finding: v.stormFinding(l, k, &top, rate, share, fmt.Sprintf("a request starts them: %s of CPU of theirs for each, on average", nanoseconds(each)))}
		case own && idle < idleWhenFull:
			k = scaled(k, ratio(top.cpu, v.Use.CPU.Busy()))
			return judged{finding: v.stormFinding(l, k, &top, rate, share, fmt.Sprintf("a request starts them, and the CPUs are full of them (%s idle)", percent(idle)))}
		case fullAtTimes && l.noticed(ready, threadFloor):
			// What its threads wait for a CPU, they wait then.
			k = scaled(ready, ratio(top.cpu, spells.all*(1-spells.idle)-spells.servers.cpu))
			return judged{finding: v.stormFinding(l, k, &top, rate, share, fmt.Sprintf("the CPUs are full (%s idle) for %s, and its threads wait for one %s of the requests' time", percent(spells.idle), seconds(spells.seconds), percent(ready.share)))}
		case idle < idleWhenFull && l.noticed(wait, threadFloor):
			// They answer for the part of the CPUs that they take from others.
			k = scaled(wait, ratio(top.cpu, v.Use.CPU.Busy()-w.cpu))
			return judged{finding: v.stormFinding(l, k, &top, rate, share, fmt.Sprintf("the CPUs are full (%s idle), and its threads wait for one %s of the time that they could run", percent(idle), percent(delayed)))}
		}
		return judged{because: because + fmt.Sprintf("; the service waits for a CPU %s of the time that it could run", percent(delayed)), near: delayed}
	})
	if r.NotChecked != "" {
		return Result{RuledOut: because + ", and " + r.NotChecked}
	}
	r = heaviest(r)
	for i := range r.Findings {
		if v.forksToRefuse(top.pid) {
			r.Findings[i].follows(PostgresConnectionsExhausted)
		}
	}
	return r
}

// topStarter is the process whose short-lived children take most CPU, by the
// CPU samples of processes that were there neither before nor after. The
// kernel's account of children that were waited for is no help: it has those
// that ran for hours, too. Children that are nice give way by themselves.
func (v *View) topStarter() starter {
	if v.Profile == nil || v.Profile.Hz <= 0 {
		return starter{}
	}
	var list []starter
	type script struct{ shell, program string }
	byPID, byScript := map[int]int{}, map[script]int{} // in list
	for _, s := range v.Profile.ShortLived {
		if s.Nice >= niceMeansYield || v.ownWorker(s.Parent, s.ParentComm, s.Comm) {
			continue
		}
		// Several shells that run one script are one storm.
		i, known := byPID[s.Parent]
		if j, alike := byScript[script{s.ParentComm, s.Comm}]; alike && s.ParentComm != "" && (!known || j < i) {
			i, known = j, true
		}
		if !known {
			i = len(list)
			list, byPID[s.Parent] = append(list, starter{pid: s.Parent, comm: s.ParentComm}), i
		}
		st := &list[i]
		if s.Parent != st.pid && !slices.Contains(st.others, s.Parent) {
			st.others = append(st.others, s.Parent)
		}
		st.cpu += float64(s.Samples) / float64(v.Profile.Hz)
		st.processes += s.Processes
		if len(st.programs) < 3 && !slices.Contains(st.programs, s.Comm) {
			st.programs = append(st.programs, s.Comm)
			if _, known := byScript[script{st.comm, s.Comm}]; !known {
				byScript[script{st.comm, s.Comm}] = i
			}
		}
	}
	if len(list) == 0 {
		return starter{}
	}
	top := slices.MaxFunc(list, func(a, b starter) int { return cmp.Or(cmp.Compare(a.cpu, b.cpu), cmp.Compare(b.pid, a.pid)) })
	if p := v.Process(top.pid); p != nil {
		top.comm = p.Comm
	}
	return top
}

// ownWorker says that a process that came and went is a worker of the server that
// started it: it executes the same, and computes what that would otherwise compute
// itself. PostgreSQL starts some for a statement, a server with many processes another
// one for each that has answered enough.
func (v *View) ownWorker(parent int, parentComm, comm string) bool {
	if comm == "" || comm != parentComm {
		return false
	}
	master := v.Master(parent)
	return v.Serving(parent) || v.Serving(master) || len(v.servedOf[master]) > 0 || len(v.databases[master]) > 0
}

func (v *View) stormFinding(l *ledger, k cost, top *starter, rate, share float64, how string) *Finding {
	f := v.found(l, k, threadFloor, "for or behind programs that come and go")
	f.Subject.Kind, f.Subject.PID, f.Subject.Comm = "process", top.pid, top.comm
	f.Evidence = append(f.Evidence,
		Evidence{Fact: "processes and threads that begin", Value: round(rate), Unit: "a second", Source: "/proc/stat processes"},
		Evidence{Fact: "CPU of those that end at once, started by " + top.comm, Value: round(top.cpu), Limit: round(v.Use.CPU.Total()), Unit: "CPU s", Source: "CPU samples"},
		Evidence{Fact: "their programs", Value: strings.Join(top.programs, ", "), Source: "CPU samples"},
		Evidence{Fact: "how they cost requests time", Value: how, Source: "/proc/stat, /proc/PID/schedstat, request records"},
	)
	if len(top.others) > 0 {
		f.Evidence = append(f.Evidence, Evidence{Fact: "processes named " + top.comm + " that start it", Value: 1 + len(top.others), Unit: "processes", Source: "CPU samples"})
	}
	p := v.Process(top.pid)
	if p != nil && p.ChildSeconds > 0 {
		f.Evidence = append(f.Evidence, Evidence{Fact: "CPU of all its children that ended and were waited for", Value: round(p.ChildSeconds), Unit: "CPU s", Source: "/proc/PID/stat cutime, cstime"})
	}
	if p != nil && p.Cmdline != "" {
		f.Evidence = append(f.Evidence, Evidence{Fact: "who starts them", Value: p.Cmdline, Source: "/proc/PID/cmdline"})
	}
	f.Fix.Text = fmt.Sprintf("Have %s (pid %d) start %s less often: keep one running and hand it the work, or call a library instead.", cmp.Or(top.comm, "the parent"), top.pid, strings.Join(top.programs, ", "))
	f.Fix.Commands = []shell.Command{shell.Line("tr '\\0' ' ' < /proc/%s/cmdline   # who starts them", top.pid)}
	return f
}
