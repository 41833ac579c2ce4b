package store

import (
	"net/netip"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/schema"
)

// A request as an entry of a log: first its start, so that a log can be put in
// order without decoding it; then the number of its process in the frame; the
// parts of the ledger and of the split, and how its connection was opened, only where they are not zero. Who was at the other
// end and the trace follow where they are known.

const followedBit = 1 << 6 // in the byte that has side, status and why

// The numbers of an entry in its order, after the addresses.
var logFields = schema.Fields("pid", "tid", "seq", "requests", "weight", "bytes_in", "bytes_out", "unacked_bytes", "retrans",
	"rtt_us", "min_rtt_us", "mss_bytes", "http_status", "flags", "first_byte_us")

// number appends a field: what may be less than zero as such.
func (e *encoder) number(f *schema.Field, r *Request) {
	switch n := f.Int(r); {
	case f.Kind == schema.Micros:
		e.int(micros(n))
	case f.Signed:
		e.int(n)
	default:
		e.uint(uint64(n))
	}
}

// number is the inverse.
func (d *decoder) number(f *schema.Field, r *Request) {
	switch {
	case f.Signed:
		f.SetValue(r, d.int())
	case f.Bits == 32:
		f.SetInt(r, int64(d.small()))
	default:
		f.SetInt(r, int64(d.uint()))
	}
}

// appendRequest appends r, whose process has this number in the frame, and who was at
// the other end this number less 1; 0 where nobody knows. Times are cut to
// microseconds, see microLedger.
func appendRequest(b []byte, r *Request, process, peer uint32) []byte {
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
	for i := range logFields {
		e.number(&logFields[i], r)
	}
	e.text(r.Label)

	ledger, split := microLedger(r)
	var used uint64
	opening := observe.Opening{DNS: micros(r.Opening.DNS), Connect: micros(r.Opening.Connect), Idle: micros(r.Opening.Idle)}
	times := logTimes(&ledger, &split, &opening)
	for i, us := range times {
		if *us != 0 {
			used |= 1 << i
		}
	}
	e.uint(used)
	for _, us := range times {
		if *us != 0 {
			e.int(*us)
		}
	}
	traced := r.Trace.Known()
	if peer != 0 || traced {
		e.uint(uint64(peer))
	}
	if traced {
		e.b = append(append(append(e.b, r.Trace.ID[:]...), r.Trace.Parent[:]...), byte(r.Trace.Flags))
	}
	return e.b
}

// logTimes are the parts in the order of an entry. What a later version knows comes last.
func logTimes(l *observe.Ledger, s *observe.ServerSplit, o *observe.Opening) (list [int(observe.NumParts) + int(observe.NumServerParts) + 3]*int64) {
	i := 0
	for p := range l {
		if observe.Part(p) != observe.TLS {
			list[i] = &l[p]
			i++
		}
	}
	for p := range s {
		list[i] = &s[p]
		i++
	}
	list[i], list[i+1], list[i+2], list[i+3] = &l[observe.TLS], &o.DNS, &o.Connect, &o.Idle
	return list
}

// decodeTrace reads what a traced request ends with.
func decodeTrace(d *decoder, t *observe.Trace) {
	if len(d.b) == 0 {
		return
	}
	if d.bad = d.bad || len(d.b) < len(t.ID)+len(t.Parent)+1; d.bad {
		return
	}
	d.b = d.b[copy(t.ID[:], d.b):]
	d.b = d.b[copy(t.Parent[:], d.b):]
	t.Flags = uint32(d.byte())
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

// decodeRequest is the inverse of appendRequest, with the processes of its frame; false
// when the entry is malformed.
func decodeRequest(entry []byte, r *Request, procs []observe.Identity) bool {
	return decodeRequestWith(entry, r, procs, nil)
}

// decodeRequestWith takes texts from a vocabulary.
func decodeRequestWith(entry []byte, r *Request, procs []observe.Identity, words vocabulary) bool {
	d := decoder{b: entry, words: words}
	*r = Request{}
	r.StartNS = d.int() * 1000
	process, peer := d.uint(), uint64(0)
	kind := d.byte()
	r.Side, r.Status, r.Why = observe.Side(kind&3), observe.Status(kind>>2&3), Why(kind>>4&3)
	r.Followed = kind&followedBit != 0
	r.NetNS = d.uint()
	r.Local = decodeAddr(&d)
	r.Peer = decodeAddr(&d)
	for i := range logFields {
		d.number(&logFields[i], r)
	}
	r.Label = d.text()
	used := d.uint()
	for i, ns := range logTimes(&r.Ledger, &r.Split, &r.Opening) {
		if used&(1<<i) != 0 {
			*ns = d.int() * 1000
		}
	}
	if len(d.b) > 0 {
		peer = d.uint()
	}
	decodeTrace(&d, &r.Trace)
	if process >= uint64(len(procs)) || peer > uint64(len(procs)) {
		return false
	}
	if r.Process = procs[process]; peer > 0 {
		r.PeerWorkload = procs[peer-1].Workload
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
