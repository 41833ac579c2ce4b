package cause

import (
	"cmp"
	"slices"

	"github.com/slowray/slowray/internal/observe"
)

// lostHere is what died of an exchange's packets.
type lostHere struct {
	data, syns float64 // segments
	// events is packets, each of which may be several segments: so often
	// somebody had to notice a loss. An acknowledgement is made up for by the
	// next one, mostly.
	events float64
}

func (l lostHere) plus(o lostHere) lostHere {
	return lostHere{l.data + o.data, l.syns + o.syns, l.events + o.events}
}

// exchange is a served endpoint with the calls of it on this host, or a called
// one whose other end is elsewhere.
type exchange struct {
	ends   []*ledger
	spaces map[uint64]bool // network namespaces
	inAll  lostHere        // at all sites that are judged
}

// exchanges are all of them, with what died of each where.
type exchanges struct {
	list []*exchange
	of   map[*ledger]*exchange
	lost map[*DropSite][]loss // in the order of the list

	places map[end][]int // in list: by namespace, by namespace and port, by address and port
}

// loss is what died of an exchange at one site.
type loss struct {
	*exchange
	lostHere
}

func (v *View) buildExchanges() *exchanges {
	x := &exchanges{of: map[*ledger]*exchange{}, lost: map[*DropSite][]loss{}, places: map[end][]int{}}
	for _, l := range v.ledgers {
		if l.here == nil {
			x.add(append([]*ledger{l}, l.callers...)...)
		}
	}
	// Services of which no request and no new connection was seen: nothing may
	// come through on the connections that they have.
	for _, s := range v.Services {
		known := s.Port() == 0 || slices.ContainsFunc(v.ledgersAt(s.NS.Inode, s.Port()), func(l *ledger) bool { return !l.called() })
		if first := s.Listeners[0]; !known {
			e := &observe.Endpoint{Side: observe.Served.String(), NetNS: s.NS.Inode, Addr: first.Addr, Port: first.Port, PID: first.PID, Comm: first.Comm}
			x.add(v.newLedger(e))
		}
	}
	for _, s := range v.sites {
		judged := slices.Contains(dropJudged, s.Layer)
		flows := newSiteFlows(s)
		for _, i := range x.near(s, v.owners) {
			f := x.list[i]
			lost := f.lost(flows)
			if lost == (lostHere{}) {
				continue
			}
			x.lost[s] = append(x.lost[s], loss{f, lost})
			if judged {
				f.inAll = f.inAll.plus(lost)
			}
		}
	}
	return x
}

func (x *exchanges) add(ends ...*ledger) {
	f := &exchange{ends: ends, spaces: map[uint64]bool{}}
	place := len(x.list)
	x.list = append(x.list, f)
	at := []end{{everywhere, ends[0].Port, ends[0].Addr}}
	for _, l := range ends {
		x.of[l] = f
		if !f.spaces[l.NetNS] {
			f.spaces[l.NetNS] = true
			at = append(at, end{netns: l.NetNS}, end{netns: l.NetNS, port: ends[0].Port})
		}
	}
	for _, k := range at {
		x.places[k] = append(x.places[k], place)
	}
}

// near lists the exchanges that may have lost packets at a site, ascending.
func (x *exchanges) near(s *DropSite, o owners) []int {
	if len(s.parts) == 0 {
		switch {
		case s.stray:
			return nil
		case s.NetNS != 0:
			return x.places[end{netns: s.NetNS}]
		}
		all := make([]int, len(x.list))
		for i := range all {
			all[i] = i
		}
		return all
	}
	keys := map[end]bool{}
	for _, p := range s.parts {
		for _, flow := range p.drop.Flows {
			if flow.SrcPort == 0 && flow.DstPort == 0 {
				keys[end{netns: s.NetNS}] = true
			}
			for _, at := range [...]end{{everywhere, flow.SrcPort, flow.Src}, {everywhere, flow.DstPort, flow.Dst}} {
				if at.port == 0 {
					continue
				}
				keys[at], keys[end{netns: s.NetNS, port: at.port}] = true, true
				for _, inode := range o[at.addr] {
					keys[end{netns: inode, port: at.port}] = true
				}
			}
		}
	}
	var near []int
	for k := range keys {
		near = append(near, x.places[k]...)
	}
	slices.Sort(near)
	return slices.Compact(near)
}

