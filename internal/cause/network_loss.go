package cause

import (
	"fmt"
	"slices"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// NetworkLoss: segments are lost between the two ends, and requests wait until
// they were retransmitted. Only the loss of what is sent from here can be seen
// here: of responses where requests are served, of requests where they are
// called for. Loss that costs no request any time is no finding.
const NetworkLoss ID = "network-loss"

var networkLoss = Cause{
	ID:      NetworkLoss,
	Title:   "The network loses packets",
	Layer:   LayerPath,
	Needs:   []observe.Kind{observe.KindRequests},
	OnWire:  true,
	InTCPRT: true,
	// A full accept queue drops the client's last handshake segment and what
	// it sends behind it (tcp_v4_syn_recv_sock); a CPU flooded by packets
	// drops any of them.
	// A queue that grows within moments makes round trips longer than the
	// retransmission timer, and one that is full drops.
	ConsequenceOf: []Parent{AcceptQueueOverflow, ConntrackFull, SoftirqSaturated, HighRTT, Reordering, ClassSegment, ClassDrop},
	Folds:         true,
	Check:         checkNetworkLoss,
}

func checkNetworkLoss(v *View) Result {
	return v.judgeLedgers(fewRequests, func(l *ledger) judged {
		if u := l.undelivered(); u.hurts(l) && l.reach >= fewReach {
			return judged{finding: v.undeliveredLoss(l, &u)}
		}
		k := l.cost(1, observe.Retrans)
		loss := l.LossPermille()
		if loss < lossPermille || l.Retrans < fewPackets || !l.noticed(k, wireFloor) && !l.wasted(k, wireFloor, observe.Retrans) || l.reach < fewReach {
			return judged{because: fmt.Sprintf("%s of %s segments of %s were retransmitted (%s), which took %s of the requests' time",
				count(l.Retrans), count(l.Segments), l.name(), permille(loss), percent(k.share)), near: k.share}
		}
		f := v.found(l, k, wireFloor, "lost to retransmission")
		stats := l.Parts[observe.Retrans.String()]
		f.Evidence = append(f.Evidence,
			Evidence{Fact: "segments retransmitted", Value: l.Retrans, Limit: l.Segments, Unit: "segments", Source: "TCP sockets"},
			Evidence{Fact: "loss", Value: round(loss), Unit: "‰", Source: "segments retransmitted of segments sent"},
			Evidence{Fact: "requests that lost over " + nanoseconds(wireFloor.slow) + " by it", Value: min(stats.Hist.Above(int64(wireFloor.slow)), l.Requests), Limit: l.Requests, Unit: "requests", Source: recorded})
		f.Fix.Text = "Find where they are lost, from here to the other end: interface errors and drops, queue limits, firewall rules, then the path."
		if peer := lossyPeer(l); peer != nil {
			f.Evidence = append(f.Evidence, Evidence{Fact: "retransmitted to " + peer.Addr + " alone", Value: peer.Retrans, Limit: l.Retrans, Unit: "segments", Source: recorded})
			f.Fix.Text = fmt.Sprintf("Find where they are lost on the way to %s: others are hardly hit, so not at this host's own interface.", peer.Addr)
		}
		f.Evidence = append(f.Evidence, v.slowLogEvidence(l)...)
		v.lossFollows(l, f)
		return judged{finding: f}
	})
}

// undeliveredLoss is the case in which nothing of some answers, or requests, arrives.
func (v *View) undeliveredLoss(l *ledger, u *undelivered) *Finding {
	f := v.vain(l, u)
	f.Title = "Responses are retransmitted and never arrive"
	if l.called() {
		f.Title = "Requests are retransmitted and never arrive"
	}
	f.Fix.Text = "Find where they are lost, from here to the other end: firewall rules that forgot the connection, routes of one direction, an address that has moved, a smaller MTU on the way."
	v.lossFollows(l, f)
	if peer := lossyPeer(l); peer != nil {
		f.Fix.Commands = append(f.Fix.Commands, v.in(l.ns, shell.Line("tracepath -n %s", peer.Addr)))
	} else if len(l.Peers) > 0 {
		f.Fix.Commands = append(f.Fix.Commands, v.in(l.ns, shell.Line("tracepath -n %s", l.Peers[0].Addr)))
	}
	return f
}

// lossFollows says what loss may follow from, and where to look for it.
func (v *View) lossFollows(l *ledger, f *Finding) {
	here, queued := v.at(l), v.queuedPath(l)
	known, _ := v.droppedHere(l)
	f.MayFollow = v.followsDrops(l, known, func(p *Finding) bool { return here(p) && (p.Cause != HighRTT || queued) })
	f.Fix.Commands = []shell.Command{v.in(l.ns, shell.Line("ip -s -s link")), v.in(l.ns, shell.Line("tc -s qdisc show")), v.in(l.ns, shell.Line("nft list ruleset"))}
}

// lossyPeer is the one of several other ends that nearly all loss is on the
// way to, or nil.
func lossyPeer(l *ledger) *observe.PeerStats {
	var worst *observe.PeerStats
	var all, requests uint64
	for i := range l.Peers {
		p := &l.Peers[i]
		all += p.Retrans
		requests += p.Requests
		if worst == nil || p.Retrans > worst.Retrans {
			worst = p
		}
	}
	if worst == nil || ratio(worst.Retrans, all) < 0.9 || ratio(worst.Requests, requests) > 0.5 {
		return nil
	}
	return worst
}

// RTOTailLoss: a lost segment is retransmitted after about a round trip when
// others behind it are acknowledged. The last one has none behind it, nor has
// a response of one segment: its loss is noticed by a timer, of 200 ms at
// least (TCP_RTO_MIN, include/net/tcp.h), whatever the round trip takes. That
// is the retransmission timer or, with a single segment on its way, the tail
// loss probe's (tcp_schedule_loss_probe, net/ipv4/tcp_output.c).
const RTOTailLoss ID = "rto-tail-loss"

var rtoTailLoss = Cause{
	ID:            RTOTailLoss,
	Title:         "Tail loss waits for the retransmission timeout (RTO)",
	Layer:         LayerPath,
	Needs:         []observe.Kind{observe.KindRequests},
	OnWire:        true,
	InTCPRT:       true,
	ConsequenceOf: []Parent{NetworkLoss, AcceptQueueOverflow, ConntrackFull, SoftirqSaturated, ClassSegment, ClassDrop},
	Folds:         true,
	Check:         checkRTOTailLoss,
	Try:           inNamespace(tryLossKnobs),
}

func checkRTOTailLoss(v *View) Result {
	return v.judgeLedgers(fewRequests, func(l *ledger) judged {
		limit := timerWait(l)
		stats := l.Parts[observe.Retrans.String()]
		timeouts := min(max(l.affected(observe.FlagTimeout), stats.Hist.Above(limit)), l.Requests)
		if u := l.undelivered(); u.hurts(l) && 2*u.n >= timeouts {
			return judged{because: fmt.Sprintf("of %s that waited for a retransmission timer %s never arrived: no last segment alone is lost", l.all(), count(u.n)), near: float64(timeouts)}
		}
		share, wait := timerShare(l, limit)
		k := l.cost(share, observe.Retrans)
		if !l.enough(timeouts) || !l.noticed(k, wireFloor) && !l.wasted(k, wireFloor, observe.Retrans) || l.reach < fewReach {
			because := fmt.Sprintf("none of %s waited for a retransmission timer", l.all())
			if timeouts > 0 {
				because = fmt.Sprintf("%s of %s waited for a retransmission timer (%s), %s of the time",
					count(timeouts), l.all(), nanoseconds(wait), percent(k.share))
			}
			return judged{because: because, near: float64(timeouts)}
		}
		f := v.found(l, k, wireFloor, "waiting for the retransmission timer")
		known, _ := v.droppedHere(l)
		f.MayFollow = v.followsDrops(l, known, f.MayFollow)
		f.Evidence = append(f.Evidence,
			Evidence{Fact: "requests that waited for a retransmission timer", Value: timeouts, Limit: l.Requests, Unit: "requests", Source: recorded},
			Evidence{Fact: "time such a request lost, median of the slowest", Value: round(wait / 1e6), Unit: "ms", Source: recorded},
			Evidence{Fact: "loss", Value: round(l.LossPermille()), Unit: "‰", Source: "segments retransmitted of segments sent"})
		if l.ns != nil {
			for _, name := range []string{"TcpExt.TCPTimeouts", "TcpExt.TCPLossProbes"} {
				if n, ok := l.ns.Counters[name]; ok {
					f.Evidence = append(f.Evidence, Evidence{Fact: name + " in the namespace", Value: n, Source: "/proc/net/netstat"})
				}
			}
		}
		f.Evidence = append(f.Evidence, v.slowLogEvidence(l)...)
		f.Fix.Text = "Fix the loss. Until then, let the timer of this route expire earlier, where all its round trips are short."
		f.Fix.Commands = []shell.Command{v.in(l.ns, shell.Line("ip route show")), v.in(l.ns, shell.Line("# ip route change ROUTE rto_min 20ms, with the ROUTE as shown"))}
		// Without early retransmit (RFC 8985 tail loss probe) and RACK every
		// tail waits for the timer.
		for _, knob := range lossKnobs {
			if v.sysctl(l.ns, knob.name) == "0" {
				f.Evidence = append(f.Evidence, Evidence{Fact: knob.name, Value: "0", Source: "sysctl" + where(l.ns)})
				f.Fix.Text += fmt.Sprintf(" %s is off: switch it on.", knob.name)
				v.setSysctl(&f.Fix, l.ns, knob.name, knob.want)
			}
		}
		return judged{finding: f}
	})
}

// timerWait is the time from which on a request is taken to have waited for a
// timer, in ns: with round trips this short nothing else takes so long.
func timerWait(l *ledger) int64 {
	const half = 100e6 // of the shortest timer
	return max(half, 4*l.RTT.Quantile(0.5))
}

// timerShare is the fraction of the slowest requests' retransmission time that
// was waiting for a timer, and the median of what such a request lost, in ns.
func timerShare(l *ledger, limit int64) (share, wait float64) {
	var lost []int64
	var all float64
	for i := range l.Slowest {
		s := &l.Slowest[i]
		ns := max(s.Parts[observe.Retrans.String()], 0)
		all += float64(ns)
		if ns >= limit || hasFlag(s, observe.FlagTimeout) {
			lost = append(lost, ns)
		}
	}
	if len(lost) == 0 {
		return 0, 0
	}
	slices.Sort(lost)
	var sum float64
	for _, ns := range lost {
		sum += float64(ns)
	}
	return ratio(sum, all), float64(lost[len(lost)/2])
}
