package cause

import "github.com/slowray/slowray/internal/observe"

func init() {
	firing = append(firing, firingOnTracking...)
	nearMisses = append(nearMisses, nearMissesOnTracking...)
}

// invalidRule is in order: it drops what connection tracking finds invalid.
func invalidRule(hook string, counted bool, packets uint64) observe.FirewallRule {
	return observe.FirewallRule{Backend: "nft", Family: "inet", Table: "fw", Chain: hook, Hooks: []string{hook}, Handle: 4, Verdict: "drop", Text: "ct state invalid drop",
		Invalid: true, Stateful: true, Counted: counted, Packets: packets}
}

// retrying is a service whose clients' SYNs die now and then.
func retrying(inject func(*observe.Observation)) func(*observe.Observation) {
	return losing(func(o *observe.Observation) {
		o.Endpoints[1].SynRetrans, o.Endpoints[1].Connections = 60, 60
		inject(o)
	})
}

func tracks(n *observe.NetNS, timeout, loose string, ct observe.Conntrack) {
	if n.Sysctl == nil {
		n.Sysctl = map[string]string{}
	}
	n.Sysctl[timeoutEstablished], n.Sysctl[conntrackLoose] = timeout, loose
	n.Conntrack = &ct
}

var firingOnTracking = []fires{
	{name: "a full table next to a rule without a counter", cause: &conntrackFull,
		inject: retrying(func(o *observe.Observation) {
			tracks(ns(o), "432000", "1", observe.Conntrack{Entries: 300, PeakEntries: 300, Max: 300, Drop: 90})
			rules(o, invalidRule("input", false, 0))
			dropped(o, "NETFILTER_DROP", "nf_hook_slow", "eth0", observe.DropSYN, true, 90)
		}),
		subject: Subject{Kind: "namespace", NetNS: serverNS}, fix: "nf_conntrack_max", evidence: "packets dropped because the table was full=90"},
	{name: "a full table in a router, whose rule drops handshakes of entries that were thrown out", cause: &conntrackFull,
		inject: losing(func(o *observe.Observation) {
			r := router(o)
			tracks(r, "432000", "1", observe.Conntrack{Entries: 300, PeakEntries: 300, Max: 300, EarlyDrop: 500})
			r.Firewall = &observe.Firewall{Rules: []observe.FirewallRule{invalidRule("forward", true, 62)}, All: 1}
			droppedThere(o, "NETFILTER_DROP", "nft_do_chain", observe.DropData, true, 62)
		}),
		subject: Subject{Kind: "namespace", NetNS: routerNS, Port: webPort}, fix: "nf_conntrack_max", evidence: "entries thrown out to make room=500"},
	{name: "a full table of a namespace that was found when its counter had stopped", cause: &conntrackFull,
		inject: losing(func(o *observe.Observation) {
			tracks(ns(o), "432000", "1", observe.Conntrack{Entries: 200, PeakEntries: 200, Max: 200})
			dropped(o, "NETFILTER_DROP", "nf_hook_slow", "eth0", observe.DropSYN, true, 90)
		}),
		subject: Subject{Kind: "namespace", NetNS: serverNS}, fix: "nf_conntrack_max"},
	{name: "a router that forgets idle connections", cause: &conntrackForgot,
		inject: losing(func(o *observe.Observation) {
			r := router(o)
			tracks(r, "30", "0", observe.Conntrack{Entries: 40, PeakEntries: 60, Max: 262144})
			r.Firewall = &observe.Firewall{Rules: []observe.FirewallRule{invalidRule("forward", true, 62)}, All: 1}
			droppedThere(o, "NETFILTER_DROP", "nft_do_chain", observe.DropData, true, 62)
		}),
		subject: Subject{Kind: "rule", NetNS: routerNS, Rule: "nft inet fw forward handle 4", Port: webPort}, minShare: 0.3,
		fix: "ip netns exec edge sysctl -w net.netfilter.nf_conntrack_tcp_timeout_established=86400"},
	{name: "a table that was emptied, and a policy that drops", cause: &conntrackForgot,
		inject: losing(func(o *observe.Observation) {
			tracks(ns(o), "432000", "1", observe.Conntrack{Entries: 12, PeakEntries: 200, Max: 262144})
			p := nftRule("input", 0, false, 0)
			p.Verdict, p.DstPorts, p.Some, p.Text = "policy drop", nil, false, "chain input { type filter hook input policy drop }"
			rules(o, p)
			dropped(o, "NETFILTER_DROP", "nft_do_chain", "eth0", observe.DropData, true, 62)
		}),
		subject: Subject{Kind: "rule", NetNS: serverNS}, minShare: 0.3, fix: "conntrack -F"},
	{name: "many neighbours, each of which was tried once", cause: &neighbourUnresolved, inject: crawling(12),
		subject: Subject{Interface: "eth0", Port: dbPort, NetNS: serverNS}, minShare: 0.9, fix: "ip neigh show dev eth0", evidence: "connections to 10.7.7.1:3306 and 11 other addresses"},
}

