package watch

import (
	"cmp"
	"slices"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
)

// maxUDP bounds the sockets of a namespace that are reported.
const maxUDP = 64

// udpBegin remembers what each UDP socket has dropped so far.
func (sp *space) udpBegin(s *session) {
	all, err := sp.ns.UDPSockets()
	if err != nil {
		s.partialGap(observe.KindUDP, sp.inode, "UDP sockets", err)
	}
	sp.udpDrops = make(map[uint64]uint64, len(all))
	for i := range all {
		sp.udpDrops[all[i].Inode] = all[i].Drops
	}
}

// udpEnd keeps the UDP sockets that dropped datagrams in the window, most
// first.
func (sp *space) udpEnd() {
	all, err := sp.ns.UDPSockets()
	if err != nil {
		return // told at the beginning, or the namespace is gone
	}
	for i := range all {
		u := &all[i]
		// sk_drops is a 32-bit counter: the difference survives its wrap.
		if u.Drops = uint64(uint32(u.Drops) - uint32(sp.udpDrops[u.Inode])); u.Drops > 0 {
			sp.udp = append(sp.udp, *u)
		}
	}
	slices.SortStableFunc(sp.udp, func(a, b host.UDPSample) int {
		return cmp.Or(cmp.Compare(b.Drops, a.Drops), cmp.Compare(a.Inode, b.Inode))
	})
	sp.udp = sp.udp[:min(len(sp.udp), maxUDP)]
}

func (sp *space) finishUDP(owners map[uint64][]int) []observe.UDPSocket {
	var out []observe.UDPSocket
	for i := range sp.udp {
		u := &sp.udp[i]
		o := observe.UDPSocket{Addr: u.Local.Addr().String(), Port: int(u.Local.Port()), Inode: u.Inode, QueueBytes: u.QueueBytes, Drops: u.Drops}
		if pids := owners[u.Inode]; len(pids) > 0 {
			o.PID = pids[0]
		}
		out = append(out, o)
	}
	return out
}
