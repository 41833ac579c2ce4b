package capture

import "slices"

// direction is one half of a connection: the bytes that one end sends.
// Sequence numbers are counted from the first byte (RFC 9293's ISN + 1 is 0)
// and do not wrap.
type direction struct {
	base    uint32 // sequence number of byte 0
	known   bool   // base is set
	next    int64  // all bytes below were seen
	top     int64  // highest byte seen, exclusive
	later   []span // seen above next, in order, not touching
	acked   int64  // the other end has all bytes below
	ackedAt int64
	closed  int64 // time of the FIN
}

// span is a range of bytes, to exclusive.
type span struct{ from, to int64 }

// start sets what byte 0 is, when it is not known yet.
func (d *direction) start(seq uint32) {
	if !d.known {
		d.base, d.known = seq, true
	}
}

// offset is a sequence number as a count of bytes. It must be within 2 GiB of
// the highest byte seen.
func (d *direction) offset(seq uint32) int64 {
	return d.top + int64(int32(seq-(d.base+uint32(d.top))))
}

// see notes a segment's bytes and returns how many of them are new.
func (d *direction) see(from, to int64) int64 {
	fresh := int64(0)
	d.top = max(d.top, to)
	if from = max(from, d.next); from >= to {
		return 0
	}
	// Merge with what it touches; what is left of it is new.
	merged := span{from, to}
	fresh = to - from
	keep := d.later[:0]
	for _, s := range d.later {
		if s.to < merged.from || s.from > merged.to {
			keep = append(keep, s)
			continue
		}
		fresh -= max(min(s.to, to)-max(s.from, from), 0)
		merged = span{min(s.from, merged.from), max(s.to, merged.to)}
	}
	d.later = keep
	if merged.from <= d.next {
		d.next = merged.to
		return fresh
	}
	i, _ := slices.BinarySearchFunc(d.later, merged, func(a, b span) int { return int(a.from - b.from) })
	d.later = slices.Insert(d.later, i, merged)
	return fresh
}

// acknowledge notes that the other end has all bytes below an offset.
func (d *direction) acknowledge(below, now int64) {
	if below > d.acked {
		d.acked, d.ackedAt = below, now
	}
}