// crawling is a service that calls many addresses once each, none of which answers.
func crawling(destinations int) func(*observe.Observation) {
	return strangers(func(o *observe.Observation) {
		e := nginxServed().endpoint()
		e.Earlier = &observe.Earlier{Requests: 20, OldestNS: 9e9}
		o.Endpoints = []observe.Endpoint{e}
		d := dropped(o, "NEIGH_FAILED", "__neigh_event_send", "eth0", observe.DropSYN, false, uint64(destinations))
		d.Flows = nil
		for i := range destinations {
			addr := "10.7.7." + itoa(i+1)
			ns(o).Neighbours = append(ns(o).Neighbours, observe.Neighbour{Addr: addr, Interface: "eth0", State: "failed"})
			o.Connects = append(o.Connects, observe.Connect{PID: nginxWorker1, Comm: "nginx", NetNS: serverNS, Family: "inet", Addr: addr, Port: dbPort, Calls: 1, Started: 1})
			d.Flows = append(d.Flows, observe.DropFlow{Src: "10.9.8.1", Dst: addr, DstPort: dbPort, Segments: 1})
		}
	})
}

var nearMissesOnTracking = []miss{
	{"two neighbours that did not answer, once each", &neighbourUnresolved, crawling(2), "2 packets were dropped"},
	{"a rule that drops data of a service by its port, with tracking in use", &conntrackForgot, losing(func(o *observe.Observation) {
		tracks(ns(o), "30", "0", observe.Conntrack{Entries: 40, PeakEntries: 60, Max: 262144})
		rules(o, nftRule("input", 7, true, 62))
		dropped(o, "NETFILTER_DROP", "nft_do_chain", "eth0", observe.DropData, true, 62)
	}), "no firewall dropped packets of open connections"},
	{"packets of no connection, dropped as invalid", &conntrackForgot, strangers(func(o *observe.Observation) {
		tracks(ns(o), "30", "0", observe.Conntrack{Entries: 40, PeakEntries: 60, Max: 262144})
		rules(o, invalidRule("input", true, 62))
		d := dropped(o, "NETFILTER_DROP", "nft_do_chain", "eth0", observe.DropACK, true, 62)
		d.Flows[0].Src = "203.0.113.9"
	}), "62 packets were dropped by rule nft inet fw input handle 4"},
	{"a rule without a counter, next to a table that is full", &firewallDrop, retrying(func(o *observe.Observation) {
		tracks(ns(o), "432000", "1", observe.Conntrack{Entries: 300, PeakEntries: 300, Max: 300, Drop: 90})
		rules(o, invalidRule("input", false, 0))
		dropped(o, "NETFILTER_DROP", "nf_hook_slow", "eth0", observe.DropSYN, true, 90)
	}), "no packet was dropped by a firewall"},
	{"packets that a namespace dropped which is gone", &firewallDrop, losing(func(o *observe.Observation) {
		dropped(o, "NETFILTER_DROP", "nf_hook_slow", "eth0", observe.DropSYN, true, 90).NetNS = 4026532999
	}), "no packet was dropped by a firewall"},
	{"a table that was full before its counter was looked at", &firewallDrop, losing(func(o *observe.Observation) {
		tracks(ns(o), "432000", "1", observe.Conntrack{Entries: 200, PeakEntries: 200, Max: 200})
		dropped(o, "NETFILTER_DROP", "nf_hook_slow", "eth0", observe.DropSYN, true, 90)
	}), "no packet was dropped by a firewall"},
	{"the table of a router that packets of others fill", &conntrackFull, losing(func(o *observe.Observation) {
		r := router(o)
		tracks(r, "432000", "1", observe.Conntrack{Entries: 300, PeakEntries: 300, Max: 300, Drop: 90})
		d := droppedThere(o, "NETFILTER_DROP", "nf_hook_slow", observe.DropSYN, true, 90)
		d.Flows = []observe.DropFlow{{Src: "10.66.1.2", Dst: "10.66.1.1", DstPort: webPort, Segments: 90}}
	}), ""},
}
