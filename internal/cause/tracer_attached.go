package cause

import (
	"fmt"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// TracerAttached: a process that answers is traced with ptrace(2), as by
// strace(1): it is stopped at each system call, or signal, until the tracer has
// looked. One that is held for good is process-stopped.
const TracerAttached ID = "tracer-attached"

var tracerAttached = Cause{
	ID:    TracerAttached,
	Title: "A tracer (strace) stops the service at system calls",
	Layer: LayerApplication,
	Class: ClassHost,
	Needs: []observe.Kind{observe.KindRequests, observe.KindProcess},
	Check: checkTracer,
}

func checkTracer(v *View) Result {
	return v.judgeLedgers(fewRequests, func(l *ledger) judged {
		if l.called() {
			return judged{because: "no request is answered here", near: -1}
		}
		var traced *observe.Process
		var stopped, busy int
		for _, p := range v.workers(l) {
			if p.States == nil {
				continue
			}
			stopped += p.States.Stopped
			busy += p.States.Busy()
			if p.TracerPID != 0 && (traced == nil || traced.States.Stopped < p.States.Stopped) {
				traced = p
			}
		}
		if traced == nil {
			return judged{because: "no process that answers was seen stopped by a tracer", near: -1}
		}
		share := ratio(stopped, busy)
		tracer := fmt.Sprintf("%s (pid %d)", v.Comm(traced.TracerPID), traced.TracerPID)
		because := fmt.Sprintf("%s traces %s (pid %d), whose threads were stopped in %s of %s looks at them at work", tracer, traced.Comm, traced.PID, percent(share), count(busy))
		k := l.cost(1, threadParts...)
		switch {
		case share < tracedLeast || busy < fewRequests:
			return judged{because: because, near: share}
		case !l.noticed(k, threadFloor):
			return judged{because: because + ", and the requests do not suffer: " + l.whereTimeGoes(), near: share}
		}
		f := v.found(l, k, threadFloor, "for threads that a tracer stops again and again")
		f.Subject.Kind, f.Subject.PID, f.Subject.Comm = "process", traced.PID, traced.Comm
		f.Title = fmt.Sprintf("%s traces every system call of %s", v.Comm(traced.TracerPID), traced.Comm)
		f.Evidence = append(f.Evidence,
			Evidence{Fact: "its tracer", Value: tracer, Source: "/proc/PID/status, TracerPid"},
			Evidence{Fact: "threads at work that were stopped by it", Value: stopped, Limit: busy, Unit: "looks at a thread", Source: "/proc/PID/task/TID/stat"})
		if p := v.Process(traced.TracerPID); p != nil && p.Cmdline != "" {
			f.Evidence = append(f.Evidence, Evidence{Fact: "what it is", Value: p.Cmdline, Source: "/proc/PID/cmdline"})
		}
		f.Fix.Text = "Find out who started the tracer and end it (the service goes on), or have it follow fewer calls."
		f.Fix.Commands = []shell.Command{shell.Line("ps -o pid,user,lstart,args -p %s", traced.TracerPID), shell.Line("kill %s", traced.TracerPID)}
		return judged{finding: f}
	})
}
