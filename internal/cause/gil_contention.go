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
	Title:         "Python threads take turns: together they get one CPU, however many are idle",
	Layer:         LayerApplication,
	Class:         ClassCompute,
	Needs:         []observe.Kind{observe.KindRequests, observe.KindProcess},
	ConsequenceOf: []Parent{CPUHotFunction, CPUQuotaThrottled},
	Folds:         true,
	Check:         checkGIL,
}

func checkGIL(v *View) Result {
	return v.judgeLedgers(fewRequests, func(l *ledger) judged {
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
			sharing, top, together := turns(p, loaded)
			because := fmt.Sprintf("%d threads of %s (pid %d) compute, with %.2f CPUs together", sharing, p.Comm, p.PID, together)
			spare, full := v.spareCPUs(l, &w)
			switch {
			case !takeTurns(sharing, top, together):
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

// turns is how many threads of a process compute, the share of a CPU that the
// busiest of them gets, and the CPUs that all of them get together.
func turns(p *observe.Process, seconds float64) (sharing int, top, together float64) {
	if seconds <= 0 {
		return 0, 0, 0
	}
	for _, t := range p.Busiest {
		if used := t.CPUSeconds / seconds; used >= gilThread {
			sharing++
			top = max(top, used)
		}
	}
	return sharing, top, p.CPUSeconds() / seconds
}

// takeTurns says that threads share a lock without which none computes.
func takeTurns(sharing int, top, together float64) bool {
	return sharing >= 2 && together >= gilTogether && together <= gilMost && top <= gilTop*together
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
		Evidence{Fact: "CPUs that are idle meanwhile, or used by what gives way (nice)", Value: round(spare), Limit: v.Host.CPUs, Unit: "CPUs", Source: "/proc/stat"},
	)
	if of, ok := l.split(); ok {
		f.Evidence = append(f.Evidence, Evidence{Fact: "of the slowest requests' server time, waiting for a lock", Value: round(of(observe.ServerLock)), Limit: 1, Unit: "share", Source: recorded})
	}
	f.Evidence = append(f.Evidence, v.executedEvidence([]*observe.Process{p}, 0)...)
	f.Fix.Text = "Run more processes instead of more threads (gunicorn --workers): each has an interpreter, and a lock, of its own."
	f.Fix.Commands = []shell.Command{lookAtWaits(p.PID)}
	return f
}
