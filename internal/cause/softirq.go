package cause

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// SoftirqSaturated: packet processing takes so much of a CPU that ksoftirqd
// must take over and the processes wait. Packets that carry the service's own
// requests are its work; a fault is a flood that brings no requests.
const SoftirqSaturated ID = "softirq-saturated"

var softirqSaturated = Cause{
	ID:    SoftirqSaturated,
	Title: "A packet flood saturates a CPU in softirq",
	Layer: LayerMachine,
	Class: ClassMachine | ClassShort | ClassCPU,
	Needs: []observe.Kind{observe.KindCPU, observe.KindCounters},
	Check: checkSoftirq,
}

// softirqUse is how much of a CPU packets take.
type softirqUse struct {
	cpu       int     // the busiest one
	share     float64 // of it
	thread    *observe.Process
	ksoftirqd float64 // CPUs that the busiest ksoftirqd uses
	dropped   uint64  // from the backlogs
}

func (v *View) softirqUse() softirqUse {
	u := softirqUse{cpu: -1}
	for cpu, t := range v.Use.PerCPU {
		if s := ratio(t.SoftIRQ, t.Total()); s > u.share {
			u.cpu, u.share = cpu, s
		}
	}
	for i := range v.Processes {
		p := &v.Processes[i]
		if p.Kernel && strings.HasPrefix(p.Comm, "ksoftirqd/") && (u.thread == nil || p.CPUSeconds() > u.thread.CPUSeconds()) {
			u.thread = p
		}
	}
	if u.thread != nil {
		u.ksoftirqd = ratio(u.thread.CPUSeconds(), v.Window.Seconds)
	}
	for _, s := range v.Use.Softnet {
		u.dropped += s.Dropped
	}
	return u
}

func checkSoftirq(v *View) Result {
	u := v.softirqUse()
	text := fmt.Sprintf("softirq takes at most %s of a CPU, ksoftirqd %s; %s packets dropped from the backlog", percent(u.share), percent(u.ksoftirqd), count(u.dropped))
	if u.share < softirqShare || u.ksoftirqd < ksoftirqdShare && u.dropped == 0 {
		return ruledOut(text)
	}
	worst, useless, all := v.uselessPackets()
	flow, flowShare := v.uselessFlow()
	if (worst == nil || ratio(useless, all) < uselessShare) && flowShare < uselessShare {
		return ruledOut(text + ", and the packets are those of the requests")
	}
	suffers := v.floodHurts(&u)
	if suffers == "" {
		return ruledOut(text + ", but no request is slow, and nothing is dropped")
	}
	f := supported(Subject{Kind: "namespace"})
	if worst != nil {
		f.Subject.NetNS = worst.Inode
	}
	if flow != nil && flowShare >= uselessShare {
		f.Subject.NetNS, f.Subject.Interface, f.Subject.Port = flow.NetNS, flow.Interface, flow.Port
		f.Subject.Addr = flow.Peer
	}
	if u.ksoftirqd >= ksoftirqdShare {
		f.Subject.PID, f.Subject.Comm = u.thread.PID, u.thread.Comm
	}
	f.Weight = u.share
	if t := v.serversTime(); t.delay > 0 {
		f.Weight *= ratio(t.delay, t.delay+t.cpu)
	}
	f.Impact = Impact{Share: round(u.share), Of: "time of CPU " + itoa(u.cpu), OfTime: true, Text: fmt.Sprintf("%s of CPU %d goes into packet processing; %s", percent(u.share), u.cpu, suffers)}
	f.Evidence = []Evidence{
		{Fact: "softirq time of the busiest CPU", Value: round(u.share), Unit: "share", Source: "/proc/stat"},
		{Fact: "CPU of ksoftirqd", Value: round(u.ksoftirqd), Unit: "share of a CPU", Source: "/proc/PID/stat"},
		{Fact: "packets dropped from the CPU backlog", Value: u.dropped, Unit: "packets", Source: "/proc/net/softnet_stat"},
	}
	if worst != nil {
		f.Evidence = append(f.Evidence, Evidence{Fact: "packets that belong to no connection", Value: useless, Limit: all, Unit: "packets", Source: "netstat, snmp" + where(worst)})
	}
	if worst != nil {
		for _, c := range []struct{ name, fact string }{
			{"TcpExt.SyncookiesSent", "SYN cookies sent"}, {"Tcp.AttemptFails", "handshakes that came to nothing"}, {"Tcp.OutRsts", "segments refused with a reset"}, {"Udp.NoPorts", "datagrams to ports where nobody listens"},
		} {
			if n := worst.Counters[c.name]; 10*n >= useless {
				f.Evidence = append(f.Evidence, Evidence{Fact: c.fact, Value: n, Unit: "in the window", Source: "netstat, snmp " + c.name[strings.IndexByte(c.name, '.')+1:]})
			}
		}
		if n := worst.Counters["TcpExt.SyncookiesSent"] + worst.Counters["Tcp.AttemptFails"]; n > 0 && 4*n >= useless || flow != nil && flow.Proto == "tcp syn" {
			f.Title = "A SYN flood saturates a CPU in softirq"
		}
	}
	f.Evidence = append(f.Evidence, v.packetEvidence()...)
	f.Fix.Text = "Drop the flood early (firewall rule for its source, upstream filter), and spread packet processing over the CPUs (RPS, more queues)."
	if flow != nil && flow.Peer != "" && flow.PeerShare >= uselessShare {
		f.Fix.Text = fmt.Sprintf("Drop what %s sends early (a firewall rule, an upstream filter): %s of these packets are its own. Spread packet processing over the CPUs (RPS, more queues).", flow.Peer, percent(flow.PeerShare))
		f.Fix.Commands = []shell.Command{
			v.in(v.place(flow.NetNS), shell.Line("nft add table netdev slowray_drop")),
			v.in(v.place(flow.NetNS), shell.Line("nft add chain netdev slowray_drop in %s", shell.NFTText("{ type filter hook ingress device %s priority -500; }", flow.Interface))),
			v.in(v.place(flow.NetNS), shell.Line("nft add rule netdev slowray_drop in %s saddr %s drop   # nft delete table netdev slowray_drop takes it back", family(flow.Peer), flow.Peer)),
		}
	}
	return Result{Findings: []Finding{f}}
}

