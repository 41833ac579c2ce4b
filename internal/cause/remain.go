package cause

import (
	"slices"

	"github.com/slowray/slowray/internal/observe"
)

// remain says that an endpoint is what remains of a service, or of a caller, that ended
// before the window: all its requests came in before, also those whose answer was sent and
// never acknowledged, and the processes are gone. Their sockets live on without them, and try in vain until a timer
// or the end of their network namespace ends them: nobody waits for these requests.
func (v *View) remain(l *ledger) bool {
	start := v.Window.Start.UnixNano()
	if v.Capture != nil || v.Window.Start.IsZero() || l.Requests == 0 || l.waiting() > 0 || len(l.Slowest) == 0 || v.unread(observe.KindProcess) || v.listening[end{l.NetNS, l.Port, ""}] {
		return false
	}
	for _, pid := range append([]int{l.PID}, l.PIDs...) {
		if pid == 0 || v.procs[pid] != nil {
			return false
		}
	}
	later := func(s observe.RequestSample) bool { return s.StartNS >= start }
	return !slices.ContainsFunc(l.Arrivals, func(n uint32) bool { return n > 0 }) && !slices.ContainsFunc(l.Slowest, later) && !slices.ContainsFunc(l.Failed, later)
}
