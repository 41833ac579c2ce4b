package cause

import (
	"fmt"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// AcceptQueueWait: connections are complete and wait for accept(). The queue
// need not overflow for that: every connection pays for its length.
const AcceptQueueWait ID = "accept-queue-wait"

var acceptQueueWait = Cause{
	ID:    AcceptQueueWait,
	Title: "New connections wait in the accept queue",
	Layer: LayerApplication,
	Needs: []observe.Kind{observe.KindRequests},
	ConsequenceOf: []Parent{PHPFPMChildrenExhausted, FDLimit, AcceptQueueOverflow, NginxWorkerConnections, SlowDependency,
		ApplicationStallMidResponse, SlowReceiver, ClassLate},
	Folds: true,
	Check: checkAcceptQueueWait,
}

func checkAcceptQueueWait(v *View) Result {
	return v.judgeLedgers(fewRequests, func(l *ledger) judged {
		return v.threadWait(l, observe.AcceptWait, "waiting for accept()", func(f *Finding) {
			if s := v.ServiceAt(l.NetNS, l.Port, ""); s != nil {
				for _, ls := range s.Listeners {
					f.Evidence = append(f.Evidence, Evidence{Fact: "connections in the accept queue, peak", Value: ls.QueuePeak, Limit: ls.Limit, Unit: "connections", Source: "sock_diag, Recv-Q and Send-Q"})
				}
			}
			f.Fix.Text = fmt.Sprintf("%s accepts connections late: %s A longer queue would only let them wait longer.", f.Subject.Comm, v.whyLate(l, f))
		})
	})
}

// ApplicationSlowToRead: the request is complete in the socket, and the
// application does not read it: its event loop or its workers are held up by
// something else.
const ApplicationSlowToRead ID = "application-slow-to-read"

var applicationSlowToRead = Cause{
	ID:    ApplicationSlowToRead,
	Title: "The application reads requests late",
	Layer: LayerApplication,
	Needs: []observe.Kind{observe.KindRequests},
	ConsequenceOf: []Parent{PHPFPMChildrenExhausted, NginxWorkerConnections, FDLimit, AcceptQueueOverflow, AcceptQueueWait, SlowDependency,
		ApplicationStallMidResponse, SlowReceiver, SendBufferLimited, TimeWaitPortSearch, ClassLate},
	Folds: true,
	Check: checkSlowToRead,
}

func checkSlowToRead(v *View) Result {
	r := v.judgeLedgers(fewRequests, func(l *ledger) judged {
		if f := v.unreadFinding(l); f != nil {
			return judged{finding: f}
		}
		return v.threadWait(l, observe.RecvWait, "waiting to be read", func(f *Finding) {
			f.Fix.Text = fmt.Sprintf("%s reads requests late: %s", f.Subject.Comm, v.whyLate(l, f))
		})
	})
	// A service that stands still has no request to its name that is over.
	for _, l := range v.ledgers {
		if l.Requests >= fewRequests {
			continue
		}
		if f := v.unreadFinding(l); f != nil {
			r.Findings = append(r.Findings, *f)
		}
	}
	return r
}

// unreadFinding is for requests that nobody had read by the end of the window;
// nil when there are none to speak of.
func (v *View) unreadFinding(l *ledger) *Finding {
	unread, longest, limit := 0, int64(0), int64(unreadTime)
	if _, full := v.cpuFull(l); full {
		limit = unreadBusy
	}
	for i := range l.Slowest {
		s := &l.Slowest[i]
		if ns := s.Parts[observe.RecvWait.String()]; hasFlag(s, observe.FlagUnfinished) && ns >= limit && greatest(s, observe.RecvWait) {
			unread++
			longest = max(longest, ns)
		}
	}
	all := l.Requests + l.Unfinished
	share := ratio(unread, all)
	if l.called() || unread < fewAffected || share < noiseShare {
		return nil
	}
	f := supported(Subject{Kind: "listener", NetNS: l.NetNS, PID: l.pid, Comm: v.commOf(l), Port: l.Port, Addr: l.Addr})
	f.Title = "The application does not read its requests"
	f.Weight = share
	f.MayFollow = v.at(l)
	f.Impact = Impact{Share: round(share), Of: "the requests",
		Text: fmt.Sprintf("at least %s requests on %s waited to be read when the window ended, the first for %s", count(unread), l.name(), nanoseconds(float64(longest)))}
	f.Evidence = []Evidence{
		{Fact: "requests that nobody has read for over " + nanoseconds(float64(limit)) + ", at least", Value: unread, Limit: all, Unit: "requests", Source: recorded},
		{Fact: "the longest", Value: round(float64(longest) / 1e9), Unit: "s", Source: recorded},
		{Fact: "requests that were answered", Value: l.Requests, Unit: "requests", Source: recorded},
	}
	state := ""
	for _, pid := range append([]int{l.pid}, l.PIDs...) {
		if p := v.Process(pid); p != nil && (state == "" || p.State == "T" || p.State == "t") {
			state = p.State
			f.Subject.PID, f.Subject.Comm = pid, p.Comm
		}
	}
	f.Evidence = append(f.Evidence, Evidence{Fact: "state of the process", Value: state, Source: "/proc/PID/stat"})
	if state == "T" || state == "t" {
		f.Fix.Text = fmt.Sprintf("Process %d (%s) is stopped: let it run again.", f.Subject.PID, f.Subject.Comm)
		f.Fix.Commands = []shell.Command{shell.Line("kill -CONT %s", f.Subject.PID)}
		return &f
	}
	f.Fix.Text = fmt.Sprintf("%s has workers that are all held up, or an event loop that is: find what its threads wait for.", f.Subject.Comm)
	f.Fix.Commands = []shell.Command{lookAtWaits(f.Subject.PID)}
	return &f
}

// ApplicationStallMidResponse: the answer has begun, everything sent is acknowledged, and
// the application sends no more for a while. Packet captures take this for
// network time; it is the application's.
const ApplicationStallMidResponse ID = "application-stall-mid-response"

var applicationStall = Cause{
	ID:            ApplicationStallMidResponse,
	Title:         "The application pauses in mid-response",
	Layer:         LayerApplication,
	Needs:         []observe.Kind{observe.KindRequests},
	OnWire:        true,
	ConsequenceOf: []Parent{SlowDependency, PHPFPMChildrenExhausted, ClassLate},
	Folds:         true,
	Check:         checkStall,
}

func checkStall(v *View) Result {
	return v.judgeLedgers(fewRequests, func(l *ledger) judged {
		if open, of := streams(l); 2*open > of {
			return judged{because: fmt.Sprintf("%s of the slowest answers on %s with pauses are not finished: streams, which send when they have something", count(open), l.name()),
				near: l.Share(observe.Stall)}
		}
		return v.threadWait(l, observe.Stall, "between parts of the answer, with nothing on its way", func(f *Finding) {
			f.Fix.Text = fmt.Sprintf("%s sends a part of the answer and then works or waits before the next: find what it does in between (%s). The network is not at fault.",
				f.Subject.Comm, "slowray wait "+itoa(l.pid)+", its own log")
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
// of the application. Threads that are late because the CPUs have nothing to
// spare say nothing about the application.
func (v *View) threadWait(l *ledger, p observe.Part, what string, describe func(*Finding)) judged {
	k := l.cost(1, p)
	stats := l.Parts[p.String()]
	idle, full := v.cpuFull(l)
	late := v.lacksCPU(l, k.share)
	if p == observe.Stall { // it was on its way already: nothing but its own threads are in question
		idle, late = v.late(l, k.share)
	}
	switch {
	case l.called():
		return judged{because: "no request is answered here", near: -1}
	case !l.noticed(k, threadFloor) || !l.enough(stats.Hist.Above(int64(threadFloor.mean))):
		return judged{because: l.whereTimeGoes(), near: k.slowNS}
	case late:
		return judged{because: fmt.Sprintf("%s: but the CPUs are full (%s idle), which makes every thread late", l.whereTimeGoes(), percent(idle)), near: k.slowNS}
	}
	f := v.found(l, k, threadFloor, what)
	here := v.at(l)
	f.MayFollow = func(p *Finding) bool {
		if p.Cause == SlowDependency {
			return p.Subject.PID == l.pid // it waits for what it calls itself
		}
		return here(p) && !(full && p.Cause == CPUSaturated) // its threads do without the CPUs
	}
	describe(f)
	if len(f.Fix.Commands) == 0 {
		f.Fix.Commands = []shell.Command{lookAtWaits(l.pid)}
	}
	return judged{finding: f}
}

// whyLate says what the process was doing instead, as far as can be known.
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
