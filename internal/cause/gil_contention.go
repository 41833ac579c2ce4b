package cause

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// GILContention: the threads of one Python process take turns, because only
// the one that holds the interpreter's lock executes Python code. Several want
// to compute, together they get one CPU, and others are idle.
const GILContention ID = "gil-contention"

var gilContention = Cause{
	ID:            GILContention,
	Title:         "Python threads contend for the GIL",
	Layer:         LayerApplication,
	Class:         ClassCompute,
	Needs:         []observe.Kind{observe.KindRequests, observe.KindProcess},
	ConsequenceOf: []Parent{CPUHotFunction, CPUQuotaThrottled},
	Folds:         true,
	Check:         checkGIL,
}

func checkGIL(v *View) Result {
	return v.judgeLedgers(fewRequests, func(l *ledger) judged {
		if f := v.backgroundFinding(l); f != nil {
			return judged{finding: f}
		}
		k := l.cost(1, threadParts...)
		w := v.atWork(l)
		i := slices.IndexFunc(w.procs, python)
		if l.called() || i < 0 {
			return judged{because: "no service in Python answers requests", near: -1}
		}
		loaded := v.loadedSeconds(l)
		for _, p := range w.procs {
			if !python(p) {
				continue
			}
			because, together, shared := v.turns(l, p, loaded)
			spare, full := v.spareCPUs(l, &w)
			switch {
			case !shared:
				return judged{because: because, near: 0}
			case !l.noticed(k, threadFloor):
				return judged{because: because + ", and no request is slow for it", near: 0.5}
			case full || spare < othersIdle:
				return judged{because: because + ", and no CPU is idle", near: 0.5}
			}
			return judged{finding: v.gilFinding(l, p, k, together, spare)}
		}
		return judged{}
	})
}

// turns says whether the threads of a process that answers an endpoint share a lock
// without which none computes, with how many CPUs together, and how that is known: by the
// time of its threads, or by what those of them wait for that have requests in hand, which
// may have ended since.
func (v *View) turns(l *ledger, p *observe.Process, seconds float64) (text string, together float64, shared bool) {
	if seconds <= 0 {
		return "", 0, false
	}
	sharing, top := 0, 0.0
	for _, t := range p.Busiest {
		if used := t.CPUSeconds / seconds; used >= gilThread {
			sharing++
			top = max(top, used)
		}
	}
	together = p.CPUSeconds() / seconds
	in := v.inTurn(l)
	shared = together >= gilTogether && together <= gilMost && (sharing >= 2 && top <= gilTop*together || in >= gilInTurn)
	does := "compute"
	if shared {
		does = "take turns to compute"
	}
	text = fmt.Sprintf("%d threads of %s (pid %d) %s, with %.2f CPUs together", sharing, p.Comm, p.PID, does, together)
	if sharing < 2 && in > 0 {
		text = fmt.Sprintf("%s of the slow requests' time threads of %s (pid %d) wait for their turn to compute, with %.2f CPUs together", percent(in), p.Comm, p.PID, together)
	}
	return text, together, shared
}

// background is a thread of the service's own that computes Python all the time, or
// whenever requests are slow, and serves none, while those that do wait for the
// interpreter's lock; nil where there is none.
func (v *View) background(l *ledger) *observe.ThreadPool {
	if v.Waits == nil || l.called() {
		return nil
	}
	for i := range l.Slowest {
		if float64(l.Slowest[i].TotalNS) >= gilAlone*v.Window.Seconds*1e9 {
			return nil // it may be at work on that one
		}
	}
	for i := range v.Waits.Pools {
		p := &v.Waits.Pools[i]
		if p.PID != l.pid || p.Root == "" || p.Readers > 0 || p.Running < gilAlone && p.Meanwhile < gilMeanwhile || strings.HasPrefix(p.Root, "_worker thread.py") || strings.HasPrefix(p.Root, "<module>") {
			continue
		}
		for _, proc := range v.workers(l) {
			if p.Running < gilAlone && python(proc) {
				return p
			}
			if together := proc.CPUSeconds() / max(v.Window.Seconds, 1); python(proc) && together >= gilHeld && together <= gilMost {
				return p
			}
		}
	}
	return nil
}

// forInterpreter is what requests wait until their own thread may execute Python: after
// their bytes have come, and while they are answered.
func (l *ledger) forInterpreter() cost {
	k := l.cost(1, observe.AcceptWait, observe.RecvWait)
	if !l.followed() {
		return k
	}
	lock := l.serverCost(observe.ServerLock)
	k.ns, k.slowNS, k.share, k.slowShare = k.ns+lock.ns, k.slowNS+lock.slowNS, k.share+lock.share, k.slowShare+lock.slowShare
	return k
}

