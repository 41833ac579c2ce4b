package cause

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// dropSpec is what differs between the causes of dropped packets.
type dropSpec struct {
	layers []DropLayer
	// which says whether a site of these layers is this cause's; nil: all are.
	which func(*View, *DropSite) bool
	// words completes a finding: subject, title, evidence and what to do.
	words func(*View, *DropSite, *Finding)
	none  string // when nothing was dropped there
}

// drops is the check of a cause of dropped packets.
func drops(d dropSpec) func(*View) Result {
	return func(v *View) Result { return checkDrops(v, &d) }
}

// checkDrops judges the sites of a cause.
func checkDrops(v *View, d *dropSpec) Result {
	r := ruledOut(d.none)
	var nearest uint64
	for _, s := range v.sites {
		if !slices.Contains(d.layers, s.Layer) || d.which != nil && !d.which(v, s) {
			continue
		}
		harms := v.harms(s)
		if len(harms) == 0 {
			if s.Packets >= nearest {
				nearest = s.Packets
				r.RuledOut = fmt.Sprintf("%s packets were dropped %s, and no request or connection waited for them", count(s.Packets), v.PlaceOf(s))
			}
			continue
		}
		r.Findings = append(r.Findings, v.dropFinding(d, s, harms))
	}
	return r
}

// PlaceOf names a site in a sentence: "by rule nft inet filter input handle 7".
func (v *View) PlaceOf(s *DropSite) string {
	ns := v.namespaces[s.NetNS]
	var what string
	switch {
	case s.Rule != nil:
		what = "by rule " + RuleName(s.Rule)
	case s.Qdisc != nil:
		what = fmt.Sprintf("by queueing discipline %s %s on %s", s.Qdisc.Kind, s.Qdisc.Handle, s.Qdisc.Interface)
	case s.Counter != "" && s.Interface != "":
		what = "at " + s.Interface + " (" + s.Counter + ")"
	case s.Counter != "":
		what = "by " + string(s.Layer) + " (" + s.Counter + ")"
	case s.Interface != "":
		what = "by " + string(s.Layer) + " at " + s.Interface
	default:
		what = "by " + s.Layer.Title()
	}
	if ns == nil && s.NetNS != 0 {
		return what + " in network namespace " + utoa(s.NetNS)
	}
	return what + where(ns)
}

// RuleName is how a rule is found again: "nft inet filter input handle 7".
func RuleName(r *observe.FirewallRule) string {
	name := strings.Join([]string{r.Backend, r.Family, r.Table, r.Chain}, " ")
	switch {
	case r.Verdict == "policy drop":
		return name + " policy"
	case r.Backend == "iptables-legacy":
		return name + " rule " + itoa(r.Number)
	case r.Backend == "iptables-nft":
		return fmt.Sprintf("%s rule %d (handle %d)", name, r.Number, r.Handle)
	}
	return name + " handle " + utoa(r.Handle)
}

// dropFinding tells a site by the worst of what it did.
func (v *View) dropFinding(d *dropSpec, s *DropSite, harms []dropHarm) Finding {
	h := &harms[0]
	var f Finding
	switch h.how {
	case harmSlow:
		f = *v.found(h.l, h.cost, wireFloor, "lost to retransmission")
		if h.part < 0.9 {
			f.Impact.Text += "; " + percent(h.part) + " of what died of its packets on this host died here"
		}
	case harmHeld:
		f = *v.found(h.l, h.cost, wireFloor, "until the bytes had arrived")
	default:
		f = supported(Subject{})
		f.Impact = v.dropImpact(s, h)
	}
	if h.how == harmStuck {
		if u := h.l.undelivered(); u.ns > 0 {
			lost := u.ns / 1e9
			f.lost = &lost
		}
	}
	f.Weight = h.weight
	f.Subject = Subject{Kind: "namespace", NetNS: s.NetNS, Interface: s.Interface}
	if h.l != nil {
		f.Subject.Port, f.Subject.PID = h.l.Port, h.l.pid
		f.Subject.Comm = v.Comm(h.l.pid)
	} else {
		f.Subject.Port, f.Subject.Addr, f.Subject.PID, f.Subject.Comm = h.connect.Port, h.connect.Addr, h.connect.PID, h.caller()
	}
	f.Evidence = append(v.dropEvidence(s, h), f.Evidence...)
	f.site = s
	f.hurts, f.keepsOff = map[*ledger]bool{}, map[destination]bool{}
	for i := range harms {
		if harms[i].l != nil {
			f.hurts[harms[i].l] = true
		} else {
			c := harms[i].connect
			f.keepsOff[destination{c.NetNS, c.Addr, c.Port}] = true
		}
		if i > 0 {
			f.Evidence = append(f.Evidence, Evidence{Fact: "dropped here of " + harms[i].name(), Value: harms[i].segments + harms[i].syns, Unit: "segments", Source: s.Source})
		}
	}
	d.words(v, s, &f)
	if f.Fix.Commands == nil {
		f.Fix.Commands = []shell.Command{}
	}
	return f
}

