package cause

import (
	"fmt"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// ConnectionChurn: a service makes a new connection for nearly each call, and
// the handshakes, a round trip each, take a good part of the time of its
// requests. On the loopback device that is microseconds, and no finding.
const ConnectionChurn ID = "connection-churn"

var connectionChurn = Cause{
	ID:     ConnectionChurn,
	Title:  "Calls open a new connection each",
	Layer:  LayerCall,
	Needs:  []observe.Kind{observe.KindRequests},
	OnWire: true,
	// Slow handshakes are somebody else's doing.
	ConsequenceOf: []Parent{SYNRetransmits, AcceptQueueOverflow, ConntrackFull, SoftirqSaturated, NetworkLoss, LongRuleList},
	Folds:         true,
	Check:         checkConnectionChurn,
}

func checkConnectionChurn(v *View) Result {
	return v.judgeLedgers(fewRequests, func(l *ledger) judged {
		fresh := ratio(l.Connections, l.Requests)
		if !l.called() {
			return judged{because: fmt.Sprintf("%s connections for %s", count(l.Connections), l.all()), near: -1}
		}
		each := float64(max(l.Handshake, 0)) / float64(max(l.Connections, 1))
		busy, requests := v.answered(l.pid)
		taken := each * float64(l.Connections)
		share := ratio(taken, busy)
		perRequest := taken / float64(max(requests, 1))
		text := fmt.Sprintf("%s connections for %s, a handshake takes %s: %s of the time in which %s answers requests",
			count(l.Connections), l.all(), nanoseconds(each), percent(share), v.commOf(l))
		rtt := float64(l.RTT.Quantile(0.5))
		if l.client || requests < fewRequests || fresh < churnShare || share < handshakeShare || perRequest < wireFloor.mean || each > handshakeLong*max(rtt, 1e6) {
			return judged{because: text, near: share * fresh}
		}
		f := v.found(l, cost{share: share, slowShare: share, ns: perRequest, slowNS: perRequest}, wireFloor, "for handshakes")
		f.Weight = share
		f.Impact = Impact{Share: round(share), Of: "the time in which " + f.Subject.Comm + " answers requests", OfTime: true, Text: text}
		f.Evidence = []Evidence{
			{Fact: "connections opened", Value: l.Connections, Limit: l.Requests, Unit: "connections, for calls", Source: "TCP sockets"},
			{Fact: "handshake, mean", Value: round(each / 1e6), Unit: "ms", Source: "TCP sockets"},
			{Fact: "round trip, median", Value: round(rtt / 1e6), Unit: "ms", Source: "TCP sockets"},
			{Fact: "in handshakes for a request, mean", Value: round(perRequest / 1e6), Unit: "ms", Source: "TCP sockets"},
		}
		f.Fix.Text = fmt.Sprintf("Let %s keep its connections to %s open (keepalive, a pool): each call then saves a round trip of %s.", f.Subject.Comm, destinationName(l), nanoseconds(rtt))
		if n := v.nginxByPID(l.pid); n != nil {
			for _, u := range n.Upstreams {
				if u.Keepalive.Value == "0" && containsPort(u.Servers, l.Port) {
					f.Subject.Path = fmt.Sprintf("%s:%d", n.Root+u.File, u.Line)
					f.Fix.Persist = []shell.Command{shell.Line("# in %s:%s: keepalive 64, with proxy_http_version 1.1 and an empty Connection header", n.Root+u.File, u.Line)}
					break
				}
			}
		}
		return judged{finding: f}
	})
}