func (v *View) backgroundFinding(l *ledger) *Finding {
	p, k := v.background(l), l.forInterpreter()
	if p == nil || !l.noticed(k, wireFloor) {
		return nil
	}
	f := v.found(l, k, wireFloor, "waiting for the interpreter's lock")
	name, _, _ := strings.Cut(p.Root, " ")
	f.Title = fmt.Sprintf("A background thread (%s) holds the Python GIL", name)
	if n := p.Busy + p.Partly; n > 1 {
		f.Title = fmt.Sprintf("%d background threads (%s) hold the Python GIL", n, name)
	}
	if p.Running < gilAlone {
		f.Title = fmt.Sprintf("A background thread (%s) holds the Python GIL at times", name)
		f.Evidence = append(f.Evidence, Evidence{Fact: "of the slow requests' time, with that thread on a CPU, or ready for one", Value: round(p.Meanwhile), Limit: 1, Unit: "share", Source: taskFiles + ", " + recorded})
	}
	f.Subject.Kind, f.Subject.PID, f.Subject.Comm, f.Subject.Path = "process", l.pid, v.commOf(l), p.At
	f.Parents = []Parent{}
	var tids []string
	for _, tid := range p.TIDs {
		tids = append(tids, itoa(tid))
	}
	f.Evidence = append(f.Evidence,
		Evidence{Fact: "threads that serve no request and compute", Value: fmt.Sprintf("thread %s, in %s", strings.Join(tids[:min(len(tids), 4)], ", "), strings.Join(p.Stack, " ← ")),
			Unit: fmt.Sprintf("%.2g of them on a CPU at a time, or ready for one, in %d looks", p.Running, p.Looks), Source: taskFiles + ", memory of the process"},
		Evidence{Fact: "of the requests' time, waiting until their own thread may go on", Value: round(k.share), Limit: 1, Unit: "share", Source: recorded})
	where := "It gives the lock away every 5 ms at most, each time that another thread asks."
	if len(p.Stack) > 0 && p.Stack[0] != p.At {
		where = fmt.Sprintf("What it calls (%s) may keep the lock for the whole call.", p.Stack[0])
	}
	f.Fix.Text = fmt.Sprintf("Move %s (%s) out of the processes that serve: into a process of its own (multiprocessing, a job). %s More workers do not help as long as each of them starts this thread too, nor do more threads.", name, p.At, where)
	f.Fix.Commands = []shell.Command{lookAtWaits(l.pid)}
	return f
}

// python says that a process executes Python.
func python(p *observe.Process) bool {
	return strings.HasPrefix(p.Exe, "python") || strings.HasPrefix(p.Exe, "uwsgi")
}

func (v *View) gilFinding(l *ledger, p *observe.Process, k cost, together, spare float64) *Finding {
	f := v.found(l, k, threadFloor, "waiting for a thread, or in one that waits for the interpreter's lock")
	f.Subject.Kind, f.Subject.PID, f.Subject.Comm = "process", p.PID, p.Comm
	var threads []string
	for _, t := range p.Busiest {
		threads = append(threads, fmt.Sprintf("%d %s", t.TID, seconds(t.CPUSeconds)))
	}
	f.Evidence = append(f.Evidence,
		Evidence{Fact: "CPUs that all of its threads get together", Value: round(together), Limit: 1, Unit: "CPUs", Source: "/proc/PID/stat"},
		Evidence{Fact: "its busiest threads", Value: strings.Join(threads, ", "), Source: "/proc/PID/task/TID/schedstat"},
		Evidence{Fact: "CPUs that are idle meanwhile, or used by niced processes", Value: round(spare), Limit: v.Host.CPUs, Unit: "CPUs", Source: "/proc/stat"},
	)
	if in := v.inTurn(l); in > 0 {
		f.Evidence = append(f.Evidence, Evidence{Fact: "of the slow requests' time, waiting for the interpreter's lock", Value: round(in), Limit: 1, Unit: "share", Source: taskFiles + ", " + recorded})
	} else if of, ok := l.split(); ok {
		f.Evidence = append(f.Evidence, Evidence{Fact: "of the slowest requests' server time, waiting for a lock", Value: round(of(observe.ServerLock)), Limit: 1, Unit: "share", Source: recorded})
	}
	f.Evidence = append(f.Evidence, v.executedEvidence([]*observe.Process{p}, 0)...)
	f.Fix.Text = "Run more processes instead of more threads (gunicorn --workers): each has an interpreter, and a lock, of its own."
	f.Fix.Commands = []shell.Command{lookAtWaits(p.PID)}
	return f
}
