package cause

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// TimeWaitPortSearch: the side that closes first keeps the port in TIME_WAIT
// for 60 s (TCP_TIMEWAIT_LEN, include/net/tcp.h). Without tcp_tw_reuse each
// connect() tries port after port (__inet_hash_connect) until one is free,
// which burns the CPU long before the range is exhausted.
const TimeWaitPortSearch ID = "time-wait-port-search"

var timeWaitPortSearch = Cause{
	ID:    TimeWaitPortSearch,
	Title: "connect() burns CPU searching for a local port",
	Layer: LayerCall,
	Needs: []observe.Kind{observe.KindProfile, observe.KindSockets, observe.KindSysctl},
	Check: checkTimeWaitPortSearch,
	Try:   tryPortReuse,
}

func checkTimeWaitPortSearch(v *View) Result {
	if v.Profile == nil {
		return ruledOut("no CPU profile was taken")
	}
	var r Result
	waiting, reuse, reused := 0, "", uint64(0)
	for i := range v.Namespaces {
		ns := &v.Namespaces[i]
		if !v.InScope(ns.Inode) {
			continue
		}
		for j := range ns.Sockets {
			waiting = max(waiting, ns.Sockets[j].States["TIME_WAIT"])
		}
		reuse = v.sysctl(ns, "net.ipv4.tcp_tw_reuse")
	}
	type family struct{ all, search uint64 }
	families := map[int]*family{}
	for _, p := range v.Profile.Processes {
		m := v.Master(p.PID)
		if families[m] == nil {
			families[m] = &family{}
		}
		families[m].all += p.Samples
		families[m].search += p.PortSearch
	}
	for _, master := range slices.Sorted(maps.Keys(families)) {
		fam := families[master]
		share := ratio(fam.search, fam.all)
		if share < searchShare || fam.search < searchSamples {
			continue
		}
		d, g := v.mostTimeWait(master)
		if g == nil || g.States["TIME_WAIT"] < 500 {
			continue
		}
		ns := v.Namespace(d.netns)
		if reusesPorts(ns) {
			reused = ns.Counters["TcpExt.TWRecycled"]
			continue
		}
		r.Findings = append(r.Findings, portSearchFinding(v, master, ns, d, g, share, fam.search, fam.all))
	}
	r.RuledOut = fmt.Sprintf("%s sockets in TIME_WAIT at most, and no process spends %s of its CPU in search of a port", count(waiting), percent(searchShare))
	if reused > 0 {
		r.RuledOut = fmt.Sprintf("%s sockets in TIME_WAIT at most, and connect() takes their ports again: %s times", count(waiting), count(reused))
	}
	if reuse != "" {
		r.RuledOut += " (tcp_tw_reuse = " + reuse + ")"
	}
	return r
}

// reusesPorts says whether connect() takes ports in TIME_WAIT again, as the
// kernel's own count shows: the search for one is then as short as it can be.
func reusesPorts(ns *observe.NetNS) bool {
	return ratio(ns.Counters["TcpExt.TWRecycled"], ns.Counters["Tcp.ActiveOpens"]) > 0.5
}

func portSearchFinding(v *View, pid int, ns *observe.NetNS, d destination, g *observe.SocketGroup, share float64, search, all uint64) Finding {
	f := supported(Subject{Kind: "process", NetNS: d.netns, PID: pid, Comm: v.Comm(pid), Addr: d.addr, Port: d.port})
	f.Weight = share
	f.Impact = Impact{Share: round(share), Of: "CPU time of " + v.Comm(pid), OfTime: true,
		Text: fmt.Sprintf("%s of the CPU time of %s goes into the search for a port", percent(share), v.Comm(pid))}
	reuse := v.sysctl(ns, "net.ipv4.tcp_tw_reuse")
	size := portRange(v.sysctl(ns, "net.ipv4.ip_local_port_range"))
	f.Evidence = []Evidence{
		{Fact: "CPU samples inside __inet_hash_connect", Value: search, Limit: all, Unit: "samples", Source: "kernel stacks"},
		{Fact: "sockets towards the destination", Value: statesText(g.States), Limit: size, Unit: "ports", Source: "sock_diag; net.ipv4.ip_local_port_range"},
		{Fact: "net.ipv4.tcp_tw_reuse", Value: reuse, Source: "sysctl" + where(ns)},
	}
	switch reuse {
	case "1":
		f.Fix.Text = "tcp_tw_reuse is on, but no port is reused (no TCP timestamps on one side?): keep connections open instead (upstream keepalive)."
	default:
		f.Fix.Text = "Let connect() reuse ports in TIME_WAIT"
		if reuse == "2" {
			f.Fix.Text += " (2 does so on loopback only)"
		}
		f.Fix.Text += "; better still, keep connections to the upstream open (keepalive)."
		v.setSysctl(&f.Fix, ns, "net.ipv4.tcp_tw_reuse", 1)
	}
	return f
}

