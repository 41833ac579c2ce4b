package cause

import (
	"fmt"

	"github.com/slowray/slowray/internal/observe"
)

// KeepaliveRace: the called side closes connections that were idle for its time
// limit, and the service sends a request on one of them before it notices: it
// gets a reset instead of an answer.
const KeepaliveRace ID = "keepalive-race"

var keepaliveRace = Cause{
	ID:    KeepaliveRace,
	Title: "Keep-alive race: the upstream closes idle connections",
	Layer: LayerCall,
	Needs: []observe.Kind{observe.KindRequests},
	// An upstream that dies, or has no room, closes connections too.
	ConsequenceOf: []Parent{FDLimit, NginxWorkerConnections, ProcessStopped, MemoryPressure, ClassKill},
	Folds:         true,
	Check:         checkKeepaliveRace,
}

func checkKeepaliveRace(v *View) Result {
	return v.judgeLedgers(fewRequests, func(l *ledger) judged {
		if !l.called() || l.client {
			return judged{because: "no call of a service was recorded", near: -1}
		}
		late, looked := 0, 0
		for i := range l.Failed {
			s := &l.Failed[i]
			if !hasFlag(s, observe.FlagUnanswered) {
				continue
			}
			looked++
			if s.Seq > 1 && float64(s.TotalNS) <= 2*float64(l.RTT.Quantile(0.5))+raceAllowed {
				late++
			}
		}
		because := fmt.Sprintf("%s of %s had no answer, %d of %d looked at on a kept connection", count(l.Unanswered), l.all(), late, looked)
		h, ok := v.harmed(l.pid, l.Unanswered)
		if !ok || h.slow || l.Unanswered < fewAffected || ratio(l.Unanswered, l.Requests) > raceMost || late < fewAffected || ratio(late, looked) < raceShare {
			return judged{because: because, near: ratio(l.Unanswered, l.Requests)}
		}
		f := v.found(l, cost{}, wireFloor, "")
		f.Weight = h.share
		f.Impact = h.impact(because + "; ")
		f.Evidence = []Evidence{
			{Fact: "calls without an answer", Value: l.Unanswered, Limit: l.Requests, Unit: "calls", Source: recorded},
			{Fact: "of them on a connection that had carried others, and over at once", Value: late, Limit: looked, Unit: "of those looked at", Source: recorded},
			{Fact: "connections opened", Value: l.Connections, Unit: "connections", Source: "TCP sockets"},
		}
		f.Fix.Text = fmt.Sprintf("In %s: close idle connections to %s sooner than that does (its keepalive timeout, less a second), or send again what may be sent twice.", f.Subject.Comm, destinationName(l))
		if l.here != nil {
			f.Fix.Text += " Or give the other end, which is on this host, a longer keepalive timeout."
		}
		return judged{finding: f}
	})
}
