package cause

import (
	"fmt"
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

func checkLongRuleList(v *View) Result {
	ns, c := v.longestChain()
	if c == nil {
		return ruledOut(fmt.Sprintf("no chain of a firewall has %s rules or more", count(longList)))
	}
	list := Evidence{Fact: fmt.Sprintf("rules of chain %s of table %s %s%s", c.Chain, c.Family, c.Table, where(ns)), Value: c.Rules, Limit: ns.Firewall.All, Unit: "rules", Source: c.Backend}
	var persist []shell.Command
	r := checkKernelWork(&kernelWork{
		functions: []string{"nft_do_chain", "ipt_do_table", "ip6t_do_table"}, least: rulesShare, onWay: true,
		doing: "walking firewall rules",
		also:  func(*View, *atWork) (Evidence, bool) { return list, true },
		fix: func(v *View, _ *atWork) (text string, commands []shell.Command) {
			text, commands, persist = v.shortenList(ns, c)
			return text, commands
		},
	})(v)
	for i := range r.Findings {
		f := &r.Findings[i]
		f.Title = fmt.Sprintf("Packets of %s walk %s firewall rules of %s", f.Subject.Comm, count(c.Rules), c.Chain)
		f.Evidence = append(f.Evidence, v.connectEvidence(f.Subject.PID)...)
		f.Fix.Persist = persist
		f.hurts = map[*ledger]bool{}
		for _, l := range v.calledOf[f.Subject.PID] {
			f.hurts[l] = true // its connections pass the rules, too
		}
	}
	return r
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

// longestChain is the chain with most rules, where that is many, and the namespace that has it.
func (v *View) longestChain() (at *observe.NetNS, most *observe.FirewallChain) {
	for i := range v.Namespaces {
		ns := &v.Namespaces[i]
		if ns.Firewall == nil {
			continue
		}
		for j := range ns.Firewall.Long {
			if c := &ns.Firewall.Long[j]; c.Rules >= longList && (most == nil || c.Rules > most.Rules) {
				at, most = ns, c
			}
		}
	}
	return at, most
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
