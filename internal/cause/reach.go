package cause

import (
	"cmp"
	"maps"
	"math"
	"net/netip"
	"slices"

	"github.com/slowray/slowray/internal/observe"
)

// Where an address leads to on this host is asked for every call and every
// connect(). What listens is indexed by its ends, and what calls has the ends
// that it may reach: so it takes as many steps as there are of either, not as
// many as of both multiplied.

// end is where something listens, or what is called.
type end struct {
	netns uint64 // everywhere: the address alone says where it is
	port  int
	addr  string // wholeNS: any address of the namespace's own; unspecified: "0.0.0.0" or "::"
}

const (
	everywhere  = math.MaxUint64
	wholeNS     = ""
	unspecified = "*"
)

// owners are the network namespaces that have an address, loopback left out.
type owners map[string][]uint64

// of lists the namespaces that an address is one of.
func (o owners) of(a netip.Addr) []uint64 { return o[a.Unmap().String()] }

// ends are those at which a served endpoint is found.
func (l *ledger) ends() []end {
	ends := []end{{everywhere, l.Port, l.Addr}, {l.NetNS, l.Port, wholeNS}, {l.NetNS, l.Port, l.Addr}}
	if l.address.IsUnspecified() {
		ends = append(ends, end{l.NetNS, l.Port, unspecified})
	}
	return ends
}

// translated are the addresses that the calls of an endpoint really went to, as far as
// its samples tell, the most frequent first: those of the pods behind a service's, or of
// the container behind a port of the host. all says that none went to the address itself.
func translated(e *observe.Endpoint) (list []netip.AddrPort, all bool) {
	times := map[netip.AddrPort]int{}
	all = true
	for _, list := range [][]observe.RequestSample{e.Slowest, e.Failed} {
		for i := range list {
			if list[i].Destination == "" { // mostly
				all = false
			} else if to, err := netip.ParseAddrPort(list[i].Destination); err == nil {
				times[to]++
			} else {
				all = false
			}
		}
	}
	list = slices.SortedFunc(maps.Keys(times), func(a, b netip.AddrPort) int { return cmp.Or(times[b]-times[a], a.Compare(b)) })
	return list, all && len(list) > 0
}

// destinations are the ends that the calls of l reach, wherever something is
// served there: loopback is the namespace's own, and any other address may be
// that of several namespaces. Where an address leads to others, these come first.
func (l *ledger) destinations(o owners) (ends []end) {
	addrs, all := translated(l.Endpoint)
	if !all {
		addrs = append(addrs, netip.AddrPortFrom(l.address, uint16(l.Port)))
	}
	for _, to := range addrs {
		name, port := to.Addr().String(), int(to.Port())
		if to.Addr() == l.address {
			name = l.Addr
		}
		if to.Addr().IsLoopback() {
			ends = append(ends, end{l.NetNS, port, name}, end{l.NetNS, port, unspecified})
			continue
		}
		ends = append(ends, end{everywhere, port, name})
		for _, inode := range o.of(to.Addr()) {
			ends = append(ends, end{inode, port, wholeNS})
		}
	}
	return ends
}

// servedEnds are served endpoints by their ends.
type servedEnds map[end][]*ledger

func (e servedEnds) add(l *ledger) {
	for _, at := range l.ends() {
		e[at] = append(e[at], l)
	}
}

// first is the served endpoint that the calls of l reach, of several the first in
// the order of the ledgers; nil when there is none.
func (e servedEnds) first(l *ledger, o owners) (first *ledger) {
	ends := l.destinations(o)
	for _, at := range ends {
		for _, s := range e[at] {
			if at.netns == everywhere || s.Addr == at.addr {
				return s // another one may have the port at another address of the namespace
			}
		}
	}
	for _, at := range ends {
		if first != nil && at.addr != wholeNS && at.addr != unspecified { // the next destination begins
			break
		}
		if list := e[at]; len(list) > 0 && (first == nil || list[0].order < first.order) {
			first = list[0]
		}
	}
	return first
}

// reachable are services by their ends: the namespace with the port, or with the
// path of a unix socket.
type reachable struct {
	at        map[end][]*Service
	paths     map[string][]*Service
	listening map[end]bool // of the View
}

func (v *View) reachableOf(services []*Service) *reachable {
	r := &reachable{map[end][]*Service{}, map[string][]*Service{}, v.listening}
	for _, s := range services {
		at := end{s.NS.Inode, s.Port(), s.Path()}
		r.at[at] = append(r.at[at], s)
		if s.Path() != "" {
			r.paths[s.Path()] = append(r.paths[s.Path()], s)
		}
	}
	return r
}

// byCalls lists the services that the requests of an endpoint go to, if it is one that calls.
func (r *reachable) byCalls(e *observe.Endpoint, o owners) []*Service {
	if e.Side != observe.Called.String() || e.Requests == 0 {
		return nil
	}
	addrs, all := translated(e)
	var there []*Service
	if !all {
		there = r.by(&observe.Connect{NetNS: e.NetNS, Addr: e.Addr, Port: e.Port}, o)
	}
	for _, to := range addrs {
		there = append(there, r.by(&observe.Connect{NetNS: e.NetNS, Addr: to.Addr().String(), Port: int(to.Port())}, o)...)
	}
	return there
}

// by lists the services that a connect() goes to: the port is the service's,
// and the address is loopback in the same namespace or one of the addresses of
// the service's namespace.
func (r *reachable) by(c *observe.Connect, o owners) []*Service {
	if c.Family == "unix" {
		// The same path may be another socket in another container. One that
		// is shared through a volume may lie in another network namespace.
		if here := (end{netns: c.NetNS, addr: c.Path}); r.listening[here] {
			return r.at[here]
		}
		return r.paths[c.Path]
	}
	addr, err := netip.ParseAddr(c.Addr)
	if c.Port == 0 || err != nil {
		return nil
	}
	if addr.IsLoopback() {
		return r.at[end{netns: c.NetNS, port: c.Port}]
	}
	var there []*Service
	for _, inode := range o.of(addr) {
		there = append(there, r.at[end{netns: inode, port: c.Port}]...)
	}
	return there
}
