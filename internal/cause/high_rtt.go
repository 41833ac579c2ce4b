package cause

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// HighRTT: round trips make up most of the time. Either packets wait in a
// queue on the way (the round trip is then far above the least one of the same
// connection), or the other end is simply far away.
//
// Clients all over the world are far away by nature: there distance is reported
// and is no finding. It is one where a few ends make all the requests, as a
// load balancer does, and on the way to a service that is called.
const HighRTT ID = "high-rtt"

var highRTT = Cause{
	ID:      HighRTT,
	Title:   "Network round trips make up most of the time",
	Layer:   LayerPath,
	Needs:   []observe.Kind{observe.KindRequests},
	OnWire:  true,
	InTCPRT: true,
	Check:   checkHighRTT,
}

func checkHighRTT(v *View) Result {
	r := v.judgeLedgers(fewRequests, v.judgeHighRTT)
	if len(r.Findings) == 0 && len(v.remains) > 0 {
		l := v.remains[0]
		because := fmt.Sprintf("%s came to their end, up to %s old, after %s (pid %d) had ended: no round trip was measured meanwhile",
			l.all(), nanoseconds(float64(l.Total.Max())), l.Comm, l.PID)
		return ruledOut(because)
	}
	return r
}

func (v *View) judgeHighRTT(l *ledger) judged {
	tail := l.unacknowledged()
	k := l.cost(1-tail, observe.Network)
	rtt, least := float64(l.RTT.Quantile(0.5)), leastRTT(l)
	because := fmt.Sprintf("round trips of %s take %s (at least %s), the network %s of the requests' time",
		l.name(), nanoseconds(rtt), nanoseconds(least), percent(k.share))
	near := k.share * min(rtt/farRTT, 1)
	if tail >= dominantShare {
		because = fmt.Sprintf("most of the network time of %s was the end of connections whose other end acknowledged nothing any more: no round trip was measured", l.all())
		near = tail
	}
	if l.client || !l.noticed(k, floor{mean: farRTT, slow: wireFloor.slow}) || l.reach < fewReach {
		return judged{because: because, near: near}
	}
	if v.nextDoor(l) {
		return judged{because: because + ": both ends are on this host, and late acknowledgements are no distance", near: near}
	}
	queued, samples := queuedSamples(l)
	_, busy := v.cpuFull(l)
	ours := l.called() || len(l.Peers) <= fewEnds
	switch {
	case 2*queued > samples && queued >= fewAffected && (ours || l.always(k, wireFloor)):
		if busy {
			return judged{because: because + "; the CPUs are full, so that acknowledgements are late", near: near}
		}
		return judged{finding: v.queueFinding(l, k, rtt, least, queued, samples)}
	case least < farRTT || !l.always(k, wireFloor):
		return judged{because: because, near: near}
	case !ours || !l.called() && float64(l.Requests) < farRate*v.Window.Seconds:
		return judged{because: because + ": its clients are far away", near: near}
	}
	return judged{finding: v.farFinding(l, k, rtt, least)}
}

// unacknowledged is the share of the time on the network in which connections were waiting
// for an acknowledgement when they ended, as far as the last of these requests tell. It is
// no round trip: the other end may have been gone all the while.
func (l *ledger) unacknowledged() float64 {
	var cut, ns float64
	for s := range flagged(l.Failed, observe.FlagTruncated) {
		cut++
		ns += float64(s.Parts[observe.Network.String()])
	}
	return min(ratio(ns*float64(l.affected(observe.FlagTruncated)), cut*l.SumNS(observe.Network)), 1)
}

// nextDoor says that nothing lies between the two ends that takes time: they are on this
// host, and packets pass from one to the other over loopback or a pair of devices, which
// nothing delays. A round trip that is measured there has the time in it until the other
// end had something to say (delayed acknowledgements), or a CPU.
func (v *View) nextDoor(l *ledger) bool {
	ends := append([]*ledger{l}, l.sameEnds()...)
	loopback := l.address.IsLoopback()
	inside := loopback
	for _, e := range ends {
		if e.ns == nil {
			return loopback
		}
		if slices.ContainsFunc(e.ns.Qdiscs, func(q observe.Qdisc) bool {
			return slices.Contains(delaying, q.Kind) && q.Packets > 0 && (!loopback || q.Interface == "lo")
		}) {
			return false
		}
		own := e.called() && slices.Contains(e.ns.Addrs, l.Addr) // who calls has that address itself: over loopback
		inside = inside || len(ends) > 1 && (own || onlyPairs(e.ns))
	}
	return inside
}

