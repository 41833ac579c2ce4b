package cause

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// outcomes is what became of the TCP connections that a service opens to one
// address, or clients that answer nobody themselves.
type outcomes struct {
	destination
	pid         int    // master of the processes that call; of clients the one with most attempts in vain
	comm        string // its name
	client      bool   // clients, all of them together: theirs may be one process for each attempt
	most        uint64 // attempts in vain of pid, where these are clients
	established uint64
	refused     uint64
	unanswered  uint64 // nothing came back before the kernel or the caller gave up, or ICMP said that there is no way
	unreachable uint64 // of these, said by ICMP or for lack of an ARP answer
}

func (o *outcomes) all() uint64 { return o.established + o.refused + o.unanswered }

// vain is the connections that were not established.
func (o *outcomes) vain() uint64 { return o.refused + o.unanswered }

func (o *outcomes) name() string {
	return netip.AddrPortFrom(address(o.addr), uint16(o.port)).String()
}

func (o *outcomes) v6() bool { return address(o.addr).Is6() && !address(o.addr).Is4In6() }

// caller is who calls a port, whatever the address.
type caller struct {
	netns     uint64
	pid, port int
}

func (o *outcomes) caller() caller {
	if o.client {
		return caller{o.netns, 0, o.port}
	}
	return caller{o.netns, o.pid, o.port}
}

// opened is what the services and clients in view opened, most failures first, and
// that of it which goes to addresses of IPv4, by caller.
type opened struct {
	all []*outcomes
	v4  map[caller][]*outcomes
}

// sumOutcomes sums up what the services and clients in view opened. What a service
// opens that answers nobody while one looks harms nobody.
func (v *View) sumOutcomes() *opened {
	type key struct {
		destination
		pid int
	}
	index := map[key]*outcomes{}
	var out []*outcomes
	for i := range v.Connects {
		c := &v.Connects[i]
		master := v.Master(c.PID)
		client := !v.answers(master)
		if c.Family == "unix" || client && !v.clientInView(c) {
			continue
		}
		k := key{destination{c.NetNS, c.Addr, c.Port}, master}
		if client {
			k.pid = 0
		}
		o := index[k]
		if o == nil {
			o = &outcomes{destination: k.destination, pid: master, comm: v.Comm(master), client: client}
			index[k] = o
			out = append(out, o)
		}
		if client && c.Failed > o.most || o.comm == "?" {
			o.pid, o.comm, o.most = c.PID, cmp.Or(c.Comm, o.comm), c.Failed
		}
		refused := min(c.Refused, c.Failed)
		o.established += c.Established
		o.refused += refused
		o.unanswered += c.Failed - refused
		o.unreachable += min(c.Unreachable, c.Failed-refused)
	}
	slices.SortStableFunc(out, func(a, b *outcomes) int {
		return cmp.Or(cmp.Compare(b.refused+b.unanswered, a.refused+a.unanswered), cmp.Compare(b.all(), a.all()), cmp.Compare(a.port, b.port), cmp.Compare(a.addr, b.addr))
	})
	sum := &opened{out, map[caller][]*outcomes{}}
	for _, o := range out {
		if !o.v6() {
			sum.v4[o.caller()] = append(sum.v4[o.caller()], o)
		}
	}
	return sum
}

// clientInView says that a process that connects is no service, and that it, or where it
// connects to, was asked for.
func (v *View) clientInView(c *observe.Connect) bool {
	if v.Serving(c.PID) || v.Serving(v.Master(c.PID)) || c.PID == v.Self {
		return false
	}
	f := v.Filter
	return f == (observe.Filter{}) || f.Port != 0 && f.Port == c.Port || f.PID != 0 && f.PID == c.PID
}

// answers says whether requests are recorded that the processes of a master
// answer.
func (v *View) answers(master int) bool {
	return master != 0 && len(v.servedOf[master]) > 0
}

// harm is what the requests of a service suffered.
type harm struct {
	share float64
	slow  bool // of the slow time, else of the failed requests
	text  string
}

