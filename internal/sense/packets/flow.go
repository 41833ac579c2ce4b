package packets

import "slices"

// flow is the bytes that one end of a connection sends. They are counted from
// the first one after the SYN, or the first one captured, and do not wrap.
type flow struct {
	known bool
	base  uint32 // sequence number of byte 0
	whole int64  // all bytes below passed here
	top   int64  // the highest byte that passed here, exclusive
	above []bytesRange
	acked int64 // the other end has all bytes below
	// ackedNS is when that was said, holeNS since when bytes are missing between
	// those that passed here; 0 = none are.
	ackedNS, holeNS int64
}

type bytesRange struct{ from, to int64 }

// arrival is what a segment brought.
type arrival struct {
	fresh  int64 // bytes that did not pass here before
	again  bool  // all of it did: it was retransmitted
	filled int64 // for how long the bytes that it brings at last were missed, ns
}

func (f *flow) start(seq uint32) {
	if !f.known {
		f.base, f.known = seq, true
	}
}

// at is a sequence number as a count of bytes; it lies within 2 GiB of the
// highest byte that passed.
func (f *flow) at(seq uint32) int64 {
	return f.top + int64(int32(seq-(f.base+uint32(f.top))))
}

// maxRanges bounds what is remembered of holes: of a capture with more of them,
// the packets are missing and not the segments.
const maxRanges = 64

// take notes the bytes from, to (exclusive), that pass at now.
func (f *flow) take(from, to, now int64) arrival {
	from = max(from, f.whole)
	if from >= to {
		f.top = max(f.top, to)
		return arrival{again: true}
	}
	a := arrival{fresh: to - from}
	for _, r := range f.above {
		a.fresh -= max(0, min(r.to, to)-max(r.from, from))
	}
	if a.fresh <= 0 {
		return arrival{again: true}
	}
	if from > f.whole && f.holeNS == 0 {
		f.holeNS = now
	}
	if from < f.top && f.holeNS != 0 {
		a.filled = max(0, now-f.holeNS)
	}
	f.top = max(f.top, to)
	f.add(bytesRange{from, to})
	if len(f.above) == 0 {
		f.holeNS = 0
	}
	return a
}

// add keeps the ranges sorted and apart, and moves whole on.
func (f *flow) add(r bytesRange) {
	i, _ := slices.BinarySearchFunc(f.above, r, func(a, b bytesRange) int { return int(a.from - b.from) })
	f.above = slices.Insert(f.above, i, r)
	kept := f.above[:1]
	for _, next := range f.above[1:] {
		if last := &kept[len(kept)-1]; next.from <= last.to {
			last.to = max(last.to, next.to)
		} else {
			kept = append(kept, next)
		}
	}
	if len(kept) > maxRanges {
		f.whole = kept[0].from
	}
	for len(kept) > 0 && kept[0].from <= f.whole {
		f.whole = max(f.whole, kept[0].to)
		kept = slices.Delete(kept, 0, 1)
	}
	f.above = kept
}

// fill forgets the holes, as if their bytes had passed.
func (f *flow) fill() {
	f.whole, f.above, f.holeNS = max(f.whole, f.top), nil, 0
}

// acknowledge notes that the other end has all bytes below, and says whether
// that is news.
func (f *flow) acknowledge(below, now int64) bool {
	if below <= f.acked {
		return false
	}
	f.acked, f.ackedNS = below, now
	if below > f.whole { // bytes that the capture lacks arrived all the same
		f.whole, f.top = below, max(f.top, below)
		for len(f.above) > 0 && f.above[0].from <= f.whole {
			f.whole = max(f.whole, f.above[0].to)
			f.above = slices.Delete(f.above, 0, 1)
		}
		if len(f.above) == 0 {
			f.holeNS = 0
		}
	}
	return true
}
