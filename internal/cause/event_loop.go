package cause

import (
	"fmt"
	"slices"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// EventLoopBlocked: one thread serves many connections and now and then does
// one thing for long; whatever else has come in meanwhile waits unread.
const EventLoopBlocked ID = "event-loop-blocked"

var eventLoopBlocked = Cause{
	ID:    EventLoopBlocked,
	Title: "The event loop is blocked",
	Layer: LayerApplication,
	Class: ClassCompute,
	Needs: []observe.Kind{observe.KindRequests, observe.KindProcess},
	ConsequenceOf: []Parent{CPUHotFunction, SingleThreadSaturated, GILContention, GCPauses, RunQueueWait, SlowDependency, ClassMachine,
		ClassWait, ClassScan, EphemeralPortsExhausted, TimeWaitPortSearch},
	Folds: true,
	Check: checkEventLoop,
}

func checkEventLoop(v *View) Result {
	return v.judgeLedgers(tailRequests, func(l *ledger) judged {
		k := l.cost(1, observe.RecvWait)
		if l.called() {
			return judged{because: "no request is answered here", near: -1}
		}
		together, pid := atOnce(l)
		late := behindAnother(l, pid)
		p := v.Process(pid)
		w := v.atWork(l)
		spare, full := v.spareCPUs(l, &w)
		if idle, late := v.late(l, k.share); late && !full { // what slowray itself used was not there for them
			spare, full = idle*float64(v.Host.CPUs), true
		}
		switch {
		case !l.noticed(k, threadFloor):
			return judged{because: "no request waits long to be read: " + l.whereTimeGoes(), near: k.slowNS}
		case p == nil || p.States == nil || p.States.Poll == 0:
			return judged{because: fmt.Sprintf("what answers on %s waits for no events", l.name()), near: k.slowNS}
		case together < loopTogether && late < loopTogether || !aloneAtWork(p):
			return judged{because: fmt.Sprintf("%s does not answer all its requests with one thread", p.Comm), near: k.slowNS}
		case !w.computes(p) && !computeLong(l) && ratio(p.States.Busy(), p.States.Samples) < loopBlocked:
			return judged{because: fmt.Sprintf("%s: but %s waits for events meanwhile, and does nothing else", l.whereTimeGoes(), p.Comm), near: k.slowNS}
		case full:
			return judged{because: fmt.Sprintf("%s: but the CPUs are full (%.2g of them idle), which makes every thread late", l.whereTimeGoes(), spare), near: k.slowNS}
		}
		return judged{finding: v.eventLoopFinding(l, &w, k, p, together, late)}
	})
}

// atOnce is how many of the slowest requests were under way at once in one
// process, at most, and which that is.
func atOnce(l *ledger) (most, pid int) {
	for i := range l.Slowest {
		a := &l.Slowest[i]
		n := 0
		for j := range l.Slowest {
			// Those that had begun when a did, and were not over.
			if b := &l.Slowest[j]; b.PID == a.PID && b.StartNS <= a.StartNS && a.StartNS < b.StartNS+b.TotalNS {
				n++
			}
		}
		if n > most {
			most, pid = n, a.PID
		}
	}
	if pid == 0 {
		pid = l.PID
	}
	return most, pid
}

// behindAnother counts those of the slowest requests that waited unread for most
// of their time, and came in while the same process had another one of them in
// hand. Where few requests are long, and each holds up many, the slowest are the
// long ones themselves, and of those that wait only the first has a place next to
// each.
func behindAnother(l *ledger, pid int) int {
	n := 0
	for i := range l.Slowest {
		a := &l.Slowest[i]
		if a.PID != pid || 2*a.Parts[observe.RecvWait.String()] < a.TotalNS {
			continue
		}
		if slices.ContainsFunc(l.Slowest, func(b observe.RequestSample) bool {
			return b.PID == pid && b.StartNS < a.StartNS && a.StartNS < b.StartNS+b.TotalNS && 2*b.Parts[observe.Server.String()] >= b.TotalNS
		}) {
			n++
		}
	}
	return n
}

// computeLong says that the slowest requests themselves compute for most of their
// time: the thread need not be at it all the time.
func computeLong(l *ledger) bool {
	return l.Split.SlowShareNS(observe.ServerCPU, l.SlowNS(observe.Server)) >= busyOnCPU*l.SlowTotalNS() && l.SlowTotalNS() > 0
}

// aloneAtWork says that one thread of a process does nearly all of its work.
func aloneAtWork(p *observe.Process) bool {
	if len(p.Busiest) == 0 {
		return p.Threads <= 1 || p.CPUSeconds() == 0
	}
	return p.Busiest[0].CPUSeconds >= loopAlone*p.CPUSeconds()
}

func (v *View) eventLoopFinding(l *ledger, w *atWork, k cost, p *observe.Process, together, late int) *Finding {
	f := v.found(l, k, threadFloor, "unread, while the event loop does something else")
	f.Subject.Kind, f.Subject.PID, f.Subject.Comm = "process", p.PID, p.Comm
	here := f.MayFollow
	f.MayFollow = func(o *Finding) bool { // in connect(2) the loop searches for a port: that is the long thing
		searches := o.Cause == EphemeralPortsExhausted || o.Cause == TimeWaitPortSearch
		return here(o) || searches && v.Master(o.Subject.PID) == v.Master(p.PID)
	}
	f.Evidence = append(f.Evidence, Evidence{Fact: "of the slowest requests, under way in one process at once", Value: together, Limit: len(l.Slowest), Unit: "requests", Source: recorded})
	if late > 0 {
		f.Evidence = append(f.Evidence, Evidence{Fact: "of the slowest requests, came in while it had another one of them in hand", Value: late, Limit: len(l.Slowest), Unit: "requests", Source: recorded})
	}
	if t := w.busiestOf(p); t != nil {
		f.Evidence = append(f.Evidence, Evidence{Fact: t.String() + " is on a CPU, while the slowest requests are under way", Value: round(t.cpu), Limit: 1, Unit: "share of the time", Source: "/proc/PID/task/TID/schedstat"})
	}
	if w.computes(p) || computeLong(l) {
		f.Evidence = append(f.Evidence, v.executedEvidence([]*observe.Process{p}, 0)...)
		f.Fix.Text = "Something computes in the event loop for long: move it to a worker thread or process, or cut it into pieces. " + oneThreadFix(p)
		f.Fix.Commands = []shell.Command{shell.Line("slowray flame --pid %s -o flame.html   # what it computes", p.PID)}
		return f
	}
	if s := p.States; s.Busy() > 0 {
		f.Evidence = append(f.Evidence, Evidence{Fact: "its threads were seen blocked: on a disk, in another call", Value: fmt.Sprintf("%s, %s", count(s.Disk), count(s.Waiting)), Limit: s.Samples, Unit: "looks at a thread", Source: "/proc/PID/task/TID/syscall"})
	}
	f.Fix.Text = "The event loop makes a call that blocks (a file, a lock, a synchronous client): make that asynchronous, or move it to a thread pool."
	f.Fix.Commands = []shell.Command{lookAtWaits(p.PID)}
	return f
}
