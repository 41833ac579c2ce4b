package request

import (
	"net/netip"

	"github.com/slowray/slowray/internal/observe"
)

// Counters are the exact sums of one address, counted in the kernel for every
// request, also those without a record of their own. They only ever grow; see
// Since for a window.
type Counters struct {
	Side  observe.Side
	NetNS uint64     // inode of the network namespace
	Addr  netip.Addr // served: the local address; called: the remote one
	Port  uint16

	Requests   uint64 // finished, overlapped ones each for themselves
	OK         uint64 // known to be answered well
	Errors     uint64 // known to be answered with an error
	Unanswered uint64 // closed before the first byte of a response
	Overlapped uint64 // pipelined or multiplexed

	BytesIn  uint64 // of payload; served: requests, called: responses
	BytesOut uint64 // of payload, each byte once
	Segments uint64 // sent with data, retransmissions included
	Retrans  uint64 // segments retransmitted

	PartNS observe.Ledger // time of all requests by part

	Connections  uint64 // opened
	Handshake    int64  // called side: time of all handshakes, ns
	HandshakeMax int64  // the longest one so far, ns
	SynRetrans   uint64 // SYNs (served: SYN-ACKs) retransmitted

	TLS       uint64 // handshakes of TLS that were completed; they are no requests
	TLSFailed uint64 // given up: the connection was closed first
	TLSNS     int64  // time of those completed, ns: first byte of the ClientHello to the last Finished
	TLSStats  observe.TLSStats
}

// counterKey is the address that Counters are of.
type counterKey struct {
	addr  netip.Addr
	netns uint64
	port  uint16
	side  observe.Side
}

func (c *Counters) key() counterKey {
	return counterKey{c.Addr.Unmap(), c.NetNS, c.Port, c.Side}
}

// Since is what was counted between two readings. An address whose counters
// went back was forgotten meanwhile and counts from nothing. HandshakeMax is
// that of the later reading: it cannot be taken apart.
func Since(before, after []Counters) []Counters {
	old := make(map[counterKey]*Counters, len(before))
	for i := range before {
		old[before[i].key()] = &before[i]
	}
	grown := make([]Counters, 0, len(after))
	for _, c := range after {
		if b := old[c.key()]; b != nil && b.Requests <= c.Requests && b.Connections <= c.Connections && b.Segments <= c.Segments {
			c.add(b, -1)
		}
		if c != (Counters{Side: c.Side, NetNS: c.NetNS, Addr: c.Addr, Port: c.Port, HandshakeMax: c.HandshakeMax}) {
			grown = append(grown, c)
		}
	}
	return grown
}

// add adds what b counted sign times.
func (c *Counters) add(b *Counters, sign int64) {
	u := uint64(sign) // -1 wraps around to the right difference
	c.Requests += u * b.Requests
	c.OK += u * b.OK
	c.Errors += u * b.Errors
	c.Unanswered += u * b.Unanswered
	c.Overlapped += u * b.Overlapped
	c.BytesIn += u * b.BytesIn
	c.BytesOut += u * b.BytesOut
	c.Segments += u * b.Segments
	c.Retrans += u * b.Retrans
	for p := range c.PartNS {
		c.PartNS[p] += sign * b.PartNS[p]
	}
	c.Connections += u * b.Connections
	c.Handshake += sign * b.Handshake
	c.SynRetrans += u * b.SynRetrans
	c.TLS += u * b.TLS
	c.TLSFailed += u * b.TLSFailed
	c.TLSNS += sign * b.TLSNS
	c.TLSStats.Add(&b.TLSStats, sign)
}
