package cause

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// LongRuleList: a packet passes the rules of a chain one after the other, and the thread that
// sends it does that work (softirq runs where it was raised, also for the far end of a veth pair).
// kube-proxy in its mode iptables keeps a rule for each port of a service, which each new
// connection passes: later packets go by connection tracking (table nat is for the first one).
const LongRuleList ID = "long-rule-list"

var longRuleList = Cause{
	ID: LongRuleList, Title: "Packets walk a long list of firewall rules",
	Layer: LayerNetfilter,
	Class: ClassHost | ClassKernelWork, Needs: []observe.Kind{observe.KindRequests, observe.KindProfile, observe.KindProcess, observe.KindFirewall},
	Check: checkLongRuleList,
}

// walking is the function that passes the rules of a chain.
func walking(c *observe.FirewallChain) string {
	switch {
	case c.Backend != "iptables-legacy":
		return "nft_do_chain"
	case c.Family == "ip6":
		return "ip6t_do_table"
	}
	return "ipt_do_table"
}

func checkLongRuleList(v *View) Result {
	if !slices.ContainsFunc(v.Namespaces, hasLongList) {
		return ruledOut(fmt.Sprintf("no chain of a firewall has %s rules or more", count(longList)))
	}
	return v.judgeLedgers(fewRequests, func(l *ledger) judged {
		if l.called() {
			return judged{because: "no request is answered here", near: -1}
		}
		w := v.atWork(l)
		e := v.executedBy(w.procs, 0)
		ns, c, share := v.walked(l, &e)
		if c == nil {
			return judged{because: fmt.Sprintf("no chain on its packets' way has %s rules or more", count(longList)), near: -1}
		}
		because := fmt.Sprintf("chain %s has %s rules, and %s spends %s of its CPU time walking firewall rules", c.Chain, count(c.Rules), v.commOf(l), percent(share))
		k, why, slow := v.walkCost(l, &w, share)
		switch {
		case !e.enough() || share < rulesShare:
			return judged{because: because, near: share}
		case !slow:
			return judged{because: fmt.Sprintf("%s: %s", because, why), near: share}
		}
		f := v.found(l, k, wireFloor, "walking firewall rules")
		f.Title = fmt.Sprintf("Packets of %s walk %s firewall rules of %s", f.Subject.Comm, count(c.Rules), c.Chain)
		f.Subject.Kind = "process"
		f.Evidence = append([]Evidence{
			{Fact: fmt.Sprintf("rules of chain %s of table %s %s%s", c.Chain, c.Family, c.Table, where(ns)), Value: c.Rules, Limit: ns.Firewall.All, Unit: "rules", Source: c.Backend},
			{Fact: "CPU time walking firewall rules", Value: round(share), Limit: 1, Unit: fmt.Sprintf("share of %s CPU samples", count(e.samples)), Source: "CPU samples, kernel stacks"},
			{Fact: "why its requests wait for it", Value: why, Source: "CPU samples, request records"},
		}, append(f.Evidence, v.connectEvidence(l.pid)...)...)
		f.hurts = map[*ledger]bool{}
		for _, called := range v.calledOf[l.pid] {
			f.hurts[called] = true // its connections pass the rules, too
		}
		f.Fix.Text, f.Fix.Commands, f.Fix.Persist = v.shortenList(ns, c)
		return judged{finding: f}
	})
}

// walkCost is what requests of an endpoint lose while the threads that answer them walk rules,
// for a share of their samples. The CPU time of processes has no softirq in it: the samples do.
// Where CPUs or a thread are full, requests wait for what fills them, by its share. slow says that
// they are slow for it.
func (v *View) walkCost(l *ledger, w *atWork, share float64) (k cost, why string, slow bool) {
	all := l.cost(1, threadParts...)
	if scarce, why := v.computingIsScarce(l, w, l.ownCPU(w)); scarce > 0 {
		return scaled(all, scarce*share), why, l.noticed(all, wireFloor)
	}
	var samples uint64
	for _, p := range w.procs {
		for _, i := range v.profiled[p.PID] {
			samples += v.Profile.Processes[i].Samples
		}
	}
	used := v.Profile.Samples
	if niceOf(w.procs) <= 0 { // the others give way
		for i := range v.Profile.Processes {
			if p := &v.Profile.Processes[i]; p.Nice > 0 {
				used -= min(used, p.Samples)
			}
		}
	}
	walk := share * float64(samples) / float64(max(v.Profile.Hz, 1))
	each, mean := walk*1e9/float64(l.Requests), l.TimeNS()/float64(l.Requests)
	if fills := share * ratio(samples, used); fills >= hotFill {
		if _, full := v.cpuFull(l); full {
			return scaled(all, min(fills, 1)), fmt.Sprintf("the CPUs are full, %s of what is used walks firewall rules", percent(fills)), l.noticed(all, wireFloor)
		}
	}
	k = cost{share: min(ratio(each, mean), 1), slowShare: min(ratio(each, l.SlowTotalNS()), 1), ns: min(each, mean), slowNS: min(each, l.SlowTotalNS()), usual: each}
	return k, fmt.Sprintf("a request walks rules for %s, of %s that it takes", nanoseconds(each), nanoseconds(mean)), l.noticed(k, wireFloor)
}

