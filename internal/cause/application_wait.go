package cause

import (
	"fmt"

	"github.com/slowray/slowray/internal/observe"
)

// machineCauses make every thread of a service late, and are told first.
var machineCauses = []string{"cpu-quota-throttled", "cpu-saturated", "softirq-saturated", "memory-pressure", "disk-saturated"}

// acceptQueueWait: connections are complete and wait for accept(). The queue
// need not overflow for that: every connection pays for its length.
var acceptQueueWait = Cause{
	ID:    "accept-queue-wait",
	Title: "New connections wait in the accept queue: the application takes them up late",
	Layer: LayerApplication,
	Needs: []observe.Kind{observe.KindRequests},
	ConsequenceOf: append([]string{"php-fpm-children-exhausted", "fd-limit", "accept-queue-overflow", "nginx-worker-connections", "slow-dependency",
		"application-stall-mid-response", "slow-receiver"}, machineCauses...),
	Folds: true,
}

func init() { acceptQueueWait.Check = checkAcceptQueueWait }

func checkAcceptQueueWait(v *View) Result {
	return v.judgeLedgers(fewRequests, func(l *ledger) judged {
		return v.threadWait(&acceptQueueWait, l, observe.AcceptWait, "waiting for accept()", func(f *Finding) {
			if s := v.ServiceAt(l.NetNS, l.Port, ""); s != nil {
				for _, ls := range s.Listeners {
					f.Evidence = append(f.Evidence, Evidence{Fact: "connections in the accept queue, peak", Value: ls.QueuePeak, Limit: ls.Limit, Unit: "connections", Source: "sock_diag, Recv-Q and Send-Q"})
				}
			}
			f.Fix.Text = fmt.Sprintf("%s takes up connections late: %s A longer queue would only let them wait longer.", f.Subject.Comm, v.whyLate(l, f))
		})
	})
}

// applicationSlowToRead: the request is complete in the socket, and the
// application does not read it: its event loop or its workers are held up by
// something else.
var applicationSlowToRead = Cause{
	ID:    "application-slow-to-read",
	Title: "Requests wait in the socket: the application reads them late",
	Layer: LayerApplication,
	Needs: []observe.Kind{observe.KindRequests},
	ConsequenceOf: append([]string{"php-fpm-children-exhausted", "slow-dependency", "application-stall-mid-response", "slow-receiver",
		"send-buffer-limited", "time-wait-port-search"}, machineCauses...),
	Folds: true,
}

func init() { applicationSlowToRead.Check = checkSlowToRead }

func checkSlowToRead(v *View) Result {
	return v.judgeLedgers(fewRequests, func(l *ledger) judged {
		return v.threadWait(&applicationSlowToRead, l, observe.RecvWait, "waiting to be read", func(f *Finding) {
			f.Fix.Text = fmt.Sprintf("%s reads requests late: %s", f.Subject.Comm, v.whyLate(l, f))
		})
	})
}

// applicationStall: the answer has begun, everything sent is acknowledged, and
// the application sends no more for a while. Packet captures take this for
// network time; it is the application's.
var applicationStall = Cause{
	ID:            "application-stall-mid-response",
	Title:         "The application pauses in the middle of an answer",
	Layer:         LayerApplication,
	Needs:         []observe.Kind{observe.KindRequests},
	ConsequenceOf: append([]string{"slow-dependency", "php-fpm-children-exhausted"}, machineCauses...),
	Folds:         true,
}

func init() { applicationStall.Check = checkStall }

func checkStall(v *View) Result {
	return v.judgeLedgers(fewRequests, func(l *ledger) judged {
		if open, of := streams(l); 2*open > of {
			return judged{because: fmt.Sprintf("%s of the slowest answers on %s with pauses are not finished: streams, which send when they have something", count(open), l.name()),
				near: l.Share(observe.Stall)}
		}
		return v.threadWait(&applicationStall, l, observe.Stall, "between parts of the answer, with nothing on its way", func(f *Finding) {
			f.Fix.Text = fmt.Sprintf("%s sends a part of the answer and then works or waits before the next: find what it does in between (%s). The network is not at fault.",
				f.Subject.Comm, "cat /proc/"+itoa(l.pid)+"/stack, its own log")
		})
	})
}

// streams counts, among the slowest answers that pauses took most of, those
// that are still open.
func streams(l *ledger) (open, of int) {
	for i := range l.Slowest {
		if s := &l.Slowest[i]; greatest(s, observe.Stall) {
			of++
			if hasFlag(s, observe.FlagUnfinished) {
				open++
			}
		}
	}
	return open, of
}

// threadWait judges a part of the ledger in which a request waits for a thread
// of the application. On CPUs that have nothing to spare every thread is late
// and this says nothing about the application.
func (v *View) threadWait(c *Cause, l *ledger, p observe.Part, what string, describe func(*Finding)) judged {
	k := l.cost(1, p)
	stats := l.Parts[p.String()]
	switch idle, full := v.cpuFull(l); {
	case l.called():
		return judged{because: "no request is answered here", near: -1}
	case !l.noticed(k, threadFloor) || !l.enough(stats.Hist.Above(int64(threadFloor.mean))):
		return judged{because: l.whereTimeGoes(), near: k.slowNS}
	case full:
		return judged{because: fmt.Sprintf("%s: but the CPUs are full (%s idle), which makes every thread late", l.whereTimeGoes(), percent(idle)), near: k.slowNS}
	}
	f := v.found(c, l, k, threadFloor, what)
	here := v.at(l)
	f.MayFollow = func(p *Finding) bool {
		if p.Cause == slowDependency.ID {
			return p.Subject.PID == l.pid // it waits for what it calls itself
		}
		return here(p)
	}
	describe(f)
	if len(f.Fix.Commands) == 0 {
		f.Fix.Commands = []string{fmt.Sprintf("cat /proc/%d/stack /proc/%d/syscall", l.pid, l.pid)}
	}
	return judged{finding: f}
}

// aloneOnCPU is the use of a CPU from which on a single process is taken to be
// out of it.
const aloneOnCPU = 0.85

// whyLate says what the process was doing instead, as far as can be told.
func (v *View) whyLate(l *ledger, f *Finding) string {
	busiest, most := 0, -1.0
	workers := 0
	for _, pid := range append([]int{l.PID}, l.PIDs...) {
		p := v.Process(pid)
		if p == nil {
			continue
		}
		workers++
		if used := ratio(p.CPUSeconds(), v.Window.Seconds); used > most {
			busiest, most = pid, used
		}
	}
	if busiest == 0 {
		return "find what its threads wait for."
	}
	idle, _ := v.cpuFull(l)
	f.Evidence = append(f.Evidence,
		Evidence{Fact: fmt.Sprintf("CPU of its busiest process (pid %d)", busiest), Value: round(most), Unit: "CPUs", Source: "/proc/PID/stat"},
		Evidence{Fact: "CPU idle", Value: round(idle), Unit: "share", Source: "/proc/stat"})
	if most >= aloneOnCPU {
		return fmt.Sprintf("pid %d computes all the time while %s of the CPUs is idle: give it more workers or threads, or make a request cheaper.", busiest, percent(idle))
	}
	if workers == 1 || len(l.PIDs) <= 1 {
		return "it is one process that mostly waits for something else meanwhile: find what for, or give it more workers."
	}
	return "its workers mostly wait for something else meanwhile: find what for, or give it more of them."
}