// family is how nft(8) calls the protocol of an address.
func family(addr string) string {
	if strings.Contains(addr, ":") {
		return "ip6"
	}
	return "ip"
}

// floodHurts says what packet processing costs somebody; empty when nothing.
func (v *View) floodHurts(u *softirqUse) string {
	if u.dropped > 0 {
		return count(u.dropped) + " packets were dropped from its backlog"
	}
	var hurt string
	most, any := 0.0, false
	for _, l := range v.ledgers {
		any = any || l.Requests >= fewRequests
		k := l.cost(1, observe.Parts()...)
		if l.Requests >= fewRequests && l.noticed(k, threadFloor) && l.SlowTotalNS() > most {
			hurt, most = fmt.Sprintf("%s take %s", l.slowest(), nanoseconds(l.SlowTotalNS())), l.SlowTotalNS()
		}
	}
	if hurt != "" {
		return hurt
	}
	for i := range v.Namespaces {
		c := v.Namespaces[i].Counters
		if n := c["TcpExt.SyncookiesSent"] + c["TcpExt.TCPReqQFullDrop"]; n > 0 {
			return count(n) + " handshakes found no room"
		}
	}
	if t := v.serversTime(); t.delay >= delayPerCPU*t.cpu && t.delay >= delayFloor*v.Window.Seconds {
		return fmt.Sprintf("the service's threads were ready and had no CPU for %s, and ran for %s", seconds(t.delay), seconds(t.cpu))
	}
	if !any {
		return "no request was answered"
	}
	return ""
}

// uselessPackets finds the namespace with most packets that brought no data of
// any connection: SYNs that led nowhere with what ended them, segments and
// datagrams to closed ports or full buffers.
func (v *View) uselessPackets() (worst *observe.NetNS, useless, all uint64) {
	for i := range v.Namespaces {
		ns := &v.Namespaces[i]
		c := ns.Counters
		var opened uint64
		for j := range ns.Listeners {
			opened += ns.Listeners[j].Opened
		}
		bad := c["TcpExt.SyncookiesSent"] + c["TcpExt.TCPReqQFullDrop"] + 2*c["Tcp.AttemptFails"] + c["Tcp.OutRsts"] + c["Udp.NoPorts"] + c["Udp.InErrors"] + c["Tcp.InErrs"]
		bad -= min(bad, opened)
		if bad > useless || worst == nil {
			worst, useless, all = ns, bad, c["Tcp.InSegs"]+c["Udp.InDatagrams"]+c["Udp.NoPorts"]+c["Udp.InErrors"]
		}
	}
	return worst, useless, all
}

// bringNothing are the kinds of packets that bring no request.
var bringNothing = []string{"tcp syn", "tcp reset", "udp", "icmp", "arp"}

// uselessFlow is the largest flow of packets that bring no request by their
// kind, with the share that those of its port have of all packets that were
// looked at: SYNs are followed by resets.
func (v *View) uselessFlow() (*observe.Flow, float64) {
	var all, same uint64
	var most *observe.Flow
	for i := range v.Use.Flows {
		f := &v.Use.Flows[i]
		all += f.Packets
		if slices.Contains(bringNothing, f.Proto) && (most == nil || f.Packets > most.Packets) {
			most = f
		}
	}
	if most == nil || most.Proto == "udp" && v.servesUDP(most) {
		return nil, 0
	}
	for i := range v.Use.Flows {
		if f := &v.Use.Flows[i]; f.NetNS == most.NetNS && f.Interface == most.Interface && f.Port == most.Port && slices.Contains(bringNothing, f.Proto) {
			same += f.Packets
		}
	}
	return most, ratio(same, all)
}

