package cause

import (
	"fmt"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// Segments that arrive and are dropped by the receiving socket are sent
// again, as if the network had lost them. The counters of the namespace tell
// that it happened; it is a finding only where requests wait for it: those
// whose bytes are retransmitted, when their sender is on this host, and those
// whose bytes come in late.

// thrownAway is one way to lose a segment that has arrived.
type thrownAway struct {
	counters []string // any of them
	what     string   // of the segments, for a sentence
	none     string   // when there were none
	fix      func(v *View, ns *observe.NetNS, f *Finding)
}

const ReceiveBufferPruned ID = "receive-buffer-pruned"

var receiveBufferPruned = Cause{
	ID:    ReceiveBufferPruned,
	Title: "Full receive buffers drop segments",
	Layer: LayerSocket,
	Class: ClassSegment,
	Needs: []observe.Kind{observe.KindCounters, observe.KindRequests},
	// What is not read fills the buffer.
	ConsequenceOf: []Parent{TCPMemoryPressure, ApplicationSlowToRead, ClassShort},
	Folds:         true,
	Check: thrownAway{
		counters: []string{"TcpExt.RcvPruned", "TcpExt.OfoPruned", "TcpExt.TCPRcvQDrop", "TcpExt.TCPOFODrop"},
		what:     "did not fit into a receive buffer", none: "all segments that came fitted into their receive buffers", fix: fixPruned,
	}.check,
	Try: inNamespace(func(v *View, ns *observe.NetNS) []Change { return v.widened(ns, "net.ipv4.tcp_rmem", wantedRmem) }),
}

// SocketBacklogDrop: segments that come in while a thread has the socket locked
// wait in the socket's backlog, which is bounded by its buffers (tcp_add_backlog).
const SocketBacklogDrop ID = "socket-backlog-drop"

var socketBacklogDrop = Cause{
	ID:            SocketBacklogDrop,
	Title:         "The socket backlog overflows",
	Layer:         LayerSocket,
	Class:         ClassSegment,
	Needs:         []observe.Kind{observe.KindCounters, observe.KindRequests},
	ConsequenceOf: []Parent{ClassShort},
	Folds:         true,
	Check: thrownAway{
		counters: []string{"TcpExt.TCPBacklogDrop"},
		what:     "came while the socket's backlog was full", none: "no socket's backlog was full", fix: fixBacklog,
	}.check,
}

// PAWSDrop: a segment whose timestamp is older than the last one of its
// connection is taken for a duplicate (RFC 7323, section 5).
const PAWSDrop ID = "paws-drop"

var pawsDrop = Cause{
	ID:    PAWSDrop,
	Title: "PAWS drops segments: TCP timestamp went backwards",
	Layer: LayerSocket,
	Class: ClassSegment,
	Needs: []observe.Kind{observe.KindCounters, observe.KindRequests},
	Check: thrownAway{
		counters: []string{"TcpExt.PAWSActive", "TcpExt.PAWSEstab", "TcpExt.PAWSTimewait"},
		what:     "had an old timestamp", none: "no segment had an old timestamp", fix: fixPAWS,
	}.check,
}

func (t thrownAway) check(v *View) Result {
	r := ruledOut(t.none)
	for i := range v.Namespaces {
		ns := &v.Namespaces[i]
		dropped, evidence := countersOf(ns, t.counters)
		if dropped == 0 || !v.InScope(ns.Inode) {
			continue
		}
		text := fmt.Sprintf("%s segments %s%s", count(dropped), t.what, where(ns))
		l, k := v.waitsForSegments(ns)
		if l == nil || dropped < fewPackets {
			r.RuledOut = text + ", and no request waited for that to speak of"
			continue
		}
		f := v.found(l, k, wireFloor, "for segments retransmitted or late")
		f.Subject = Subject{Kind: "namespace", NetNS: ns.Inode, Port: l.Port, PID: l.pid, Comm: v.commOf(l)}
		f.Impact.Text = text + "; " + f.Impact.Text
		f.Evidence = append(evidence, f.Evidence...)
		t.fix(v, ns, f)
		r.Findings = append(r.Findings, *f)
	}
	return r
}

// countersOf adds up counters of a namespace, and tells those that moved.
func countersOf(ns *observe.NetNS, names []string) (sum uint64, evidence []Evidence) {
	for _, name := range names {
		if n := ns.Counters[name]; n > 0 {
			sum += n
			_, short, _ := strings.Cut(name, ".")
			evidence = append(evidence, Evidence{Fact: short, Value: n, Source: "/proc/net/netstat" + where(ns)})
		}
	}
	return sum, evidence
}

// waitsForSegments is the endpoint whose requests lose most by segments that
// are sent to sockets of the namespace and have to be retransmitted; nil when they
// lose nothing to speak of.
func (v *View) waitsForSegments(ns *observe.NetNS) (*ledger, cost) {
	var most *ledger
	var worst cost
	var near []*ledger
	for _, l := range v.ledgersIn[ns.Inode] {
		near = append(append(near, l), l.sameEnds()...)
	}
	for _, l := range inOrder(near) {
		parts := []observe.Part{observe.Retrans}
		if l.ns == ns && !l.called() {
			parts = []observe.Part{observe.Upload}
		} else if l.ns == ns {
			parts = []observe.Part{observe.Stall, observe.RecvWait}
		}
		k := l.cost(1, parts...)
		if (l.noticed(k, wireFloor) || l.wasted(k, wireFloor, parts[0])) && l.reach >= fewReach && (most == nil || k.share > worst.share) {
			most, worst = l, k
		}
	}
	return most, worst
}

func fixPruned(v *View, ns *observe.NetNS, f *Finding) {
	rmem := v.sysctl(ns, "net.ipv4.tcp_rmem")
	f.Evidence = append(f.Evidence, Evidence{Fact: "net.ipv4.tcp_rmem", Value: rmem, Unit: "bytes", Source: "sysctl" + where(ns)})
	f.Fix.Text = "Raise the largest receive buffer (third figure of net.ipv4.tcp_rmem), and leave out a small SO_RCVBUF of the application: it switches the kernel's own sizing off. Find out whether the application reads late."
	f.Fix.Commands = []shell.Command{v.in(ns, shell.Line("sysctl -w net.ipv4.tcp_rmem=%s", wantedRmem)), v.in(ns, shell.Line("ss -tnmi"))}
	f.Fix.Persist = []shell.Command{v.lastingSysctl(ns, "net.ipv4.tcp_rmem", wantedRmem)}
}

func fixBacklog(v *View, ns *observe.NetNS, f *Finding) {
	f.Fix.Text = "The thread that reads or writes the socket has it locked for too long, with large reads or for lack of a CPU: read less at a time, give the process a CPU, and raise its receive buffer, by which the backlog is bounded."
	f.Fix.Commands = []shell.Command{v.in(ns, shell.Line("ss -tnmi   # bl and d in skmem")), v.in(ns, shell.Line("sysctl net.ipv4.tcp_rmem"))}
}

func fixPAWS(v *View, ns *observe.NetNS, f *Finding) {
	f.Fix.Text = "Several machines behind one address (NAT, a load balancer) have TCP clocks of their own, or something on the way changes timestamps: let it keep or remove them."
	f.Fix.Commands = []shell.Command{v.in(ns, shell.Line("nstat -az | grep -i paws")), v.in(ns, shell.Line("sysctl net.ipv4.tcp_timestamps"))}
}
