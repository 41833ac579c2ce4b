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
	Title: "The two ends of a link have different MTUs: large packets are dropped",
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
	Title: "Packets are too long for the path, and the message that says so is dropped",
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
	Title:         "A network device loses packets because its receive ring is full",
	Layer:         LayerPath,
	Class:         ClassDrop,
	Needs:         []observe.Kind{observe.KindRequests, observe.KindPath},
	ConsequenceOf: []Parent{SoftirqSaturated},
	Folds:         true,
	Check:         drops(dropSpec{layers: []DropLayer{DropNIC}, words: nicWords, none: "no device lost packets for want of room in its ring"}),
}

// LinkErrors: bits are lost on the wire.
const LinkErrors ID = "link-errors"

var linkErrors = Cause{
	ID:    LinkErrors,
	Title: "A network link loses packets: checksum, frame or carrier errors",
	Layer: LayerPath,
	Class: ClassDrop,
	Needs: []observe.Kind{observe.KindRequests, observe.KindPath},
	Check: drops(dropSpec{layers: []DropLayer{DropLink}, words: linkWords, none: "no device counted damaged packets"}),
}

// smallerEnd is the device that takes less than was sent to it, or nil.
func (v *View) smallerEnd(s *DropSite) *observe.Link {
	if s.Link == nil {
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
	f.Title = fmt.Sprintf("MTU of %s is %d: longer packets from %s (MTU %d) are dropped", small.Name, small.MTU, s.Link.Name, s.Link.MTU)
	shortest, longest := s.sizes()
	f.Evidence = slices.Insert(f.Evidence, 0,
		Evidence{Fact: fmt.Sprintf("MTU of %s%s, and of %s%s which sends to it", small.Name, where(there), s.Link.Name, where(here)), Value: small.MTU, Limit: s.Link.MTU, Unit: "bytes", Source: "netlink"},
		Evidence{Fact: "dropped packets, shortest and longest", Value: shortest, Limit: longest, Unit: "bytes", Source: s.Source})
	f.Fix.Text = fmt.Sprintf("Give both ends the same MTU (%d).", max(s.Link.MTU, small.MTU))
	f.Fix.Commands = []shell.Command{v.in(there, shell.Line("ip link set dev %s mtu %s", shell.Word(small.Name), max(s.Link.MTU, small.MTU)))}
	if there != nil {
		f.Fix.Changes = []Change{mtuChange(there, small, max(s.Link.MTU, small.MTU))}
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

// checkPMTU looks for ICMP that is dropped while long segments get lost
// somewhere else.
func checkPMTU(v *View) Result {
	r := ruledOut("no ICMP message between the ends of a service's connections was dropped")
	for _, s := range v.sites {
		if s.Layer != DropFirewall || s.Kinds()["icmp"] == 0 {
			continue
		}
		messages := s.icmp()
		for _, i := range v.exchanges().places[end{netns: s.NetNS}] {
			f := v.exchanges().list[i]
			l := f.ends[0]
			if !slices.ContainsFunc(messages, func(flow observe.DropFlow) bool { return len(l.Addr) > 0 && (f.concerns(&flow) || f.peer(&flow)) }) {
				continue
			}
			data, _ := v.droppedHere(l)
			k := l.cost(1, observe.Retrans)
			noticed := l.LossPermille() >= lossPermille && l.Retrans >= fewPackets && (l.noticed(k, wireFloor) || l.wasted(k, wireFloor, observe.Retrans))
			if data >= 0.5 || !noticed || l.reach < fewReach {
				r.RuledOut = fmt.Sprintf("%s ICMP messages were dropped %s, but %s segments of %s were sent again", count(s.Kinds()["icmp"]), v.PlaceOf(s), count(l.Retrans), l.name())
				continue
			}
			fd := v.found(l, k, wireFloor, "lost to retransmission")
			fd.hurts = map[*ledger]bool{}
			for _, l := range f.ends {
				fd.hurts[l] = true
			}
			fd.Evidence = slices.Insert(fd.Evidence, 0, Evidence{Fact: "ICMP messages dropped " + v.PlaceOf(s), Value: s.Kinds()["icmp"], Unit: "packets", Source: s.Source},
				Evidence{Fact: "segments sent again", Value: l.Retrans, Limit: l.Segments, Unit: "segments", Source: "TCP sockets"})
			fd.Fix.Text = "Let the messages through that say that a packet is too long; until then, let TCP find the size by itself."
			fd.Fix.Commands = []shell.Command{v.in(l.ns, shell.Line("sysctl -w net.ipv4.tcp_mtu_probing=1"))}
			if s.Rule != nil {
				commands, _ := v.ruleCommands(v.namespaces[s.NetNS], s.Rule, l.Port)
				fd.Fix.Commands = append(fd.Fix.Commands, commands...)
			}
			r.Findings = append(r.Findings, *fd)
		}
	}
	return r
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
