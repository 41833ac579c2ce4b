package cause

import (
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// RPFilterDrop: an answer to the source of these packets would leave by
// another device, so that the strict filter takes them for forged.
const RPFilterDrop ID = "rp-filter-drop"

var rpFilterDrop = Cause{
	ID:    RPFilterDrop,
	Title: "Reverse path filtering drops packets that come in at another device than answers would leave by",
	Layer: LayerPath,
	Class: ClassDrop,
	Needs: []observe.Kind{observe.KindRequests},
	Check: drops(dropSpec{layers: []DropLayer{DropRPFilter}, words: rpFilterWords, none: "reverse path filtering dropped no packet"}),
	Try:   tryLooseFilter,
	Doc: Doc{
		About: "With rp_filter = 1 the kernel drops a packet when an answer to its source would leave by another device. A host with two networks, a VPN " +
			"or policy routing has such packets by right.",
		See:   []Symptom{SeeConnecting, SeeNoAnswer, SeeSomeEnds},
		Known: []string{"The kernel gives IP_RPFILTER as the reason, or counts IPReversePathFilter.", howDropsCount},
		Not:   []string{"Forged packets that nobody waits for."},
		Mend:  "Set rp_filter to 2 (loose) for that device, or give the route back by the same device.",
	},
}

// NoRoute: there is no way to an address, or one that ends in nothing.
const NoRoute ID = "no-route"

var noRoute = Cause{
	ID:    NoRoute,
	Title: "There is no route for packets that requests wait for",
	Layer: LayerPath,
	Class: ClassDrop,
	Needs: []observe.Kind{observe.KindRequests},
	Check: drops(dropSpec{layers: []DropLayer{DropRouting}, words: noRouteWords, none: "no packet was without a route"}),
	Doc: Doc{
		About: "A packet has no route to its destination, or the route is a blackhole, or the address is nobody's. connect() fails at once; an open " +
			"connection hangs until it is given up.",
		See: []Symptom{SeeErrors, SeeNoAnswer, SeeHang},
		Known: []string{
			"The kernel gives IP_OUTNOROUTES, IP_INNOROUTES or IP_INADDRERRORS as the reason, or counts OutNoRoutes.",
			howDropsCount + " Or requests failed, and packets had no route at least half as often.",
		},
		Not:       []string{"A program that tries IPv6 first, and goes on with IPv4.", "Stray packets to addresses of others."},
		Mend:      "Give the destination a route, or take the blackhole away.",
		Unplanted: "It is found as neighbour-unresolved is, by another reason of the kernel's.",
	},
}

// NeighbourUnresolved: nobody on the link answers for the next hop.
const NeighbourUnresolved ID = "neighbour-unresolved"

var neighbourUnresolved = Cause{
	ID:    NeighbourUnresolved,
	Title: "The next hop does not answer: its address on the link is not known",
	Layer: LayerPath,
	Class: ClassDrop,
	Needs: []observe.Kind{observe.KindRequests},
	Check: drops(dropSpec{layers: []DropLayer{DropNeighbour}, words: neighbourWords, which: func(v *View, s *DropSite) bool { return !neighboursFull(v, s) },
		none: "no packet was dropped for want of a neighbour's address"}),
	Doc: Doc{
		About: "Packets wait for the link-layer address of their next hop (ARP, neighbour discovery), and are dropped when nobody answers in three " +
			"seconds: the machine is down, or in another VLAN, or somebody filters ARP.",
		See:   []Symptom{SeeConnecting, SeeNoAnswer, SeeCalls},
		Known: []string{"The kernel gives NEIGH_FAILED or another reason of neighbours, or counts unresolved_discards; the neighbours that failed are listed.", howDropsCount},
		Not:   []string{"Addresses that a scanner tries.", "A failed neighbour that nothing is sent to."},
		Mend:  "See whether the machine is up and on this link; mend the address, the mask or the VLAN.",
	},
}

// NeighbourTableFull: there is no room for another neighbour.
const NeighbourTableFull ID = "neighbour-table-full"

var neighbourTable = Cause{
	ID:    NeighbourTableFull,
	Title: "The neighbour table is full: packets to new neighbours are dropped",
	Layer: LayerPath,
	Class: ClassDrop,
	Needs: []observe.Kind{observe.KindRequests},
	Check: drops(dropSpec{layers: []DropLayer{DropNeighbour}, words: neighbourTableWords, which: neighboursFull, none: "the neighbour table was not full"}),
	Try: onHost(func(v *View) []Change {
		return append(v.raised(nil, "net.ipv4.neigh.default.gc_thresh3", 2*wantedNeighbours), v.raised(nil, "net.ipv4.neigh.default.gc_thresh2", wantedNeighbours)...)
	}),
	Doc: Doc{
		About: "The kernel keeps the link-layer addresses of its neighbours in one table for all namespaces, at most gc_thresh3 of them. When it is full, " +
			"packets to new neighbours are dropped.",
		See:       []Symptom{SeeConnecting, SeeErrors, SeeLogs},
		Known:     []string{"table_fulls of the neighbour table rose, and the kernel dropped packets for want of an entry.", howDropsCount},
		Not:       []string{"A neighbour that does not answer: see neighbour-unresolved."},
		Mend:      "Raise net.ipv4.neigh.default.gc_thresh1, 2 and 3 on the host.",
		Unplanted: "The table is one for the whole host.",
	},
}

// IPReassemblyFailed: a fragment is missing, and the packet with it.
const IPReassemblyFailed ID = "ip-reassembly-failed"

var ipReassembly = Cause{
	ID:    IPReassemblyFailed,
	Title: "Fragments of packets are missing or came too late: the packets are dropped",
	Layer: LayerPath,
	Class: ClassDrop,
	Needs: []observe.Kind{observe.KindRequests, observe.KindCounters},
	Check: drops(dropSpec{layers: []DropLayer{DropFragments}, words: reassemblyWords, none: "no fragment was missed"}),
	Doc: Doc{
		About: "A packet that was cut into fragments is of use only when all of them arrive in time. Loss of one, or too little memory for fragments, " +
			"loses the whole packet.",
		See:       []Symptom{SeeLarge, SeeTimer},
		Known:     []string{"The kernel gives a reason of fragments, or counts ReasmFails.", howDropsCount},
		Not:       []string{"Fragments of a scan, or of UDP that nobody waits for."},
		Mend:      "Make packets that fit (MTU, MSS), raise net.ipv4.ipfrag_high_thresh where memory is what lacks.",
		Unplanted: "TCP does not send fragments of its own accord.",
	},
}

// IPsecPolicyDrop: a policy asks for IPsec, or a packet does not fit its policy.
const IPsecPolicyDrop ID = "ipsec-policy-drop"

var ipsecPolicy = Cause{
	ID:    IPsecPolicyDrop,
	Title: "An IPsec policy drops packets of a service",
	Layer: LayerPath,
	Class: ClassDrop,
	Needs: []observe.Kind{observe.KindRequests},
	Check: drops(dropSpec{layers: []DropLayer{DropIPsec}, words: ipsecWords, none: "IPsec dropped no packet"}),
	Doc: Doc{
		About:     "A policy of IPsec asks for protection that a packet does not have, or no key is there (yet): the packet is dropped.",
		See:       []Symptom{SeeConnecting, SeeNoAnswer, SeeSomeEnds},
		Known:     []string{"The kernel gives XFRM_POLICY as the reason, or a counter of /proc/net/xfrm_stat rose.", howDropsCount},
		Not:       []string{"Packets of strangers that a policy keeps out."},
		Mend:      "Compare the policies of both ends; see whether the keys were negotiated.",
		Unplanted: "It is found as firewall-drop is, by another reason of the kernel's.",
	},
}

// ChecksumErrors: what arrives is not what was sent.
const ChecksumErrors ID = "checksum-errors"

var checksumErrors = Cause{
	ID:    ChecksumErrors,
	Title: "Packets arrive with a wrong checksum and are dropped",
	Layer: LayerPath,
	Class: ClassDrop,
	Needs: []observe.Kind{observe.KindRequests, observe.KindCounters},
	Check: drops(dropSpec{layers: []DropLayer{DropChecksum}, words: checksumWords, none: "no packet had a wrong checksum"}),
	Doc: Doc{
		About:     "Packets arrive damaged, or with a checksum that a device or a virtual switch should have filled in and did not. They are dropped without a word.",
		See:       []Symptom{SeeTimer, SeeNoAnswer, SeeSomeEnds},
		Known:     []string{"The kernel gives a reason of checksums, or counts InCsumErrors.", howDropsCount},
		Not:       []string{"A wrong checksum in a capture of what this host sends: the device fills it in later."},
		Mend:      "Switch checksum offload off at the sender (ethtool -K DEV tx off) to see whether it is at fault; else the path damages packets.",
		Unplanted: "It needs a device that is broken.",
	},
}

func rpFilterWords(v *View, s *DropSite, f *Finding) {
	ns := v.namespaces[s.NetNS]
	f.Subject.Kind = "interface"
	device := s.Interface
	if device == "" {
		device = "all"
	} else {
		f.Title = "Reverse path filtering (rp_filter) drops packets that come in at " + device
	}
	f.Fix.Text = "Let the filter be loose at this device, or send the answers back the way the packets come. The higher of the device's own setting and that of \"all\" counts."
	f.Fix.Commands = []shell.Command{v.in(ns, shell.Line("sysctl net.ipv4.conf.all.rp_filter")), v.in(ns, shell.Line("sysctl -w %s", shell.Sysctl(rpFilterKnob(device)+"=2")))}
	if flows := s.Flows(); len(flows) > 0 {
		f.Evidence = slices.Insert(f.Evidence, 0, Evidence{Fact: "for instance from " + flows[0].Src + " to " + flows[0].Dst, Value: flows[0].Segments, Unit: "segments", Source: s.Source})
		f.Fix.Commands = append(f.Fix.Commands, v.in(ns, shell.Line("ip route get %s", flows[0].Src)))
	}
	f.Fix.Persist = []shell.Command{LastingSysctl(rpFilterKnob(device), 2)}
}

func noRouteWords(v *View, s *DropSite, f *Finding) {
	ns := v.namespaces[s.NetNS]
	f.Fix.Text = "Give the destination a route."
	f.Fix.Commands = []shell.Command{v.in(ns, shell.Line("ip route show table all"))}
	if flows := s.Flows(); len(flows) > 0 {
		f.Title = "There is no route to " + flows[0].Dst
		f.Fix.Commands = append(f.Fix.Commands, v.in(ns, shell.Line("ip route get %s", flows[0].Dst)))
	}
	if ns == nil {
		return
	}
	for _, r := range ns.Routes {
		f.Evidence = append(f.Evidence, Evidence{Fact: "route that leads nowhere: " + r.Dst, Value: r.Kind, Source: "routing table " + itoa(r.Table)})
		f.Fix.Text = "Take the route away that leads nowhere, if it is not meant."
		f.Fix.Commands = append(f.Fix.Commands, v.in(ns, shell.Line("ip route del %s %s table %s", r.Kind, r.Dst, r.Table)))
	}
}

func neighbourWords(v *View, s *DropSite, f *Finding) {
	ns := v.namespaces[s.NetNS]
	f.Subject.Kind = "interface"
	f.Fix.Text = "See whether the next hop is up and on this link: its address, the mask, the VLAN, and what may filter ARP."
	device := s.Interface
	if ns != nil {
		for _, n := range ns.Neighbours {
			f.Evidence = slices.Insert(f.Evidence, 0, Evidence{Fact: "neighbour " + n.Addr + " on " + n.Interface, Value: n.State, Source: "neighbour table"})
			f.Subject.Addr, device = n.Addr, n.Interface
		}
	}
	if f.Subject.Addr != "" {
		f.Title = "Neighbour " + f.Subject.Addr + " on " + device + " does not answer: packets to it are dropped"
	}
	f.Subject.Interface = device
	f.Fix.Commands = []shell.Command{v.in(ns, shell.Line("ip neigh show dev %s", shell.Word(device)))}
	if f.Subject.Addr != "" {
		f.Fix.Commands = append(f.Fix.Commands, v.in(ns, shell.Line("ip route get %s", f.Subject.Addr)))
	}
}

func neighbourTableWords(v *View, s *DropSite, f *Finding) {
	ns := v.namespaces[s.NetNS]
	f.Subject = Subject{Kind: "host"}
	if ns != nil {
		f.Evidence = slices.Insert(f.Evidence, 0, Evidence{Fact: "times that the table was full", Value: ns.Counters["Arp.table_fulls"] + ns.Counters["Ndisc.table_fulls"], Source: "/proc/net/stat/arp_cache, ndisc_cache"})
	}
	f.Fix.Text = "Raise the limits of the neighbour table, on the host: they hold for all namespaces together."
	v.setSysctl(&f.Fix, nil, "net.ipv4.neigh.default.gc_thresh3", 2*wantedNeighbours)
	v.setSysctl(&f.Fix, nil, "net.ipv4.neigh.default.gc_thresh2", wantedNeighbours)
}

func reassemblyWords(v *View, s *DropSite, f *Finding) {
	ns := v.namespaces[s.NetNS]
	f.Fix.Text = "Find out who sends fragments, and make its packets fit the path; raise the memory for fragments where it is full."
	f.Fix.Commands = []shell.Command{v.in(ns, shell.Line("nstat -az 'IpReasm*'")), v.in(ns, shell.Line("sysctl net.ipv4.ipfrag_high_thresh net.ipv4.ipfrag_time"))}
}

func ipsecWords(v *View, s *DropSite, f *Finding) {
	ns := v.namespaces[s.NetNS]
	if s.Counter != "" {
		f.Evidence = slices.Insert(f.Evidence, 0, Evidence{Fact: s.Counter, Value: s.Packets, Unit: "packets", Source: s.Source})
	}
	f.Fix.Text = "Compare the policies of both ends, and see whether there are keys for them."
	f.Fix.Commands = []shell.Command{v.in(ns, shell.Line("ip xfrm policy")), v.in(ns, shell.Line("ip -s xfrm state"))}
}

func checksumWords(v *View, s *DropSite, f *Finding) {
	ns := v.namespaces[s.NetNS]
	if s.Counter != "" {
		f.Evidence = slices.Insert(f.Evidence, 0, Evidence{Fact: s.Counter, Value: s.Packets, Unit: "packets", Source: s.Source})
	}
	f.Fix.Text = "Switch checksum offload off at the sender, to see whether it is at fault; else look for what damages packets on the way."
	f.Fix.Commands = []shell.Command{v.in(ns, shell.Line("nstat -az '*CsumErrors'"))}
	if s.Interface != "" {
		f.Fix.Commands = append(f.Fix.Commands, v.in(ns, shell.Line("ethtool -k %s", s.Interface)))
	}
}

// neighboursFull says whether the table of neighbours had no room for one more.
func neighboursFull(v *View, s *DropSite) bool {
	ns := v.namespaces[s.NetNS]
	return strings.HasPrefix(s.Reason, "NEIGH_CREATE") || ns != nil && ns.Counters["Arp.table_fulls"]+ns.Counters["Ndisc.table_fulls"] > 0
}
