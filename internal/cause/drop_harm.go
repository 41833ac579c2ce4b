package cause

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/slowray/slowray/internal/observe"
)

// What the packets that died at a site meant for requests. Dropped packets as
// such are nothing: firewalls are there to drop. They count as far as requests
// of a service in view, or its calls, waited for them to be sent again, or
// connections did not come about.

// dropHarm is what a site did to one endpoint.
type dropHarm struct {
	l       *ledger // nil where no request was ever made, only connect() tried
	connect *observe.Connect
	cost    cost
	// dropped here, of those that were sent again; of SYNs, and of others
	segments, again uint64
	syns, synsAgain uint64
	part            float64 // of what is known to have died on this host, by packets
	conns           uint64  // that were open
	weight          float64
	how             harmKind
}

type harmKind int

const (
	harmSlow    harmKind = iota // requests waited for retransmission
	harmStuck                   // requests never came to an end
	harmSYN                     // connections took seconds
	harmNoReach                 // connections did not come about
	harmUnseen                  // segments of clients elsewhere, who alone see what it costs
	harmFailed                  // requests failed
	harmMute                    // connections came about, and no request came through
	harmHeld                    // bytes waited at the sender, who was told at once that they were dropped
)

// explains is the share of what was sent again that a site must have dropped
// for it to be one of the reasons.
const explains = 0.05

// lostHere is what died of an exchange's packets.
type lostHere struct {
	data, syns float64 // segments
	// events is packets, each of which may be several segments: so often
	// somebody had to notice a loss. An acknowledgement is made up for by the
	// next one, mostly.
	events float64
}

const ackEvents = 0.25

func (l lostHere) plus(o lostHere) lostHere {
	return lostHere{l.data + o.data, l.syns + o.syns, l.events + o.events}
}

// exchange is a served endpoint with the calls of it on this host, or a called
// one whose other end is elsewhere.
type exchange struct {
	ends   []*ledger
	spaces []uint64
}

func (v *View) exchanges() []exchange {
	var out []exchange
	for _, l := range v.ledgers {
		if l.called() && v.servedHere(l) != nil {
			continue
		}
		f := exchange{ends: []*ledger{l}}
		for _, o := range v.ledgers {
			if o != l && v.sameEnd(o, l) {
				f.ends = append(f.ends, o)
			}
		}
		for _, e := range f.ends {
			if !slices.Contains(f.spaces, e.NetNS) {
				f.spaces = append(f.spaces, e.NetNS)
			}
		}
		out = append(out, f)
	}
	// Services of which no request and no new connection was seen: nothing may
	// come through on the connections that they have.
	for _, s := range v.Services {
		known := s.Port() == 0 || slices.ContainsFunc(v.ledgers, func(l *ledger) bool { return !l.called() && l.NetNS == s.NS.Inode && l.Port == s.Port() })
		if first := s.Listeners[0]; !known {
			e := &observe.Endpoint{Side: observe.Served.String(), NetNS: s.NS.Inode, Addr: first.Addr, Port: first.Port, PID: first.PID, Comm: first.Comm}
			out = append(out, exchange{ends: []*ledger{{Endpoint: e, ns: s.NS, pid: v.Master(first.PID), reach: 1}}, spaces: []uint64{s.NS.Inode}})
		}
	}
	return out
}

// lost counts what died at a site, by what it was.
func (f *exchange) lost(s *DropSite) lostHere {
	l := f.ends[0]
	if len(s.parts) == 0 {
		if !f.passes(s, l) {
			return lostHere{}
		}
		return lostHere{data: float64(s.Segments), events: float64(s.Packets)}
	}
	var sum lostHere
	for _, p := range s.parts {
		var n float64
		for _, flow := range p.drop.Flows {
			if f.owns(s, l, &flow) {
				n += float64(flow.Segments) * p.share
			}
		}
		packets := n * ratio(p.drop.Packets, p.drop.Segments)
		switch p.drop.Kind {
		case observe.DropSYN, observe.DropSYNACK:
			sum.syns += n
		case observe.DropACK:
			sum = sum.plus(lostHere{data: n, events: packets * ackEvents})
		case observe.DropData, "fragment": // only the first of them has a port
			sum = sum.plus(lostHere{data: n, events: packets})
		}
	}
	return sum
}

