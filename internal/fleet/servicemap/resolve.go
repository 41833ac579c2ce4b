package servicemap

import (
	"net/netip"
	"slices"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
)

// owners tells whose an address is.
type owners struct{ hosts map[netip.Addr][]string }

func ownersOf(hosts []fleet.HostSeen) *owners {
	o := &owners{map[netip.Addr][]string{}}
	for i := range hosts {
		for _, text := range hosts[i].Addresses {
			if addr, ok := address(text); ok && !addr.IsLoopback() {
				o.add(addr, hosts[i].Name)
			}
		}
	}
	return o
}

func (o *owners) add(addr netip.Addr, host string) {
	list := o.hosts[addr]
	if i, found := slices.BinarySearch(list, host); !found {
		o.hosts[addr] = slices.Insert(list, i, host)
	}
}

// only is the one host that has an address, "" when there is none or several.
func (o *owners) only(addr netip.Addr) string {
	if list := o.hosts[addr]; len(list) == 1 {
		return list[0]
	}
	return ""
}

// address reads an address, with or without the length of its network's prefix or a
// zone.
func address(text string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(text)
	if err != nil {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return addr, false
		}
		addr = prefix.Addr()
	}
	return addr.Unmap().WithZone(""), true
}

// place is where something is served: an address and port of a host.
type place struct {
	host string
	addr netip.Addr
	port int
}

// resolver finds what answers at an address that is called.
type resolver struct {
	owners *owners
	served map[place][]*fleet.Key // by exact address
	ports  map[place][]*fleet.Key // by host and port, without address
	at     map[place][]string     // hosts by address and port, without host
}

func newResolver(o *owners) *resolver {
	return &resolver{owners: o, served: map[place][]*fleet.Key{}, ports: map[place][]*fleet.Key{}, at: map[place][]string{}}
}

// learn takes note of what is served.
func (r *resolver) learn(k *fleet.Key) {
	addr, ok := address(k.Addr)
	if !ok {
		return
	}
	add := func(m map[place][]*fleet.Key, p place) { m[p] = append(m[p], k) }
	add(r.served, place{k.Host, addr, k.Port})
	add(r.ports, place{host: k.Host, port: k.Port})
	here := place{addr: addr, port: k.Port}
	if i, found := slices.BinarySearch(r.at[here], k.Host); !found {
		r.at[here] = slices.Insert(r.at[here], i, k.Host)
	}
}

// resolve says which endpoint a call leads to: nil with the reason when that cannot be
// told. host is set too where it is known which host has the address and not what
// answers there.
func (r *resolver) resolve(k *fleet.Key) (to *fleet.Key, host string, how How, why string) {
	addr, ok := address(k.Addr)
	if !ok {
		return nil, "", Unknown, "the address cannot be read"
	}
	// The host itself, in any of its network namespaces: loopback, the addresses of its
	// containers, which other hosts may use too, and its own.
	if to, several := single(r.served[place{k.Host, addr, k.Port}]); to != nil {
		return to, k.Host, SameHost, ""
	} else if several {
		return nil, k.Host, Unknown, "several services of the host answer at this address and port, in different network namespaces"
	}
	if addr.IsLoopback() || addr.IsUnspecified() {
		return nil, k.Host, Unknown, "nothing was seen to answer there on the host itself"
	}
	hosts := r.owners.hosts[addr]
	if len(hosts) == 0 {
		hosts = r.at[place{addr: addr, port: k.Port}] // an address of a container, on a network between hosts
		if addr.IsPrivate() && slices.Contains(hosts, k.Host) {
			hosts = []string{k.Host}
		}
	}
	switch len(hosts) {
	case 0:
		return nil, "", Unknown, "no host that ships has this address: a load balancer, a proxy, or outside"
	case 1:
		host = hosts[0]
	default:
		if !slices.Contains(hosts, k.Host) {
			return nil, "", Unknown, "several hosts have this address"
		}
		host = k.Host
	}
	how = Address
	if host == k.Host {
		how = SameHost
	}
	if to, several := single(r.served[place{host, addr, k.Port}]); to != nil {
		return to, host, how, ""
	} else if several {
		return nil, host, Unknown, "several services of the host answer at this address and port"
	}
	// Served at another address of the host: the port was passed on to a container.
	if to, _ := single(r.ports[place{host: host, port: k.Port}]); to != nil {
		return to, host, how, ""
	}
	return nil, host, Unknown, "the host has the address, and nothing was seen to answer at this port: it is passed on elsewhere, or not recorded"
}

// single is the one service of a list, which may be there at several endpoints; several
// says that there is more than one.
func single(list []*fleet.Key) (to *fleet.Key, several bool) {
	for _, k := range list {
		if to != nil && to.Service != k.Service {
			return nil, true
		}
		if to == nil {
			to = k
		}
	}
	return to, false
}

// Endpoint is what a served end belongs to.
func (e *End) Endpoint() fleet.Key {
	return fleet.Key{Host: e.Host, Service: e.Service, Side: observe.Served, Addr: e.Server.Addr().String(), Port: int(e.Server.Port())}
}
