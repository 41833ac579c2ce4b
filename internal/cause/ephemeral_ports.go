package cause

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// EphemeralPortsExhausted: a connection to one address and port needs a local
// port of its own. With all of net.ipv4.ip_local_port_range in use towards
// that destination, connect() fails with EADDRNOTAVAIL
// (__inet_hash_connect, net/ipv4/inet_hashtables.c).
const EphemeralPortsExhausted ID = "ephemeral-ports-exhausted"

var ephemeralPortsExhausted = Cause{
	ID:    EphemeralPortsExhausted,
	Title: "Ephemeral ports exhausted towards a destination",
	Layer: LayerCall,
	Needs: []observe.Kind{observe.KindSockets, observe.KindSysctl},
	// only where TIME_WAIT fills an ample range, see portsFinding
	ConsequenceOf: []Parent{TimeWaitPortSearch},
	Check:         checkEphemeralPorts,
	Try:           tryMorePorts,
}

// destination is where calls of one namespace go.
type destination struct {
	netns uint64
	addr  string
	port  int
}

// calls is what became of them.
type calls struct {
	destination
	pid         int // the process with most failures
	all         uint64
	started     uint64
	failed      uint64 // EADDRNOTAVAIL
	established uint64
	most        uint64
}

func checkEphemeralPorts(v *View) Result {
	var r Result
	for _, c := range v.callsByDestination() {
		ns := v.Namespace(c.netns)
		g := v.calledGroup(ns, c.addr, c.port)
		size := portRange(v.sysctl(ns, "net.ipv4.ip_local_port_range"))
		logged, example := v.portErrorsLogged(c.destination)
		failed := c.failed
		if v.missing(observe.KindConnects) {
			failed = uint64(logged)
		}
		// EADDRNOTAVAIL is also what a call to an address of a family that the
		// namespace does not have gives: the ports must really be in use.
		if failed == 0 || g == nil || size == 0 || ratio(g.LocalPorts, size) < 0.5 {
			continue
		}
		r.Findings = append(r.Findings, portsFinding(v, c, g, ns, size, failed, logged, example))
	}
	r.RuledOut = v.portsInUse()
	if len(r.Findings) == 0 {
		return v.boundPorts(r)
	}
	return r
}

// boundPorts looks for calls that name their own address: bind() with port 0 takes a port
// for calls to any destination, and fails with EADDRINUSE where all are in use
// (inet_csk_find_open_port, net/ipv4/inet_connection_sock.c), however many destinations
// they are shared by. r is what is known otherwise.
func (v *View) boundPorts(r Result) Result {
	match := func(e *observe.CallError) bool {
		ns := v.Namespace(e.NetNS)
		if e.Call != "bind" || e.Error != "EADDRINUSE" || ns == nil {
			return false
		}
		size := portRange(v.sysctl(ns, portRangeKnob))
		return size > 0 && 2*portsOf(ns) >= size // else it is a port that somebody else listens at
	}
	bound := v.judgeLack(match, r.RuledOut, func(k *lack, f *Finding) {
		e := k.first()
		ns := v.Namespace(e.NetNS)
		rangeText := v.sysctl(ns, portRangeKnob)
		f.Title = "Ephemeral ports exhausted for a bound address"
		f.Evidence = append(f.Evidence, Evidence{Fact: "local ports in use by calls, to all destinations", Value: portsOf(ns), Limit: portRange(rangeText), Unit: "ports",
			Source: "sock_diag; " + portRangeKnob + " = " + rangeText})
		f.Fix.Text = fmt.Sprintf("Have %s set IP_BIND_ADDRESS_NO_PORT before bind() (nginx and HAProxy do), so that a port is taken for each destination by itself; or keep connections open.", e.Comm)
		if wide := wantedPortRange(rangeText); wide != "" {
			v.setSysctl(&f.Fix, ns, portRangeKnob, wide)
			f.Fix.Changes = append(f.Fix.Changes, sysctlChange(ns, portRangeKnob, rangeText, wide))
		}
	})
	if bound.NotChecked != "" {
		return r
	}
	return bound
}

