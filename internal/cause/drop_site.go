package cause

import (
	"cmp"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// DropLayer is one of the layers at which packets die, on their way from the
// wire to an application or back.
type DropLayer string

// The layers, in the order in which a packet that comes in meets them, then
// those of one that goes out.
const (
	DropNIC        DropLayer = "nic"
	DropLink       DropLayer = "link-errors"
	DropXDP        DropLayer = "xdp"
	DropSoftnet    DropLayer = "softnet-backlog"
	DropTCIngress  DropLayer = "tc-ingress"
	DropFragments  DropLayer = "fragments"
	DropRPFilter   DropLayer = "rp-filter"
	DropRouting    DropLayer = "routing"
	DropFirewall   DropLayer = "firewall"
	DropConntrack  DropLayer = "conntrack"
	DropIPsec      DropLayer = "ipsec"
	DropChecksum   DropLayer = "checksum"
	DropAccept     DropLayer = "accept-queue"
	DropSYNQueue   DropLayer = "syn-queue"
	DropSocket     DropLayer = "socket-buffer"
	DropNoSocket   DropLayer = "no-socket"
	DropTCP        DropLayer = "tcp"
	DropUDP        DropLayer = "udp"
	DropCgroup     DropLayer = "cgroup-bpf"
	DropNeighbour  DropLayer = "neighbour"
	DropMTU        DropLayer = "mtu"
	DropTCEgress   DropLayer = "tc-egress"
	DropQdisc      DropLayer = "qdisc"
	DropDevice     DropLayer = "device"
	DropElsewhere  DropLayer = "other"
	counterSources           = "netstat, snmp"
)

// DropLayers lists the layers in their order.
func DropLayers() []DropLayer {
	return []DropLayer{DropNIC, DropLink, DropXDP, DropSoftnet, DropTCIngress, DropFragments, DropRPFilter, DropRouting, DropFirewall, DropConntrack,
		DropIPsec, DropChecksum, DropAccept, DropSYNQueue, DropSocket, DropNoSocket, DropTCP, DropUDP, DropCgroup, DropNeighbour, DropMTU,
		DropTCEgress, DropQdisc, DropDevice, DropElsewhere}
}

// DropSite is one place where packets died: a layer of one namespace, there a
// rule, a queue, a device or a socket.
type DropSite struct {
	Layer     DropLayer
	NetNS     uint64
	Interface string
	In        bool
	Reason    string // the kernel's, where it has one
	Location  string // the kernel's function
	Packets   uint64
	Segments  uint64
	Source    string // where the figure is from

	Rule  *observe.FirewallRule
	Among int // so many other rules without a counter may have been it
	Qdisc *observe.Qdisc
	// Filters are the programs and filters attached there: one of them did it.
	Filters  []*observe.TrafficFilter
	Link     *observe.Link
	Listener *observe.Listener
	Counter  string // of a site that only a counter tells of
	// stray says that the kernel would have named packets that died here, and
	// named none: nobody's connection is known to have lost any.
	stray bool

	parts []sitePart
	flows []observe.DropFlow // see Flows
	from  map[string]bool    // their senders
}

// sitePart is a share of the packets of one Drop.
type sitePart struct {
	drop  *observe.Drop
	share float64
}

func (s *DropSite) take(d *observe.Drop, share float64) {
	s.parts = append(s.parts, sitePart{d, share})
	s.Packets += uint64(float64(d.Packets)*share + 0.5)
	s.Segments += uint64(float64(d.Segments)*share + 0.5)
	s.Reason, s.Location = cmp.Or(s.Reason, d.Reason), cmp.Or(s.Location, d.Location)
}

// Kinds counts the dropped segments by kind.
func (s *DropSite) Kinds() map[string]uint64 {
	out := map[string]uint64{}
	for _, p := range s.parts {
		out[p.drop.Kind] += uint64(float64(p.drop.Segments)*p.share + 0.5)
	}
	return out
}

// Flows is between whom, most segments first.
func (s *DropSite) Flows() []observe.DropFlow { return s.flows }

// sumFlows adds up the flows of the parts.
func (s *DropSite) sumFlows() {
	type ends struct {
		src, dst     string
		sport, dport int
	}
	sums := map[ends]float64{}
	for _, p := range s.parts {
		for _, f := range p.drop.Flows {
			sums[ends{f.Src, f.Dst, f.SrcPort, f.DstPort}] += float64(f.Segments) * p.share
		}
	}
	var out []observe.DropFlow
	for e, n := range sums {
		if n >= 0.5 {
			out = append(out, observe.DropFlow{Src: e.src, Dst: e.dst, SrcPort: e.sport, DstPort: e.dport, Segments: uint64(n + 0.5)})
		}
	}
	slices.SortFunc(out, func(a, b observe.DropFlow) int {
		return cmp.Or(cmp.Compare(b.Segments, a.Segments), cmp.Compare(a.Src, b.Src), cmp.Compare(a.Dst, b.Dst), cmp.Compare(a.SrcPort, b.SrcPort), cmp.Compare(a.DstPort, b.DstPort))
	})
	s.flows, s.from = out, map[string]bool{}
	for _, f := range out {
		s.from[f.Src] = true
	}
}

// longest is the bytes of the longest packet, shortest of the shortest.
func (s *DropSite) sizes() (shortest, longest uint32) {
	for _, p := range s.parts {
		longest = max(longest, p.drop.Longest)
		if shortest == 0 || p.drop.Shortest < shortest {
			shortest = p.drop.Shortest
		}
	}
	return shortest, longest
}

// reasonLayers sorts the kernel's reasons; those of the same beginning are
// sorted by layerOf.
var reasonLayers = map[string]DropLayer{
	"NETFILTER_DROP": DropFirewall, "IP_RPFILTER": DropRPFilter, "IP_OUTNOROUTES": DropRouting, "IP_INNOROUTES": DropRouting,
	"IP_INADDRERRORS": DropRouting, "IP_LOCAL_SOURCE": DropRouting, "IP_INVALID_SOURCE": DropRouting, "IP_INVALID_DEST": DropRouting,
	"IP_LOCALNET": DropRouting, "CAKE_FLOOD": DropQdisc, "DUALPI2_STEP_DROP": DropQdisc, "TC_INGRESS": DropTCIngress, "TC_EGRESS": DropTCEgress,
	"CPU_BACKLOG": DropSoftnet, "XDP": DropXDP, "DUP_FRAG": DropFragments, "PKT_TOO_BIG": DropMTU, "XFRM_POLICY": DropIPsec,
	"SOCKET_RCVBUFF": DropSocket, "SOCKET_BACKLOG": DropSocket, "PROTO_MEM": DropSocket, "TCP_LISTEN_OVERFLOW": DropAccept,
	"NO_SOCKET": DropNoSocket, "BPF_CGROUP_EGRESS": DropCgroup, "DEV_READY": DropDevice, "FULL_RING": DropDevice, "NOMEM": DropDevice,
	"DEV_HDR": DropDevice, "TAP_FILTER": DropDevice, "TAP_TXFILTER": DropDevice,
}

// Beginnings of the kernel's reasons, and of the names of the functions that
// drop where there is no reason; the first that fits counts.
var (
	reasonBeginnings = []struct {
		begins string
		layer  DropLayer
	}{{"QDISC_", DropQdisc}, {"FQ_", DropQdisc}, {"NEIGH_", DropNeighbour}, {"FRAG_", DropFragments}, {"TCP_CSUM", DropChecksum}, {"UDP_CSUM", DropChecksum},
		{"IP_CSUM", DropChecksum}, {"SKB_CSUM", DropChecksum}, {"ICMP_CSUM", DropChecksum}, {"TCP_", DropTCP}}
	locationBeginnings = []struct {
		begins string
		layer  DropLayer
	}{{"nf_", DropFirewall}, {"nft_", DropFirewall}, {"ipt_do", DropFirewall}, {"ip6t_do", DropFirewall},
		{"__dev_forward_skb", DropMTU}, {"____dev_forward", DropMTU}, {"dev_forward_skb", DropMTU}, {"veth_xmit", DropMTU}, {"br_dev_queue", DropMTU},
		{"__dev_queue_xmit", DropQdisc}, {"__dev_xmit", DropQdisc}, {"dev_qdisc", DropQdisc}, {"qdisc_", DropQdisc}, {"tbf_", DropQdisc}, {"htb_", DropQdisc},
		{"netem_", DropQdisc}, {"fq_", DropQdisc}, {"codel_", DropQdisc}, {"sfq_", DropQdisc}, {"pfifo_", DropQdisc}, {"bfifo_", DropQdisc}, {"tcf_", DropTCIngress},
		{"sch_handle_ingress", DropTCIngress}, {"sch_handle_egress", DropTCEgress}, {"enqueue_to_backlog", DropSoftnet}, {"neigh_", DropNeighbour},
		{"__neigh_", DropNeighbour}, {"arp_error", DropNeighbour}, {"ndisc_error", DropNeighbour}, {"ip_defrag", DropFragments}, {"ip_frag", DropFragments},
		{"inet_frag", DropFragments}, {"ip6_frag", DropFragments}, {"ipv6_frag", DropFragments}, {"xfrm_", DropIPsec}, {"__xfrm", DropIPsec},
		{"do_xdp", DropXDP}, {"netif_receive_generic_xdp", DropXDP}, {"fib_validate", DropRPFilter}, {"tcp_", DropTCP}, {"udp_", DropUDP},
		{"__udp", DropUDP}, {"tun_net", DropDevice}, {"ip_error", DropRouting}, {"ip6_pkt_d", DropRouting}, {"dst_discard", DropRouting}, {"icmp_", DropElsewhere}}
)

// layerOf says at which layer packets were dropped.
func layerOf(d *observe.Drop) DropLayer {
	if l, ok := reasonLayers[d.Reason]; ok {
		if l == DropSocket && d.Kind == "udp" {
			return DropUDP
		}
		return l
	}
	for _, b := range reasonBeginnings {
		if strings.HasPrefix(d.Reason, b.begins) {
			return b.layer
		}
	}
	if d.Reason == "" {
		for _, b := range locationBeginnings {
			if strings.HasPrefix(d.Location, b.begins) {
				return b.layer
			}
		}
	}
	return DropElsewhere
}

// buildSites puts the dropped packets where they died.
func (v *View) buildSites() {
	type place struct {
		layer  DropLayer
		netns  uint64
		device string
		in     bool
	}
	sites := map[place]*DropSite{}
	var order []place
	var filtered []*observe.Drop
	if v.Drops != nil {
		for i := range v.Drops.List {
			d := &v.Drops.List[i]
			layer := v.refine(layerOf(d), d)
			switch layer {
			case DropFirewall:
				filtered = append(filtered, d)
				continue
			case "":
				continue
			}
			p := place{layer, d.NetNS, d.Interface, d.In}
			s := sites[p]
			if s == nil {
				s = &DropSite{Layer: layer, NetNS: d.NetNS, Interface: d.Interface, In: d.In, Source: "tracepoint skb:kfree_skb"}
				sites[p] = s
				order = append(order, p)
			}
			s.take(d, 1)
		}
	}
	for _, p := range order {
		s := sites[p]
		v.placeSite(s)
		v.sites = append(v.sites, s)
	}
	v.sites = append(v.sites, v.firewallSites(filtered)...)
	v.counterSites()
	for _, s := range v.sites {
		s.sumFlows()
	}
	slices.SortStableFunc(v.sites, func(a, b *DropSite) int {
		return cmp.Or(cmp.Compare(b.Packets, a.Packets), cmp.Compare(a.NetNS, b.NetNS), cmp.Compare(a.Layer, b.Layer), cmp.Compare(a.Interface, b.Interface))
	})
}

// refine tells layers apart that one function or reason stands for; "" is for
// what nobody misses.
func (v *View) refine(l DropLayer, d *observe.Drop) DropLayer {
	ns := v.namespaces[d.NetNS]
	switch l {
	case DropMTU:
		// A device that is down drops at the same place. A bridge looks at the MTU of its
		// own port (br_dev_queue_push_xmit, net/bridge/br_forward.c).
		link := linkOf(ns, d.Interface)
		if strings.HasPrefix(d.Location, "br_") && link != nil {
			if int(d.Longest) > link.MTU {
				return l
			}
			return DropDevice
		}
		if d.Reason == "" && (link == nil || link.PeerMTU == 0 && link.MTU == 0 || link.PeerMTU > 0 && int(d.Longest) <= link.PeerMTU) {
			return DropDevice
		}
	case DropTCP:
		// Without a reason, TCP dropped what it had no use for.
		if d.Reason == "" {
			return ""
		}
	case DropElsewhere:
		// Broadcasts and multicasts that nobody here listens to.
		if d.Kind == "arp" || d.Reason == "" && (d.Kind == "icmp" || d.Kind == "other" || d.Kind == "udp") {
			return ""
		}
	}
	return l
}

func linkOf(ns *observe.NetNS, name string) *observe.Link {
	if ns == nil || name == "" {
		return nil
	}
	i := slices.IndexFunc(ns.Links, func(l observe.Link) bool { return l.Name == name })
	if i < 0 {
		return nil
	}
	return &ns.Links[i]
}

// placeSite finds the queue, the filters or the link of a site.
func (v *View) placeSite(s *DropSite) {
	ns := v.namespaces[s.NetNS]
	if ns == nil {
		return
	}
	s.Link = linkOf(ns, s.Interface)
	switch s.Layer {
	case DropQdisc:
		for i := range ns.Qdiscs {
			q := &ns.Qdiscs[i]
			if q.Interface == s.Interface && q.Drops > 0 && q.Kind != "clsact" && q.Kind != "ingress" && (s.Qdisc == nil || q.Drops >= s.Qdisc.Drops) {
				s.Qdisc = q // of those that count the same drops, the innermost
			}
		}
	case DropTCIngress, DropTCEgress:
		way := map[bool]string{true: "ingress", false: "egress"}[s.Layer == DropTCIngress]
		for i := range ns.Filters {
			if f := &ns.Filters[i]; f.Interface == s.Interface && f.Way == way {
				s.Filters = append(s.Filters, f)
			}
		}
	}
}

// Sites is where packets died, most packets first.
func (v *View) Sites() []*DropSite { return v.sites }

// dropTitles tell the layers in words.
var dropTitles = map[DropLayer]string{
	DropNIC: "receive ring of a device", DropLink: "damaged on the link", DropXDP: "XDP programs", DropSoftnet: "backlog of a CPU",
	DropTCIngress: "traffic control, coming in", DropFragments: "fragments", DropRPFilter: "reverse path filter", DropRouting: "routing",
	DropFirewall: "firewall", DropConntrack: "connection tracking", DropIPsec: "IPsec", DropChecksum: "checksums", DropAccept: "accept queues",
	DropSYNQueue: "SYN queue", DropSocket: "socket buffers", DropNoSocket: "nobody listens", DropTCP: "TCP", DropUDP: "UDP sockets",
	DropCgroup: "BPF of control groups", DropNeighbour: "neighbours (ARP, ND)", DropMTU: "MTU of links", DropTCEgress: "traffic control, going out",
	DropQdisc: "queues of devices", DropDevice: "devices", DropElsewhere: "elsewhere",
}

// Title tells the layer in words.
func (l DropLayer) Title() string { return dropTitles[l] }
