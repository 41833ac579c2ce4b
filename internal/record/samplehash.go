package record

import (
	"encoding/binary"
	"math/bits"
	"net/netip"

	"github.com/slowray/slowray/internal/observe"
)

// sampleSpan is how long the lots of a connection's requests stay drawn, as a power
// of two in ns: 8.6 s. It is long next to the difference of two hosts' clocks, so
// that they seldom see a request in different spans, and short next to the time
// for which a figure is taken: where a few connections, opened and closed all the
// time with the same ports, make all the requests, the same ones are not kept for
// ever.
const sampleSpan = 33

// sampleHash is the number that decides whether a request is kept where one of several
// is: those whose hash ends in zeros. It is the same at both ends of the
// connection, as far as no address is translated on the way and both have seen the
// connection from its beginning (Seq), so the end that keeps fewer keeps some of
// those that the other end keeps, and they can be joined. It says nothing about
// the request: what is kept is a fair sample. Of a trace all requests are kept, or none.
func sampleHash(r *observe.Request) uint64 {
	const a, b, c = 0xa0761d6478bd642f, 0xe7037ed1a0b428db, 0x8ebc6af09c88c6e3
	span := uint64(r.StartNS) >> sampleSpan
	if t := &r.Trace; t.Known() {
		h := mix(binary.LittleEndian.Uint64(t.ID[:8])^a, span^b)
		return mix(h^binary.LittleEndian.Uint64(t.ID[8:]), c)
	}
	client, server := r.Peer, r.Local
	if r.Side == observe.Called {
		client, server = server, client
	}
	h := mix(uint64(r.Seq)^a, span^b)
	h = mixEnd(h, client)
	h = mixEnd(h, server)
	return mix(h^c, a)
}

func mixEnd(h uint64, end netip.AddrPort) uint64 {
	const d, e = 0x589965cc75374cc3, 0x1d8e4e27c47d124f
	addr := end.Addr().As16() // IPv4 and the same mapped into IPv6 are one
	h = mix(h^binary.LittleEndian.Uint64(addr[:8]), uint64(end.Port())^d)
	return mix(h^binary.LittleEndian.Uint64(addr[8:]), e)
}

// mix is the product's halves folded, as wyhash has it: every bit of the result
// depends on all bits of both.
func mix(x, y uint64) uint64 {
	high, low := bits.Mul64(x, y)
	return high ^ low
}