// siteFlows is between whom packets of a site died, by port.
type siteFlows struct {
	*DropSite
	ports    map[int][]flowPlace
	portless []flowPlace
	// inside is what the exchanges of the site's own namespace lost, by port: all
	// the same, where ports tell whose the packets are.
	inside map[int]lostHere
}

// flowPlace is where a flow is in DropSite.parts.
type flowPlace struct{ part, flow int }

func (p flowPlace) compare(q flowPlace) int {
	return cmp.Or(cmp.Compare(p.part, q.part), cmp.Compare(p.flow, q.flow))
}

func newSiteFlows(s *DropSite) *siteFlows {
	f := &siteFlows{DropSite: s, ports: map[int][]flowPlace{}, inside: map[int]lostHere{}}
	for i, p := range s.parts {
		for j, flow := range p.drop.Flows {
			at := flowPlace{i, j}
			if flow.SrcPort == 0 && flow.DstPort == 0 {
				f.portless = append(f.portless, at)
				continue
			}
			f.ports[flow.DstPort] = append(f.ports[flow.DstPort], at)
			if flow.SrcPort != flow.DstPort {
				f.ports[flow.SrcPort] = append(f.ports[flow.SrcPort], at)
			}
		}
	}
	return f
}

// lost counts what died at a site, by what it was.
func (f *exchange) lost(s *siteFlows) lostHere {
	l := f.ends[0]
	if len(s.parts) == 0 {
		if !f.passes(s.DropSite, l) {
			return lostHere{}
		}
		return lostHere{data: float64(s.Segments), events: float64(s.Packets)}
	}
	alike := f.spaces[s.NetNS] && len(s.portless) == 0
	if lost, known := s.inside[l.Port]; alike && known {
		return lost
	}
	flows := s.ports[l.Port]
	if len(s.portless) > 0 {
		flows = slices.SortedFunc(slices.Values(slices.Concat(flows, s.portless)), flowPlace.compare)
	}
	var sum lostHere
	for len(flows) > 0 {
		part := flows[0].part
		p := s.parts[part]
		var n float64
		for ; len(flows) > 0 && flows[0].part == part; flows = flows[1:] {
			if flow := &p.drop.Flows[flows[0].flow]; f.owns(s.DropSite, l, flow) {
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
	if alike {
		s.inside[l.Port] = sum
	}
	return sum
}

// owns says whether a dropped packet belongs to the connections of an exchange.
func (f *exchange) owns(s *DropSite, l *ledger, flow *observe.DropFlow) bool {
	if s.atSender() && len(f.spaces) > 1 && !f.spaces[s.NetNS] {
		return false
	}
	var end string // the address of the end that serves
	switch l.Port {
	case flow.DstPort:
		end = flow.Dst
	case flow.SrcPort:
		end = flow.Src
	default:
		return flow.SrcPort == 0 && flow.DstPort == 0 && f.spaces[s.NetNS] && len(f.ends) > 0 && f.peer(flow)
	}
	return f.spaces[s.NetNS] || end == l.Addr || l.ns != nil && !l.called() && slices.Contains(l.ns.Addrs, end)
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
	if s.stray || s.NetNS != 0 && !f.spaces[s.NetNS] || l.address.IsLoopback() {
		return false
	}
	if s.Rule == nil {
		return true
	}
	return (s.Rule.Protocol == "" || s.Rule.Protocol == "tcp") &&
		(len(s.Rule.SrcPorts)+len(s.Rule.DstPorts) == 0 || len(s.Rule.DstPorts) > 0 && portFits(s.Rule.DstPorts, l.Port) || len(s.Rule.SrcPorts) > 0 && portFits(s.Rule.SrcPorts, l.Port))
}

// again counts what the ends of an exchange retransmitted.
func (f *exchange) again() (data, syns uint64) {
	for _, l := range f.ends {
		data += l.sentAgain()
		if l.called() {
			syns += l.SynRetrans
		}
	}
	return data, syns
}