// portsOf is how many local ports the calls of a namespace have, each once for each
// destination.
func portsOf(ns *observe.NetNS) int {
	n := 0
	for i := range ns.Sockets {
		n += ns.Sockets[i].LocalPorts
	}
	return n
}

func portsFinding(v *View, c calls, g *observe.SocketGroup, ns *observe.NetNS, size int, failed uint64, logged int64, example string) Finding {
	owner := v.Master(c.pid)
	f := supported(Subject{Kind: "destination", NetNS: c.netns, PID: owner, Comm: v.Comm(owner), Addr: c.addr, Port: c.port})
	share := ratio(failed, max(c.all, failed))
	// Where even the calls that found a port do not get through, more ports
	// alone would not help: what stops those counts first.
	through := answeredShare(c, g)
	f.Weight = share * through
	f.Impact = Impact{Share: round(share), Of: "calls to " + netip.AddrPortFrom(addrOf(c.addr), uint16(c.port)).String(),
		Text: fmt.Sprintf("%s of %s connect() calls failed with EADDRNOTAVAIL", count(failed), count(max(c.all, failed)))}
	rangeText := v.sysctl(ns, "net.ipv4.ip_local_port_range")
	f.Evidence = []Evidence{
		{Fact: "connect() failed with EADDRNOTAVAIL", Value: c.failed, Limit: c.all, Unit: "calls", Source: "connect() results"},
		{Fact: "local ports in use towards the destination", Value: g.LocalPorts, Limit: size, Unit: "ports", Source: "sock_diag; net.ipv4.ip_local_port_range = " + rangeText},
		{Fact: "their states", Value: statesText(g.States), Source: "sock_diag"},
	}
	if logged > 0 {
		f.Evidence = append(f.Evidence, Evidence{Fact: "log: (99: Cannot assign requested address)", Value: logged, Unit: "lines", Source: "nginx error log"}, firstLine(example))
	}
	if through < 0.5 {
		f.Evidence = append(f.Evidence, Evidence{Fact: "calls that found a port and were answered", Value: round(through), Unit: "share", Source: "handshakes, socket states"})
	}
	f.Fix.Text = "The port range is wide already: keep connections open (upstream keepalive), or call more than one address"
	if wide := wantedPortRange(rangeText); wide != "" {
		f.Fix.Text = fmt.Sprintf("Widen %s (%s: %s ports) to %s", portRangeKnob, rangeText, count(size), wide)
		f.Fix.Commands = append(f.Fix.Commands, v.in(ns, shell.Line("sysctl -w %s", shell.Sysctl(portRangeKnob+"="+wide))))
		f.Fix.Persist = append(f.Fix.Persist, v.lastingSysctl(ns, portRangeKnob, wide))
	}
	if heldInTimeWait(ns, g) {
		if size >= ampleRange {
			f.follows(TimeWaitPortSearch)
		}
		f.Fix.Text += "; most are held in TIME_WAIT: tcp_tw_reuse = 1 lets them be used again after a second"
		f.Fix.Commands = append(f.Fix.Commands, v.in(ns, shell.Line("sysctl -w net.ipv4.tcp_tw_reuse=1")))
	}
	if n := v.nginxByPID(owner); n != nil {
		for _, u := range n.Upstreams {
			if u.Keepalive.Value == "0" && containsPort(u.Servers, c.port) {
				f.Subject.Path = fmt.Sprintf("%s:%d", n.Root+u.File, u.Line)
				f.Fix.Text += fmt.Sprintf("; better still, keep connections to the upstream open (keepalive, %s:%d)", n.Root+u.File, u.Line)
				break
			}
		}
	}
	f.Fix.Text += "."
	return f
}

const portRangeKnob = "net.ipv4.ip_local_port_range"

// wantedPortRange is the range that is proposed instead of one, wider at both
// ends or at one; empty where it is wide already.
func wantedPortRange(text string) string {
	size := portRange(text)
	if size == 0 || size > 40000 {
		return ""
	}
	first, _ := strconv.Atoi(strings.Fields(text)[0])
	return fmt.Sprintf("%d 65535", min(first, 10000))
}

