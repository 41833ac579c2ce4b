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
	Title: "Requests are sent on kept connections that the other end has just closed, and fail",
	Layer: LayerCall,
	Needs: []observe.Kind{observe.KindRequests},
	// An upstream that dies, or has no room, closes connections too.
	ConsequenceOf: []Parent{FDLimit, NginxWorkerConnections, ProcessStopped, MemoryPressure, ClassKill},
	Folds:         true,
	Check:         checkKeepaliveRace,
	Doc: Doc{
		About: "A server closes connections that are idle for longer than its time limit. A client that keeps them for longer sends its next " +
			"request into a closed connection, gets a reset, and has to tell an error where it may not send again.",
		See: []Symptom{SeeErrors, SeeCalls, SeeLogs},
		Known: []string{
			"At least three calls ended without an answer; nine of ten of those looked at were on connections that had carried others before, and ended within two round trips and 20 ms.",
			"Fewer than three of ten calls are hit, and requests of the service fail.",
		},
		Not: []string{
			"An upstream that closes connections while it works on a request, or on the first one.",
			"Calls without an answer that the service makes again without an error.",
		},
		Mend:      "Let the client close idle connections sooner than the server does, or send again what is safe to send twice.",
		Unplanted: "Its time limits have to meet within a round trip: it does not happen each time.",
	},
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
