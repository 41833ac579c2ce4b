package anomaly

import (
	"math"
	"net/netip"
	"slices"

	"github.com/slowray/slowray/internal/fleet"
)

// ClientRequest is what is asked of a request to tell its client's network.
type ClientRequest struct {
	Key    fleet.Key
	Client netip.Addr
	Bad    bool // it was slow on the way: retransmitted, or its network time was long
	Weight uint32
}

// prefixes are the sizes of networks that are tried.
var prefixes = [2][]int{{32, 24, 16, 8}, {64, 56, 48, 32}}

// ClientNetwork finds the network whose requests are bad more often than those of
// others: the one of the largest likelihood ratio, less what it costs to name it.
func ClientNetwork(requests []ClientRequest) (Shared, bool) {
	type tally struct{ bad, all int }
	nets := map[netip.Prefix]*tally{}
	var of, all int
	for _, r := range requests {
		client := r.Client.Unmap()
		n := int(max(r.Weight, 1))
		all += n
		if r.Bad {
			of += n
		}
		family := 0
		if client.Is6() {
			family = 1
		}
		for _, bits := range prefixes[family] {
			p, err := client.Prefix(bits)
			if err != nil {
				continue
			}
			t := nets[p]
			if t == nil {
				t = &tally{}
				nets[p] = t
			}
			t.all += n
			if r.Bad {
				t.bad += n
			}
		}
	}
	var best netip.Prefix
	score := 0.0
	for p, t := range nets {
		s := gain(t.bad, t.all, of, all) - math.Log(float64(len(nets)))
		if s > score || s == score && best.IsValid() && (p.Bits() < best.Bits() || p.Bits() == best.Bits() && p.Addr().Less(best.Addr())) {
			best, score = p, s
		}
	}
	if score <= 0 {
		return Shared{}, false
	}
	t := nets[best]
	s := Shared{
		Component: Component{Clients, best.String()}, Inside: t.bad, InsideOf: of, Outside: t.all - t.bad, OutsideOf: all - of,
		P: min(chance(t.bad, of, t.all, all)*float64(len(nets)), 1), Network: true,
	}
	// It must be most of what is bad: otherwise it is a place where it is worse.
	return s, s.P < surely && 2*t.bad > of
}

// clients puts the network of the clients in the place of the component whose
// endpoints are slow on the way.
func (x *Explanation) clients(requests []ClientRequest) {
	for i := range x.Shared {
		s := &x.Shared[i]
		if !s.Network {
			continue
		}
		var own []ClientRequest
		for _, r := range requests {
			if slices.Contains(s.Members, r.Key) {
				own = append(own, r)
			}
		}
		if c, ok := ClientNetwork(own); ok {
			c.Members, c.Explains, c.Signal = s.Members, s.Explains, s.Signal
			c.Also = append(c.Also, s.Component)
			x.Shared[i] = c
		}
	}
}
