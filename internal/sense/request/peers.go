package request

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/slowray/slowray/internal/observe"
)

const (
	maxPeers  = 512 // addresses counted at a time
	keepPeers = 256 // of which these stay when there are more
	topPeers  = 16  // addresses reported
)

type peer struct {
	addr     netip.Addr
	requests uint64
	totalNS  int64
	retrans  uint64
	minRTT   int64
	missed   int64 // at most so much time of it was counted before and forgotten
}

// peers counts the other ends of an endpoint by address. Up to 512 addresses
// are exact. Beyond, those of least time are forgotten (as in Space-Saving,
// Metwally et al. 2005, many at a time): what is reported for an address is then
// what was counted since it was last taken up, never more than the truth, and
// an address with a notable share of all time is always among them.
type peers struct {
	index map[netip.Addr]uint16
	list  []peer
	last  uint16 // index of the latest: requests of one peer come in rows
	floor int64  // the most time that a forgotten address can have had
}

// of is the entry of an address.
func (p *peers) of(addr netip.Addr) *peer {
	if int(p.last) < len(p.list) && p.list[p.last].addr == addr {
		return &p.list[p.last]
	}
	i, ok := p.index[addr]
	if !ok {
		i = p.take(addr)
	}
	p.last = i
	return &p.list[i]
}

func (p *peers) take(addr netip.Addr) uint16 {
	if len(p.list) == maxPeers {
		p.forget()
	}
	if p.index == nil {
		p.index = map[netip.Addr]uint16{}
	}
	i := uint16(len(p.list))
	p.list = append(p.list, peer{addr: addr, missed: p.floor})
	p.index[addr] = i
	return i
}

// forget drops the addresses of least time.
func (p *peers) forget() {
	slices.SortFunc(p.list, func(a, b peer) int {
		return cmp.Or(cmp.Compare(b.totalNS+b.missed, a.totalNS+a.missed), a.addr.Compare(b.addr))
	})
	first := &p.list[keepPeers]
	p.floor = max(p.floor, first.totalNS+first.missed)
	p.list = p.list[:keepPeers]
	p.last = 0
	clear(p.index)
	for i := range p.list {
		p.index[p.list[i].addr] = uint16(i)
	}
}

func (e *peer) add(requests uint64, totalNS int64, retrans uint64, minRTT int64) {
	e.requests += requests
	e.totalNS += totalNS
	e.retrans += retrans
	e.minRTT = smallest(e.minRTT, minRTT)
}

// smallest is the lesser of two durations, of which 0 means not known.
func smallest(a, b int64) int64 {
	if a <= 0 || (b > 0 && b < a) {
		return max(b, 0)
	}
	return a
}

func (p *peers) merge(other *peers) {
	// What either does not list it may have forgotten.
	for i := range p.list {
		p.list[i].missed += other.floor
	}
	p.floor += other.floor
	for i := range other.list {
		o := &other.list[i]
		e := p.of(o.addr)
		e.add(o.requests, o.totalNS, o.retrans, o.minRTT)
		e.missed += o.missed - other.floor
	}
}

func (p *peers) reset() {
	clear(p.index)
	p.list, p.last, p.floor = p.list[:0], 0, 0
}

// top are the addresses with most time.
func (p *peers) top() []observe.PeerStats {
	byTime := slices.Clone(p.list)
	slices.SortFunc(byTime, func(a, b peer) int {
		return cmp.Or(cmp.Compare(b.totalNS, a.totalNS), a.addr.Compare(b.addr))
	})
	byTime = byTime[:min(len(byTime), topPeers)]
	stats := make([]observe.PeerStats, len(byTime))
	for i, e := range byTime {
		stats[i] = observe.PeerStats{Addr: e.addr.String(), Requests: e.requests, TotalNS: e.totalNS, Retrans: e.retrans, MinRTT: e.minRTT}
	}
	return stats
}