// lostInAll counts what died at all sites that are judged.
func (v *View) lostInAll(f *exchange) lostHere {
	var sum lostHere
	for _, s := range v.sites {
		if slices.Contains(dropJudged, s.Layer) {
			sum = sum.plus(f.lost(s))
		}
	}
	return sum
}

// owns says whether a dropped packet belongs to the connections of an exchange.
func (f *exchange) owns(s *DropSite, l *ledger, flow *observe.DropFlow) bool {
	if s.atSender() && len(f.spaces) > 1 && !slices.Contains(f.spaces, s.NetNS) {
		return false
	}
	var end string // the address of the end that serves
	switch l.Port {
	case flow.DstPort:
		end = flow.Dst
	case flow.SrcPort:
		end = flow.Src
	default:
		return flow.SrcPort == 0 && flow.DstPort == 0 && slices.Contains(f.spaces, s.NetNS) && len(f.ends) > 0 && f.peer(flow)
	}
	return slices.Contains(f.spaces, s.NetNS) || end == l.Addr || l.ns != nil && !l.called() && slices.Contains(l.ns.Addrs, end)
}

// atSender says whether packets died before they left their sender: no network
// namespace but its own can be that place. Others may have the same addresses,
// or had them: what is left of a container that is gone still tries to send.
func (s *DropSite) atSender() bool { return s.Reason == "IP_OUTNOROUTES" }

// peer says whether a packet without ports is between the ends of an exchange.
func (f *exchange) peer(flow *observe.DropFlow) bool {
	l := f.ends[0]
	return slices.ContainsFunc(l.Peers, func(p observe.PeerStats) bool { return p.Addr == flow.Src || p.Addr == flow.Dst }) ||
		l.Addr == flow.Src || l.Addr == flow.Dst
}

// passes says whether packets of an exchange may have met a site of which only a
// counter is known.
func (f *exchange) passes(s *DropSite, l *ledger) bool {
	if s.stray || s.NetNS != 0 && !slices.Contains(f.spaces, s.NetNS) || address(l.Addr).IsLoopback() {
		return false
	}
	if s.Rule == nil {
		return true
	}
	return (s.Rule.Protocol == "" || s.Rule.Protocol == "tcp") &&
		(len(s.Rule.SrcPorts)+len(s.Rule.DstPorts) == 0 || len(s.Rule.DstPorts) > 0 && portFits(s.Rule.DstPorts, l.Port) || len(s.Rule.SrcPorts) > 0 && portFits(s.Rule.SrcPorts, l.Port))
}

// again counts what the ends of an exchange sent again.
func (f *exchange) again() (data, syns uint64) {
	for _, l := range f.ends {
		data += l.Retrans
		if l.called() {
			syns += l.SynRetrans
		}
	}
	return data, syns
}

// harms is what a site did, the worst first.
func (v *View) harms(s *DropSite) []dropHarm {
	var out []dropHarm
	for _, f := range v.exchanges() {
		lost := f.lost(s)
		if lost.data+lost.syns < fewAffected-0.5 {
			continue
		}
		if h, ok := v.harmTo(&f, s, lost); ok {
			out = append(out, h)
		}
	}
	out = append(out, v.unreached(s)...)
	out = append(out, v.routeless(s)...)
	slices.SortStableFunc(out, func(a, b dropHarm) int { return cmp.Compare(b.weight, a.weight) })
	return out
}

