package cause

import (
	"fmt"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// SYNRetransmits: the first segment of a connection got no answer and was sent
// again after a second, then three, then seven (TCP_TIMEOUT_INIT,
// include/net/tcp.h). Only who connects can see it: an end that is called from
// this host. SYN-ACKs that were retransmitted on the served side are no finding:
// scanners and floods leave them too.
const SYNRetransmits ID = "syn-retransmits"

var synRetransmits = Cause{
	ID:    SYNRetransmits,
	Title: "SYNs are lost or not answered",
	Layer: LayerPath,
	Needs: []observe.Kind{observe.KindRequests},
	ConsequenceOf: []Parent{ConntrackFull, AcceptQueueOverflow, SoftirqSaturated, PHPFPMChildrenExhausted, NetworkLoss, SYNFlood,
		SYNQueueOverflow, ClassDrop},
	Folds: true,
	Check: checkSynRetransmits,
}

func checkSynRetransmits(v *View) Result {
	return v.judgeLedgers(0, func(l *ledger) judged {
		if !l.called() {
			because := fmt.Sprintf("%s SYN-ACKs were retransmitted on %s, %s connections opened", count(l.SynRetrans), l.name(), count(l.Connections))
			return judged{because: because, near: -1}
		}
		share := ratio(l.SynRetrans, l.SynRetrans+l.Connections)
		text := fmt.Sprintf("%s SYNs of %s were retransmitted, %s connections opened, the longest handshake took %s",
			count(l.SynRetrans), l.name(), count(l.Connections), nanoseconds(float64(max(l.HandshakeMax, 0))))
		reach := v.handshakeReach(l)
		if l.SynRetrans < fewAffected || share < noiseShare || reach < fewReach {
			return judged{because: text, near: share}
		}
		mean := ratio(max(l.Handshake, 0), max(l.Connections, 1)*1e9) * 1e3
		f := v.found(l, cost{}, wireFloor, "")
		_, known := v.droppedHere(l)
		f.MayFollow = v.followsDrops(l, known, f.MayFollow)
		f.Weight = share * reach
		f.lostAttempts(l.SynRetrans)
		f.Impact = Impact{Share: round(share), Of: "new connections", Text: text}
		f.Evidence = []Evidence{
			{Fact: "SYNs retransmitted", Value: l.SynRetrans, Unit: "segments", Source: "TCP sockets"},
			{Fact: "connections opened", Value: l.Connections, Unit: "connections", Source: "TCP sockets"},
			{Fact: "handshake, mean", Value: round(mean), Unit: "ms", Source: "TCP sockets"},
			{Fact: "handshake, longest", Value: round(float64(max(l.HandshakeMax, 0)) / 1e6), Unit: "ms", Source: "TCP sockets"},
		}
		f.Fix.Text = "Find what drops the SYNs: a full accept queue or a firewall at the other end, loss between; and keep connections open, so that fewer are made."
		f.Fix.Commands = []shell.Command{v.in(l.ns, shell.Line("ss -tn state syn-sent dport = :%s", l.Port)), v.in(l.ns, shell.Line("nft list ruleset"))}
		return judged{finding: f}
	})
}

// handshakeReach is the share of the requests that people wait for which the
// handshakes of l delay. A service that only tries in the background to reach
// something answers its own requests in less than one handshake takes.
func (v *View) handshakeReach(l *ledger) float64 {
	if l.client {
		return 1
	}
	var slow, all uint64
	for _, s := range v.servedOf[l.pid] {
		slow += s.Total.Above(synWait)
		all += s.Total.Count()
	}
	if slow < fewAffected {
		return 0
	}
	return max(ratio(slow, all), fewReach)
}
