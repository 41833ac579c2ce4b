package request

import (
	"math"
	"net/netip"

	"github.com/slowray/slowray/internal/observe"
)

// sampled tells how far sums may be off where connections are followed in turn: by random
// groups of turns (Wolter, Introduction to Variance Estimation, 2.4). That what a
// connection does in one turn is like what it does in the next makes the sums better than
// that.
type sampled struct {
	requests [turnGroups]float64 // that the records of a group stand for
	all      float64             // of them, followed or not
	followed float64             // … and followed
}

const turnGroups = 16

// turnNS is about how long a connection has to wait for its next turn.
const turnNS = 1 << 30

// add counts a record that stands for n requests.
func (s *sampled) add(r *observe.Request, n uint64) {
	s.requests[turnGroup(r.Local, r.Peer, r.StartNS/turnNS)] += float64(n)
	s.all += float64(n)
	s.followed += float64(n) / float64(uint64(1)<<min(r.Share, 63))
}

// turnGroup is the group of a turn of a connection.
func turnGroup(local, peer netip.AddrPort, turn int64) uint64 {
	a, b := local.Addr().As16(), peer.Addr().As16()
	h := uint64(turn)
	for _, word := range [...]uint64{
		uint64(local.Port())<<16 | uint64(peer.Port()),
		uint64(a[12])<<24 | uint64(a[13])<<16 | uint64(a[14])<<8 | uint64(a[15]),
		uint64(b[12])<<24 | uint64(b[13])<<16 | uint64(b[14])<<8 | uint64(b[15]),
	} {
		h = (h ^ word) * 0x9e3779b97f4a7c15 // 2^64 by the golden ratio
		h ^= h >> 29
	}
	return h >> 60
}

func (s *sampled) merge(o *sampled) {
	for i := range s.requests {
		s.requests[i] += o.requests[i]
	}
	s.all += o.all
	s.followed += o.followed
}

// error is the standard error of the number of requests, as a part of it. Where only few
// turns were seen it is as much as all of it.
func (s *sampled) error() float64 {
	if s == nil || s.all == 0 {
		return 0
	}
	mean, squares := s.all/turnGroups, 0.0
	for _, n := range s.requests {
		squares += (n - mean) * (n - mean)
	}
	return math.Sqrt(squares*turnGroups/(turnGroups-1)*(1-s.followed/s.all)) / s.all
}
