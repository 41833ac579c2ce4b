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
// of a service in view, or its calls, waited for them to be retransmitted, or
// connections were not established.

// dropHarm is what a site did to one endpoint.
type dropHarm struct {
	l       *ledger // nil where no request was ever made, only connect() tried
	connect *observe.Connect
	cost    cost
	// dropped here, of those that were retransmitted; of SYNs, and of others
	segments, again uint64
	syns, synsAgain uint64
	part            float64 // of what is known to have died on this host, by packets
	conns           uint64  // that were open
	others          int     // destinations besides that of connect
	weight          float64
	how             harmKind
}

type harmKind int

const (
	harmSlow    harmKind = iota // requests waited for retransmission
	harmStuck                   // requests never came to an end
	harmSYN                     // connections took seconds
	harmNoReach                 // connections were not established
	harmUnseen                  // segments of clients elsewhere, who alone see what it costs
	harmFailed                  // requests failed
	harmMute                    // connections came about, and no request came through
	harmHeld                    // bytes waited at the sender, who knew at once that they were dropped
)

// harms is what a site did, the worst first.
func (v *View) harms(s *DropSite) []dropHarm {
	var out []dropHarm
	for _, at := range v.exchanges().lost[s] {
		least := fewAffected - 0.5
		if s.atOwnSend() {
			least = fewHeld
		}
		if at.data+at.syns < least {
			continue
		}
		if h, ok := v.harmTo(at.exchange, s, at.lostHere); ok {
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
	all := f.inAll
	// Where more died here than was retransmitted, each site has its part.
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
		slow := l.LossPermille() >= lossPermille && l.Retrans >= fewPackets && l.reach >= fewReach &&
			(l.noticed(k, wireFloor) || l.wasted(k, wireFloor, observe.Retrans))
		if slow && share >= explains && data >= fewAffected {
			better(dropHarm{l: l, cost: k, how: harmSlow, weight: max(k.share, k.slowShare*0.01) * l.reach * share})
		}
		// What a sender's own host drops, TCP takes for not sent: it is no
		// retransmission, and waits until something else sets it going again
		// (tcp_write_xmit).
		if held := l.cost(1, observe.Network, observe.Retrans, observe.SendWait); !s.In && l.NetNS == s.NetNS && data >= fewPackets && l.reach >= fewReach &&
			ratio(data, data+l.Segments) >= heldShare && (l.noticed(held, wireFloor) || l.wasted(held, wireFloor, observe.Network)) {
			better(dropHarm{l: l, cost: held, how: harmHeld, weight: held.share * l.reach * part})
		}
		// It is sent only when the timer ends: until then the server seems to work.
		if s.atOwnSend() && l.NetNS == s.NetNS && l.reach >= fewReach {
			if late, ok := l.heldByTimer(); ok && 2*data >= late.requests {
				better(dropHarm{l: l, cost: late.cost, how: harmHeld, weight: max(late.share, 0.01*late.slowShare) * l.reach * part})
			}
		}
		if stuck := l.stuck(); stuck >= fewAffected && data >= stuck && l.reach >= fewReach {
			held := share
			if again == 0 {
				held = part // a request without an answer counts what is retransmitted when it ends
			}
			if held >= explains {
				better(dropHarm{l: l, how: harmStuck, weight: ratio(stuck, stuck+l.Requests) * l.reach * held})
			}
		}
		reach := 0.0
		if l.called() && lost.syns >= fewAffected-0.5 {
			reach = v.handshakeReach(l)
		}
		if late := ratio(l.SynRetrans, l.SynRetrans+l.Connections); l.called() && l.SynRetrans >= fewAffected && late >= noiseShare && reach >= fewReach && synPart >= explains {
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
		if bad := ratio(known, known+l.Requests); known >= fewPackets && bad >= unseenShare && s.ofServices() && f.through(s) {
			better(dropHarm{l: l, how: harmUnseen, weight: bad})
		}
	}
	return best, best.weight > 0
}

// fewHeld is how few segments, and requests that wait for a timer, are no accident where
// a rule drops what its own host sends.
const fewHeld = 2

// atOwnSend says that a rule drops what its own host sends.
func (s *DropSite) atOwnSend() bool { return s.Rule != nil && !s.In }

// timerLeast is the least that a segment waits which its own host dropped, in ns: the
// timer of retransmission (TCP_RTO_MIN), less what the answer itself takes.
const timerLeast = 150e6

// timed is requests that took longer than most by at least a timer of retransmission.
type timed struct {
	cost
	requests uint64
}

// heldByTimer finds them at a serving end; false where there are next to none.
func (l *ledger) heldByTimer() (t timed, ok bool) {
	if l.called() {
		return t, false
	}
	usual, lost := l.Total.Quantile(0.5), 0.0
	for ns, n := range l.Total.Buckets() {
		if float64(ns-usual) > timerLeast {
			t.requests += n
			lost += float64(ns-usual) * float64(n)
		}
	}
	if t.requests < fewHeld || float64(t.requests)*ratio(l.records(), l.Requests) < fewHeld-0.5 {
		return t, false
	}
	t.ns, t.slowNS = lost/float64(l.Requests), lost/float64(t.requests)
	t.share, t.slowShare = ratio(lost, l.TimeNS()), min(1, ratio(t.slowNS, l.SlowTotalNS()))
	return t, true
}

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
	return slices.ContainsFunc(f.ends[0].Peers, func(p observe.PeerStats) bool { return s.from[p.Addr] })
}

// unreached lists connections that were not established because their SYN, or
// its answer, died here.
func (v *View) unreached(s *DropSite) []dropHarm {
	var out []dropHarm
	syns, known := s.syns(func(_, _ netip.Addr) bool { return true }), s.syns(v.ours)
	vain := v.inVain()
	var places []int // there
	for to := range syns {
		places = append(places, vain.to[to]...)
	}
	slices.Sort(places)
	// Of many destinations each of which was tried once or twice, the sum.
	few := map[int]*dropHarm{} // by master of the caller
	var callers []int
	for _, i := range places {
		c := vain.list[i]
		failed := c.Started - c.Established
		if !rejects(s) { // a reset is the answer of a rule that rejects, or of nobody's
			failed -= min(c.Refused, failed)
		}
		from := known
		if ns := v.namespaces[c.NetNS]; ns == nil || len(ns.Addrs) == 0 {
			from = syns
		}
		n := uint64(from[addrPort(c.Addr, c.Port)] + 0.5)
		if failed >= fewAffected && n >= fewAffected {
			if h, ok := v.noReach(c, n, failed); ok {
				out = append(out, h)
			}
			continue
		}
		if failed == 0 || n == 0 {
			continue
		}
		master := v.Master(c.PID)
		sum := few[master]
		if sum == nil {
			one := *c
			one.Started, one.Established, one.Refused = 0, 0, 0
			sum = &dropHarm{connect: &one}
			few[master], callers = sum, append(callers, master)
		}
		sum.connect.Started += c.Started
		sum.syns, sum.synsAgain, sum.others = sum.syns+n, sum.synsAgain+failed, sum.others+1
	}
	for _, master := range callers {
		sum := few[master]
		if sum.syns < fewAffected || sum.synsAgain < fewAffected {
			continue
		}
		if h, ok := v.noReach(sum.connect, sum.syns, sum.synsAgain); ok {
			h.others = sum.others - 1
			out = append(out, h)
		}
	}
	return out
}

// noReach is what it meant that so many of a caller's connects were not established.
func (v *View) noReach(c *observe.Connect, syns, failed uint64) (dropHarm, bool) {
	share := ratio(failed, c.Started)
	if (v.Serving(c.PID) || v.needed(c.PID)) && v.answers(v.Master(c.PID)) {
		// As far as the requests of the caller suffer by it.
		h, ok := v.harmed(v.Master(c.PID), failed)
		if share = h.share; !ok {
			if share = v.hanging(c.PID, failed); share == 0 {
				return dropHarm{}, false
			}
		}
	}
	return dropHarm{connect: c, how: harmNoReach, syns: syns, synsAgain: failed, weight: share}, true
}

// needed says that a service in view calls what the process serves, maybe by way of others.
func (v *View) needed(pid int) bool {
	master := v.Master(pid)
	return v.neededFor.of(master, func() bool { return slices.ContainsFunc(v.callGraph().dependents(master), v.Serving) })
}

// hanging is the share of a process' requests that came to no end, where there
// were connections in vain for half of them.
func (v *View) hanging(pid int, failed uint64) float64 {
	var open, all uint64
	for _, l := range v.servedOf[v.Master(pid)] {
		open += l.waiting()
		all += l.waiting() + l.Requests
	}
	if open < fewAffected || 2*failed < open {
		return 0
	}
	return ratio(open, all)
}

// routeless lists services whose requests fail while packets have no route.
// connect() then fails at once, and there is no packet to look at: where failing
// calls are watched, it is among them, or the counter is about somebody else.
func (v *View) routeless(s *DropSite) []dropHarm {
	if s.Layer != DropRouting || s.In || s.Counter == "" {
		return nil
	}
	if v.ErrorSeconds > 0 && !slices.ContainsFunc(v.CallErrors, func(e observe.CallError) bool { return e.NetNS == s.NetNS && v.noWay(&e) }) {
		return nil
	}
	var out []dropHarm
	for _, l := range v.servedIn[s.NetNS] {
		bad := l.failedRequests()
		if bad < fewAffected || 2*s.Packets < bad {
			continue
		}
		out = append(out, dropHarm{l: l, how: harmFailed, segments: s.Packets, again: bad, weight: ratio(bad, l.Requests)})
	}
	return out
}

// ours says that who connects to an address has one of this host's: a forged source has
// not, and one of loopback reaches only loopback.
func (v *View) ours(caller, to netip.Addr) bool {
	return caller.IsLoopback() && to.IsLoopback() || len(v.owners.of(caller)) > 0
}

// syns counts the SYNs that died at a site, and the answers to them, by either end, of
// those who connect.
func (s *DropSite) syns(who func(caller, to netip.Addr) bool) map[netip.AddrPort]float64 {
	sums := map[netip.AddrPort]float64{}
	for _, p := range s.parts {
		if p.drop.Kind != observe.DropSYN && p.drop.Kind != observe.DropSYNACK {
			continue
		}
		for _, f := range p.drop.Flows {
			src, dst := addrPort(f.Src, f.SrcPort), addrPort(f.Dst, f.DstPort)
			if p.drop.Kind == observe.DropSYN && !who(src.Addr(), dst.Addr()) || p.drop.Kind == observe.DropSYNACK && !who(dst.Addr(), src.Addr()) {
				continue
			}
			sums[dst] += float64(f.Segments) * p.share
			if src != dst {
				sums[src] += float64(f.Segments) * p.share
			}
		}
	}
	return sums
}

// inVain is connects that were not all established, by where they go.
type inVain struct {
	list []*observe.Connect
	to   map[netip.AddrPort][]int // places in list
}

func (x *inVain) add(c *observe.Connect, to netip.AddrPort) {
	x.to[to] = append(x.to[to], len(x.list))
	x.list = append(x.list, c)
}

// findInVain finds the connects in vain of those that take part in requests, or that
// call a service in view: also those that began before the window, and of which only
// sockets without an answer tell.
func (v *View) findInVain() *inVain {
	out := &inVain{to: map[netip.AddrPort][]int{}}
	type key struct {
		pid   int
		netns uint64
		to    netip.AddrPort
	}
	seen := map[key]bool{}
	matters := func(c *observe.Connect) bool {
		return v.Serving(c.PID) || v.OnPath(c.PID) || v.needed(c.PID) || len(v.reachable.by(c, v.owners)) > 0 ||
			// As ConnectTimeout: one that scans ports asks each of them once.
			c.Started-c.Established >= fewAffected && v.clientInView(c)
	}
	for i := range v.Connects {
		c := &v.Connects[i]
		if to := addrPort(c.Addr, c.Port); c.Family != "unix" && c.Started > c.Established && to.Addr().IsValid() && matters(c) {
			out.add(c, to)
			seen[key{v.Master(c.PID), c.NetNS, to}] = true
		}
	}
	for i := range v.Namespaces {
		ns := &v.Namespaces[i]
		for j := range ns.Sockets {
			g := &ns.Sockets[j]
			if g.Side != observe.Called.String() || g.States["SYN_SENT"] == 0 {
				continue
			}
			pid, comm := 0, "clients"+where(ns) // that had ended when the window did
			if len(g.PIDs) > 0 {
				pid = g.PIDs[0]
				comm = v.Comm(pid)
			}
			to := addrPort(g.Remote, g.Port)
			k := key{v.Master(pid), ns.Inode, to}
			sent, open := uint64(g.States["SYN_SENT"]), uint64(g.States["ESTABLISHED"])
			c := &observe.Connect{PID: pid, Comm: comm, NetNS: ns.Inode, Family: "inet", Addr: g.Remote, Port: g.Port, Started: sent + open, Established: open}
			if to.Addr().IsValid() && !seen[k] && matters(c) {
				seen[k] = true
				out.add(c, to)
			}
		}
	}
	return out
}

func addrPort(addr string, port int) netip.AddrPort {
	return netip.AddrPortFrom(address(addr).Unmap(), uint16(port))
}

// droppedHere is the share of what the exchange of l retransmitted that is known to
// have died on this host: of segments, and of SYNs.
func (v *View) droppedHere(l *ledger) (data, syns float64) {
	if f := v.exchanges().of[l]; f != nil {
		again, synsAgain := f.again()
		return ratio(f.inAll.data, again), ratio(f.inAll.syns, synsAgain)
	}
	return 0, 0
}

// followsDrops narrows what retransmission may follow from: the places where
// packets died on this host only where these account for half of it.
func (v *View) followsDrops(l *ledger, share float64, at func(*Finding) bool) func(*Finding) bool {
	return func(p *Finding) bool {
		if !p.is(ClassDrop) {
			return at(p)
		}
		return (share >= 0.5 || p.Cause == PMTUBlackhole) && (p.hurts[l] || slices.ContainsFunc(l.sameEnds(), func(o *ledger) bool { return p.hurts[o] }))
	}
}

// caller is the name of the process that called in vain; empty when it is not known.
func (h *dropHarm) caller() string {
	if h.connect.PID == 0 {
		return ""
	}
	return h.connect.Comm
}

// name says whom a harm was done to.
func (h *dropHarm) name() string {
	if h.l == nil {
		to := fmt.Sprintf("connections to %s", netip.AddrPortFrom(address(h.connect.Addr), uint16(h.connect.Port)))
		if h.others > 0 {
			to += fmt.Sprintf(" and %d other addresses", h.others)
		}
		return to
	}
	return h.l.name()
}
