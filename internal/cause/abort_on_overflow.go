package cause

import (
	"fmt"

	"github.com/slowray/slowray/internal/observe"
)

// AbortOnOverflow: with tcp_abort_on_overflow a handshake that finds the accept
// queue full is answered by a reset (tcp_check_req, net/ipv4/tcp_minisocks.c):
// clients get an error at once instead of a connection a second later.
const AbortOnOverflow ID = "abort-on-overflow"

var abortOnOverflow = Cause{
	ID:            AbortOnOverflow,
	Title:         "tcp_abort_on_overflow resets client connections",
	Layer:         LayerSocket,
	Needs:         []observe.Kind{observe.KindListeners, observe.KindCounters, observe.KindSysctl},
	ConsequenceOf: []Parent{AcceptQueueOverflow},
	Folds:         true,
	Check:         checkAbortOnOverflow,
	Try: inNamespace(func(v *View, ns *observe.NetNS) []Change {
		return v.switched(ns, "net.ipv4.tcp_abort_on_overflow", "0")
	}),
}

func checkAbortOnOverflow(v *View) Result {
	r := ruledOut("tcp_abort_on_overflow is off")
	for _, s := range v.Services {
		if v.sysctl(s.NS, "net.ipv4.tcp_abort_on_overflow") != "1" {
			continue
		}
		for _, l := range s.Listeners {
			if l.Proto == "unix" {
				continue
			}
			o := overflowOf(v, s, l)
			resets := s.NS.Counters["TcpExt.EmbryonicRsts"]
			if o.dropped == 0 || resets == 0 {
				if len(r.Findings) == 0 {
					r.RuledOut = "tcp_abort_on_overflow is on" + where(s.NS) + ", and no accept queue was full"
				}
				continue
			}
			f := supported(Subject{Kind: "listener", NetNS: s.NS.Inode, PID: v.Master(l.PID), Comm: v.Comm(v.Master(l.PID)), Port: l.Port, Addr: l.Addr})
			reset := min(resets, o.dropped)
			f.Weight = ratio(reset, reset+o.opened)
			f.lostAttempts(reset)
			f.Impact = Impact{Share: round(f.Weight), Of: "new connections",
				Text: fmt.Sprintf("up to %s connections to %s were reset, %s came through", count(reset), listenerName(l), count(o.opened))}
			f.Evidence = []Evidence{
				{Fact: "handshakes that were reset in the namespace", Value: resets, Unit: "connections", Source: "/proc/net/netstat EmbryonicRsts"},
				{Fact: "attempts dropped at this socket", Value: o.dropped, Unit: "attempts", Source: dropSource(l)},
				{Fact: "net.ipv4.tcp_abort_on_overflow", Value: "1", Source: "sysctl" + where(s.NS)},
			}
			f.Fix.Text = "Switch tcp_abort_on_overflow off: a client whose handshake is dropped tries again by itself. And fix what fills the queue."
			v.setSysctl(&f.Fix, s.NS, "net.ipv4.tcp_abort_on_overflow", 0)
			r.Findings = append(r.Findings, f)
		}
	}
	return r
}