// impact is the harm after what brought it about.
func (h *harm) impact(text string) Impact {
	of := "failed requests"
	if h.slow {
		of = "slow time"
	}
	return Impact{Share: round(h.share), Of: of, OfTime: h.slow, Text: text + h.text}
}

// attemptFloor is what an attempt in vain costs a request that notices.
var attemptFloor = floor{mean: 50e6, slow: 200e6}

// harmed tells what the requests that the processes of a master answer suffer
// by attempts in vain: they fail, or they are slow. ok is false when they do
// not, or when there were too few attempts to explain it; the text tells then
// too.
func (v *View) harmed(master int, attempts uint64) (h harm, ok bool) {
	s := v.suffering.of(master, func() suffering { return v.sufferingOf(master) })
	bad, all, worst, most := s.bad, s.all, s.worst, s.most
	share := ratio(bad, all)
	h = harm{share, false, fmt.Sprintf("%s of %s requests of %s failed", count(bad), count(all), v.Comm(master))}
	if bad >= fewAffected && share >= noiseShare && float64(attempts) >= harmEach*float64(bad) {
		return h, true
	}
	if worst == nil {
		return h, false
	}
	witnesses := float64(worst.SlowCount)
	if worst.always(most, attemptFloor) {
		witnesses = float64(worst.Requests)
	}
	if attempts >= fewAffected && worst.noticed(most, attemptFloor) && float64(attempts) >= harmEach*witnesses {
		share := most.slowShare
		if worst.always(most, attemptFloor) {
			share = most.share
		}
		return harm{share, true, fmt.Sprintf("%s take %s", worst.slowest(), nanoseconds(worst.SlowTotalNS()))}, true
	}
	h.text += ", and " + worst.whereTimeGoes()
	return h, false
}

// harmedBy tells what attempts in vain do to who makes them: to the requests of a
// service; to a client itself.
func (v *View) harmedBy(o *outcomes, attempts uint64) (h harm, ok bool) {
	if !o.client {
		return v.harmed(o.pid, attempts)
	}
	h = harm{ratio(attempts, o.all()), false, fmt.Sprintf("%s of %s connections came about", count(o.established), count(o.all()))}
	return h, attempts >= harmedLeast && v.fallbackOf(o) == nil && !v.leftAtEnd(o)
}

// leftAtEnd says that connections without an answer are those of clients that stop their
// work (a load test ends): few next to those that came about, to a service on this host
// that did answer (its SYN-ACKs were reset), and nobody asked anything afterwards.
func (v *View) leftAtEnd(o *outcomes) bool {
	there, _ := v.listensHere(o.destination)
	if there == nil || o.refused > 0 || leftBeside*float64(o.unanswered) > float64(o.established) || there.Counters["Tcp.AttemptFails"] < o.unanswered {
		return false
	}
	for _, l := range v.ledgersAt(o.netns, o.port) {
		if n := len(l.Arrivals); l.called() && l.Addr == o.addr && (n < leftSlots || slices.Max(l.Arrivals[n-leftSlots:]) > 0) {
			return false
		}
	}
	return true
}

const (
	leftBeside = 10 // connections that came about, for each that did not
	leftSlots  = 3  // of Endpoint.Arrivals, in which nobody asks any more
)

// impactOf is the harm of attempts in vain, after what brought it about.
func (o *outcomes) impactOf(h harm, text string) Impact {
	if o.client {
		return Impact{Share: round(h.share), Of: "new connections", Text: text}
	}
	return h.impact(text + "; ")
}

// suffering is what becomes of the requests that the processes of a master answer.
type suffering struct {
	bad, all uint64  // that failed, and all
	worst    *ledger // the endpoint that is slowest at its slowest requests
	most     cost    // of them
}

func (v *View) sufferingOf(master int) (s suffering) {
	for _, l := range v.servedOf[master] {
		s.bad += l.failedRequests()
		s.all += l.Requests
		if k := l.cost(1, observe.Server, observe.Stall); s.worst == nil || k.slowNS > s.most.slowNS {
			s.worst, s.most = l, k
		}
	}
	return s
}

