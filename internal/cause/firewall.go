package cause

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// dropJudged are the layers that they judge. What sockets and TCP itself drop
// is reported under causes of their own.
var dropJudged = []DropLayer{DropNIC, DropLink, DropXDP, DropSoftnet, DropTCIngress, DropTCEgress, DropFragments, DropRPFilter, DropRouting,
	DropFirewall, DropConntrack, DropIPsec, DropChecksum, DropNeighbour, DropMTU, DropQdisc}

// FirewallDrop: a rule of the packet filter drops packets of a service. Rules
// without a counter are found by what the counters of the others leave over.
const FirewallDrop ID = "firewall-drop"

var firewallDrop = Cause{
	ID:            FirewallDrop,
	Title:         "A firewall rule drops packets that requests wait for",
	Layer:         LayerNetfilter,
	Class:         ClassDrop,
	Needs:         []observe.Kind{observe.KindRequests, observe.KindFirewall},
	ConsequenceOf: []Parent{ConntrackFull},
	Folds:         true,
	Check: drops(dropSpec{layers: []DropLayer{DropFirewall}, which: func(v *View, s *DropSite) bool { return !rejects(s) && !forgotten(v, s) && !v.unwatched(s) },
		words: firewallWords, none: "no packet was dropped by a firewall"}),
	Try: foundOnly,
}

// FirewallReject: a rule answers with an error instead.
const FirewallReject ID = "firewall-reject"

var firewallReject = Cause{
	ID:    FirewallReject,
	Title: "A firewall rule rejects packets of a service",
	Layer: LayerNetfilter,
	Class: ClassDrop,
	Needs: []observe.Kind{observe.KindRequests, observe.KindFirewall},
	// kube-proxy rejects what goes to a service that has none.
	ConsequenceOf: []Parent{ServiceWithoutEndpoints},
	Folds:         true,
	Check: drops(dropSpec{layers: []DropLayer{DropFirewall}, which: func(_ *View, s *DropSite) bool { return rejects(s) },
		words: firewallWords, none: "no packet was rejected by a firewall"}),
	Try: foundOnly,
}

// unwatched says that nothing is known of a namespace's packet filter, as of one that was
// gone before it was looked at: a full conntrack table drops packets at the same place.
func (v *View) unwatched(s *DropSite) bool {
	ns := v.namespaces[s.NetNS]
	return s.Rule == nil && (ns == nil || ns.Firewall == nil && ns.Conntrack == nil && ns.Sysctl == nil)
}

func rejects(s *DropSite) bool { return s.Rule != nil && s.Rule.Verdict == "reject" }

func firewallWords(v *View, s *DropSite, f *Finding) {
	ns := v.namespaces[s.NetNS]
	f.Subject.Kind = "rule"
	way := map[bool]string{true: "that come in", false: "that go out"}[s.In]
	r := s.Rule
	// A table without room for an entry makes packets invalid, or new ones of those
	// of open connections.
	unknown := v.tableFull(ns) && (r == nil || r.Stateful)
	// For a service without endpoints kube-proxy makes a rule that rejects (pkg/proxy/iptables).
	ofProxy := r != nil && strings.HasPrefix(r.Chain, "KUBE-")
	f.MayFollow = func(p *Finding) bool {
		return unknown && p.Subject.NetNS == s.NetNS || ofProxy && p.Cause == ServiceWithoutEndpoints
	}
	if ofProxy {
		f.Evidence = append(f.Evidence, Evidence{Fact: "rules of the packet filter, kube-proxy's among them", Value: ns.Firewall.All, Unit: "rules", Source: r.Backend})
	}
	if r == nil {
		f.Title = "The packet filter drops packets " + way + ", by a rule that could not be identified"
		f.Fix.Text = "Find the rule that drops them: none of those that can be read matches."
		f.Fix.Commands = []shell.Command{v.in(ns, shell.Line("nft -a list ruleset")), v.in(ns, shell.Line("iptables-legacy-save -c"))}
		return
	}
	f.Subject.Rule = RuleName(r)
	f.Subject.Interface = ""
	verb := map[bool]string{true: "rejects", false: "drops"}[r.Verdict == "reject"]
	f.Title = fmt.Sprintf("Firewall rule %s %s packets %s", RuleName(r), verb, way)
	f.Evidence = slices.Insert(f.Evidence, 0, Evidence{Fact: "the rule, at " + strings.Join(r.Hooks, ", "), Value: r.Text, Source: r.Backend})
	if r.Counted {
		f.Evidence = slices.Insert(f.Evidence, 1, Evidence{Fact: "counter of the rule", Value: r.Packets, Unit: "packets", Source: r.Backend})
	} else {
		f.Evidence = slices.Insert(f.Evidence, 1, Evidence{Fact: "counter of the rule", Value: "none; the counters of the others leave these packets over", Source: r.Backend})
	}
	if s.Among > 0 {
		f.Title += fmt.Sprintf(", or one of %d alike without a counter", s.Among)
	}
	if ofProxy {
		f.Fix.Text = "kube-proxy makes this rule, and makes it again: it is for a service without a ready endpoint. See its pods."
		f.Fix.Commands = []shell.Command{shell.Line("kubectl get endpointslices --all-namespaces")}
		return
	}
	f.Fix.Text = "Take this rule away, or narrow it, if it is not meant for these packets; and where it is loaded from at boot."
	f.Fix.Commands, f.Fix.Persist = v.ruleCommands(ns, r, f.Subject.Port)
	if s.Among == 0 {
		f.Fix.Changes = ruleChange(ns, r)
	}
}

// ruleCommands shows a rule and takes it away.
func (v *View) ruleCommands(ns *observe.NetNS, r *observe.FirewallRule, port int) (commands, persist []shell.Command) {
	if r.Backend == "nft" {
		chain := shell.Line("%s %s %s", shell.NFT(r.Family), shell.NFT(r.Table), shell.NFT(r.Chain))
		commands = []shell.Command{v.in(ns, shell.Line("nft -a list chain").Then(chain))}
		if r.Verdict == "policy drop" {
			commands = append(commands, v.in(ns, shell.Line("nft insert rule").Then(chain).Then(shell.Line("tcp dport %s accept   # or sport, for what goes out", port))))
		} else {
			commands = append(commands, v.in(ns, shell.Line("nft delete rule").Then(chain).Then(shell.Line("handle %s", r.Handle))))
		}
		return commands, []shell.Command{shell.Line("# change it where the rules are loaded from (/etc/nftables.conf, or the program that made table %s)", r.Table)}
	}
	tool := strings.Replace(r.Backend, "iptables", map[bool]string{true: "ip6tables", false: "iptables"}[r.Family == "ip6"], 1)
	commands = []shell.Command{v.in(ns, shell.Line("%s -t %s -L %s -n -v --line-numbers", tool, shell.Word(r.Table), r.Chain))}
	if r.Verdict == "policy drop" {
		commands = append(commands, v.in(ns, shell.Line("%s -t %s -I %s -p tcp --dport %s -j ACCEPT   # or --sport, for what goes out", tool, shell.Word(r.Table), r.Chain, port)))
	} else {
		commands = append(commands, v.in(ns, shell.Line("%s -t %s -D %s %s", tool, shell.Word(r.Table), r.Chain, r.Number)))
	}
	return commands, []shell.Command{shell.Line("# change it where the rules are loaded from (/etc/iptables/rules.v4, rules.v6, or the program that made the rule)")}
}
