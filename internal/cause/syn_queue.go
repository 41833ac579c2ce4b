package cause

import (
	"fmt"
	"strconv"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// A SYN waits in its listening socket's queue for the last segment of the
// handshake. When the queue is full (as long as the backlog, or with SYN cookies
// off three quarters of tcp_max_syn_backlog) the kernel answers with a cookie,
// or drops the SYN where cookies are off (tcp_conn_request, net/ipv4/tcp_input.c).
// Cookies lose nothing: only dropped SYNs are a finding.

// SYNFlood: the queue is full of SYNs whose sender never answers.
const SYNFlood ID = "syn-flood"

var synFlood = Cause{
	ID:    SYNFlood,
	Title: "A SYN flood fills the SYN queue",
	Layer: LayerSocket,
	Needs: []observe.Kind{observe.KindListeners, observe.KindSockets, observe.KindCounters},
	Check: func(v *View) Result { return v.checkSYNQueue(true) },
	Try:   trySYNQueue,
}

// SYNQueueOverflow: the queue is full of connections that do come to be.
const SYNQueueOverflow ID = "syn-queue-overflow"

var synQueueOverflow = Cause{
	ID:            SYNQueueOverflow,
	Title:         "The SYN queue overflows",
	Layer:         LayerSocket,
	Needs:         []observe.Kind{observe.KindListeners, observe.KindSockets, observe.KindCounters},
	ConsequenceOf: []Parent{NetworkLoss, ConntrackFull},
	Check:         func(v *View) Result { return v.checkSYNQueue(false) },
	Try:           trySYNQueue,
}

// synQueue is the queue of half-open connections of one listening socket.
type synQueue struct {
	halfOpen int    // peak
	limit    int    // from which on SYNs are dropped or answered by cookies
	dropped  uint64 // SYNs, apart from those that a full accept queue dropped
	cookies  bool   // tcp_syncookies is on
	again    uint64 // SYN-ACKs retransmitted in the namespace
}

func (v *View) synQueueOf(s *Service, l *observe.Listener) synQueue {
	q := synQueue{limit: int(l.Limit), cookies: v.sysctl(s.NS, "net.ipv4.tcp_syncookies") != "0", again: s.NS.Counters["TcpExt.TCPSynRetrans"]}
	for _, g := range v.servedSockets(s.NS, l.Port) {
		q.halfOpen += g.States["SYN_RECV"]
	}
	if most, err := strconv.Atoi(v.sysctl(s.NS, "net.ipv4.tcp_max_syn_backlog")); err == nil && !q.cookies {
		q.limit = min(q.limit, most-most/4)
	}
	if overflows := s.NS.Counters["TcpExt.ListenOverflows"]; l.Drops > overflows {
		q.dropped = l.Drops - overflows
	}
	return q
}

// ignored says that most of what is half open stays so.
func (q *synQueue) ignored() bool { return float64(q.again) >= synsIgnored*float64(q.halfOpen) }

func (v *View) checkSYNQueue(flood bool) Result {
	r := ruledOut("no connection was half open")
	most := 0
	for _, s := range v.Services {
		for _, l := range s.Listeners {
			if l.Proto == "unix" {
				continue
			}
			q := v.synQueueOf(s, l)
			full := q.halfOpen > 0 && float64(q.halfOpen) >= synQueueFull*float64(q.limit)
			if full && l.FullSamples > 0 {
				// Handshakes cannot be completed: they stay half open whoever sent the SYN.
				r.RuledOut = fmt.Sprintf("%s on %s, behind an accept queue that is full", ofLimit(q.halfOpen, q.limit, "connections half open"), listenerName(l))
				most = q.halfOpen
				continue
			}
			if q.dropped < fewAffected || !full || q.ignored() != flood {
				if q.halfOpen > most {
					most = q.halfOpen
					r.RuledOut = fmt.Sprintf("at most %s on %s, %s SYNs dropped there, %s SYN-ACKs retransmitted",
						ofLimit(q.halfOpen, q.limit, "connections half open"), listenerName(l), count(q.dropped), count(q.again))
				}
				continue
			}
			r.Findings = append(r.Findings, v.synQueueFinding(s, l, q, flood))
		}
	}
	if cookies := v.cookiesSent(); len(r.Findings) == 0 && cookies > 0 {
		r.RuledOut += fmt.Sprintf("; %s SYN cookies sent, which lose nothing", count(cookies))
	}
	return r
}

func (v *View) cookiesSent() (n uint64) {
	for i := range v.Namespaces {
		if v.InScope(v.Namespaces[i].Inode) {
			n += v.Namespaces[i].Counters["TcpExt.SyncookiesSent"]
		}
	}
	return n
}

// wantedSYNBacklog is the tcp_max_syn_backlog that is proposed where a queue has
// such a limit.
func wantedSYNBacklog(limit int) uint64 { return uint64(max(4096, 8*limit)) }

func (v *View) synQueueFinding(s *Service, l *observe.Listener, q synQueue, flood bool) Finding {
	owner := v.Master(l.PID)
	f := supported(Subject{Kind: "listener", NetNS: s.NS.Inode, PID: owner, Comm: v.Comm(owner), Port: l.Port, Addr: l.Addr})
	dropped := ratio(q.dropped, q.dropped+l.Opened)
	// As in overflowFinding: who is connected is not touched.
	outside := float64(q.dropped) / max(v.Window.Seconds, 1)
	f.Weight = ratio(outside, outside+float64(l.Clients))
	f.lostAttempts(q.dropped)
	f.Impact = Impact{Share: round(dropped), Of: "new connections",
		Text: fmt.Sprintf("%s SYNs dropped on %s, %s connections came through", count(q.dropped), listenerName(l), count(l.Opened))}
	f.Evidence = []Evidence{
		{Fact: "SYNs dropped at this socket, without those that a full accept queue dropped", Value: q.dropped, Unit: "SYNs", Source: "sock_diag, drops of the listening socket"},
		{Fact: "connections half open, peak", Value: q.halfOpen, Limit: q.limit, Unit: "connections", Source: "TCP sockets in SYN_RECV"},
		{Fact: "SYN-ACKs retransmitted in the namespace", Value: q.again, Unit: "segments", Source: "/proc/net/netstat TCPSynRetrans"},
		{Fact: "net.ipv4.tcp_syncookies", Value: v.sysctl(s.NS, "net.ipv4.tcp_syncookies"), Source: "sysctl" + where(s.NS)},
		{Fact: "net.ipv4.tcp_max_syn_backlog", Value: v.sysctl(s.NS, "net.ipv4.tcp_max_syn_backlog"), Source: "sysctl" + where(s.NS)},
	}
	for _, flow := range v.Use.Flows {
		if flood && flow.NetNS == s.NS.Inode && flow.Proto == "tcp syn" && flow.Port == l.Port {
			f.Evidence = append(f.Evidence, Evidence{Fact: "SYNs that come in", Value: flow.Packets, Unit: "packets, estimated", Source: "samples of packets that come in"})
		}
	}
	if !q.cookies {
		f.Fix.Text = "Switch SYN cookies on: with a full queue clients are then answered all the same."
		v.setSysctl(&f.Fix, s.NS, "net.ipv4.tcp_syncookies", 1)
	} else {
		f.Fix.Text = fmt.Sprintf("Give the socket a longer queue (backlog %d now).", l.Limit)
	}
	if flood {
		f.Fix.Text += " Nobody answers the SYN-ACKs: the sources are forged or gone. Stop them before this host, or limit SYNs for each source in the firewall."
		f.Fix.Commands = append(f.Fix.Commands, v.in(s.NS, shell.Line("ss -tn state syn-recv sport = :%s", l.Port)))
		return f
	}
	f.Fix.Text += " Clients that are far away stay half open for a round trip each."
	v.setSysctl(&f.Fix, s.NS, "net.ipv4.tcp_max_syn_backlog", wantedSYNBacklog(q.limit))
	return f
}