func (v *View) dropImpact(s *DropSite, h *dropHarm) Impact {
	switch h.how {
	case harmStuck:
		stuck := h.l.stuck()
		return Impact{Share: round(ratio(stuck, stuck+h.l.Requests)), Of: "requests",
			Text: fmt.Sprintf("%s requests on %s came to no end, %s did; %s of their segments were dropped here", count(stuck), h.l.name(), count(h.l.Requests), count(h.segments))}
	case harmMute:
		return Impact{Share: round(1 - ratio(h.l.Requests, h.conns)), Of: "connections",
			Text: fmt.Sprintf("%s connections to %s were open, and %s requests came through; %s segments of them were dropped here", count(h.conns), h.l.name(), count(h.l.Requests), count(h.segments))}
	case harmSYN:
		return Impact{Share: round(ratio(h.l.SynRetrans, h.l.SynRetrans+h.l.Connections)), Of: "new connections",
			Text: fmt.Sprintf("%s SYNs of %s were retransmitted, %s connections opened, the longest handshake took %s; %s SYNs and answers to them were dropped here",
				count(h.l.SynRetrans), h.l.name(), count(h.l.Connections), nanoseconds(float64(max(h.l.HandshakeMax, 0))), count(h.syns))}
	case harmNoReach:
		return Impact{Share: round(ratio(h.synsAgain, h.connect.Started)), Of: "new connections",
			Text: fmt.Sprintf("%s of %s %s of %s were not established; %s of their SYNs or the answers were dropped here", count(h.synsAgain), count(h.connect.Started), h.name(), h.connect.Comm, count(h.syns))}
	}
	if h.how == harmFailed {
		return Impact{Share: round(h.weight), Of: "failed requests", Text: fmt.Sprintf("%s of %s failed, and %s times a packet or connect() had no route", count(h.again), h.l.all(), count(h.segments))}
	}
	lost := h.segments + h.syns
	return Impact{Share: round(h.weight), Of: "segments that came in",
		Text: fmt.Sprintf("%s segments to %s were dropped here; %s requests came in: who sent them waits 200 ms and more until it retransmits them", count(lost), h.l.name(), count(h.l.Requests))}
}

// dropEvidence is what was dropped, and what of it was retransmitted.
func (v *View) dropEvidence(s *DropSite, h *dropHarm) []Evidence {
	fact := "packets dropped here"
	if s.Reason != "" {
		fact += ", reason " + s.Reason
	}
	list := []Evidence{{Fact: fact, Value: s.Packets, Unit: "packets", Source: s.Source}}
	if kinds := s.Kinds(); len(kinds) > 0 {
		var told []string
		for _, k := range sortedKeys(kinds) {
			if kinds[k] > 0 {
				told = append(told, count(kinds[k])+" "+k)
			}
		}
		list = append(list, Evidence{Fact: "of them, in segments", Value: strings.Join(told, ", "), Source: s.Source})
	}
	if h.segments > 0 && h.l != nil && h.how != harmFailed && h.how != harmMute && h.how != harmHeld {
		list = append(list, Evidence{Fact: "segments of " + h.name() + " dropped here", Value: h.segments, Unit: "segments", Source: s.Source},
			Evidence{Fact: "segments of them retransmitted", Value: h.again, Unit: "segments", Source: "TCP sockets"})
	}
	if h.how == harmHeld {
		list = append(list, Evidence{Fact: "segments of " + h.name() + " dropped here before they left, of those sent", Value: h.segments, Limit: h.l.Segments, Unit: "segments", Source: s.Source + "; TCP sockets"})
	}
	if h.syns > 0 {
		list = append(list, Evidence{Fact: "SYNs of " + h.name() + " and answers to them dropped here", Value: h.syns, Unit: "segments", Source: s.Source},
			Evidence{Fact: "SYNs of them, and answers, retransmitted", Value: h.synsAgain, Unit: "segments", Source: "TCP sockets"})
	}
	if ns := v.namespaces[s.NetNS]; ns != nil && ns.Conntrack != nil && s.Layer != DropConntrack {
		list = append(list, Evidence{Fact: "connection tracking, entries at most, and packets dropped for lack of one: " + count(ns.Conntrack.Drop), Value: ns.Conntrack.PeakEntries, Limit: ns.Conntrack.Max, Unit: "entries", Source: "conntrack statistics"})
	}
	return list
}
