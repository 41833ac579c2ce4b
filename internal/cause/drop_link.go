package cause

import (
	"fmt"
	"slices"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// MTUMismatch: the other end of a link takes only smaller packets than this
// one sends. Small packets, and so handshakes, pass.
const MTUMismatch ID = "mtu-mismatch"

var mtuMismatch = Cause{
	ID:    MTUMismatch,
	Title: "MTU mismatch on a link",
	Layer: LayerPath,
	Class: ClassDrop,
	Needs: []observe.Kind{observe.KindRequests, observe.KindDrops},
	Check: drops(dropSpec{layers: []DropLayer{DropMTU}, words: mtuWords, which: func(v *View, s *DropSite) bool { return v.smallerEnd(s) != nil },
		none: "no packet was too long for the other end of its link"}),
	Try: tryEqualMTU,
}

// PMTUBlackhole: a router on the way takes only smaller packets, and its
// message saying so does not arrive.
const PMTUBlackhole ID = "pmtu-blackhole"

var pmtuBlackhole = Cause{
	ID:    PMTUBlackhole,
	Title: "Path MTU black hole: the ICMP message is dropped",
	Layer: LayerPath,
	Class: ClassDrop,
	Needs: []observe.Kind{observe.KindRequests, observe.KindDrops},
	Check: checkPMTU,
	Try:   inNamespace(tryProbing),
}

// NICRingOverflow: the device has packets that nobody fetches in time.
const NICRingOverflow ID = "nic-ring-overflow"

var nicRing = Cause{
	ID:            NICRingOverflow,
	Title:         "A NIC drops packets: its receive ring is full",
	Layer:         LayerPath,
	Class:         ClassDrop,
	Needs:         []observe.Kind{observe.KindRequests, observe.KindPath},
	ConsequenceOf: []Parent{SoftirqSaturated},
	Folds:         true,
	Check:         drops(dropSpec{layers: []DropLayer{DropNIC}, words: nicWords, none: "no device lost packets because its ring was full"}),
}

// LinkErrors: bits are lost on the wire.
const LinkErrors ID = "link-errors"

var linkErrors = Cause{
	ID:    LinkErrors,
	Title: "A network link has CRC, frame or carrier errors",
	Layer: LayerPath,
	Class: ClassDrop,
	Needs: []observe.Kind{observe.KindRequests, observe.KindPath},
	Check: drops(dropSpec{layers: []DropLayer{DropLink}, words: linkWords, none: "no device counted damaged packets"}),
}

// smallerEnd is the device that takes less than was sent to it, or nil.
func (v *View) smallerEnd(s *DropSite) *observe.Link {
	if s.Link == nil || s.routed() {
		return nil
	}
	_, longest := s.sizes()
	if peer := linkOf(v.namespaces[s.Link.PeerNetNS], s.Link.PeerName); peer != nil && int(longest) > peer.MTU {
		return peer
	}
	if int(longest) > s.Link.MTU || s.Counter != "" {
		return s.Link
	}
	return nil
}

func mtuWords(v *View, s *DropSite, f *Finding) {
	small := v.smallerEnd(s)
	here, there := v.namespaces[s.NetNS], v.namespaces[s.NetNS]
	f.Subject.Kind = "interface"
	if small != s.Link {
		there = v.namespaces[s.Link.PeerNetNS]
		f.Subject.NetNS = s.Link.PeerNetNS
	}
	f.Subject.Interface = small.Name
	f.Title = fmt.Sprintf("MTU mismatch: %s has %d, %s has %d", small.Name, small.MTU, s.Link.Name, s.Link.MTU)
	if small.Name == s.Link.Name {
		f.Title = fmt.Sprintf("MTU mismatch: %s has %d, what sends to it %d", small.Name, small.MTU, s.Link.MTU)
	}
	shortest, longest := s.sizes()
	if small == s.Link { // a port of a bridge, or a device whose other end is not known
		wanted := max(int(longest), small.PeerMTU)
		f.Title = fmt.Sprintf("%s with MTU %d drops longer packets", small.Name, small.MTU)
		f.Evidence = slices.Insert(f.Evidence, 0,
			Evidence{Fact: "MTU of " + small.Name + where(here), Value: small.MTU, Unit: "bytes", Source: "netlink"},
			Evidence{Fact: "dropped packets, shortest and longest", Value: shortest, Limit: longest, Unit: "bytes", Source: s.Source})
		f.mtuFix(v, here, small, wanted)
		return
	}
	f.Evidence = slices.Insert(f.Evidence, 0,
		Evidence{Fact: fmt.Sprintf("MTU of %s%s, and of %s%s which sends to it", small.Name, where(there), s.Link.Name, where(here)), Value: small.MTU, Limit: s.Link.MTU, Unit: "bytes", Source: "netlink"},
		Evidence{Fact: "dropped packets, shortest and longest", Value: shortest, Limit: longest, Unit: "bytes", Source: s.Source})
	f.Fix.Text = fmt.Sprintf("Give both ends the same MTU (%d).", max(s.Link.MTU, small.MTU))
	f.mtuFix(v, there, small, max(s.Link.MTU, small.MTU))
}

// mtuFix gives a device an MTU.
func (f *Finding) mtuFix(v *View, ns *observe.NetNS, l *observe.Link, mtu int) {
	if f.Fix.Text == "" {
		f.Fix.Text = fmt.Sprintf("Let %s take what is sent to it (an MTU of %d).", l.Name, mtu)
	}
	f.Fix.Commands = []shell.Command{v.in(ns, shell.Line("ip link set dev %s mtu %s", shell.Word(l.Name), mtu))}
	if ns != nil {
		f.Fix.Changes = []Change{mtuChange(ns, l, mtu)}
	}
	f.Fix.Persist = []shell.Command{shell.Line("# set it where the device is made (network configuration of the host, of the container engine or network plugin)")}
}

func nicWords(v *View, s *DropSite, f *Finding) {
	ns := v.namespaces[s.NetNS]
	f.Subject.Kind = "interface"
	f.Title = s.Interface + " loses packets because its receive ring is full"
	f.Evidence = slices.Insert(f.Evidence, 0, Evidence{Fact: s.Counter, Value: s.Packets, Limit: s.Link.RxPackets, Unit: "packets", Source: s.Source})
	f.Fix.Text = "Enlarge the ring of " + s.Interface + " as far as the device allows, and spread its interrupts."
	f.Fix.Commands = []shell.Command{v.in(ns, shell.Line("ethtool -g %s", s.Interface)), v.in(ns, shell.Line("ethtool -G %s rx 4096   # or the maximum shown", s.Interface))}
}

func linkWords(v *View, s *DropSite, f *Finding) {
	ns := v.namespaces[s.NetNS]
	f.Subject.Kind = "interface"
	f.Title = "The link of " + s.Interface + " damages packets"
	f.Evidence = slices.Insert(f.Evidence, 0, Evidence{Fact: s.Counter, Value: s.Packets, Limit: s.Link.RxPackets, Unit: "packets", Source: s.Source})
	f.Fix.Text = "Change the cable or transceiver of " + s.Interface + ", and compare speed and duplex with the other end."
	f.Fix.Commands = []shell.Command{v.in(ns, shell.Line("ethtool %s", s.Interface)), v.in(ns, shell.Line("ip -s -s link show dev %s", shell.Word(s.Interface)))}
}

// routed says that a router could not pass packets on because they were too long for
// the link that they were to leave by (ip_forward, net/ipv4/ip_forward.c).
func (s *DropSite) routed() bool { return s.Layer == DropMTU && s.Reason == "PKT_TOO_BIG" }

// checkPMTU looks for long packets that a router cannot pass on, for the message that
// says so where that is dropped, and for long answers that never arrive where short ones
// do.
func checkPMTU(v *View) Result {
	r := ruledOut("no packet was too long for a router, and no ICMP message between the ends of a service's connections was dropped")
	for _, x := range v.exchanges().list {
		v.Step()
		narrow, packets := v.tooLong(x)
		unheard := v.unheard(x)
		f := v.longLost(x, narrow, unheard)
		if f == nil {
			if l := x.ends[0]; unheard != nil {
				r.RuledOut = fmt.Sprintf("%s ICMP messages were dropped %s, but %s segments of %s were retransmitted", count(unheard.Kinds()["icmp"]), v.PlaceOf(unheard), count(l.sentAgain()), l.name())
			} else if narrow != nil {
				r.RuledOut = fmt.Sprintf("%s packets were too long for a router%s, whose message that says so arrives: %s segments of %s were retransmitted", count(narrow.Packets), where(v.namespaces[narrow.NetNS]), count(l.sentAgain()), l.name())
			}
			continue
		}
		f.hurts = map[*ledger]bool{}
		for _, l := range x.ends {
			f.hurts[l] = true
		}
		v.pathWords(f, x.ends[0], narrow, packets, unheard)
		r.Findings = append(r.Findings, *f)
	}
	return r
}

// longLost is the finding about the end of an exchange whose long packets are lost, or nil.
func (v *View) longLost(x *exchange, narrow, unheard *DropSite) *Finding {
	for _, l := range x.ends {
		if l.reach < fewReach {
			continue
		}
		u := l.undelivered()
		data, _ := v.droppedHere(l)
		k := l.cost(1, observe.Retrans)
		noticed := l.LossPermille() >= lossPermille && l.Retrans >= fewPackets && (l.noticed(k, wireFloor) || l.wasted(k, wireFloor, observe.Retrans))
		switch {
		case u.hurts(l) && (narrow != nil || unheard != nil && data < 0.5 || u.longOnly(l) && data < explains):
			return v.vain(l, &u)
		case noticed && (narrow != nil || unheard != nil && data < 0.5):
			return v.found(l, k, wireFloor, "lost to retransmission")
		}
	}
	return nil
}

// longOnly says that what never arrived is long, and what arrived is short: hardly
// anything of that was retransmitted.
func (u *undelivered) longOnly(l *ledger) bool {
	delivered := l.Requests - min(l.Requests, l.affected(observe.FlagTruncated))
	return u.least >= longSegment && u.mss >= longSegment && delivered >= fewRequests &&
		float64(l.BytesOut) < longSegment*float64(l.Requests) && float64(l.Retrans) < noiseShare*float64(l.Segments)+1
}

// tooLong is the router that most packets of an exchange were too long for, and how many.
func (v *View) tooLong(x *exchange) (site *DropSite, packets uint64) {
	for _, s := range v.sites {
		if !s.routed() {
			continue
		}
		for _, at := range v.exchanges().lost[s] {
			if n := uint64(at.data + 0.5); at.exchange == x && n >= fewAffected && n > packets {
				site, packets = s, n
			}
		}
	}
	return site, packets
}

// unheard is the rule that drops ICMP messages for the ends of an exchange, or nil.
func (v *View) unheard(x *exchange) *DropSite {
	for _, s := range v.sites {
		if s.Layer != DropFirewall || s.Kinds()["icmp"] == 0 {
			continue
		}
		if slices.ContainsFunc(s.icmp(), func(flow observe.DropFlow) bool { return x.concerns(&flow) || x.peer(&flow) }) {
			return s
		}
	}
	return nil
}

// pathWords names the link that is too narrow, and who drops the message.
func (v *View) pathWords(f *Finding, l *ledger, narrow *DropSite, packets uint64, unheard *DropSite) {
	f.Title = "Path MTU black hole"
	evidence := []Evidence{}
	sender, mtu := v.namespaces[f.Subject.NetNS], leastMTU
	if narrow != nil {
		router := v.namespaces[narrow.NetNS]
		evidence = append(evidence, Evidence{Fact: "packets that were too long to be passed on" + inSpace(narrow.NetNS, router), Value: packets, Unit: "segments", Source: narrow.Source})
		if out := narrowest(router, narrow.Interface); out != nil {
			mtu = out.MTU
			f.Title = fmt.Sprintf("Path MTU black hole at %s (MTU %d)", out.Name, out.MTU)
			evidence = append(evidence, Evidence{Fact: fmt.Sprintf("MTU of %s%s, and of %s by which they come in", out.Name, inSpace(narrow.NetNS, router), narrow.Interface), Value: out.MTU, Limit: linkOf(router, narrow.Interface).MTU, Unit: "bytes", Source: "netlink"})
		}
	}
	f.Fix.Text = "Let the ICMP messages through that say that a packet is too long (type 3 code 4, ICMPv6 type 2). Until then have both ends make shorter segments: the commands of nft clamp the MSS of new connections (nft delete table inet slowray_mss takes that back), or give the route that MTU. With tcp_mtu_probing TCP finds the size by itself, on each connection after seconds."
	f.Fix.Commands = nil
	if unheard != nil {
		evidence = append(evidence, Evidence{Fact: "ICMP messages dropped " + v.PlaceOf(unheard), Value: unheard.Kinds()["icmp"], Unit: "packets", Source: unheard.Source})
		if unheard.Rule != nil {
			f.Fix.Commands, f.Fix.Persist = v.ruleCommands(v.namespaces[unheard.NetNS], unheard.Rule, l.Port)
		}
	}
	headers := 40 // of IPv4 and TCP
	if l.address.Is6() && !l.address.Is4In6() {
		headers = 60
	}
	f.Fix.Commands = append(f.Fix.Commands, v.in(sender, shell.Line("nft add table inet slowray_mss")))
	for _, way := range []string{"prerouting", "output"} { // what the other end may be sent, and what it may send
		f.Fix.Commands = append(f.Fix.Commands, v.in(sender, shell.Line("nft add chain inet slowray_mss %s %s", way, shell.NFTText("{ type filter hook %s priority -150; }", way))),
			v.in(sender, shell.Line("nft add rule inet slowray_mss %s tcp flags syn tcp option maxseg size set %s", way, mtu-headers)))
	}
	if len(l.Peers) > 0 {
		f.Fix.Commands = append(f.Fix.Commands, v.in(sender, shell.Line("ip route get %s   # the route that could have an MTU of %s", l.Peers[0].Addr, mtu)))
	}
	f.Fix.Commands = append(f.Fix.Commands, v.in(sender, shell.Line("sysctl -w net.ipv4.tcp_mtu_probing=1")))
	f.Fix.Persist = append(f.Fix.Persist, LastingSysctl("net.ipv4.tcp_mtu_probing", "1"))
	if narrow == nil && len(l.Peers) > 0 {
		f.Fix.Commands = append(f.Fix.Commands, v.in(sender, shell.Line("tracepath -n %s", l.Peers[0].Addr)))
	}
	f.Evidence = append(evidence, f.Evidence...)
}

// leastMTU is what every link that carries IPv6 takes (RFC 8200, section 5).
const leastMTU = 1280

// inSpace names a network namespace that may have no process.
func inSpace(inode uint64, ns *observe.NetNS) string {
	if ns == nil {
		return " in network namespace " + utoa(inode)
	}
	return where(ns)
}

// narrowest is the device of a router with the smallest MTU, other than the one by which
// packets came in; nil where none takes less.
func narrowest(ns *observe.NetNS, in string) *observe.Link {
	from := linkOf(ns, in)
	if from == nil {
		return nil
	}
	var least *observe.Link
	for i := range ns.Links {
		if l := &ns.Links[i]; l.MTU > 0 && l.MTU < from.MTU && l.Name != in && (least == nil || l.MTU < least.MTU) {
			least = l
		}
	}
	return least
}

// icmp lists between whom ICMP messages died here.
func (s *DropSite) icmp() []observe.DropFlow {
	var out []observe.DropFlow
	for _, p := range s.parts {
		if p.drop.Kind == "icmp" {
			out = append(out, p.drop.Flows...)
		}
	}
	return out
}

// concerns says whether an ICMP message goes to one of the ends: its sender is
// a router, whatever its address.
func (f *exchange) concerns(flow *observe.DropFlow) bool {
	return slices.ContainsFunc(f.ends, func(l *ledger) bool {
		return flow.Dst == l.Addr || l.ns != nil && slices.Contains(l.ns.Addrs, flow.Dst)
	})
}
