package packets

import "net/netip"

// sides tells which end of a connection serves.
type sides struct {
	opened map[netip.AddrPort]bool // ends that a SYN went to
	// peers counts the other ends of an end, in connections without a SYN.
	peers map[netip.AddrPort]map[netip.AddrPort]struct{}
}

// maxPeers is more than enough to tell an end that serves from one that asks.
const maxPeers = 16

func newSides() *sides {
	return &sides{opened: map[netip.AddrPort]bool{}, peers: map[netip.AddrPort]map[netip.AddrPort]struct{}{}}
}

// note takes in a packet of the first reading.
func (d *sides) note(s *segment) {
	switch {
	case s.flags&(flagSYN|flagACK) == flagSYN:
		d.opened[s.dst] = true
	case s.flags&(flagSYN|flagACK) == flagSYN|flagACK:
		d.opened[s.src] = true
	case s.length > 0:
		d.meet(s.src, s.dst)
		d.meet(s.dst, s.src)
	}
}

func (d *sides) meet(end, other netip.AddrPort) {
	m := d.peers[end]
	if m == nil {
		m = map[netip.AddrPort]struct{}{}
		d.peers[end] = m
	}
	if len(m) < maxPeers {
		m[other] = struct{}{}
	}
}

// serves says whether a, and not b, is the end that serves: the one that others
// connect to, that has more peers, or the lower port.
func (d *sides) serves(a, b netip.AddrPort) bool {
	if d.opened[a] != d.opened[b] {
		return d.opened[a]
	}
	if x, y := len(d.peers[a]), len(d.peers[b]); x != y {
		return x > y
	}
	return a.Port() < b.Port()
}
