package cause

import (
	"fmt"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// WindowLimited: the receiver reads as fast as bytes come, but its window is
// smaller than what fits on the way in a round trip (the bandwidth-delay
// product), so that the sender waits for each acknowledgement. The window is
// half to nearly all of the receive buffer (tcp_rmem, or SO_RCVBUF of the
// application).
const WindowLimited ID = "window-limited"

var windowLimited = Cause{
	ID:    WindowLimited,
	Title: "The receive window is too small for the RTT",
	Layer: LayerPath,
	Needs: []observe.Kind{observe.KindRequests},

	ConsequenceOf: []Parent{TCPMemoryPressure},
	Folds:         true,
	Check:         checkWindowLimited,
	Try:           tryReceiverWindow,
}

// smallWindow says that windows were small for the way rather than closed. On a
// short way a small window only shows that the receiver reads little at a time.
func (l *ledger) smallWindow() bool {
	return l.affected(observe.FlagRecvWindow) > l.affected(observe.FlagZeroWindow) && leastRTT(l) >= bufferRTT
}

func checkWindowLimited(v *View) Result {
	return v.judgeLedgers(fewAffected, func(l *ledger) judged {
		closed, small := l.affected(observe.FlagZeroWindow), l.affected(observe.FlagRecvWindow)
		k := l.heldBack(byReceiver)
		because := l.sendWaitText(small, "met a small window")
		if !l.smallWindow() || !l.enough(small) || l.client || !l.foremost(byReceiver) || l.reach < fewReach || !l.noticed(k, wireFloor) {
			return judged{because: because, near: k.share}
		}
		if v.lateClient(l, k) {
			return judged{because: because + "; the receiver is on this host, and waits for a CPU", near: k.share}
		}
		rtt := float64(l.RTT.Quantile(0.5))
		f := v.found(l, k, wireFloor, "waiting for the window")
		f.Evidence = append(f.Evidence,
			Evidence{Fact: "requests that met a small window", Value: small, Limit: l.Requests, Unit: "requests", Source: recorded},
			Evidence{Fact: "requests that met a closed window", Value: closed, Limit: l.Requests, Unit: "requests", Source: recorded},
			Evidence{Fact: "round trip, median", Value: round(rtt / 1e6), Unit: "ms", Source: "TCP sockets"},
			Evidence{Fact: "sent for a request, mean", Value: round(float64(l.BytesOut) / float64(l.Requests) / 1024), Unit: "KB", Source: recorded})
		who := "the other end"
		if len(l.Peers) > 0 {
			who = l.Peers[0].Addr
		}
		if c := v.clientHere(l); c != nil {
			who = fmt.Sprintf("%s (pid %d, on this host)", v.Comm(c.pid), c.pid)
			if rmem := v.sysctl(c.ns, "net.ipv4.tcp_rmem"); rmem != "" {
				f.Evidence = append(f.Evidence, Evidence{Fact: "net.ipv4.tcp_rmem of the receiver", Value: rmem, Unit: "bytes", Source: "sysctl" + where(c.ns)})
			}
			f.Fix.Commands = []shell.Command{v.in(c.ns, shell.Line("sysctl -w net.ipv4.tcp_rmem=%s", wantedRmem))}
			f.Fix.Changes = v.widened(c.ns, "net.ipv4.tcp_rmem", wantedRmem)
		}
		f.Fix.Text = fmt.Sprintf("Give %s a larger receive buffer (net.ipv4.tcp_rmem, no small SO_RCVBUF in its application): a window has to hold what is sent in a round trip.", who)
		return judged{finding: f}
	})
}
