package cause

import (
	"fmt"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// SingleThreadSaturated: all requests pass through one thread, which computes
// without a pause, while other CPUs have nothing to do. That is how event loops
// (Node.js, Redis, asyncio) and services with one worker come to their end.
const SingleThreadSaturated ID = "single-thread-saturated"

var singleThreadSaturated = Cause{
	ID:    SingleThreadSaturated,
	Title: "One thread is saturated while CPUs are idle",
	Layer: LayerApplication,
	Class: ClassCompute,
	Needs: []observe.Kind{observe.KindRequests, observe.KindProcess},
	ConsequenceOf: []Parent{CPUHotFunction, GCPauses, CPUQuotaThrottled, ShortLivedProcessStorm, AutoreloadStatStorm, TimeWaitPortSearch,
		AffinityTooNarrow, LowCPUWeight, RealtimeHog, CPUSteal, LogFlooding, FilesPerRequest, SlowClocksource, LongRuleList, TLSHandshakeSlow, TLSSessionRefused, ClassScan},
	Folds: true,
	Check: checkSingleThread,
}

func checkSingleThread(v *View) Result {
	return v.judgeLedgers(fewRequests, func(l *ledger) judged {
		k := l.cost(1, threadParts...)
		if l.called() {
			return judged{because: "no request is answered here", near: -1}
		}
		w := v.atWork(l)
		if len(w.threads) == 0 {
			return judged{because: fmt.Sprintf("the processes that answer on %s hardly use the CPUs", l.name()), near: 0}
		}
		top := &w.threads[0]
		because := fmt.Sprintf("the busiest thread behind %s, %s, is on a CPU %s of the time and wants one another %s", l.name(), top, percent(top.cpu), percent(top.delay))
		spare, full := v.spareCPUs(l, &w)
		computing, watched := v.computing(l)
		e := v.executedBy(w.procs, 0)
		_, garbage := garbageFunction(&e)
		switch {
		case top.process.Go && garbage >= gcShare:
			return judged{because: fmt.Sprintf("%s; it is a Go program that spends %s of its CPU time in garbage collection", because, percent(garbage)), near: top.busy()}
		case !l.noticed(k, threadFloor):
			return judged{because: because + "; no request is slow for lack of a thread: " + l.whereTimeGoes(), near: top.busy() / 2}
		case top.busy() < busyThreadShare:
			return judged{because: because, near: top.busy()}
		case top.cpu < busyOnCPU:
			return judged{because: because + ": it lacks a CPU", near: top.busy()}
		case full || spare < othersIdle:
			return judged{because: fmt.Sprintf("%s, but only %.2g CPUs are idle: others would have none", because, spare), near: top.busy()}
		case w.saturated > 1:
			return judged{because: fmt.Sprintf("%s, and so are %d threads of it", because, w.saturated), near: top.busy()}
		case v.inFlight(l) < severalNow:
			return judged{because: fmt.Sprintf("%s, but only %.2g requests are under way at once: none waits for another", because, v.inFlight(l)), near: top.busy()}
		case watched && computing < computeShare:
			return judged{because: fmt.Sprintf("%s, but requests wait for something else: their own thread ran or wanted to in %s of the slow requests' time", because, percent(computing)), near: top.busy()}
		}
		return judged{finding: v.singleThreadFinding(l, &w, k, spare)}
	})
}

func (v *View) singleThreadFinding(l *ledger, w *atWork, k cost, spare float64) *Finding {
	top := &w.threads[0]
	f := v.found(l, k, threadFloor, fmt.Sprintf("waiting for or in %s", top))
	f.Subject.Kind, f.Subject.PID, f.Subject.Comm = "process", top.process.PID, top.process.Comm
	f.Evidence = append(f.Evidence,
		Evidence{Fact: top.String() + " is on a CPU, while the slowest requests are under way", Value: round(top.cpu), Limit: 1, Unit: "share of the time", Source: "/proc/PID/task/TID/schedstat"},
		Evidence{Fact: "it wants a CPU and has none", Value: round(top.delay), Unit: "share of the time", Source: "/proc/PID/task/TID/schedstat"},
		Evidence{Fact: "CPUs that are idle meanwhile, or used by niced processes", Value: round(spare), Limit: v.Host.CPUs, Unit: "CPUs", Source: "/proc/stat"},
		Evidence{Fact: "requests under way at once, mean", Value: round(v.inFlight(l)), Unit: "requests", Source: recorded},
	)
	f.Evidence = append(f.Evidence, v.executedEvidence([]*observe.Process{top.process}, top.tid)...)
	if share, _ := v.encrypting(l); share < dominantShare { // it computes something else, and handshakes wait for it
		may := f.MayFollow
		f.MayFollow = func(p *Finding) bool { return p.Cause != TLSHandshakeSlow && p.Cause != TLSSessionRefused && may(p) }
	}
	f.Fix.Text = oneThreadFix(top.process)
	f.Fix.Commands = []shell.Command{shell.Line("slowray flame --pid %s -o flame.html   # what it computes", top.process.PID)}
	return f
}

// executedEvidence tells what processes, or one thread, were seen executing.
func (v *View) executedEvidence(procs []*observe.Process, tid int) []Evidence {
	e := v.executedBy(procs, tid)
	if !e.enough() {
		return nil
	}
	if f := e.hottest(hotShare); f != nil {
		return []Evidence{{Fact: "it executes " + located(f), Value: round(e.share(f)), Unit: fmt.Sprintf("share of %s CPU samples", count(e.samples)), Source: "CPU samples"}}
	}
	told := e.told(3)
	if told == "" {
		return nil
	}
	return []Evidence{{Fact: "it executes, most of all", Value: told, Unit: fmt.Sprintf("of %s CPU samples", count(e.samples)), Source: "CPU samples"}}
}

// oneThreadFix says how a service of this kind gets more threads.
func oneThreadFix(p *observe.Process) string {
	switch kind := p.Exe + " " + p.Comm; {
	case strings.Contains(kind, "python"), strings.Contains(kind, "gunicorn"), strings.Contains(kind, "uvicorn"):
		return "Run more processes (gunicorn --workers, uvicorn --workers): threads of one Python process share one interpreter lock. Or make a request compute less, or move the computing out of the event loop."
	case strings.Contains(kind, "node"):
		return "Run more processes (cluster, or several instances behind a load balancer), or move the computing into worker_threads; or make a request compute less."
	case strings.Contains(kind, "redis"), strings.Contains(kind, "valkey"), strings.Contains(kind, "keydb"):
		return "Find the expensive commands (SLOWLOG GET) and replace them (KEYS, SORT, large ranges, long Lua scripts); switch on io-threads, or spread the keys over more instances."
	case strings.Contains(kind, "nginx"):
		return "Let it run as many workers as there are CPUs: worker_processes auto."
	case strings.Contains(kind, "haproxy"):
		return "Let it run a thread for each CPU: nbthread."
	}
	return "Give it more workers or threads, so that other CPUs can work too, or make a request compute less."
}