// sortConnects lists the connects of each family of processes, by master.
func (v *View) sortConnects() map[int][]*observe.Connect {
	out := map[int][]*observe.Connect{}
	for i := range v.Connects {
		master := v.Master(v.Connects[i].PID)
		out[master] = append(out[master], &v.Connects[i])
	}
	return out
}

// mostTimeWait finds the destination of a process family with the most
// sockets in TIME_WAIT.
func (v *View) mostTimeWait(master int) (destination, *observe.SocketGroup) {
	var (
		best destination
		most *observe.SocketGroup
	)
	for _, c := range v.connectsOf()[master] {
		if c.Family == "unix" {
			continue
		}
		g := v.calledGroup(v.Namespace(c.NetNS), c.Addr, c.Port)
		if g != nil && (most == nil || g.States["TIME_WAIT"] > most.States["TIME_WAIT"]) {
			best, most = destination{c.NetNS, c.Addr, c.Port}, g
		}
	}
	return best, most
}

// FinTimeout: tcp_fin_timeout is how long an orphaned socket stays in
// FIN_WAIT_2 (ip-sysctl.rst). It is often taken for the length of TIME_WAIT,
// which is fixed. A long one hurts only when FIN_WAIT_2 sockets fill the port
// range.
const FinTimeout ID = "fin-timeout"

var finTimeout = Cause{
	ID:    FinTimeout,
	Title: "FIN_WAIT_2 sockets hold the ephemeral ports (tcp_fin_timeout)",
	Layer: LayerCall,
	Needs: []observe.Kind{observe.KindSockets, observe.KindSysctl},
	Check: checkFinTimeout,
}

const defaultFinTimeout = "60"

func checkFinTimeout(v *View) Result {
	var r Result
	for i := range v.Namespaces {
		ns := &v.Namespaces[i]
		value := v.sysctl(ns, "net.ipv4.tcp_fin_timeout")
		size := portRange(v.sysctl(ns, "net.ipv4.ip_local_port_range"))
		waiting := 0
		for j := range ns.Sockets {
			g := &ns.Sockets[j]
			waiting += g.States["FIN_WAIT2"]
			if g.Side != "called" || ratio(g.States["FIN_WAIT2"], size) < 0.5 || !v.InScope(ns.Inode) {
				continue
			}
			f := supported(Subject{Kind: "destination", NetNS: ns.Inode, Addr: g.Remote, Port: g.Port})
			f.Weight = ratio(g.States["FIN_WAIT2"], size)
			f.Impact = Impact{Share: round(f.Weight), Of: "local ports", Text: fmt.Sprintf("%s of %s local ports are held in FIN_WAIT_2", count(g.States["FIN_WAIT2"]), count(size))}
			f.Evidence = []Evidence{
				{Fact: "sockets in FIN_WAIT_2 towards the destination", Value: g.States["FIN_WAIT2"], Limit: size, Unit: "sockets", Source: "sock_diag"},
				{Fact: "net.ipv4.tcp_fin_timeout", Value: value, Unit: "s", Source: "sysctl" + where(ns)},
			}
			f.Fix = Fix{Text: "Set tcp_fin_timeout to 60 s, and find why the peer does not close."}
			v.setSysctl(&f.Fix, ns, "net.ipv4.tcp_fin_timeout", defaultFinTimeout)
			r.Findings = append(r.Findings, f)
		}
		if v.InScope(ns.Inode) && (r.RuledOut == "" || value != defaultFinTimeout && value != "") {
			r.RuledOut = fmt.Sprintf("tcp_fin_timeout = %s s%s only sets how long FIN_WAIT_2 lasts (%s such sockets); TIME_WAIT is always 60 s", value, where(ns), count(waiting))
		}
	}
	if r.RuledOut == "" {
		r.RuledOut = "no service with traffic"
	}
	return r
}

// statesText prints socket states, most sockets first.
func statesText(states map[string]int) string {
	names := slices.SortedFunc(maps.Keys(states), func(a, b string) int {
		return cmp.Or(cmp.Compare(states[b], states[a]), strings.Compare(a, b))
	})
	parts := make([]string, 0, len(names))
	for _, name := range names {
		if states[name] > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", count(states[name]), name))
		}
	}
	return strings.Join(parts, ", ")
}
