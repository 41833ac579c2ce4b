package cause

import (
	"fmt"
	"net/netip"
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
	Title: "Reverse path filtering (rp_filter) drops packets",
	Layer: LayerPath,
	Class: ClassDrop,
	Needs: []observe.Kind{observe.KindRequests},
	Check: drops(dropSpec{layers: []DropLayer{DropRPFilter}, words: rpFilterWords, none: "reverse path filtering dropped no packet"}),
	Try:   tryLooseFilter,
}

// NoRoute: there is no way to an address, or one that ends in nothing.
const NoRoute ID = "no-route"

var noRoute = Cause{
	ID:    NoRoute,
	Title: "No route for packets of a service",
	Layer: LayerPath,
	Class: ClassDrop,
	Needs: []observe.Kind{observe.KindRequests},
	Check: checkNoRoute,
}

// inUse says that a namespace is in use, as far as is known. What connections still send in
// one that ends with its container or pod has no route, for its devices go first: nobody is
// to give it one.
func (v *View) inUse(inode uint64) bool {
	ns := v.namespaces[inode]
	return ns == nil || ns.Host || ns.Name != "" || ns.Path != "" || ns.PID != 0
}

// noWay says that a call failed because there is no route to an address: no packet
// was ever made then.
func (v *View) noWay(e *observe.CallError) bool {
	return slices.Contains([]string{"connect", "sendto", "sendmsg"}, e.Call) &&
		(e.Error == "ENETUNREACH" || e.Error == "EHOSTUNREACH" || e.Error == "EACCES" && v.deadEnd(e, "prohibit") != nil)
}

// deadEnd is the route that leads nowhere by which a call failed, of a kind, the
// narrowest; nil when there is none. A call whose address is not known may have
// failed by any.
func (v *View) deadEnd(e *observe.CallError, kind string) (found *observe.Route) {
	ns := v.namespaces[e.NetNS]
	if ns == nil {
		return nil
	}
	to, narrow := address(e.Path), -1
	for i := range ns.Routes {
		r := &ns.Routes[i]
		dst, err := netip.ParsePrefix(r.Dst)
		if err == nil && (kind == "" || r.Kind == kind) && dst.Bits() > narrow && (!to.IsValid() || dst.Contains(to)) {
			found, narrow = r, dst.Bits()
		}
	}
	return found
}

func checkNoRoute(v *View) Result {
	r := checkDrops(v, &dropSpec{layers: []DropLayer{DropRouting}, words: noRouteWords, none: "no packet was without a route"})
	r.Findings = slices.DeleteFunc(r.Findings, func(f Finding) bool {
		if f.site == nil || v.inUse(f.site.NetNS) {
			return false
		}
		r.RuledOut = fmt.Sprintf("%s packets were dropped %s, which has no process any more", count(f.site.Packets), v.PlaceOf(f.site))
		return true
	})
	if len(r.Findings) > 0 {
		return r
	}
	failed := v.judgeLack(v.noWay, "", func(k *lack, f *Finding) {
		e := k.first()
		ns, to := v.namespaces[e.NetNS], address(e.Path)
		f.Fix.Text = "Give the destination a route."
		f.Fix.Commands = []shell.Command{v.in(ns, shell.Line("ip route show table all"))}
		if to.IsValid() {
			f.Subject.Addr = to.String()
			f.Title = "There is no route to " + f.Subject.Addr
			f.Fix.Commands = append(f.Fix.Commands, v.in(ns, shell.Line("ip route get %s", f.Subject.Addr)))
		}
		if dead := v.deadEnd(e, ""); dead != nil {
			f.deadEnd(v, ns, dead)
		}
	})
	if len(failed.Findings) > 0 || failed.RuledOut != "" {
		return failed
	}
	return r
}

// deadEnd tells a route that leads nowhere.
func (f *Finding) deadEnd(v *View, ns *observe.NetNS, r *observe.Route) {
	f.Evidence = append(f.Evidence, Evidence{Fact: "route that leads nowhere: " + r.Dst, Value: r.Kind, Source: "routing table " + itoa(r.Table)})
	f.Fix.Text = "Take the route away that leads nowhere, if it is not meant."
	f.Fix.Commands = append(f.Fix.Commands, v.in(ns, shell.Line("ip route del %s %s table %s", r.Kind, r.Dst, r.Table)))
}

// NeighbourUnresolved: nobody on the link answers for the next hop.
const NeighbourUnresolved ID = "neighbour-unresolved"

var neighbourUnresolved = Cause{
	ID:    NeighbourUnresolved,
	Title: "The next hop does not answer ARP/ND",
	Layer: LayerPath,
	Class: ClassDrop,
	Needs: []observe.Kind{observe.KindRequests},
	Check: drops(dropSpec{layers: []DropLayer{DropNeighbour}, words: neighbourWords, which: func(v *View, s *DropSite) bool { return !neighboursFull(v, s) },
		none: "no packet was dropped for lack of a neighbour's address"}),
}