// heldInTimeWait says whether most of the ports are held in TIME_WAIT, and not
// taken again.
func heldInTimeWait(ns *observe.NetNS, g *observe.SocketGroup) bool {
	return 2*g.States["TIME_WAIT"] > g.LocalPorts && !reusesPorts(ns)
}

// answeredShare is the share of the calls that found a local port and were
// answered. When no call of the window found one, the sockets that hold the
// ports tell: one in SYN_SENT has had no answer yet.
func answeredShare(c calls, g *observe.SocketGroup) float64 {
	if c.started > 0 {
		return ratio(c.established, c.started)
	}
	return 1 - ratio(g.States["SYN_SENT"], g.LocalPorts)
}

// callsByDestination sums connect() results over the processes of a service,
// for processes in view, TCP only.
func (v *View) callsByDestination() []calls {
	index := map[destination]int{}
	var out []calls
	for i := range v.Connects {
		c := &v.Connects[i]
		if c.Family == "unix" || !v.OnPath(c.PID) && len(v.Services) > 0 && v.Filter != (observe.Filter{}) {
			continue
		}
		d := destination{c.NetNS, c.Addr, c.Port}
		j, ok := index[d]
		if !ok {
			j = len(out)
			index[d] = j
			out = append(out, calls{destination: d})
		}
		s := &out[j]
		failed := c.Errors["EADDRNOTAVAIL"]
		s.all += c.Calls
		s.started += c.Started
		s.failed += failed
		s.established += c.Established
		if failed >= s.most {
			s.most, s.pid = failed, c.PID
		}
	}
	return out
}

// calledGroup returns the sockets of ns towards a destination, or nil; several
// local addresses are added up.
func (v *View) calledGroup(ns *observe.NetNS, addr string, port int) *observe.SocketGroup {
	var sum *observe.SocketGroup
	for _, g := range v.calledSockets(ns, addr, port) {
		if sum == nil || g.LocalPorts > sum.LocalPorts {
			sum = g
		}
	}
	return sum
}

func (v *View) portErrorsLogged(d destination) (int64, string) {
	var lines int64
	example := ""
	for _, n := range v.nginxIn[d.netns] {
		for _, k := range n.Errors {
			if k.Kind == "ephemeral-ports" && strings.HasSuffix(k.Upstream, ":"+itoa(d.port)) {
				lines += k.Count
				example = k.Example
			}
		}
	}
	return lines, example
}

// portsInUse says how far the port range is used, towards the destination
// that uses most of it.
func (v *View) portsInUse() string {
	top, text := -1.0, "no calls to other services over TCP"
	for i := range v.Namespaces {
		ns := &v.Namespaces[i]
		if !v.InScope(ns.Inode) {
			continue
		}
		size := portRange(v.sysctl(ns, "net.ipv4.ip_local_port_range"))
		for j := range ns.Sockets {
			g := &ns.Sockets[j]
			if use := ratio(g.LocalPorts, size); g.Side == "called" && use > top {
				top = use
				text = fmt.Sprintf("at most %s in use towards one destination (%s), no connect() failed for lack of one",
					ofLimit(g.LocalPorts, size, "local ports"), netip.AddrPortFrom(addrOf(g.Remote), uint16(g.Port)))
			}
		}
	}
	return text
}

// portRange returns the number of ports in "32768 60999", 0 if malformed.
func portRange(text string) int {
	fields := strings.Fields(text)
	if len(fields) != 2 {
		return 0
	}
	low, err1 := strconv.Atoi(fields[0])
	high, err2 := strconv.Atoi(fields[1])
	if err1 != nil || err2 != nil || high < low {
		return 0
	}
	return high - low + 1
}

func addrOf(text string) netip.Addr {
	addr, _ := netip.ParseAddr(text)
	return addr
}

func containsPort(servers []string, port int) bool {
	for _, s := range servers {
		if strings.HasSuffix(s, ":"+itoa(port)) {
			return true
		}
	}
	return false
}

func (v *View) nginxByPID(pid int) *observe.Nginx {
	for i := range v.Nginx {
		if v.Nginx[i].PID == pid {
			return &v.Nginx[i]
		}
	}
	return nil
}
