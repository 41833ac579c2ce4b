package tcprt

import (
	"math"
	"math/bits"

	"github.com/slowray/slowray/internal/observe"
)

// Of what passed after the first byte of an answer, so much is the way there and
// back: a round trip for what fits into the first window (RFC 6928: ten segments),
// one more for each doubling of it. Real round trips are longer than the least one
// of the connection, by so much at least.
const (
	firstWindow = 10   // segments
	jitter      = 2    // times the least round trip
	slackUS     = 1000 // µs
	timerUS     = 200_000
)

// rounds is how many round trips an answer of so many bytes takes.
func rounds(sent, mss uint64) uint64 {
	if sent == 0 || mss == 0 {
		return 1
	}
	segments := (sent + mss - 1) / mss
	return uint64(bits.Len64((segments + firstWindow - 1) / firstWindow))
}

// network is how much of what passed after the first byte may be the way.
func (l *line) network(rest uint64) uint64 {
	if l.minRTT == 0 { // not known: nothing better can be said
		return rest
	}
	least := l.minRTT * rounds(l.bytesSent, l.mss)
	return min(rest, max(jitter*least, least+slackUS))
}

// request makes the request of a line; false for a line that is none.
func (l *line) request(r *observe.Request) bool {
	*r = observe.Request{Side: observe.Served, StartNS: l.startUS * 1000, Local: l.local, Peer: l.peer, Seq: uint32(l.seq), Requests: 1, Weight: 1,
		BytesIn: l.bytesReceived, BytesOut: l.bytesSent, Retrans: uint32(l.retrans), MinRTTNS: ns(l.minRTT), RTTNS: ns(l.minRTT), MSS: uint32(l.mss)}
	if l.reorder {
		r.Flags |= observe.FlagReordered
	}
	switch l.kind {
	case kindServed:
		l.served(r)
	case kindCut:
		r.Flags |= observe.FlagTruncated | observe.FlagClosed
		r.Unacked = uint32(min(l.unacked, math.MaxUint32))
		l.served(r)
	case kindNone:
		// What it waited for is not told: the rest of the request, or its answer.
		r.Flags |= observe.FlagUnanswered | observe.FlagClosed
		r.Ledger[observe.Unaccounted] = ns(l.total)
	case kindCalled:
		r.Side = observe.Called
		l.called(r)
	default:
		return false
	}
	return true
}

// ns is µs in nanoseconds.
func ns(us uint64) int64 { return int64(us) * 1000 }

// served fills the ledger of a request that was answered here.
func (l *line) served(r *observe.Request) {
	upload := min(l.transfer, l.total)
	server := min(l.server, l.total-upload)
	r.Ledger[observe.Upload], r.Ledger[observe.Server] = ns(upload), ns(server)
	if l.bytesSent > 0 {
		r.FirstByte = ns(upload + server)
	}
	l.after(r, l.total-upload-server)
}

// after puts the time after the first byte where it belongs.
func (l *line) after(r *observe.Request, rest uint64) {
	way := l.network(rest)
	switch rest -= way; {
	case rest == 0:
		if rounds(l.bytesSent, l.mss) == 1 && l.retrans == 0 && l.kind == kindServed {
			r.RTTNS = max(ns(way), r.MinRTTNS)
		}
	case l.retrans > 0:
		r.Ledger[observe.Retrans] = ns(rest)
		if rest >= timerUS-timerUS/20 { // nothing else waits so long for one segment
			r.Flags |= observe.FlagTimeout
		}
	default:
		r.Ledger[observe.Unaccounted] = ns(rest)
		r.Flags |= observe.FlagEstimated
	}
	r.Ledger[observe.Network] = ns(way)
}

// called fills the ledger of a request that was sent from here. Its first byte is
// the other end's time and one round trip.
func (l *line) called(r *observe.Request) {
	if l.totalOnly {
		way := min(l.minRTT, l.total)
		r.Ledger[observe.Network], r.Ledger[observe.Server] = ns(way), ns(l.total-way)
		r.Flags |= observe.FlagEstimated
		return
	}
	first := min(l.server, l.total)
	way := min(l.minRTT, first)
	r.FirstByte = ns(first)
	// What is retransmitted here is the request: the timer that did it ran before the
	// answer began, and how long the other end took is not told from it.
	again := min(first-way, l.retrans*timerUS)
	if again > 0 {
		r.Flags |= observe.FlagEstimated
	}
	l.retrans = 0
	l.bytesSent = l.bytesReceived // what comes after the first byte is the answer
	l.after(r, l.total-first)
	r.Ledger[observe.Network] += ns(way)
	r.Ledger[observe.Unaccounted] += ns(again)
	r.Ledger[observe.Server] = ns(first - way - again)
	r.RTTNS = r.MinRTTNS
}
