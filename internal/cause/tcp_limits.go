package cause

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// TimeWaitBucketOverflow: with tcp_max_tw_buckets sockets in TIME_WAIT the next one is
// closed at once (tcp_time_wait, net/ipv4/tcp_minisocks.c). That is harmless,
// unless the other end has not read its answer yet: what it sends then is
// answered by a reset, which throws the rest away.
const TimeWaitBucketOverflow ID = "time-wait-bucket-overflow"

var timeWaitBuckets = Cause{
	ID:    TimeWaitBucketOverflow,
	Title: "TIME_WAIT bucket overflow (tcp_max_tw_buckets)",
	Layer: LayerSocket,
	Needs: []observe.Kind{observe.KindCounters, observe.KindRequests},
	Check: checkTimeWaitBuckets,
	Try: inNamespace(func(v *View, ns *observe.NetNS) []Change {
		return v.raised(ns, "net.ipv4.tcp_max_tw_buckets", wantedBuckets)
	}),
}

func checkTimeWaitBuckets(v *View) Result {
	r := ruledOut("tcp_max_tw_buckets was never reached")
	for i := range v.Namespaces {
		ns := &v.Namespaces[i]
		over := ns.Counters["TcpExt.TCPTimeWaitOverflow"]
		if over == 0 || !v.InScope(ns.Inode) {
			continue
		}
		limit := v.sysctl(ns, "net.ipv4.tcp_max_tw_buckets")
		reached := "tcp_max_tw_buckets"
		if limit != "" {
			reached += " (" + limit + ")"
		}
		text := fmt.Sprintf("%s sockets found %s reached%s and were closed without TIME_WAIT", count(over), reached, where(ns))
		worst, cut := v.cutOff(ns)
		if worst == nil || cut < fewAffected || ratio(cut, worst.Requests) < noiseShare {
			r.RuledOut = text + ": no answer was cut off by that"
			continue
		}
		f := supported(Subject{Kind: "namespace", NetNS: ns.Inode, Port: worst.Port})
		f.Weight = ratio(cut, worst.Requests)
		f.Impact = Impact{Share: round(f.Weight), Of: "failed requests", Text: fmt.Sprintf("%s; %s of %s were reset before all was acknowledged", text, count(cut), worst.all())}
		f.Evidence = []Evidence{
			{Fact: "sockets closed without TIME_WAIT", Value: over, Unit: "sockets", Source: "/proc/net/netstat TCPTimeWaitOverflow"},
			{Fact: "sockets in TIME_WAIT at the end", Value: ns.SockStat["TCP.tw"], Limit: limit, Unit: "sockets", Source: "/proc/net/sockstat; net.ipv4.tcp_max_tw_buckets"},
			{Fact: "requests reset before all was acknowledged", Value: cut, Limit: worst.Requests, Unit: "requests", Source: recorded},
		}
		f.Fix = Fix{Text: "Raise tcp_max_tw_buckets (a socket in TIME_WAIT takes some 250 bytes), or keep connections open."}
		v.setSysctl(&f.Fix, ns, "net.ipv4.tcp_max_tw_buckets", wantedBuckets)
		r.Findings = append(r.Findings, f)
	}
	return r
}

// cutOff is the endpoint of a namespace with most answers that a reset cut off.
func (v *View) cutOff(ns *observe.NetNS) (worst *ledger, cut uint64) {
	for _, l := range v.servedIn[ns.Inode] {
		if n := min(l.affected(observe.FlagTruncated), l.affected(observe.FlagReset)); worst == nil || n > cut {
			worst, cut = l, n
		}
	}
	return worst, cut
}

// TCPMemoryPressure: all TCP sockets of the host together may have
// net.ipv4.tcp_mem pages. From the second figure on buffers shrink, from the
// third on segments are dropped and sockets are closed (tcp_check_oom). It is
// one limit for the host, and cannot be set in a container.
const TCPMemoryPressure ID = "tcp-memory-pressure"

var tcpMemoryPressure = Cause{
	ID:    TCPMemoryPressure,
	Title: "TCP memory limit reached (tcp_mem)",
	Layer: LayerMachine,
	Class: ClassSegment,
	Needs: []observe.Kind{observe.KindCounters, observe.KindRequests},
	Check: checkTCPMemory,
	Try:   onHost(func(v *View) []Change { return v.widened(nil, "net.ipv4.tcp_mem", v.wantedTCPMem()) }),
}