// connectEvidence is what new connections of a service take, next to the round trips of open ones.
func (v *View) connectEvidence(pid int) (out []Evidence) {
	for _, l := range v.calledOf[pid] {
		if l.Connections >= fewRequests && l.Handshake > 0 {
			out = append(out, Evidence{Fact: "handshake with " + l.name() + ", mean", Value: round(float64(l.Handshake) / float64(l.Connections) / 1e6), Unit: fmt.Sprintf("ms, for %s connections", count(l.Connections)), Source: "TCP sockets"},
				Evidence{Fact: "round trip of open connections, median", Value: round(float64(l.RTT.Quantile(0.5)) / 1e6), Unit: "ms", Source: "TCP sockets"})
			break
		}
	}
	return out
}

func hasLongList(ns observe.NetNS) bool {
	return ns.Firewall != nil && slices.ContainsFunc(ns.Firewall.Long, func(c observe.FirewallChain) bool { return c.Rules >= longList })
}

// walked is the chain with most rules, where that is many, that the packets of an endpoint may
// pass, of those that the function passes in which its processes spend most, and the namespace
// that has it.
func (v *View) walked(l *ledger, e *executed) (at *observe.NetNS, most *observe.FirewallChain, share float64) {
	shares := map[string]float64{}
	for i := range e.functions {
		if f := &e.functions[i]; f.Kind == observe.FrameKernel {
			shares[f.Name] += e.share(f)
		}
	}
	for i := range v.Namespaces {
		ns := &v.Namespaces[i]
		if !hasLongList(*ns) || !v.mayPass(l, ns) {
			continue
		}
		for j := range ns.Firewall.Long {
			c := &ns.Firewall.Long[j]
			spent := shares[walking(c)]
			if c.Rules >= longList && (most == nil || spent > share || spent == share && c.Rules > most.Rules) {
				at, most, share = ns, c, spent
			}
		}
	}
	return at, most, share
}

// mayPass says that packets of an endpoint may pass a namespace: its own, the host's, a router's,
// that of a node which is a container itself (kind); but no other container's.
func (v *View) mayPass(l *ledger, ns *observe.NetNS) bool {
	if ns.Host || ns.Inode == l.NetNS {
		return true
	}
	contained := false
	for i := range v.Processes {
		p := &v.Processes[i]
		if p.NetNS != ns.Inode && p.PID != ns.PID || p.Container == "" {
			continue
		}
		if at := v.podOf(p.Container, p.Cgroup); at.pod != nil && at.pod.HostNetwork || at.pod == nil && p.Comm == "kubelet" {
			return true
		}
		contained = true
	}
	return !contained
}

// shortenList is the advice: maps and sets are one lookup, however many elements they have.
func (v *View) shortenList(ns *observe.NetNS, c *observe.FirewallChain) (text string, commands, persist []shell.Command) {
	if strings.HasPrefix(c.Chain, "KUBE-") {
		return fmt.Sprintf("kube-proxy in mode iptables keeps a rule in %s for each service port, and each new connection walks them. Set its mode to nftables (Kubernetes 1.31, Linux 5.13) or ipvs, which look services up in a map. Until then delete services that nobody uses, and keep connections open.", c.Chain),
			[]shell.Command{
				shell.Line("kubectl -n kube-system get configmap kube-proxy -o yaml | grep -w mode   # empty is iptables"),
				shell.Line("kubectl get services --all-namespaces --no-headers | wc -l"),
			}, []shell.Command{
				shell.Line("kubectl -n kube-system edit configmap kube-proxy   # config.conf: mode: nftables"),
				shell.Line("kubectl -n kube-system rollout restart daemonset/kube-proxy"),
			}
	}
	text = fmt.Sprintf("Replace the rules of %s with one that looks the address or port up in a set (nft, ipset), and accept established connections before it.", c.Chain)
	if c.Backend == "iptables-legacy" {
		tool := map[bool]string{true: "ip6tables-legacy", false: "iptables-legacy"}[c.Family == "ip6"]
		return text, []shell.Command{v.in(ns, shell.Line("%s -t %s -S %s | head -n 20", tool, shell.Word(c.Table), c.Chain))}, nil
	}
	return text, []shell.Command{v.in(ns, shell.Line("nft list chain %s %s %s | head -n 20", shell.NFT(c.Family), shell.NFT(c.Table), shell.NFT(c.Chain)))}, nil
}
