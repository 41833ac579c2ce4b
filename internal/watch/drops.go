package watch

import (
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/drop"
	"github.com/slowray/slowray/internal/sense/host"
	"github.com/slowray/slowray/internal/sense/symbol"
)

// wayThrough is what packets pass in one network namespace, as it was when the
// window began.
type wayThrough struct {
	path     drop.Path
	firewall drop.Counts
	counters map[string]uint64
	read     bool // path
	rules    bool // firewall
}

// beginWay takes the first readings of a namespace.
func (sp *space) beginWay(s *session) {
	var err error
	if sp.way.path, err = drop.ReadPath(sp.ns); err != nil {
		s.partialGap(observe.KindPath, sp.inode, "packet path", err)
	} else {
		sp.way.read = true
	}
	if sp.way.firewall, err = drop.ReadCounts(sp.ns); err != nil {
		s.partialGap(observe.KindFirewall, sp.inode, "firewall", err)
	}
	sp.way.rules = err == nil || sp.way.firewall.Rules > 0
	sp.way.counters = drop.Counters(sp.ns)
}

// finishWay adds to the namespace what its path and firewall did.
func (sp *space) finishWay(s *session, out *observe.NetNS) {
	if !sp.late {
		more := host.CountersBetween(sp.way.counters, drop.Counters(sp.ns))
		if out.Counters == nil {
			out.Counters = more
		}
		for name, n := range more {
			out.Counters[name] = n
		}
	}
	if sp.way.read {
		if now, err := drop.ReadPath(sp.ns); err == nil {
			between := drop.PathBetween(sp.way.path, now)
			out.Links, out.Qdiscs, out.Filters = between.Links, between.Qdiscs, between.Filters
			sp.way.path = between // with its peers, for joinLinks
		}
	}
	// What rules say is read only where the packet filter dropped something.
	if sp.way.rules || sp.late {
		fw := observe.Firewall{All: sp.way.firewall.Rules, Long: sp.way.firewall.Long}
		if s.filtered(sp.inode) {
			var err error
			if fw, err = drop.ReadFirewall(sp.ns, sp.way.firewall); err != nil {
				s.partialGap(observe.KindFirewall, sp.inode, "firewall", err)
			}
			if sp.late {
				forgetCounts(&fw)
			}
		}
		out.Firewall = &fw
	}
	// A table of neighbours is small; one of routes need not be.
	out.Neighbours, _ = drop.Unanswered(sp.ns)
	if out.Counters["Ip.OutNoRoutes"]+out.Counters["Ip6.Ip6OutNoRoutes"]+out.Counters["Ip.InAddrErrors"] > 0 || s.unreached(sp.inode) || s.wayless(sp.inode) {
		out.Routes, _ = drop.DeadEnds(sp.ns)
	}
}

// devicesByIndex names the devices of the namespace.
func (sp *space) devicesByIndex() map[int]string {
	names := map[int]string{}
	if sp == nil {
		return names
	}
	if sp.late && !sp.way.read {
		if path, err := drop.ReadPath(sp.ns); err == nil {
			sp.way.path, sp.way.read = path, true
		}
	}
	for _, l := range sp.way.path.Links {
		names[l.Index] = l.Name
	}
	return names
}

// forgetCounts leaves out what rules have counted since they were made: of which
// nothing is known for the window.
func forgetCounts(f *observe.Firewall) {
	for i := range f.Rules {
		f.Rules[i].Counted, f.Rules[i].Packets = false, 0
	}
}

// filtered says whether the packet filter of a namespace may have dropped
// something.
func (s *session) filtered(netns uint64) bool {
	return s.out.Drops == nil || slices.ContainsFunc(s.out.Drops.List, func(d observe.Drop) bool {
		return d.NetNS == netns && (d.Reason == "NETFILTER_DROP" || d.Reason == "" && (d.Location == "" || strings.HasPrefix(d.Location, "nf") || strings.HasPrefix(d.Location, "ip")))
	})
}

