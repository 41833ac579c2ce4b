package request

import (
	"net/netip"
	"unsafe"

	"github.com/slowray/slowray/internal/observe"
)

// kernelCounters is struct counters (internal/bpf/headers/request.h).
type kernelCounters struct {
	requests, ok, errors, unanswered, overlapped uint64
	bytesIn, bytesOut, segments, retrans         uint64
	connections, handshake, handshakeMax         uint64
	synRetrans                                   uint64
	parts                                        [observe.NumParts]int64
}

// endpointKey is struct endpoint_key.
type endpointKey struct {
	NetNS  uint32
	Port   uint16
	Side   uint8
	Family uint8
	Addr   [16]byte
}

// Counters reads the exact sums of every address, since Start. Addresses that
// found no place are counted together, without an address, under each side.
func (r *Recorder) Counters() []Counters {
	var (
		key  endpointKey
		n    uint32
		list []Counters
		at   = map[counterKey]int{} // an address of IPv4 may be met in both families
		it   = r.objects.Endpoints.Iterate()
	)
	for it.Next(&key, &n) {
		c := Counters{Side: observe.Side(key.Side), NetNS: uint64(key.NetNS), Port: key.Port}
		if key.Family == familyInet6 {
			c.Addr = netip.AddrFrom16(key.Addr).Unmap()
		} else {
			c.Addr = netip.AddrFrom4([4]byte(key.Addr[:4]))
		}
		i, known := at[c.key()]
		if !known {
			i = len(list)
			at[c.key()] = i
			list = append(list, c)
		}
		r.sum(&list[i], int(n))
		if t := r.handshakes[list[i].key()]; t != nil && !known {
			list[i].TLS, list[i].TLSFailed, list[i].TLSNS, list[i].TLSStats = t.TLS, t.TLSFailed, t.TLSNS, t.TLSStats
		}
	}
	other := Counters{Side: observe.Served}
	r.sum(&other, r.endpoints()-1)
	if other.Requests+other.Connections > 0 {
		list = append(list, other)
	}
	return list
}

func (r *Recorder) endpoints() int { return len(r.counts) / (countersSize * r.cpus * 2) }

// sum adds up what all CPUs counted for an endpoint.
func (r *Recorder) sum(c *Counters, endpoint int) {
	for lane := range r.cpus * 2 {
		at := (endpoint*r.cpus*2 + lane) * countersSize
		if at < 0 || at+countersSize > len(r.counts) {
			return
		}
		k := (*kernelCounters)(unsafe.Pointer(&r.counts[at]))
		c.Requests += k.requests
		c.OK += k.ok
		c.Errors += k.errors
		c.Unanswered += k.unanswered
		c.Overlapped += k.overlapped
		c.BytesIn += k.bytesIn
		c.BytesOut += k.bytesOut
		c.Segments += k.segments
		c.Retrans += k.retrans
		c.Connections += k.connections
		c.Handshake += int64(k.handshake)
		c.HandshakeMax = max(c.HandshakeMax, int64(k.handshakeMax))
		c.SynRetrans += k.synRetrans
		for p := range k.parts {
			c.PartNS[p] += k.parts[p]
		}
	}
}