// NeighbourTableFull: there is no room for another neighbour.
const NeighbourTableFull ID = "neighbour-table-full"

var neighbourTable = Cause{
	ID:    NeighbourTableFull,
	Title: "The neighbour table is full (gc_thresh3)",
	Layer: LayerPath,
	Class: ClassDrop,
	Needs: []observe.Kind{observe.KindRequests},
	Check: drops(dropSpec{layers: []DropLayer{DropNeighbour}, words: neighbourTableWords, which: neighboursFull, none: "the neighbour table was not full"}),
	Try: onHost(func(v *View) []Change {
		return append(v.raised(nil, "net.ipv4.neigh.default.gc_thresh3", 2*wantedNeighbours), v.raised(nil, "net.ipv4.neigh.default.gc_thresh2", wantedNeighbours)...)
	}),
}

// IPReassemblyFailed: a fragment is missing, and the packet with it.
const IPReassemblyFailed ID = "ip-reassembly-failed"

var ipReassembly = Cause{
	ID:    IPReassemblyFailed,
	Title: "IP fragments are missing or late",
	Layer: LayerPath,
	Class: ClassDrop,
	Needs: []observe.Kind{observe.KindRequests, observe.KindCounters},
	Check: drops(dropSpec{layers: []DropLayer{DropFragments}, words: reassemblyWords, none: "no fragment was missed"}),
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
}

// ChecksumErrors: what arrives is not what was sent.
const ChecksumErrors ID = "checksum-errors"

var checksumErrors = Cause{
	ID:    ChecksumErrors,
	Title: "Packets with a wrong checksum are dropped",
	Layer: LayerPath,
	Class: ClassDrop,
	Needs: []observe.Kind{observe.KindRequests, observe.KindCounters},
	Check: drops(dropSpec{layers: []DropLayer{DropChecksum}, words: checksumWords, none: "no packet had a wrong checksum"}),
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
	f.Fix.Persist = []shell.Command{v.lastingSysctl(ns, rpFilterKnob(device), 2)}
}

func noRouteWords(v *View, s *DropSite, f *Finding) {
	ns := v.namespaces[s.NetNS]
	f.Fix.Text = "Give the destination a route."
	f.Fix.Commands = []shell.Command{v.in(ns, shell.Line("ip route show table all"))}
	flows := s.Flows()
	if len(flows) > 0 {
		f.Title = "There is no route to " + flows[0].Dst + where(ns)
		f.Fix.Commands = append(f.Fix.Commands, v.in(ns, shell.Line("ip route get %s", flows[0].Dst)))
	}
	if ns == nil {
		return
	}
	for i := range ns.Routes {
		if r := &ns.Routes[i]; len(flows) == 0 || slices.ContainsFunc(flows, func(f observe.DropFlow) bool { return leads(r.Dst, f.Dst) }) {
			f.deadEnd(v, ns, r)
		}
	}
}

// leads says whether a route is for an address.
func leads(route, addr string) bool {
	prefix, err := netip.ParsePrefix(route)
	return err != nil || prefix.Contains(address(addr).Unmap())
}

// fewNeighbours are reported each by itself.
const fewNeighbours = 4

func neighbourWords(v *View, s *DropSite, f *Finding) {
	ns := v.namespaces[s.NetNS]
	f.Subject.Kind = "interface"
	f.Fix.Text = "See whether the next hop is up and on this link: its address, the mask, the VLAN, and what may filter ARP."
	device := s.Interface
	var addrs []string
	if ns != nil {
		for _, n := range ns.Neighbours {
			if s.Interface != "" && n.Interface != s.Interface {
				continue
			}
			f.Evidence = slices.Insert(f.Evidence, 0, Evidence{Fact: "neighbour " + n.Addr + " on " + n.Interface, Value: n.State, Source: "neighbour table"})
			addrs, device = append(addrs, n.Addr), n.Interface
		}
		f.Evidence = f.Evidence[max(len(addrs)-fewNeighbours, 0):]
	}
	switch {
	case len(addrs) == 1:
		f.Subject.Addr = addrs[0]
		f.Title = "Neighbour " + addrs[0] + " on " + device + " does not answer: packets to it are dropped"
	case len(addrs) > 1:
		f.Title = fmt.Sprintf("%d neighbours on %s do not answer ARP/ND", len(addrs), device)
	}
	f.Subject.Interface = device
	f.Fix.Commands = []shell.Command{v.in(ns, shell.Line("ip neigh show dev %s", shell.Word(device)))}
	if len(addrs) > 0 {
		f.Fix.Commands = append(f.Fix.Commands, v.in(ns, shell.Line("ip route get %s", addrs[len(addrs)-1])))
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
