package cause

import (
	"fmt"
	"math"

	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/observe"
)

// SlowStartAfterIdle: a connection that was idle for longer than its
// retransmission timer begins anew with a window of ten segments
// (tcp_cwnd_restart, net/ipv4/tcp_output.c, RFC 2861), so that a large answer
// takes several round trips on a connection that has carried such before.
const SlowStartAfterIdle ID = "slow-start-after-idle"

var slowStartAfterIdle = Cause{
	ID:    SlowStartAfterIdle,
	Title: "Slow start after idle slows large responses",
	Layer: LayerSocket,
	Needs: []observe.Kind{observe.KindRequests, observe.KindSysctl},
	Check: checkSlowStartAfterIdle,
	Try: inNamespace(func(v *View, ns *observe.NetNS) []Change {
		return v.switched(ns, "net.ipv4.tcp_slow_start_after_idle", "0")
	}),
}

const (
	initialWindow = 10   // segments (TCP_INIT_CWND)
	usualMSS      = 1448 // bytes
	idleTimer     = 2e8  // ns: the least retransmission timer (TCP_RTO_MIN), to which a round trip is added
)

func checkSlowStartAfterIdle(v *View) Result {
	return v.judgeLedgers(fewRequests, func(l *ledger) judged {
		k := l.cost(1, observe.Network, observe.SendWait)
		rtt := float64(l.RTT.Quantile(0.5))
		least := leastRTT(l)
		size := float64(l.BytesOut) / float64(l.Requests)
		rounds := (l.MeanNS(observe.Network) + l.MeanNS(observe.SendWait)) / max(least, 1)
		// 10, 20, 40… segments, one window a round trip.
		theory := math.Log2(size/(initialWindow*usualMSS) + 1)
		pause := v.pauseOf(l)
		length := count(int64(size/1000)) + " kB"
		if size < 1000 {
			length = count(int64(size)) + " bytes"
		}
		text := fmt.Sprintf("answers of %s on %s take %s round trips of %s; a connection pauses %s before a request",
			length, l.name(), figure.Value(round(rounds)), nanoseconds(least), seconds(pause))
		switch {
		case l.called() || l.client || v.sysctl(l.ns, "net.ipv4.tcp_slow_start_after_idle") != "1":
			return judged{because: text, near: -1}
		case theory < 1 || rounds < roundsLeast || rounds < roundsOfTheory*theory || least < idleRTT || rtt > 2*least,
			pause*1e9 < idleTimer+least, ratio(l.Connections, l.Requests) > 0.5, l.LossPermille() >= lossPermille,
			l.affected(byAny) > l.Requests/2, !l.noticed(k, wireFloor):
			return judged{because: text, near: rounds}
		}
		saved := k
		part := 1 - 1/rounds
		saved.share, saved.slowShare, saved.ns, saved.slowNS = k.share*part, k.slowShare*part, k.ns*part, k.slowNS*part
		f := v.found(l, saved, wireFloor, "in round trips beyond the first")
		f.Evidence = append(f.Evidence,
			Evidence{Fact: "round trips for an answer, mean", Value: round(rounds), Unit: "round trips", Source: recorded},
			Evidence{Fact: "least round trip of a connection", Value: round(least / 1e6), Unit: "ms", Source: "TCP sockets"},
			Evidence{Fact: "sent for a request, mean", Value: round(size / 1024), Unit: "KB", Source: recorded},
			Evidence{Fact: "pause of a connection before a request, mean", Value: round(pause), Unit: "s", Source: "connections and requests"},
			Evidence{Fact: "net.ipv4.tcp_slow_start_after_idle", Value: "1", Source: "sysctl" + where(l.ns)})
		f.Fix.Text = "Switch tcp_slow_start_after_idle off: a connection then goes on with the window that it had."
		v.setSysctl(&f.Fix, l.ns, "net.ipv4.tcp_slow_start_after_idle", 0)
		return judged{finding: f}
	})
}

// pauseOf is how long a connection of a served endpoint rests between two
// requests, in seconds, on average; 0 when it is not known how many there are.
func (v *View) pauseOf(l *ledger) float64 {
	s := v.ServiceAt(l.NetNS, l.Port, "")
	if s == nil || l.Requests == 0 {
		return 0
	}
	clients := 0
	for _, ln := range s.Listeners {
		clients += ln.Clients
	}
	each := v.Window.Seconds * float64(clients) / float64(l.Requests)
	return max(each-l.TimeNS()/float64(l.Requests)/1e9, 0)
}
