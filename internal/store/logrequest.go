package store

import (
	"net/netip"

	"github.com/slowray/slowray/internal/observe"
)

// A request as an entry of a log: first its start, so that a log can be put in
// order without decoding it; then the number of its process in the frame; the
// parts of the ledger and of the split only where they are not zero.

const followedBit = 1 << 6 // in the byte that has side, status and why

// appendRequest appends r, whose process has this number in the frame. Times are
// cut to microseconds, see microLedger.
func appendRequest(b []byte, r *Request, process uint32) []byte {
	e := encoder{b}
	start := floorMicros(r.StartNS)
	e.int(start)
	e.uint(uint64(process))
	kind := byte(r.Side)&3 | byte(r.Status)&3<<2 | byte(r.Why)&3<<4
	if r.Followed {
		kind |= followedBit
	}
	e.byte(kind)
	e.uint(r.NetNS)
	appendAddr(&e, r.Local)
	appendAddr(&e, r.Peer)
	e.int(int64(r.PID))
	e.int(int64(r.TID))
	e.uint(uint64(r.Seq))
	e.uint(uint64(r.Requests))
	e.uint(uint64(r.Weight))
	e.uint(r.BytesIn)
	e.uint(r.BytesOut)
	e.uint(uint64(r.Unacked))
	e.uint(uint64(r.Retrans))
	e.int(micros(r.RTTNS))
	e.int(micros(r.MinRTTNS))
	e.uint(uint64(r.MSS))
	e.int(int64(r.HTTP))
	e.uint(uint64(r.Flags))
	e.int(micros(r.FirstByte))
	e.text(r.Label)

	ledger, split := microLedger(r)
	var used uint64
	for p, us := range ledger {
		if us != 0 {
			used |= 1 << p
		}
	}
	for p, us := range split {
		if us != 0 {
			used |= 1 << (int(observe.NumParts) + p)
		}
	}
	e.uint(used)
	for _, us := range ledger {
		if us != 0 {
			e.int(us)
		}
	}
	for _, us := range split {
		if us != 0 {
			e.int(us)
		}
	}
	return e.b
}

func appendAddr(e *encoder, a netip.AddrPort) {
	addr := a.Addr().Unmap().WithZone("")
	switch {
	case !addr.IsValid():
		e.byte(0)
	case addr.Is4():
		ip := addr.As4()
		e.byte(4)
		e.b = append(e.b, ip[:]...)
	default:
		ip := addr.As16()
		e.byte(16)
		e.b = append(e.b, ip[:]...)
	}
	e.uint(uint64(a.Port()))
}

// requestProcess is the number of a request's process in its frame.
func requestProcess(entry []byte) (uint32, bool) {
	d := decoder{b: entry}
	d.int()
	n := d.small()
	return n, !d.bad
}

// decodeRequest is the inverse of appendRequest but for the process; false when
// the entry is malformed.
func decodeRequest(entry []byte, r *Request) bool { return decodeRequestWith(entry, r, nil) }

// decodeRequestWith takes texts from a vocabulary.
func decodeRequestWith(entry []byte, r *Request, words vocabulary) bool {
	d := decoder{b: entry, words: words}
	*r = Request{}
	r.StartNS = d.int() * 1000
	d.uint()
	kind := d.byte()
	r.Side, r.Status, r.Why = observe.Side(kind&3), observe.Status(kind>>2&3), Why(kind>>4&3)
	r.Followed = kind&followedBit != 0
	r.NetNS = d.uint()
	r.Local = decodeAddr(&d)
	r.Peer = decodeAddr(&d)
	r.PID = int(d.int())
	r.TID = int(d.int())
	r.Seq = d.small()
	r.Requests = d.small()
	r.Weight = d.small()
	r.BytesIn = d.uint()
	r.BytesOut = d.uint()
	r.Unacked = d.small()
	r.Retrans = d.small()
	r.RTTNS = d.int() * 1000
	r.MinRTTNS = d.int() * 1000
	r.MSS = d.small()
	r.HTTP = int(d.int())
	r.Flags = observe.RequestFlags(d.small())
	r.FirstByte = d.int() * 1000
	r.Label = d.text()
	used := d.uint()
	for p := range r.Ledger {
		if used&(1<<p) != 0 {
			r.Ledger[p] = d.int() * 1000
		}
	}
	for p := range r.Split {
		if used&(1<<(int(observe.NumParts)+p)) != 0 {
			r.Split[p] = d.int() * 1000
		}
	}
	return d.ended()
}

func decodeAddr(d *decoder) netip.AddrPort {
	var addr netip.Addr
	switch size := int(d.byte()); size {
	case 0:
	case 4, 16:
		if len(d.b) < size {
			d.bad, d.b = true, nil
			return netip.AddrPort{}
		}
		addr, _ = netip.AddrFromSlice(d.b[:size])
		d.b = d.b[size:]
	default:
		d.bad, d.b = true, nil
	}
	return netip.AddrPortFrom(addr, uint16(d.uint()))
}

// floorMicros is the microsecond that a moment, ns since 1970, falls into.
func floorMicros(ns int64) int64 {
	us := ns / 1000
	if ns%1000 < 0 {
		us--
	}
	return us
}

// micros is a time of ns in µs, rounded.
func micros(ns int64) int64 { return floorMicros(ns + 500) }

// microLedger is the ledger and the split of r in µs. What is rounded are the
// moments between the parts, so the parts still add up to the total, and those
// of the server's time to it.
func microLedger(r *Request) (ledger observe.Ledger, split observe.ServerSplit) {
	var at, before int64 // since the start: ns, µs
	for p, ns := range r.Ledger {
		if observe.Part(p) == observe.AckDelay {
			ledger[p] = micros(ns)
			continue
		}
		if observe.Part(p) == observe.Server && r.Followed {
			inner, innerBefore := at, before
			for q, ns := range r.Split {
				inner += ns
				us := micros(inner)
				split[q] = us - innerBefore
				innerBefore = us
			}
		}
		at += ns
		us := micros(at)
		ledger[p] = us - before
		before = us
	}
	if !r.Followed {
		for q, ns := range r.Split {
			split[q] = micros(ns)
		}
	}
	return ledger, split
}
