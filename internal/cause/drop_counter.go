package cause

import (
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// counterLayers are counters of a namespace that tell of drops which the
// kernel does not name as such, or not on every kernel.
var counterLayers = []struct {
	layer   DropLayer
	counter string
	in      bool
}{
	{DropRPFilter, "TcpExt.IPReversePathFilter", true},
	{DropRouting, "Ip.OutNoRoutes", false}, {DropRouting, "Ip.InNoRoutes", true}, {DropRouting, "Ip.InAddrErrors", true},
	{DropFragments, "Ip.ReasmFails", true}, {DropFragments, "Ip6.Ip6ReasmFails", true},
	{DropChecksum, "Tcp.InCsumErrors", true}, {DropChecksum, "Udp.InCsumErrors", true}, {DropChecksum, "Ip.InHdrErrors", true},
	{DropSYNQueue, "TcpExt.TCPReqQFullDrop", true},
	{DropSocket, "TcpExt.TCPBacklogDrop", true}, {DropSocket, "TcpExt.TCPRcvQDrop", true}, {DropSocket, "TcpExt.PruneCalled", true},
	{DropUDP, "Udp.RcvbufErrors", true}, {DropUDP, "Udp.SndbufErrors", false}, {DropNoSocket, "Udp.NoPorts", true},
	{DropMTU, "Ip.FragFails", false}, {DropMTU, "Ip6.Ip6FragFails", false},
	{DropNeighbour, "Arp.unresolved_discards", false}, {DropNeighbour, "Ndisc.unresolved_discards", false},
}

// unnamed are layers where packets die before the kernel has made anything of
// them, or where connect() fails without one.
var unnamed = []DropLayer{DropNIC, DropLink, DropXDP, DropRouting}

// pruned is no drop: TCP only makes room.
const pruned = "TcpExt.PruneCalled"

// linkLayers are counters of devices.
var linkLayers = map[string]DropLayer{
	"rx_missed": DropNIC, "rx_fifo": DropNIC, "rx_over": DropNIC, "rx_crc": DropLink, "rx_frame": DropLink, "rx_length": DropLink,
	"tx_carrier": DropLink, "tx_aborted": DropLink, "collisions": DropLink, "tx_fifo": DropDevice,
}

// counterSites adds the places that only counters tell of.
func (v *View) counterSites() {
	named := v.namedSites()
	for i := range v.Namespaces {
		ns := &v.Namespaces[i]
		for _, c := range counterLayers {
			if n := ns.Counters[c.counter]; n > 0 && c.counter != pruned && !named[siteKey{c.layer, ns.Inode, ""}] && !(strings.HasPrefix(c.counter, "Arp.") && !ns.Host) {
				v.sites = append(v.sites, &DropSite{Layer: c.layer, NetNS: ns.Inode, In: c.in, Packets: n, Segments: n, Counter: c.counter, Source: counterSources})
			}
		}
		for _, name := range sortedKeys(ns.Counters) {
			n := ns.Counters[name]
			// What IPsec counts as errors, it drops (Documentation/networking/xfrm_proc.rst).
			if strings.HasPrefix(name, "Xfrm.") && n > 0 && !named[siteKey{DropIPsec, ns.Inode, ""}] && !strings.HasSuffix(name, "Acquire") {
				v.sites = append(v.sites, &DropSite{Layer: DropIPsec, NetNS: ns.Inode, In: !strings.HasPrefix(name, "Xfrm.Out"), Packets: n, Segments: n, Counter: name, Source: "/proc/net/xfrm_stat"})
			}
		}
		v.deviceSites(ns, named)
		if ct := ns.Conntrack; ct != nil && ct.Drop > 0 && !named[siteKey{DropConntrack, ns.Inode, ""}] {
			v.sites = append(v.sites, &DropSite{Layer: DropConntrack, NetNS: ns.Inode, In: true, Packets: ct.Drop, Segments: ct.Drop, Counter: "drop", Source: "conntrack statistics"})
		}
		for j := range ns.Listeners {
			l := &ns.Listeners[j]
			if l.Drops > 0 && l.Port != 0 && ns.Counters["TcpExt.ListenOverflows"] > 0 {
				v.sites = append(v.sites, &DropSite{Layer: DropAccept, NetNS: ns.Inode, In: true, Packets: l.Drops, Segments: l.Drops, Listener: l,
					Counter: "sk_drops", Source: "sock_diag; netstat ListenOverflows"})
			}
		}
	}
	if v.Drops != nil && v.Drops.Reasons {
		for _, s := range v.sites {
			s.stray = s.Counter != "" && !slices.Contains(unnamed, s.Layer)
		}
	}
	for _, s := range v.Use.Softnet {
		if s.Dropped > 0 && !named[siteKey{DropSoftnet, 0, ""}] {
			v.sites = append(v.sites, &DropSite{Layer: DropSoftnet, In: true, Packets: s.Dropped, Segments: s.Dropped, Counter: "dropped, CPU " + itoa(s.CPU), Source: "/proc/net/softnet_stat",
				stray: v.Drops != nil && v.Drops.Reasons})
		}
	}
}

// deviceSites adds what devices and queues count.
func (v *View) deviceSites(ns *observe.NetNS, named namedSites) {
	for j := range ns.Links {
		l := &ns.Links[j]
		byLayer := map[DropLayer]*DropSite{}
		for _, name := range sortedKeys(l.Errors) {
			layer, ok := linkLayers[name]
			if !ok {
				continue
			}
			s := byLayer[layer]
			if s == nil {
				s = &DropSite{Layer: layer, NetNS: ns.Inode, Interface: l.Name, In: !strings.HasPrefix(name, "tx_"), Link: l, Source: "statistics of the device"}
				byLayer[layer] = s
				v.sites = append(v.sites, s)
			}
			s.Packets, s.Segments = s.Packets+l.Errors[name], s.Segments+l.Errors[name]
			s.Counter = strings.TrimPrefix(s.Counter+", "+name, ", ")
		}
		// A program of the driver's own drops before there is a packet to speak of.
		if n := l.Errors["rx_dropped"]; l.XDP == "driver" && n > 0 && !named[siteKey{DropXDP, ns.Inode, l.Name}] {
			v.sites = append(v.sites, &DropSite{Layer: DropXDP, NetNS: ns.Inode, Interface: l.Name, In: true, Link: l, Packets: n, Segments: n, Counter: "rx_dropped", Source: "statistics of the device"})
		}
	}
	if v.Drops != nil {
		return
	}
	for j := range ns.Qdiscs {
		q := &ns.Qdiscs[j]
		layer := DropQdisc
		if q.Kind == "clsact" || q.Kind == "ingress" {
			layer = DropTCIngress
		}
		if q.Drops > 0 && (q.Parent == "root" || layer == DropTCIngress) {
			s := &DropSite{Layer: layer, NetNS: ns.Inode, Interface: q.Interface, In: layer == DropTCIngress, Packets: q.Drops, Segments: q.Drops, Qdisc: q, Source: "statistics of the queueing discipline"}
			v.placeSite(s)
			v.sites = append(v.sites, s)
		}
	}
}

// namedSites are the sites that the kernel itself named; netns 0 and an empty
// device are any.
type namedSites map[siteKey]bool

type siteKey struct {
	layer  DropLayer
	netns  uint64
	device string
}

func (v *View) namedSites() namedSites {
	named := namedSites{}
	for _, s := range v.sites {
		for _, k := range [...]siteKey{{s.Layer, 0, ""}, {s.Layer, s.NetNS, ""}, {s.Layer, s.NetNS, s.Interface}} {
			named[k] = true
		}
	}
	return named
}