// harmTo judges one exchange.
func (v *View) harmTo(f *exchange, s *DropSite, lost lostHere) (dropHarm, bool) {
	var best dropHarm
	again, synsAgain := f.again()
	all := v.lostInAll(f)
	// Where more died here than was sent again, each site has its part.
	part, synPart := ratio(lost.events, all.events), ratio(lost.syns, max(all.syns, float64(synsAgain)))
	share := part * ratio(all.data, again)
	data := uint64(lost.data + 0.5)
	better := func(h dropHarm) {
		h.segments, h.again, h.syns, h.synsAgain, h.part = data, again, uint64(lost.syns+0.5), synsAgain, part
		if h.weight > best.weight {
			best = h
		}
	}
	clients := false // somebody here sees what the clients see
	for _, l := range f.ends {
		clients = clients || l.called()
		k := l.cost(1, observe.Retrans)
		slow := l.LossPermille() >= lossPermille && l.Retrans >= lossSegments && l.reach >= fewReach &&
			(l.noticed(k, wireFloor) || l.wasted(k, wireFloor, observe.Retrans))
		if slow && share >= explains && data >= fewAffected {
			better(dropHarm{l: l, cost: k, how: harmSlow, weight: max(k.share, k.slowShare*0.01) * l.reach * share})
		}
		// What a sender's own host drops, TCP takes for not sent: it is no
		// retransmission, and waits until something else sets it going again
		// (tcp_write_xmit).
		if held := l.cost(1, observe.Network, observe.Retrans, observe.SendWait); !s.In && l.NetNS == s.NetNS && data >= lossSegments && l.reach >= fewReach &&
			ratio(data, data+l.Segments) >= heldShare && (l.noticed(held, wireFloor) || l.wasted(held, wireFloor, observe.Network)) {
			better(dropHarm{l: l, cost: held, how: harmHeld, weight: held.share * l.reach * part})
		}
		if stuck := l.Unfinished + l.Unanswered; stuck >= fewAffected && data >= stuck && l.reach >= fewReach && share >= explains {
			better(dropHarm{l: l, how: harmStuck, weight: ratio(stuck, stuck+l.Requests) * l.reach * share})
		}
		reach := 0.0
		if l.called() && lost.syns >= fewAffected-0.5 {
			reach = v.handshakeReach(l)
		}
		if late := ratio(l.SynRetrans, l.SynRetrans+l.Connections); l.called() && l.SynRetrans >= fewAffected && late >= synShare && reach >= fewReach && synPart >= explains {
			better(dropHarm{l: l, how: harmSYN, weight: late * reach * synPart})
		}
	}
	if l, open := f.ends[0], f.open(v); open >= fewAffected && 2*l.Requests < open && lost.data >= fewAffected-0.5 {
		better(dropHarm{l: l, how: harmMute, conns: open, weight: (1 - ratio(l.Requests, open)) * part})
	}
	if l := f.ends[0]; !clients && !l.called() && s.In {
		// Their own retransmissions are not seen here. What is dropped now and
		// then, of ends that do get through, nobody means to keep out.
		known := data
		if s.Rule != nil && s.Rule.Some {
			known += uint64(lost.syns + 0.5)
		}
		if bad := ratio(known, known+l.Requests); known >= lossSegments && bad >= unseenShare && s.ofServices() && f.through(s) {
			better(dropHarm{l: l, how: harmUnseen, weight: bad})
		}
	}
	return best, best.weight > 0
}

// heldShare is the share of its segments that a sender's own host must drop for
// it to be more than how TCP finds the rate of a link.
const heldShare = 0.02

// open is how many connections of an exchange there were, as far as is known.
func (f *exchange) open(v *View) uint64 {
	var n uint64
	for _, l := range f.ends {
		n = max(n, l.Connections)
		if s := v.ServiceAt(l.NetNS, l.Port, ""); s != nil && !l.called() {
			for _, at := range s.Listeners {
				n = max(n, uint64(max(at.Clients, 0)))
			}
		}
	}
	return n
}

// unseenShare is the share of the segments that come in which must die for
// clients elsewhere to be sure to wait.
const unseenShare = 0.01

// ofServices says whether what died here was, for a good part, on its way to
// a service: it is known to be, or so much of all that came in.
func (s *DropSite) ofServices() bool {
	return len(s.parts) > 0 || s.Rule != nil || s.Link != nil && ratio(s.Packets, s.Packets+s.Link.RxPackets) >= unseenShare
}

// through says whether ends whose packets died here have requests answered,
// too.
func (f *exchange) through(s *DropSite) bool {
	if len(s.parts) == 0 {
		return f.ends[0].Requests >= fewRequests
	}
	return slices.ContainsFunc(s.Flows(), func(flow observe.DropFlow) bool {
		return slices.ContainsFunc(f.ends[0].Peers, func(p observe.PeerStats) bool { return p.Addr == flow.Src })
	})
}

