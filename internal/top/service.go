package top

import (
	"net/netip"
	"slices"

	"github.com/slowray/slowray/internal/observe"
)

// ofPorts are the endpoints at these ports, here or elsewhere, and what the services here
// that answer at them call: also what those call that answer on this host.
func ofPorts(all []observe.Endpoint, ports []int) []observe.Endpoint {
	keep := make([]bool, len(all))
	var queue []int // masters whose calls belong to it
	take := func(i int) {
		if e := &all[i]; !keep[i] {
			keep[i] = true
			if e.Side == observe.Served.String() && e.PID != 0 && !slices.Contains(queue, e.PID) {
				queue = append(queue, e.PID)
			}
		}
	}
	for i := range all {
		if slices.Contains(ports, all[i].Port) {
			take(i)
		}
	}
	for n := 0; n < len(queue); n++ { // it grows meanwhile
		for i := range all {
			call := &all[i]
			if call.Side != observe.Called.String() || call.PID != queue[n] {
				continue
			}
			take(i)
			for j := range all {
				if answers(&all[j], call) {
					take(j)
				}
			}
		}
	}
	var own []observe.Endpoint
	for i := range all {
		if keep[i] {
			own = append(own, all[i])
		}
	}
	return own
}

// answers says that a served endpoint is what a called one reaches. A loopback address is
// one of its network namespace.
func answers(served, call *observe.Endpoint) bool {
	if served.Side != observe.Served.String() || served.Port != call.Port || served.Addr != call.Addr {
		return false
	}
	at, err := netip.ParseAddr(call.Addr)
	return err == nil && (served.NetNS == call.NetNS || !at.IsLoopback())
}

// ofSide are the endpoints of one side.
func ofSide(all []observe.Endpoint, side observe.Side) []observe.Endpoint {
	return slices.DeleteFunc(slices.Clone(all), func(e observe.Endpoint) bool { return e.Side != side.String() })
}
