package cause

import (
	"fmt"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// What can hold back bytes in the send queue, by the flags a request carries.
const (
	byReceiver = observe.FlagZeroWindow | observe.FlagRecvWindow
	byBuffer   = observe.FlagSendBuffer
	byNagle    = observe.FlagNagle
	byAny      = byReceiver | byBuffer | byNagle
)

// heldBack is the cost of send_wait as far as one of its reasons explains it.
func (l *ledger) heldBack(by observe.RequestFlags) cost {
	if l.SumNS(observe.SendWait)+l.SlowNS(observe.SendWait) == 0 {
		return l.cost(1, observe.SendWait)
	}
	return l.cost(l.whose(observe.SendWait, byAny, by), observe.SendWait)
}

// foremost says that no other reason explains more of the time in the send
// queue. Behind a closed window the buffer fills too: where both explain as
// much, it is the window.
func (l *ledger) foremost(by observe.RequestFlags) bool {
	mine := l.whose(observe.SendWait, byAny, by)
	for _, other := range []observe.RequestFlags{byReceiver, byBuffer, byNagle} {
		its := l.whose(observe.SendWait, byAny, other)
		if other != by && (its > mine || its == mine && its > 0 && by == byBuffer && other == byReceiver) {
			return false
		}
	}
	return true
}

// sendWaitText tells what the send queue took, for a cause that is ruled out.
func (l *ledger) sendWaitText(n uint64, what string) string {
	return fmt.Sprintf("%s of %s %s; their bytes waited in the send queue %s of the time",
		count(n), l.all(), what, percent(l.Share(observe.SendWait)))
}

// SlowReceiver: the other end does not take the bytes: its receive window is
// closed because its application does not read. One that is too small for the
// round trip is reported as window-limited.
const SlowReceiver ID = "slow-receiver"

var slowReceiver = Cause{
	ID:     SlowReceiver,
	Title:  "Zero window: the receiver does not read",
	Layer:  LayerPath,
	Needs:  []observe.Kind{observe.KindRequests},
	OnWire: true,
	// A receiver without memory closes its window too.
	ConsequenceOf: []Parent{TCPMemoryPressure},
	Folds:         true,
	Check:         checkSlowReceiver,
}

func checkSlowReceiver(v *View) Result {
	return v.judgeLedgers(fewAffected, func(l *ledger) judged {
		closed, small := l.affected(observe.FlagZeroWindow), l.affected(observe.FlagRecvWindow)
		k := l.heldBack(byReceiver)
		because := l.sendWaitText(l.affected(observe.FlagZeroWindow, observe.FlagRecvWindow), "met a closed or small window")
		near := k.share
		if l.smallWindow() {
			return judged{because: because + "; it is small rather than closed", near: near}
		}
		if !l.enough(closed+small) || l.client || !l.foremost(byReceiver) || l.reach < fewReach || !l.receiverNoticed(k) {
			return judged{because: because, near: near}
		}
		if v.lateClient(l, k) {
			return judged{because: because + "; the receiver is on this host, and waits for a CPU", near: near}
		}
		f := v.found(l, k, wireFloor, "waiting for the receiver")
		f.Evidence = append(f.Evidence,
			Evidence{Fact: "requests that met a closed window", Value: closed, Limit: l.Requests, Unit: "requests", Source: recorded},
			Evidence{Fact: "requests that met a small window", Value: small, Limit: l.Requests, Unit: "requests", Source: recorded})
		if l.Unfinished > 0 {
			f.Evidence = append(f.Evidence, Evidence{Fact: "requests still going on at the end", Value: l.Unfinished, Unit: "requests", Source: recorded})
		}
		who := "the other end"
		if len(l.Peers) > 0 {
			who = l.Peers[0].Addr
			f.Evidence = append(f.Evidence, Evidence{Fact: "the other end with most time", Value: who, Source: recorded})
		}
		if c := v.clientHere(l); c != nil {
			who = fmt.Sprintf("%s (pid %d, on this host)", v.Comm(c.pid), c.pid)
			f.Fix.Commands = []shell.Command{lookAtWaits(c.pid)}
		}
		f.Fix.Text = fmt.Sprintf("Find why %s does not read; nothing here can speed it up. A proxy that buffers the answer frees the service meanwhile.", who)
		return judged{finding: f}
	})
}

// receiverNoticed is noticed, also for the few requests that a receiver which
// stands still lets through in a window: each of them lasts seconds.
func (l *ledger) receiverNoticed(k cost) bool {
	return l.noticed(k, wireFloor) || l.slowFew(k)
}

// slowFew judges few requests by the mean alone.
func (l *ledger) slowFew(k cost) bool {
	const second = 1e9
	return l.Requests < fewRequests && k.share >= dominantShare && k.ns >= second/2
}

// clientHere is the client of a served endpoint on this host, or nil.
func (v *View) clientHere(l *ledger) *ledger {
	if len(l.callers) == 0 {
		return nil
	}
	return l.callers[0]
}

// lateClient says that the client of an endpoint is on this host and reads late because it
// waits for a CPU, not because it sleeps or waits for something else.
func (v *View) lateClient(l *ledger, k cost) bool {
	c := v.clientHere(l)
	if c == nil {
		return false
	}
	_, late := v.late(c, k.share)
	return late
}

// SendBufferLimited: the socket's send buffer holds less than the network
// could carry in a round trip, so the application waits for room in it. It
// matters only where a round trip takes time.
const SendBufferLimited ID = "send-buffer-limited"

var sendBufferLimited = Cause{
	ID:    SendBufferLimited,
	Title: "The send buffer is too small for the RTT",
	Layer: LayerSocket,
	Needs: []observe.Kind{observe.KindRequests},

	ConsequenceOf: []Parent{TCPMemoryPressure},
	Folds:         true,
	Check:         checkSendBuffer,
	Try:           inNamespace(func(v *View, ns *observe.NetNS) []Change { return v.widened(ns, "net.ipv4.tcp_wmem", wantedWmem) }),
}

func checkSendBuffer(v *View) Result {
	return v.judgeLedgers(fewRequests, func(l *ledger) judged {
		n := l.affected(byBuffer)
		k := l.heldBack(byBuffer)
		rtt := float64(l.RTT.Quantile(0.5))
		if !l.enough(n) || l.client || rtt < bufferRTT || !l.foremost(byBuffer) || l.reach < fewReach || !l.noticed(k, wireFloor) {
			return judged{because: l.sendWaitText(n, "filled the send buffer"), near: k.share}
		}
		f := v.found(l, k, wireFloor, "waiting for room in the send buffer")
		sent := ratio(l.BytesOut, float64(l.Requests)*1e12) * 1e12
		f.Evidence = append(f.Evidence,
			Evidence{Fact: "requests that filled the send buffer", Value: n, Limit: l.Requests, Unit: "requests", Source: recorded},
			Evidence{Fact: "round trip, median", Value: round(rtt / 1e6), Unit: "ms", Source: "TCP sockets"},
			Evidence{Fact: "sent for a request, mean", Value: round(sent / 1024), Unit: "KB", Source: recorded})
		wmem := v.sysctl(l.ns, "net.ipv4.tcp_wmem")
		if wmem != "" {
			f.Evidence = append(f.Evidence, Evidence{Fact: "net.ipv4.tcp_wmem", Value: wmem, Unit: "bytes", Source: "sysctl" + where(l.ns)})
		}
		f.Fix.Text = "Raise the largest send buffer (third figure of net.ipv4.tcp_wmem). Where the application sets SO_SNDBUF itself, leave that out: it switches the kernel's own sizing off."
		v.setSysctl(&f.Fix, l.ns, "net.ipv4.tcp_wmem", wantedWmem)
		return judged{finding: f}
	})
}

// NagleDelayedACK: who writes in pieces without TCP_NODELAY has the second
// piece held back until the first one is acknowledged (RFC 896), and the other
// end acknowledges only after 40 ms, in the hope of an answer to send it with
// (TCP_DELACK_MIN, include/net/tcp.h). It happens to answers, to calls made
// from here, and to requests whose client does it.
const NagleDelayedACK ID = "nagle-delayed-ack"

var nagleDelayedAck = Cause{
	ID:    NagleDelayedACK,
	Title: "Nagle's algorithm waits for delayed ACKs (40 ms)",
	Layer: LayerApplication,
	Needs: []observe.Kind{observe.KindRequests},
	Check: checkNagle,
	Try:   tryNoDelay,
}

func checkNagle(v *View) Result {
	return v.judgeLedgers(fewRequests, func(l *ledger) judged {
		n, k := l.affected(byNagle), l.heldBack(byNagle)
		part := observe.SendWait
		if l.called() {
			// A call in pieces is held back while it is being sent.
			k, part = l.cost(l.whose(observe.Upload, byNagle, byNagle), observe.Upload), observe.Upload
			if w := l.heldBack(byNagle); w.ns > k.ns || w.slowNS > k.slowNS {
				k, part = w, observe.SendWait
			}
		} else if up := l.affected(observe.FlagUploadAcks); up > n {
			return v.clientNagle(l, up)
		}
		if !l.enough(n) || l.reach < fewReach || !l.noticed(k, wireFloor) && !l.wasted(k, wireFloor, part) {
			return judged{because: l.sendWaitText(n, "were held back by Nagle's algorithm"), near: k.share}
		}
		f := v.found(l, k, wireFloor, "held back until an acknowledgement")
		f.Evidence = append(f.Evidence, Evidence{Fact: "requests held back by Nagle's algorithm", Value: n, Limit: l.Requests, Unit: "requests", Source: recorded})
		f.Evidence = append(f.Evidence, delayedAcks(l)...)
		f.Fix.Changes = ofNagle(v, l)
		f.Fix.Text = fmt.Sprintf("Set TCP_NODELAY on the sockets of %s, or write each message at once (one write, writev, or MSG_MORE for all but the last piece).", f.Subject.Comm)
		f.Fix.Commands = piecesOf(f.Subject.PID)
		return judged{finding: f}
	})
}

// clientNagle is the case in which the clients write their requests in pieces.
func (v *View) clientNagle(l *ledger, n uint64) judged {
	k := l.cost(l.whose(observe.Upload, observe.FlagUploadAcks, observe.FlagUploadAcks), observe.Upload)
	if !l.enough(n) || !l.noticed(k, wireFloor) {
		return judged{because: fmt.Sprintf("%s of %s came in pieces, one acknowledgement apart: %s of the requests' time",
			count(n), l.all(), percent(k.share)), near: k.share}
	}
	// This end is who acknowledges late, once for each of them.
	if acks, known := l.delayedAcks(); known && 2*acks < n {
		return judged{because: fmt.Sprintf("%s of %s came in pieces, and only %s acknowledgements were delayed: their first pieces were lost or dropped",
			count(n), l.all(), count(acks)), near: k.share}
	}
	f := v.found(l, k, wireFloor, "for the rest of the request to arrive")
	f.Title = "Nagle's algorithm delays requests written in pieces"
	f.Evidence = append(f.Evidence, Evidence{Fact: "requests whose pieces came one delayed acknowledgement apart", Value: n, Limit: l.Requests, Unit: "requests", Source: recorded})
	f.Evidence = append(f.Evidence, delayedAcks(l)...)
	f.Fix.Text = "Set TCP_NODELAY in the client, or let it write a request at once."
	if c := v.clientHere(l); c != nil {
		f.Fix.Changes = withoutDelay(c.ns, c.pid, v.Comm(c.pid), "called", l.Addr, l.Port)
		f.Fix.Text = fmt.Sprintf("Set TCP_NODELAY in %s (pid %d), or let it write a request at once.", v.Comm(c.pid), c.pid)
		f.Fix.Commands = piecesOf(c.pid)
	}
	return judged{finding: f}
}

// piecesOf shows which calls of a process write a message in pieces.
func piecesOf(pid int) []shell.Command {
	if pid == 0 {
		return nil
	}
	return []shell.Command{shell.Line("timeout 5 strace -f -tt -e trace=write,writev,sendto,sendmsg -p %s   # the calls that write one message in pieces", pid)}
}

// delayedAcks is how many acknowledgements the namespace sent late.
func (l *ledger) delayedAcks() (n uint64, known bool) {
	if l.ns != nil {
		n, known = l.ns.Counters["TcpExt.DelayedACKs"]
	}
	return n, known
}

// delayedAcks is the same as evidence.
func delayedAcks(l *ledger) []Evidence {
	n, _ := l.delayedAcks()
	if n == 0 {
		return nil // the other end's namespace sent them: another host's, or one that was not read
	}
	return []Evidence{{Fact: "delayed acknowledgements sent in the namespace", Value: n, Source: "/proc/net/netstat DelayedACKs"}}
}