// delaying are the queueing disciplines that hold packets back.
var delaying = []string{"netem", "tbf", "htb", "hfsc", "cbq"}

// onlyPairs says that all that leaves a network namespace stays on this host.
func onlyPairs(ns *observe.NetNS) bool {
	some := false
	for i := range ns.Links {
		l := &ns.Links[i]
		if l.Name == "lo" || !l.Up {
			continue
		}
		if l.Kind != "veth" {
			return false
		}
		some = true
	}
	return some
}

// leastRTT is the least round trip that the connections of most requests have
// shown, in ns.
func leastRTT(l *ledger) float64 {
	type end struct {
		rtt int64
		n   uint64
	}
	var ends []end
	var all uint64
	for _, p := range l.Peers {
		if p.MinRTT > 0 {
			ends = append(ends, end{p.MinRTT, p.Requests})
			all += p.Requests
		}
	}
	slices.SortFunc(ends, func(a, b end) int { return cmp.Compare(a.rtt, b.rtt) })
	var seen uint64
	for _, e := range ends {
		if seen += e.n; seen*2 >= all {
			return float64(e.rtt)
		}
	}
	return float64(max(l.MinRTT, 0))
}

// queuedSamples counts, among the slowest requests that the network took most
// of, those whose round trip was far above the least of their connection.
func queuedSamples(l *ledger) (queued, samples int) {
	for i := range l.Slowest {
		s := &l.Slowest[i]
		if !greatest(s, observe.Network) || s.MinRTTNS <= 0 || hasFlag(s, observe.FlagTruncated) {
			continue
		}
		samples++
		if float64(s.RTTNS) >= queueTimes*float64(s.MinRTTNS) && float64(s.RTTNS-s.MinRTTNS) >= queueExcess {
			queued++
		}
	}
	return queued, samples
}

// queuedPath says that packets between the two ends of l wait in a queue, as
// the requests of either end show.
func (v *View) queuedPath(l *ledger) bool {
	return slices.ContainsFunc(append([]*ledger{l}, l.sameEnds()...), func(o *ledger) bool {
		queued, samples := queuedSamples(o)
		return queued >= fewAffected && 2*queued > samples
	})
}

func rttEvidence(l *ledger, rtt, least float64) []Evidence {
	return []Evidence{
		{Fact: "round trip, p50 and p99", Value: nanoseconds(rtt) + ", " + nanoseconds(float64(l.RTT.Quantile(0.99))), Source: "TCP sockets"},
		{Fact: "least round trip of a connection", Value: round(least / 1e6), Unit: "ms", Source: "TCP sockets"},
		{Fact: "loss", Value: round(l.LossPermille()), Unit: "‰", Source: "segments retransmitted of segments sent"},
	}
}

func (v *View) queueFinding(l *ledger, k cost, rtt, least float64, queued, samples int) *Finding {
	f := v.found(l, k, wireFloor, "on the network")
	f.Title = "Bufferbloat: packets queue in the network"
	f.Evidence = append(f.Evidence, rttEvidence(l, rtt, least)...)
	f.Evidence = append(f.Evidence, Evidence{Fact: "slow requests whose round trip is far above the least of the connection", Value: queued, Limit: samples, Unit: "requests", Source: recorded})
	f.Fix.Text = "Find the link that is full or shaped on the way. Where it is this host's, shorten its queue (fq_codel) and pace the senders (BBR)."
	f.Fix.Commands = []shell.Command{v.in(l.ns, shell.Line("tc -s qdisc show")), v.in(l.ns, shell.Line("ip -s link")), v.in(l.ns, shell.Line("sysctl -w net.ipv4.tcp_congestion_control=bbr"))}
	return f
}

func (v *View) farFinding(l *ledger, k cost, rtt, least float64) *Finding {
	f := v.found(l, k, wireFloor, "on the network")
	f.Title = "The other end is far away (high RTT)"
	f.Evidence = append(f.Evidence, rttEvidence(l, rtt, least)...)
	f.Fix.Text = fmt.Sprintf("Every round trip takes at least %s: bring the two ends closer together, or make fewer and larger requests.", nanoseconds(least))
	if l.called() {
		f.Fix.Text = fmt.Sprintf("Every call takes a round trip of at least %s: bring what is called closer, or make fewer calls for a request (batches, a cache).", nanoseconds(least))
	}
	f.Fix.Commands = []shell.Command{v.in(l.ns, shell.Line("tc qdisc show   # a delay added on this host"))}
	if len(l.Peers) > 0 {
		f.Fix.Commands = append(f.Fix.Commands, v.in(l.ns, shell.Line("tracepath -n %s", l.Peers[0].Addr)))
	}
	return f
}
