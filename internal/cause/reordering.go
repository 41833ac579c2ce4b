package cause

import (
	"fmt"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// Reordering: segments overtake each other on the way, are taken for lost and
// are retransmitted for nothing: the receiver says so, with duplicate SACKs (RFC
// 2883). The sender slows down as after a loss.
const Reordering ID = "reordering"

var reordering = Cause{
	ID:    Reordering,
	Title: "The network reorders packets",
	Layer: LayerPath,
	Needs: []observe.Kind{observe.KindRequests, observe.KindCounters},
	Check: checkReordering,
}

func checkReordering(v *View) Result {
	return v.judgeLedgers(fewRequests, func(l *ledger) judged {
		if l.ns == nil {
			return judged{because: "the counters of its namespace are not known", near: -1}
		}
		twice := l.ns.Counters["TcpExt.TCPDSACKRecv"] + l.ns.Counters["TcpExt.TCPDSACKOfoRecv"]
		seen := l.ns.Counters["TcpExt.TCPSACKReorder"] + l.ns.Counters["TcpExt.TCPTSReorder"] + l.ns.Counters["TcpExt.TCPRenoReorder"]
		// One that was retransmitted before the window may count as having come twice in it.
		again := max(l.ns.Counters["Tcp.RetransSegs"], twice)
		k := l.cost(1, observe.Retrans, observe.Network)
		because := fmt.Sprintf("%s of %s segments that were retransmitted%s had arrived already, reordering was seen %s times", count(twice), count(again), where(l.ns), count(seen))
		if l.Retrans < fewPackets || l.LossPermille() < lossPermille || ratio(twice, again) < spuriousShare || seen < fewPackets || !l.noticed(k, wireFloor) || l.reach < fewReach {
			return judged{because: because, near: ratio(twice, again)}
		}
		f := v.found(l, k, wireFloor, "on the network")
		f.Evidence = append(f.Evidence,
			Evidence{Fact: "segments retransmitted", Value: l.Retrans, Limit: l.Segments, Unit: "segments", Source: "TCP sockets"},
			Evidence{Fact: "segments that the other end got twice", Value: twice, Limit: again, Unit: "segments, of those retransmitted", Source: "/proc/net/netstat TCPDSACKRecv" + where(l.ns)},
			Evidence{Fact: "times that reordering was seen", Value: seen, Source: "/proc/net/netstat TCPSACKReorder, TCPTSReorder"})
		f.Fix.Text = "Find what sends packets of one connection along several ways: a bond in balance-rr mode, per-packet load balancing, several queues without a hash on a virtual interface. Let a connection keep to one."
		f.Fix.Commands = []shell.Command{v.in(l.ns, shell.Line("grep -r . /proc/net/bonding")), v.in(l.ns, shell.Line("sysctl net.ipv4.tcp_recovery net.ipv4.tcp_reordering"))}
		return judged{finding: f}
	})
}
