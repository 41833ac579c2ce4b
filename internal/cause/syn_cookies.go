package cause

import (
	"fmt"

	"github.com/slowray/slowray/internal/observe"
)

// SYNCookiesSent: with its queues full the kernel answers SYNs by a cookie
// instead of keeping state (tcp_conn_request). A cookie by itself loses
// nothing, so it is only ever told as a consequence of what filled the queue.
const SYNCookiesSent ID = "syn-cookies-sent"

var synCookiesSent = Cause{
	ID:            SYNCookiesSent,
	Title:         "SYN cookies are sent: the SYN queue is full",
	Layer:         LayerSocket,
	Needs:         []observe.Kind{observe.KindCounters},
	ConsequenceOf: []Parent{AcceptQueueOverflow},
	Folds:         true,
	Check:         checkSynCookiesSent,
}

func checkSynCookiesSent(v *View) Result {
	var r Result
	r.RuledOut = "no SYN cookie was sent"
	for i := range v.Namespaces {
		ns := &v.Namespaces[i]
		sent := ns.Counters["TcpExt.SyncookiesSent"]
		if sent == 0 || !v.InScope(ns.Inode) {
			continue
		}
		if ns.Counters["TcpExt.ListenOverflows"] == 0 {
			r.RuledOut = fmt.Sprintf("%s SYN cookies were sent%s, but no connection was dropped", count(sent), where(ns))
			continue
		}
		f := supported(Subject{Kind: "namespace", NetNS: ns.Inode})
		f.Impact = Impact{Share: 0, Of: "new connections", Text: fmt.Sprintf("%s SYN cookies sent; they lose nothing by themselves", count(sent))}
		f.Evidence = []Evidence{{Fact: "SYN cookies sent", Value: sent, Unit: "segments", Source: "netstat SyncookiesSent"}}
		for _, l := range v.logged["syn-flood"] {
			if l.NetNS == 0 && v.ServiceAt(ns.Inode, l.Port, "") != nil {
				f.Evidence = append(f.Evidence, Evidence{Fact: "kernel log: possible SYN flooding", Value: l.Count, Unit: "lines (once per socket)", Source: "/dev/kmsg"})
				f.Subject.Port = l.Port
			}
		}
		f.Fix.Text = "Fix the overflowing queue; do not switch the cookies off, they keep connections alive."
		r.Findings = append(r.Findings, f)
	}
	return r
}