// listensHere is the namespace on this host that has the address, and whether
// anything listens there at the port; nil when the address is elsewhere.
func (v *View) listensHere(d destination) (ns *observe.NetNS, listens bool) {
	a := address(d.addr).Unmap()
	inode := d.netns
	if !a.IsLoopback() {
		has := v.owners.of(a)
		if len(has) == 0 {
			return nil, false
		}
		inode = has[0]
	}
	ns = v.namespaces[inode]
	return ns, ns != nil && v.listening[end{netns: inode, port: d.port}]
}

// follows says of a finding whether it is about the same destination, or about
// the namespace that has its address, or about the machine.
func (v *View) follows(d destination) func(*Finding) bool {
	there, _ := v.listensHere(d)
	return func(p *Finding) bool {
		s := &p.Subject
		switch {
		case p.is(ClassShort), p.is(ClassKill):
			return true // of what is gone nobody knows any more where it listened
		case s.Addr == d.addr && s.Port == d.port:
			return true
		}
		return (s.NetNS == d.netns || there != nil && s.NetNS == there.Inode) && (s.Port == 0 || s.Port == d.port)
	}
}

// UpstreamRefused: a SYN is answered by a reset: nothing listens there
// (tcp_reset turns SYN_SENT into ECONNREFUSED), or a firewall rejects it so.
const UpstreamRefused ID = "upstream-refused"

var upstreamRefused = Cause{
	ID:            UpstreamRefused,
	Title:         "connect() is refused: nothing listens there",
	Layer:         LayerCall,
	Needs:         []observe.Kind{observe.KindConnects, observe.KindRequests},
	ConsequenceOf: []Parent{AbortOnOverflow, FirewallReject, ClassKill},
	Folds:         true,
	Check:         checkUpstreamRefused,
}

func checkUpstreamRefused(v *View) Result {
	r := ruledOut("no connection that a service or a client opened was refused")
	for _, o := range v.outcomes().all {
		if o.refused == 0 {
			continue
		}
		text := fmt.Sprintf("%s of %s connections of %s to %s were refused", count(o.refused), count(o.all()), o.comm, o.name())
		h, ok := v.harmedBy(o, o.refused)
		if !ok || o.refused < fewAffected || ratio(o.refused, o.all()) < noiseShare {
			if r.RuledOut == "no connection that a service or a client opened was refused" {
				r.RuledOut = text + ": " + h.text
			}
			continue
		}
		f := supported(Subject{Kind: "destination", NetNS: o.netns, PID: o.pid, Comm: o.comm, Addr: o.addr, Port: o.port})
		f.Weight = h.share
		f.Impact = o.impactOf(h, text)
		f.Evidence = []Evidence{
			{Fact: "connections refused (ECONNREFUSED)", Value: o.refused, Limit: o.all(), Unit: "connections", Source: "TCP sockets"},
			{Fact: "connections opened", Value: o.established, Unit: "connections", Source: "TCP sockets"},
		}
		f.MayFollow = v.follows(o.destination)
		there, listens := v.listensHere(o.destination)
		listing := shell.Line("ss -ltnp 'sport = :%s'", o.port)
		switch {
		case there == nil && address(o.addr).IsLoopback(): // in a namespace that began within the window
			f.Fix.Text = fmt.Sprintf("Start what should listen at %s, in the network namespace of %s (pid %d), or correct the address in its configuration.", o.name(), f.Subject.Comm, o.pid)
			f.Fix.Commands = []shell.Command{shell.Line("nsenter --net=/proc/%s/ns/net", o.pid).Then(listing)}
		case there == nil:
			f.Fix.Text = fmt.Sprintf("Start what should listen at %s, there, or correct the address in the configuration of %s. A firewall that rejects with a reset looks the same.", o.name(), f.Subject.Comm)
			f.Fix.Commands = []shell.Command{listing.Note("on the machine that has %s", o.addr)}
		case listens:
			f.Evidence = append(f.Evidence, Evidence{Fact: "something listens at the port at the end", Value: true, Source: "sock_diag"})
			f.Fix.Text = fmt.Sprintf("Something listens at port %d now: it was restarted meanwhile, listens at another address, or a firewall rejects with a reset.", o.port)
			f.Fix.Commands = []shell.Command{v.in(there, listing), v.in(there, shell.Line("nft list ruleset"))}
		default:
			f.Evidence = append(f.Evidence, Evidence{Fact: "something listens at the port at the end", Value: false, Source: "sock_diag"})
			f.Fix.Text = fmt.Sprintf("Nothing listens at port %d%s: start what should, or correct the address in the configuration of %s.", o.port, where(there), f.Subject.Comm)
			f.Fix.Commands = []shell.Command{v.in(there, listing)}
		}
		r.Findings = append(r.Findings, f)
	}
	return r
}