// unreached lists connections that did not come about because their SYN, or
// its answer, died here.
func (v *View) unreached(s *DropSite) []dropHarm {
	var out []dropHarm
	for i := range v.Connects {
		c := &v.Connects[i]
		if c.Family == "unix" || c.Started < c.Established || !v.Serving(c.PID) && !v.OnPath(c.PID) {
			continue
		}
		failed := c.Started - c.Established
		if !rejects(s) { // a reset is the answer of a rule that rejects, or of nobody's
			failed -= min(c.Refused, failed)
		}
		if failed < fewAffected {
			continue
		}
		var syns float64
		for _, p := range s.parts {
			for _, f := range p.drop.Flows {
				there := sameAddress(f.Dst, c.Addr) && f.DstPort == c.Port || sameAddress(f.Src, c.Addr) && f.SrcPort == c.Port
				if there && (p.drop.Kind == observe.DropSYN || p.drop.Kind == observe.DropSYNACK) {
					syns += float64(f.Segments) * p.share
				}
			}
		}
		if syns < fewAffected {
			continue
		}
		share := ratio(failed, c.Started)
		if v.Serving(c.PID) && v.answers(v.Master(c.PID)) {
			// As far as the requests of the caller suffer by it.
			h, ok := v.harmed(v.Master(c.PID), failed)
			if share = h.share; !ok {
				if share = v.hanging(c.PID, failed); share == 0 {
					continue
				}
			}
		}
		out = append(out, dropHarm{connect: c, how: harmNoReach, syns: uint64(syns + 0.5), synsAgain: failed, weight: share})
	}
	return out
}

// hanging is the share of a process' requests that came to no end, where there
// were connections in vain for half of them.
func (v *View) hanging(pid int, failed uint64) float64 {
	var open, all uint64
	for _, l := range v.ledgers {
		if !l.called() && l.pid == v.Master(pid) {
			open += l.Unfinished
			all += l.Unfinished + l.Requests
		}
	}
	if open < fewAffected || 2*failed < open {
		return 0
	}
	return ratio(open, all)
}

// routeless lists services whose requests fail while packets have no route.
// connect() then fails at once, and there is no packet to look at.
func (v *View) routeless(s *DropSite) []dropHarm {
	if s.Layer != DropRouting || s.In || s.Counter == "" {
		return nil
	}
	var out []dropHarm
	for _, l := range v.ledgers {
		bad := l.Errors + l.Unanswered
		if l.called() || l.NetNS != s.NetNS || bad < fewAffected || 2*s.Packets < bad {
			continue
		}
		out = append(out, dropHarm{l: l, how: harmFailed, segments: s.Packets, again: bad, weight: ratio(bad, l.Requests)})
	}
	return out
}

func sameAddress(a, b string) bool {
	x, err := netip.ParseAddr(a)
	y, err2 := netip.ParseAddr(b)
	return err == nil && err2 == nil && x.Unmap() == y.Unmap()
}

// droppedHere is the share of what the exchange of l sent again that is known to
// have died on this host: of segments, and of SYNs.
func (v *View) droppedHere(l *ledger) (data, syns float64) {
	for _, f := range v.exchanges() {
		if !slices.Contains(f.ends, l) {
			continue
		}
		lost := v.lostInAll(&f)
		again, synsAgain := f.again()
		return ratio(lost.data, again), ratio(lost.syns, synsAgain)
	}
	return 0, 0
}

// followsDrops narrows what retransmission may follow from: the places where
// packets died on this host only where these account for half of it.
func (v *View) followsDrops(l *ledger, share float64, at func(*Finding) bool) func(*Finding) bool {
	return func(p *Finding) bool {
		if !slices.Contains(dropCauses, p.Cause) {
			return at(p)
		}
		return (share >= 0.5 || p.Cause == pmtuBlackholeID) && slices.ContainsFunc(p.hurts, func(o *ledger) bool { return o == l || v.sameEnd(l, o) || v.sameEnd(o, l) })
	}
}

// name says whom a harm was done to.
func (h *dropHarm) name() string {
	if h.l == nil {
		return fmt.Sprintf("connections to %s", netip.AddrPortFrom(address(h.connect.Addr), uint16(h.connect.Port)))
	}
	return h.l.name()
}