func checkTCPMemory(v *View) Result {
	var pressed, aborted uint64
	var pages int64
	for i := range v.Namespaces {
		ns := &v.Namespaces[i]
		pressed += ns.Counters["TcpExt.TCPMemoryPressures"]
		aborted += ns.Counters["TcpExt.TCPAbortOnMemory"]
		pages = max(pages, ns.SockStat["TCP.mem"])
	}
	logged := 0
	for _, l := range v.KernelLog {
		if l.Kind == "tcp-memory" {
			logged += l.Count
		}
	}
	limits := strings.Fields(v.Sysctl["net.ipv4.tcp_mem"])
	text := fmt.Sprintf("TCP sockets have %s pages of memory", count(pages))
	pressure := int64(0)
	if len(limits) == 3 {
		pressure, _ = strconv.ParseInt(limits[1], 10, 64)
		text += fmt.Sprintf(", and buffers shrink from %s on", count(pressure))
	}
	if pressed == 0 && aborted == 0 && logged == 0 && (pressure == 0 || pages < pressure) {
		return ruledOut(text)
	}
	text += fmt.Sprintf("; they were short of it %s times, %s were closed for it", count(pressed), count(aborted))
	var worst *ledger
	var most cost
	for _, l := range v.ledgers {
		k := l.cost(1, observe.Retrans, observe.SendWait, observe.Upload)
		if l.reach >= fewReach && (l.noticed(k, wireFloor) || l.wasted(k, wireFloor, observe.Retrans)) && (worst == nil || k.share > most.share) {
			worst, most = l, k
		}
	}
	if worst == nil {
		return ruledOut(text + ": no request waited for that to speak of")
	}
	f := v.found(worst, most, wireFloor, "for buffers and segments")
	f.Subject = Subject{Kind: "host"}
	f.hurts = map[*ledger]bool{} // it is one limit for all
	for _, l := range v.ledgers {
		f.hurts[l] = true
	}
	f.Impact.Text = text + "; " + f.Impact.Text
	f.Evidence = append([]Evidence{
		{Fact: "memory of all TCP sockets", Value: pages, Unit: "pages", Source: "/proc/net/sockstat"},
		{Fact: "from which figures on buffers shrink, and sockets are closed (second and third)", Value: v.Sysctl["net.ipv4.tcp_mem"], Unit: "pages", Source: "net.ipv4.tcp_mem"},
		{Fact: "times that memory ran short", Value: pressed, Source: "/proc/net/netstat TCPMemoryPressures"},
		{Fact: "sockets closed because memory ran out", Value: aborted, Unit: "sockets", Source: "/proc/net/netstat TCPAbortOnMemory"},
	}, f.Evidence...)
	if logged > 0 {
		f.Evidence = append(f.Evidence, Evidence{Fact: "kernel log: TCP: out of memory", Value: logged, Unit: "lines", Source: "/dev/kmsg"})
	}
	want := v.wantedTCPMem()
	f.Fix = Fix{Text: "Raise net.ipv4.tcp_mem, on the host and not in a container, and find the sockets with most bytes waiting: somebody does not read.",
		Commands: []shell.Command{shell.Line("sysctl -w %s", shell.Sysctl("net.ipv4.tcp_mem="+want)), shell.Line("ss -tnm   # in each network namespace: r and t in skmem")},
		Persist:  []shell.Command{LastingSysctl("net.ipv4.tcp_mem", want)}}
	return Result{Findings: []Finding{*f}}
}

// OrphansLimit: sockets that their process has closed while bytes are on their
// way are orphans. More than tcp_max_orphans (or a part of it, for sockets that
// send again) are reset (tcp_check_oom, tcp_out_of_resources).
const OrphansLimit ID = "orphans-limit"

var orphansLimit = Cause{
	ID:    OrphansLimit,
	Title: "Orphaned sockets limit reached (tcp_max_orphans)",
	Layer: LayerMachine,
	Needs: []observe.Kind{observe.KindCounters, observe.KindKernelLog, observe.KindRequests},
	// Clients that do not take their answers leave them.
	ConsequenceOf: []Parent{SlowReceiver, NetworkLoss},
	Check:         checkOrphans,
	Try:           onHost(func(v *View) []Change { return v.raised(nil, "net.ipv4.tcp_max_orphans", wantedOrphans) }),
}

func checkOrphans(v *View) Result {
	var orphans int64
	var aborted uint64
	var worst *ledger
	var cut uint64
	for i := range v.Namespaces {
		ns := &v.Namespaces[i]
		orphans = max(orphans, ns.SockStat["TCP.orphan"]) // of the whole host, in every namespace
		aborted += ns.Counters["TcpExt.TCPAbortOnMemory"]
		if l, n := v.cutOff(ns); l != nil && n >= cut {
			worst, cut = l, n
		}
	}
	logged := 0
	for _, l := range v.KernelLog {
		if l.Kind == "orphans" {
			logged += l.Count
		}
	}
	limit := v.Sysctl["net.ipv4.tcp_max_orphans"]
	text := fmt.Sprintf("%s sockets closed by their process still send, %s may", count(orphans), limit)
	if limit == "" {
		text = fmt.Sprintf("%s sockets closed by their process still send", count(orphans))
	}
	switch {
	case logged == 0:
		return ruledOut(text + ", and the kernel log does not complain")
	case worst == nil || cut < fewAffected || ratio(cut, worst.Requests) < noiseShare:
		return ruledOut(text + "; the kernel log complains, and no answer was cut off")
	}
	f := supported(Subject{Kind: "host"})
	f.Weight = ratio(cut, worst.Requests)
	f.Impact = Impact{Share: round(f.Weight), Of: "failed requests", Text: fmt.Sprintf("%s; %s of %s were reset before all was acknowledged", text, count(cut), worst.all())}
	f.Evidence = []Evidence{
		{Fact: "kernel log: too many orphaned sockets", Value: logged, Unit: "lines", Source: "/dev/kmsg"},
		{Fact: "orphaned sockets at the end", Value: orphans, Limit: limit, Unit: "sockets", Source: "/proc/net/sockstat; net.ipv4.tcp_max_orphans"},
		{Fact: "sockets closed because room ran out", Value: aborted, Unit: "sockets", Source: "/proc/net/netstat TCPAbortOnMemory"},
	}
	f.Fix = Fix{Text: "Raise net.ipv4.tcp_max_orphans, on the host and not in a container (an orphan takes up to 64 kB), and find the clients that do not take their answers."}
	v.setSysctl(&f.Fix, nil, "net.ipv4.tcp_max_orphans", wantedOrphans)
	return Result{Findings: []Finding{f}}
}