// unreached says whether the kernel dropped packets of the namespace for want
// of a route.
func (s *session) unreached(netns uint64) bool {
	return s.out.Drops != nil && slices.ContainsFunc(s.out.Drops.List, func(d observe.Drop) bool {
		return d.NetNS == netns && (d.Reason == "IP_OUTNOROUTES" || d.Reason == "IP_INNOROUTES" || d.Reason == "IP_INADDRERRORS" ||
			d.Reason == "" && (d.Location == "ip_error" || d.Location == "dst_discard" || strings.HasPrefix(d.Location, "ip6_pkt_d")))
	})
}

// wayless says whether calls failed there because there was no way to an address.
// EACCES is that of a route of type prohibit.
func (s *session) wayless(netns uint64) bool {
	return slices.ContainsFunc(s.out.CallErrors, func(e observe.CallError) bool {
		return e.NetNS == netns && (e.Error == "ENETUNREACH" || e.Error == "EHOSTUNREACH" || e.Error == "EACCES" && e.Call == "connect")
	})
}

// drops counts what the kernel drops.
type drops struct{ watcher *drop.Watcher }

func (d *drops) begin(*session) (err error) {
	d.watcher, err = drop.Start()
	return err
}

// Ports from clientPorts on are mostly clients' own (net.ipv4.ip_local_port_range),
// unless many sockets call one.
const (
	clientPorts = 32768
	manySockets = 3
)

// stop takes what was dropped, and stops counting.
func (d *drops) stop(s *session) {
	devices := map[uint64]map[int]string{}
	ports := map[uint16]bool{}
	for _, sp := range s.spaces {
		for p := range sp.ports {
			ports[p] = true
		}
		// What is called: the port of its other end is no client's own, unless
		// it is from the range of those.
		for k, g := range sp.groups {
			if k.served || k.port < clientPorts || g.total >= manySockets {
				ports[k.port] = true
			}
		}
	}
	space := symbol.NewSpace(s.fs.Proc)
	defer space.Close()
	dropped, losses, err := d.watcher.Read(space,
		func(netns uint64, index int) string {
			names, known := devices[netns]
			if !known {
				names = s.spaceOf(netns).devicesByIndex()
				devices[netns] = names
			}
			return names[index]
		},
		func(port uint16) bool { return ports[port] })
	if err != nil {
		s.gap(observe.KindDrops, "", err)
	} else {
		s.out.Drops = &dropped
		s.out.Losses = append(s.out.Losses, losses...)
	}
	d.close(s)
}

// close may be called again.
func (d *drops) close(*session) {
	if d.watcher != nil {
		d.watcher.Close()
		d.watcher = nil
	}
}

// joinLinks names the other ends of veth pairs, where both namespaces are
// watched.
func (s *session) joinLinks() {
	at := map[uint64]*space{}
	for _, sp := range s.allSpaces() {
		at[sp.inode] = sp
	}
	type end struct {
		ns   *observe.NetNS
		link *observe.Link
		nsid int // of the other end
	}
	pairs := map[[2]int][]end{} // by own index and that of the other end
	for i := range s.out.Namespaces {
		ns := &s.out.Namespaces[i]
		for j := range ns.Links {
			if peer, ok := at[ns.Inode].way.path.PeerOf(ns.Links[j].Index); ok {
				k := [2]int{ns.Links[j].Index, peer.Index}
				pairs[k] = append(pairs[k], end{ns, &ns.Links[j], peer.NSID})
			}
		}
	}
	for k, ends := range pairs {
		others := pairs[[2]int{k[1], k[0]}]
		for _, e := range ends {
			for _, o := range others[:min(len(others), 64)] {
				same := o.ns == e.ns
				if same != (e.nsid < 0) || o.link == e.link {
					continue
				}
				// Pairs made alike have the same two indices.
				if !same && len(others) > 1 && drop.NSID(at[e.ns.Inode].ns, at[o.ns.Inode].ns) != e.nsid {
					continue
				}
				e.link.PeerNetNS, e.link.PeerName, e.link.PeerMTU = o.ns.Inode, o.link.Name, o.link.MTU
				break
			}
		}
	}
}
