package cause

import (
	"fmt"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// CloseWaitLeak: the other end has closed a connection and the service never
// closes its own end: the socket stays in CLOSE_WAIT, and its descriptor open,
// for as long as the process lives. By themselves such sockets harm nobody. It
// is a finding where they use up the descriptors that the service may have.
const CloseWaitLeak ID = "close-wait-leak"

var closeWaitLeak = Cause{
	ID:    CloseWaitLeak,
	Title: "CLOSE_WAIT leak: the service never closes connections",
	Layer: LayerApplication,
	Needs: []observe.Kind{observe.KindSockets, observe.KindProcess, observe.KindConnects},
	// A service that stands still closes nothing either.
	ConsequenceOf: []Parent{ClassWait},
	Folds:         true,
	Check:         checkCloseWait,
}

// closeWaits is the sockets in CLOSE_WAIT that a service has accepted: those that
// wait in the accept queue, whose clients gave up, have no descriptor.
func (v *View) closeWaits(s *Service) (n int) {
	for _, g := range v.servedSockets(s.NS, s.Port()) {
		n += g.States["CLOSE_WAIT"]
	}
	for _, l := range s.Listeners {
		n -= int(l.QueuePeak)
	}
	return max(n, 0)
}

func checkCloseWait(v *View) Result {
	r := ruledOut("no connection waits to be closed by a service")
	most := 0
	for _, s := range v.Services {
		n := v.closeWaits(s)
		if s.Port() == 0 || n == 0 {
			continue
		}
		p, failed := v.outOfFiles(s)
		if p != nil {
			n = min(n, p.FDs)
		}
		if p == nil || ratio(n, p.FDs) < leakShare {
			if n > most {
				most = n
				r.RuledOut = fmt.Sprintf("%s connections of %s wait for it to close them (CLOSE_WAIT), and it has descriptors left", count(n), s.Name())
				if p != nil {
					r.RuledOut = fmt.Sprintf("%s connections of %s wait for it to close them (CLOSE_WAIT), of %s open files", count(n), s.Name(), count(p.FDs))
				}
			}
			continue
		}
		f := supported(Subject{Kind: "process", NetNS: s.NS.Inode, PID: p.PID, Comm: p.Comm, Port: s.Port()})
		var accepted uint64
		for _, a := range s.accepts {
			if a.PID == p.PID {
				accepted += a.Accepted
			}
		}
		f.Weight, f.uncounted = ratio(failed, failed+accepted), true
		f.Impact = Impact{Share: round(f.Weight), Of: "accept() calls",
			Text: fmt.Sprintf("%s of the %s open files of %s are connections that their clients have closed, and %s accept() calls failed because file descriptors ran out", count(n), count(p.FDs), p.Comm, count(failed))}
		f.Evidence = []Evidence{
			{Fact: "connections in CLOSE_WAIT", Value: n, Limit: p.FDs, Unit: "sockets, of open files", Source: "TCP sockets"},
			{Fact: "open files, peak", Value: p.FDs, Limit: p.FDLimit, Unit: "files", Source: "/proc/PID/fd, /proc/PID/limits"},
			{Fact: "accept() failed with EMFILE", Value: failed, Unit: "calls", Source: "accept() results"},
		}
		f.Fix.Text = fmt.Sprintf("Fix %s: it has to close() a connection when read() returns 0. Until then restart it; a higher limit of open files only puts it off.", p.Comm)
		f.Fix.Commands = []shell.Command{v.in(s.NS, shell.Line("ss -tnp state close-wait sport = :%s", s.Port()))}
		r.Findings = append(r.Findings, f)
	}
	return r
}

// outOfFiles is the process of a service for which accept() failed most often
// because file descriptors ran out; nil when it did for none.
func (v *View) outOfFiles(s *Service) (worst *observe.Process, failed uint64) {
	for _, a := range s.accepts {
		p := v.Process(a.PID)
		if n := a.Errors["EMFILE"]; n > failed && p != nil && v.ServiceOf(a.PID) == s {
			worst, failed = p, n
		}
	}
	return worst, failed
}
