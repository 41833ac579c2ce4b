package cause

import (
	"fmt"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// CPUHotFunction: requests are slow because the service computes, and one
// function has most of it.
const CPUHotFunction ID = "cpu-hot-function"

var cpuHotFunction = Cause{
	ID:            CPUHotFunction,
	Title:         "Slow requests compute, most of it in one function",
	Layer:         LayerApplication,
	Class:         ClassCompute,
	Needs:         []observe.Kind{observe.KindRequests, observe.KindProcess, observe.KindProfile},
	ConsequenceOf: []Parent{TimeWaitPortSearch, AutoreloadStatStorm, ShortLivedProcessStorm, MemoryPressure, ClassKernelWork, ClassScan},
	Folds:         true,
	Check:         checkHotFunction,
}

const (
	hotSlow = callTime // ns that the slowest requests take, at the least: as a slow call does
)

func checkHotFunction(v *View) Result {
	return v.judgeLedgers(fewRequests, func(l *ledger) judged {
		k := l.cost(1, threadParts...)
		w := v.atWork(l)
		switch {
		case l.called():
			return judged{because: "no request is answered here", near: -1}
		case !l.noticed(k, threadFloor) && !l.computesAtTimes():
			return judged{because: "no request is slow for what the service does: " + l.whereTimeGoes(), near: 0}
		}
		own := l.ownCPU(&w)
		e := v.executedBy(w.procs, 0)
		because := fmt.Sprintf("a request on %s computes for %s, of %s that it takes", l.name(), nanoseconds(own), nanoseconds(l.TimeNS()/float64(l.Requests)))
		scarce, why := v.computingIsScarce(l, &w, own)
		if scarce == 0 {
			// Of several services the one that computes most.
			return judged{because: because, near: 0.1 * ratio(own*float64(l.Requests), l.TimeNS())}
		}
		if !e.enough() {
			return judged{because: because + "; in which function is not known: too few samples of it have a name", near: 0.2}
		}
		f := e.hottest(hotShare)
		if f == nil {
			f = e.interpreter(hotShare)
		}
		if f == nil && own >= ownFloor && own >= ownShare*l.TimeNS()/float64(l.Requests) {
			f = e.program(hotShare)
		}
		switch {
		case f != nil && collectsIn(f.Name):
			return judged{because: fmt.Sprintf("%s, %s of it in %s: it is in garbage collection", because, percent(e.share(f)), f.Name), near: 0.4}
		case f == nil:
			return judged{because: fmt.Sprintf("%s, but no function has %s of it: %s", because, percent(hotShare), e.told(3)), near: 0.3}
		case own*e.share(f) < hotFloor && !v.hotAtTimes(l, k, &w) && !l.computesAtTimes() && !l.fewCompute(w.cpu*1e9*e.share(f)):
			return judged{because: fmt.Sprintf("%s, %s of it in %s", because, percent(e.share(f)), f.Name), near: 0.4}
		}
		return judged{finding: v.hotFunctionFinding(l, &w, scaled(k, scarce*e.share(f)), &e, f, own, why)}
	})
}

// computingIsScarce says how much of their time requests wait for what the
// service computes, each for itself, or all for the CPUs or the thread that the
// service fills: 0 when they wait for something else, 1 when for nothing else.
// On CPUs that others fill too, those answer for their part.
func (v *View) computingIsScarce(l *ledger, w *atWork, own float64) (share float64, why string) {
	idle, full := v.cpuFull(l)
	computing, watched := v.computing(l)
	for _, p := range w.procs {
		if text, _, shared := v.turns(l, p, v.loadedSeconds(l)); shared && python(p) {
			return 1, text
		}
	}
	used := v.Use.CPU.Busy()
	if niceOf(w.procs) <= 0 {
		used -= v.Use.CPU.Nice // that gives way
	}
	fills := ratio(w.cpu, used)
	switch {
	case watched && computing < computeShare:
		return 0, ""
	case own >= hotOwn*l.TimeNS()/float64(l.Requests) && (full || own >= hotAlone || l.computesAtTimes()):
		return 1, fmt.Sprintf("%s of their own time they compute", percent(ratio(own, l.TimeNS()/float64(l.Requests))))
	case len(w.threads) > 0 && w.threads[0].busy() >= busyThreadShare && w.threads[0].cpu >= busyOnCPU:
		return 1, fmt.Sprintf("%s computes all the time", &w.threads[0])
	case full && fills >= hotFill:
		return fills, fmt.Sprintf("the CPUs are full (%s idle), %s of what is used by the service", percent(idle), percent(fills))
	case v.hotAtTimes(l, l.cost(1, threadParts...), w):
		return 1, "the slowest of them compute"
	}
	return 0, ""
}

// hotAtTimes says that it is the slowest requests which compute: their thread
// did so while they were answered, and all of the CPU time suffices for it.
func (v *View) hotAtTimes(l *ledger, k cost, w *atWork) bool {
	answering := l.SlowNS(observe.Server) + l.SlowNS(observe.Stall)
	return l.atTimes(k, threadFloor) && answering >= hotOwn*l.SlowTotalNS() && answering >= threadFloor.slow &&
		w.cpu*1e9 >= 0.5*answering*float64(l.SlowCount) &&
		len(w.threads) > 0 && w.threads[0].cpu >= busyOnCPU
}

// computesAtTimes says that requests in general compute, and the slowest so much
// more than others that it is noticed, as their own threads were followed: what
// delays threads on a machine at work has no part in that, so that less of it
// counts than of their waiting.
func (l *ledger) computesAtTimes() bool {
	s := l.Split
	if s == nil || s.Requests < fewRequests || l.records() < tailRequests {
		return false
	}
	slow := l.SlowTotalNS()
	cpu := s.SlowShareNS(observe.ServerCPU, l.SlowNS(observe.Server))
	return slow >= hotSlow && slow >= callSlower*float64(l.Total.Quantile(0.5)) && cpu >= hotOwn*slow && cpu >= threadFloor.mean &&
		s.ShareNS(observe.ServerCPU, l.SumNS(observe.Server)) >= hotOwn*l.TimeNS()
}

// fewCompute says that few requests, which compute for long, take most of the
// time that all of them are answered in: the others wait behind them. ns is the
// CPU time in the function.
func (l *ledger) fewCompute(ns float64) bool {
	server := l.Parts[observe.Server.String()]
	long := server.Hist.Above(int64(wireFloor.slow))
	others := float64(server.Hist.Quantile(0.5)) * float64(l.Requests)
	return l.enough(long) && ratio(long, l.Requests) <= fewLong && others <= 0.5*l.SumNS(observe.Server) && ns >= hotFloor*float64(long)
}

func (v *View) hotFunctionFinding(l *ledger, w *atWork, k cost, e *executed, hot *observe.ProfileFunction, own float64, why string) *Finding {
	share := e.share(hot)
	language, loop := interpreterLoops[hot.Name]
	what := "in " + located(hot)
	nameless := hot.Name == ""
	if nameless {
		what = "in " + hot.Module
	}
	if loop {
		what = "in " + language + " code"
	}
	f := v.found(l, k, threadFloor, "computing "+what+", or waiting for those that do")
	f.Subject.Kind, f.Subject.Path = "process", whereIs(hot)
	if loop {
		f.Title = "Slow requests compute, most of it in " + language + " code"
	}
	if nameless {
		f.Title = "Slow requests compute, most of it in " + hot.Module
	}
	f.Evidence = append(f.Evidence,
		Evidence{Fact: "CPU time " + what + ", with what it calls", Value: round(share), Limit: 1, Unit: fmt.Sprintf("share of %s CPU samples of %s", count(e.samples), f.Subject.Comm), Source: "CPU samples"},
		Evidence{Fact: "a request computes, mean", Value: round(own / 1e6), Limit: round(l.TimeNS() / float64(l.Requests) / 1e6), Unit: "ms", Source: "/proc/PID/stat, request records"},
		Evidence{Fact: "why its requests wait for it", Value: why, Source: "/proc/PID/schedstat, request records"},
	)
	if computing, ok := v.computing(l); ok {
		f.Evidence = append(f.Evidence, Evidence{Fact: "slow requests whose thread ran or was ready to", Value: round(computing), Limit: 1, Unit: "share of their time", Source: "/proc/PID/task"})
	}
	if told := e.told(2); told != "" {
		f.Evidence = append(f.Evidence, Evidence{Fact: "functions that do most of it themselves", Value: told, Source: "CPU samples"})
	}
	switch {
	case nameless:
		f.Fix.Text = fmt.Sprintf("Find which function of %s it is, and have it do less for a request.", f.Subject.Comm)
	case loop:
		f.Fix.Text = fmt.Sprintf("Find which function of the %s code it is, and have it do less for a request.", language)
	case hot.Kind == observe.FrameKernel:
		f.Fix.Text = fmt.Sprintf("%s has the kernel do this for each request: find the system call behind it, and make fewer or cheaper ones.", f.Subject.Comm)
	default:
		name := hot.Name
		if strings.ContainsAny(name[:min(1, len(name))], "<{([") { // one without a name of its own
			name = located(hot)
		}
		f.Fix.Text = fmt.Sprintf("Have %s do less for a request: a better algorithm, a limit on its input, or keep what it worked out.", name)
	}
	f.Fix.Commands = []shell.Command{shell.Line("slowray flame --pid %s -o flame.html   # who calls it", v.busiestOf(w))}
	return f
}

// busiestOf is the process with most CPU time.
func (v *View) busiestOf(w *atWork) int {
	pid, most := 0, -1.0
	for _, p := range w.procs {
		if p.CPUSeconds() > most {
			pid, most = p.PID, p.CPUSeconds()
		}
	}
	return pid
}
