package cause

import (
	"slices"
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// What drops packets is taken away where a finding names it. A rule or a filter
// that nobody suffers from is there for something, and is left alone.

// foundOnly is for causes whose findings bring their changes themselves.
func foundOnly(*View, Target) []Change { return nil }

// shapers are the queueing disciplines that hold packets back or drop them by
// themselves, and have no classes.
var shapers = []string{"netem", "tbf", "pfifo", "bfifo", "sfq", "red", "gred", "choke"}

// tryOtherQdisc takes away what shapes the packets of a service.
func tryOtherQdisc(v *View, t Target) []Change {
	ns := v.targetNS(t)
	if ns == nil || t.Finding != nil {
		return nil
	}
	for i := range ns.Qdiscs {
		if q := &ns.Qdiscs[i]; slices.Contains(shapers, q.Kind) && q.Packets > 0 {
			return otherQdisc(ns, q)
		}
	}
	return nil
}

// otherQdisc puts the kernel's default in the place of a queueing discipline at
// the root, and fq_codel in that of one below a class.
func otherQdisc(ns *observe.NetNS, q *observe.Qdisc) []Change {
	switch {
	case ns == nil || !slices.Contains(shapers, q.Kind):
		return nil
	case q.Parent == "root":
		return []Change{qdiscChange(ns, q, "")}
	case strings.Contains(q.Parent, ":"):
		return []Change{qdiscChange(ns, q, "fq_codel")}
	}
	return nil
}

// tryEqualMTU gives the smaller end of a link the MTU of the other one.
func tryEqualMTU(v *View, t Target) []Change {
	ns := v.targetNS(t)
	if ns == nil || t.Finding != nil {
		return nil
	}
	for i := range ns.Links {
		l := &ns.Links[i]
		there := v.Namespace(l.PeerNetNS)
		switch {
		case l.PeerMTU == 0 || l.PeerMTU == l.MTU:
		case l.MTU < l.PeerMTU:
			return []Change{mtuChange(ns, l, l.PeerMTU)}
		case there != nil:
			return []Change{mtuChange(there, &observe.Link{Name: l.PeerName, MTU: l.PeerMTU}, l.MTU)}
		}
	}
	return nil
}

// filterChanges takes the one filter away that can have dropped packets; one
// that is attached by a link (tcx) is held by its program, and of several it is
// not known which it was.
func filterChanges(ns *observe.NetNS, filters []*observe.TrafficFilter) []Change {
	if ns == nil || len(filters) != 1 || filters[0].Name == "tcx" || strings.HasPrefix(filters[0].Name, "tcx") {
		return nil
	}
	x := filters[0]
	handle, err := strconv.ParseUint(x.Handle, 0, 32)
	if err != nil {
		handle = 0 // one of u32: the filters of the preference are gone with it
	}
	return []Change{{Kind: ChangeFilter, NetNS: ns.Inode, PID: ns.PID, NetNSPath: ns.Path, Interface: x.Interface,
		Rule: &Rule{Tool: "tc", Family: x.Protocol, Table: x.Kind, Chain: x.Way, Handle: handle, Index: x.Preference, Text: filterNames(filters)},
		Text: "take away filter " + filterNames(filters) + " at the " + x.Way + " of " + x.Interface + where(ns)}}
}

// xdpChanges takes the XDP program off a device.
func xdpChanges(ns *observe.NetNS, l *observe.Link) []Change {
	if ns == nil || l == nil || l.XDP == "" {
		return nil
	}
	return []Change{{Kind: ChangeFilter, NetNS: ns.Inode, PID: ns.PID, NetNSPath: ns.Path, Interface: l.Name,
		Rule: &Rule{Tool: "xdp", Chain: l.XDP, Handle: uint64(l.XDPProgram), Text: "program " + itoa(int(l.XDPProgram))},
		Text: "take XDP program " + itoa(int(l.XDPProgram)) + " off " + l.Name + where(ns)}}
}
