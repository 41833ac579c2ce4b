package cause

import "github.com/slowray/slowray/internal/observe"

// longListOf has a chain with so many rules in a namespace without processes.
func longListOf(backend, table, chain string, rules int) func(*observe.Observation) {
	return func(o *observe.Observation) {
		router(o).Firewall = &observe.Firewall{All: rules + 5, Long: []observe.FirewallChain{{Backend: backend, Family: "ip", Table: table, Chain: chain, Rules: rules}}}
	}
}

var (
	kubeList = longListOf("iptables-nft", "nat", "KUBE-SERVICES", 12_000)
	banList  = longListOf("iptables-legacy", "filter", "OUTCASTS", 40_000)
)

// connecting is a service with idle CPUs whose requests compute for 5 of 8 ms, of which a part
// is in a function of the kernel, and which opens connections.
func connecting(server int64, function string, samples uint64, more func(*observe.Observation)) func(*observe.Observation) {
	return func(o *observe.Observation) {
		app(o, "app", 5, 0)
		with(o, appServed().add(1000, ms, ms/20, 0, parts{observe.Server: server}))
		followed(o, map[observe.ServerPart]float64{observe.ServerCPU: 0.65, observe.ServerCall: 0.35})
		sampled(o, appPID, 500, kernelFunction(function, samples))
		e := callsTo(dbPort, "10.9.8.3", appPID, "app").add(6000, ms, ms/20, 0, quick).endpoint()
		e.Connections, e.Handshake = 6000, 6000*8*ms/10
		o.Endpoints = append(o.Endpoints, e)
		more(o)
	}
}

var _ = fixturePair(
	fires{name: "kube-proxy's rules fill the CPUs", cause: &longRuleList, inject: working(20*ms, "nft_do_chain", 600, kubeList),
		subject: Subject{Kind: "process", PID: appPID, Port: appPort}, minShare: 0.6, fix: "mode: nftables",
		evidence: "rules of chain KUBE-SERVICES of table ip nat in network namespace edge=12000"},
	miss{"a long list, and a service that computes something else", &longRuleList, working(20*ms, "nft_do_chain", 90, kubeList), "10 % of its CPU time walking firewall rules"},
	miss{"short lists", &longRuleList, working(20*ms, "nft_do_chain", 600, longListOf("iptables-nft", "nat", "KUBE-SERVICES", 900)), "no chain of a firewall has 1,000 rules or more"},
)

var _ = fixturePair(
	fires{name: "rules fill the CPUs outside of the time of processes", cause: &longRuleList, inject: connecting(40*ms, "nft_do_chain", 400, inTurn(kubeList, full, func(o *observe.Observation) {
		process(o, appPID).UserSeconds = 1
		o.Profile.Samples = 2000
		o.Profile.Processes[0].Nice, o.Profile.Processes[0].Samples = 10, 1000
		followed(o, map[observe.ServerPart]float64{observe.ServerCPU: 0.05, observe.ServerHandoff: 0.95})
	})),
		subject: Subject{Kind: "process", PID: appPID, Port: appPort}, minShare: 0.25, fix: "kubectl -n kube-system rollout restart daemonset/kube-proxy", evidence: "of what is used walks firewall rules"},
)

var _ = fixturePair(
	fires{name: "a list of addresses delays connections on idle CPUs", cause: &longRuleList, inject: connecting(8*ms, "ipt_do_table", 400, banList),
		subject: Subject{Kind: "process", PID: appPID, Port: appPort}, minShare: 0.4, fix: "ip netns exec edge iptables-legacy -t filter -S OUTCASTS",
		evidence: "handshake with"},
	miss{"a long list that takes a little of quick requests", &longRuleList, connecting(8*ms, "ipt_do_table", 120, banList), "a request walks rules for 1.24 ms, of 8 ms"},
	miss{"a long list next to requests that wait for something else", &longRuleList, connecting(80*ms, "ipt_do_table", 400, inTurn(banList, func(o *observe.Observation) {
		followed(o, map[observe.ServerPart]float64{observe.ServerCPU: 0.05, observe.ServerCall: 0.95})
	})), "a request walks rules for 4.12 ms, of 80 ms"},
	miss{"a long list of iptables-legacy, and rules of nft are walked", &longRuleList, working(20*ms, "nft_do_chain", 600, banList), "app spends 0 % of its CPU time"},
	miss{"a long list for IPv6, and rules for IPv4 are walked", &longRuleList, working(20*ms, "ipt_do_table", 600, inTurn(banList, func(o *observe.Observation) {
		o.Namespaces[len(o.Namespaces)-1].Firewall.Long[0].Family = "ip6"
	})), "app spends 0 % of its CPU time"},
	miss{"a long list of another container", &longRuleList, working(20*ms, "nft_do_chain", 600, inTurn(kubeList, inContainer)), "no chain on its packets' way has 1,000 rules or more"},
	miss{"a long list that nobody's requests pass", &longRuleList, func(o *observe.Observation) {
		with(o, appServed().add(1000, ms, ms/20, 0, quick))
		kubeList(o)
	}, "app spends 0 % of its CPU time"},
)

// inContainer has a process of another container live in the namespace with the long list.
func inContainer(o *observe.Observation) {
	process(o, hog).NetNS, process(o, hog).Container = routerNS, "dd11bb22aa33"
}

var _ = fixturePair(
	fires{name: "the rules of a node that is a container itself", cause: &longRuleList, inject: working(20*ms, "nft_do_chain", 600, inTurn(kubeList, inContainer, func(o *observe.Observation) {
		process(o, hog).Comm = "kubelet"
	})), subject: Subject{Kind: "process", PID: appPID, Port: appPort}, minShare: 0.6, fix: "mode: nftables"},
)

// A longer list that another function walks is not the one.
var _ = fixturePair(
	fires{name: "a long list next to a longer one of another kind", cause: &longRuleList, inject: working(20*ms, "nft_do_chain", 600, inTurn(kubeList, func(o *observe.Observation) {
		f := o.Namespaces[len(o.Namespaces)-1].Firewall
		f.Long = append([]observe.FirewallChain{{Backend: "iptables-legacy", Family: "ip", Table: "filter", Chain: "OUTCASTS", Rules: 40_000}}, f.Long...)
	})), subject: Subject{Kind: "process", PID: appPID, Port: appPort}, minShare: 0.6, fix: "mode: nftables", evidence: "rules of chain KUBE-SERVICES"},
)
