package packets

import (
	"hash/maphash"
	"net/netip"
)

// sides tells which end of a connection serves. It knows ends by a keyed hash of
// 64 bits: nobody can make two of them alike, and by chance among all that it keeps
// one pair in ten million captures is.
type sides struct {
	seed   maphash.Seed
	opened map[uint64]struct{} // ends that a SYN went to
	// peers counts the other ends of an end, in connections without a SYN; met
	// is which of them.
	peers map[uint64]uint8
	met   map[uint64]struct{}
	full  bool // there were more than are kept
}

const (
	// maxPeers is more than enough to tell an end that serves from one that asks.
	maxPeers = 16
	// maxEnds bounds each of the sets, to some 10 MB.
	maxEnds = 1 << 19
)

func newSides() *sides {
	return &sides{seed: maphash.MakeSeed(), opened: map[uint64]struct{}{}, peers: map[uint64]uint8{}, met: map[uint64]struct{}{}}
}

func (d *sides) end(a netip.AddrPort) uint64 { return maphash.Comparable(d.seed, a) }

// note takes in a packet of the first reading.
func (d *sides) note(s *segment) {
	switch {
	case s.flags&(flagSYN|flagACK) == flagSYN:
		d.open(s.dst)
	case s.flags&(flagSYN|flagACK) == flagSYN|flagACK:
		d.open(s.src)
	case s.length > 0:
		a, b := d.end(s.src), d.end(s.dst)
		if !d.opens(a) && !d.opens(b) {
			d.meet(a, b)
			d.meet(b, a)
		}
	}
}

func (d *sides) opens(end uint64) bool {
	_, opened := d.opened[end]
	return opened
}

func (d *sides) open(end netip.AddrPort) { d.keep(d.opened, d.end(end)) }

// keep puts into a set what there is room for, and says whether that is news.
func (d *sides) keep(set map[uint64]struct{}, x uint64) bool {
	if _, known := set[x]; known {
		return false
	}
	if len(set) >= maxEnds {
		d.full = true
		return false
	}
	set[x] = struct{}{}
	return true
}

func (d *sides) meet(end, other uint64) {
	if d.peers[end] < maxPeers && d.keep(d.met, maphash.Comparable(d.seed, [2]uint64{end, other})) {
		d.peers[end]++
	}
}

// serves says whether a, and not b, is the end that serves: the one that others
// connect to, that has more peers, or the lower port.
func (d *sides) serves(a, b netip.AddrPort) bool {
	x, y := d.end(a), d.end(b)
	if opened := d.opens(x); opened != d.opens(y) {
		return opened
	}
	if d.peers[x] != d.peers[y] {
		return d.peers[x] > d.peers[y]
	}
	return a.Port() < b.Port()
}