// ConnectTimeout: nothing at all comes back. The kernel sends SYNs after 1, 3,
// 7… seconds (tcp_syn_retries) and callers give up before that. Where some get
// through it is syn-retransmits.
const ConnectTimeout ID = "connect-timeout"

var connectTimeout = Cause{
	ID:    ConnectTimeout,
	Title: "connect() times out: SYNs are not answered",
	Layer: LayerCall,
	Needs: []observe.Kind{observe.KindConnects, observe.KindRequests},
	ConsequenceOf: []Parent{ConntrackFull, AcceptQueueOverflow, SoftirqSaturated, PHPFPMChildrenExhausted, ProcessStopped, NetworkLoss,
		SYNFlood, SYNQueueOverflow, ClassDrop},
	Folds: true,
	Check: checkConnectTimeout,
}

func checkConnectTimeout(v *View) Result {
	var r Result
	for _, o := range v.outcomes().all {
		if o.unanswered == 0 {
			continue
		}
		text := fmt.Sprintf("%s of %s connections of %s to %s were never answered", count(o.unanswered), count(o.all()), o.comm, o.name())
		h, ok := v.harmedBy(o, o.unanswered)
		if twin := v.fallbackOf(o); twin != nil {
			text, ok = text+", and then made to "+twin.name(), false
		}
		if !ok || o.unanswered < fewAffected || ratio(o.unanswered, o.all()) < noiseShare {
			if r.RuledOut == "" {
				r.RuledOut = text + ": " + h.text
			}
			continue
		}
		f := supported(Subject{Kind: "destination", NetNS: o.netns, PID: o.pid, Comm: o.comm, Addr: o.addr, Port: o.port})
		f.Weight = h.share
		f.Impact = o.impactOf(h, text)
		f.Evidence = []Evidence{
			{Fact: "connections never answered", Value: o.unanswered, Limit: o.all(), Unit: "connections", Source: "TCP sockets"},
			{Fact: "connections opened", Value: o.established, Unit: "connections", Source: "TCP sockets"},
		}
		if o.unreachable > 0 {
			f.Evidence = append(f.Evidence, Evidence{Fact: "of them: no way there (EHOSTUNREACH, ENETUNREACH)", Value: o.unreachable, Unit: "connections", Source: "TCP sockets"})
		}
		if g := v.calledGroup(v.Namespace(o.netns), o.addr, o.port); g != nil && g.States["SYN_SENT"] > 0 {
			f.Evidence = append(f.Evidence, Evidence{Fact: "connections without an answer at a moment, peak", Value: g.States["SYN_SENT"], Unit: "sockets", Source: "sock_diag"})
		}
		f.MayFollow = v.follows(o.destination)
		ns := v.place(o.netns)
		f.Fix.Text = fmt.Sprintf("Find out whether %s is up, and what on the way drops the SYNs: a firewall, a route to nowhere, a full queue there. In %s: a short time limit for connecting, and another address to go on with.", o.addr, f.Subject.Comm)
		f.Fix.Commands = []shell.Command{v.in(ns, shell.Line("ip route get %s", o.addr)), v.in(ns, shell.Line("ip neigh show %s", o.addr)), v.in(ns, shell.Line("nft list ruleset")),
			v.in(ns, shell.Line("ss -tn state syn-sent dport = :%s", o.port))}
		r.Findings = append(r.Findings, f)
	}
	r.RuledOut = cmp.Or(r.RuledOut, "every connection that a service or a client opened was answered")
	return r
}