// servesUDP says that datagrams of a flow are mostly taken up by somebody.
func (v *View) servesUDP(f *observe.Flow) bool {
	ns := v.Namespace(f.NetNS)
	if ns == nil {
		return true // nobody knows
	}
	c := ns.Counters
	return c["Udp.InDatagrams"] > c["Udp.NoPorts"]+c["Udp.InErrors"]
}

// packetEvidence tells whose packets they are: by the sort of softirq,
// the interface, the port and the other end.
func (v *View) packetEvidence() []Evidence {
	var out []Evidence
	if vectors := v.busiestVectors(); vectors != "" {
		out = append(out, Evidence{Fact: "softirqs, most of all", Value: vectors, Unit: "a second", Source: "/proc/softirqs"})
	}
	var most *observe.Interface
	var in *observe.NetNS
	for i := range v.Namespaces {
		for j := range v.Namespaces[i].Interfaces {
			if d := &v.Namespaces[i].Interfaces[j]; most == nil || d.RxPackets > most.RxPackets {
				most, in = d, &v.Namespaces[i]
			}
		}
	}
	if most != nil && most.RxPackets > 0 && v.Window.Seconds > 0 {
		out = append(out, Evidence{Fact: "packets that came in on " + most.Name + where(in) + ", the busiest interface", Value: uint64(float64(most.RxPackets) / v.Window.Seconds),
			Unit: fmt.Sprintf("a second, of %d bytes", most.RxBytes/most.RxPackets), Source: "/proc/net/dev"})
	}
	var all uint64
	for i := range v.Use.Flows {
		all += v.Use.Flows[i].Packets
	}
	for i := range v.Use.Flows[:min(2, len(v.Use.Flows))] {
		f := &v.Use.Flows[i]
		out = append(out, Evidence{Fact: "packets: " + flowText(f), Value: round(ratio(f.Packets, all)), Limit: 1, Unit: "share of those that came in", Source: "packets, sampled"})
	}
	if len(v.Use.Flows) > 0 {
		return out
	}
	for _, l := range v.KernelLog {
		if l.Kind == "syn-flood" {
			out = append(out, Evidence{Fact: fmt.Sprintf("the kernel's log names port %d", l.Port), Value: l.Count, Unit: "lines", Source: "kernel log"})
		}
	}
	port, waiting := 0, 0
	for i := range v.Namespaces {
		for j := range v.Namespaces[i].Sockets {
			if g := &v.Namespaces[i].Sockets[j]; g.Side == "served" && g.States["SYN_RECV"] > waiting {
				port, waiting = g.Port, g.States["SYN_RECV"]
			}
		}
	}
	if waiting > 0 {
		out = append(out, Evidence{Fact: fmt.Sprintf("handshakes that are not complete, at port %d", port), Value: waiting, Unit: "sockets", Source: "sock_diag"})
	}
	return out
}

// flowText tells what the packets of a flow are.
func flowText(f *observe.Flow) string {
	text := map[string]string{"tcp syn": "SYNs", "tcp reset": "resets", "tcp": "TCP segments", "udp": "UDP datagrams", "icmp": "ICMP messages", "arp": "ARP messages"}[f.Proto]
	if text == "" {
		text = "of other protocols"
	}
	if f.Port > 0 {
		text += fmt.Sprintf(" to port %d", f.Port)
	}
	if f.Interface != "" {
		text += " on " + f.Interface
	}
	switch {
	case f.Peer != "" && f.PeerShare >= 0.1:
		text += fmt.Sprintf(", %s of them from %s", percent(f.PeerShare), f.Peer)
	case f.Peer != "":
		text += ", from many addresses"
	}
	return text
}

// busiestVectors lists the softirqs that ran most often, at most three.
func (v *View) busiestVectors() string {
	type vector struct {
		name string
		runs uint64
	}
	var list []vector
	for name, cpus := range v.Use.SoftIRQs {
		var n uint64
		for _, c := range cpus {
			n += c
		}
		list = append(list, vector{name, n})
	}
	slices.SortFunc(list, func(a, b vector) int {
		if a.runs != b.runs {
			if a.runs > b.runs {
				return -1
			}
			return 1
		}
		return strings.Compare(a.name, b.name)
	})
	var parts []string
	for _, x := range list[:min(3, len(list))] {
		if v.Window.Seconds > 0 && x.runs > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", x.name, count(uint64(float64(x.runs)/v.Window.Seconds))))
		}
	}
	return strings.Join(parts, ", ")
}
