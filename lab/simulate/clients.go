package simulate

import (
	"net/netip"

	"github.com/slowray/slowray/internal/fleet"
)

// ClientRequest is a request of a client that is none of the fleet.
type ClientRequest struct {
	Client netip.Addr
	Bad    bool // it was retransmitted
	Weight uint32
}

// networks is how many networks of clients there are.
const networks = 40

// ClientRequests gives requests of the present second at the front, those that lost
// segments all and one of ten others, as a recorder keeps them.
func (f *Fleet) ClientRequests(add func(fleet.Key, ClientRequest)) {
	r := f.rng
	for _, e := range f.all {
		if e.svc.tier != 3 || e.n == 0 || e.host.removed || e.host.dead {
			continue
		}
		for range int(e.n) {
			net := r.IntN(networks)
			loss := e.host.way.loss + e.host.way.out
			if net == 0 {
				loss += e.fault.way.loss * networks // on average of all networks it is fault.way.loss
			}
			bad := r.Float64() < min(loss*segments, 0.9)
			if !bad && r.IntN(10) > 0 {
				continue
			}
			weight := uint32(1)
			if !bad {
				weight = 10
			}
			add(e.key, ClientRequest{netip.AddrFrom4([4]byte{198, 51, byte(100 + net), byte(1 + r.IntN(250))}), bad, weight})
		}
	}
}
