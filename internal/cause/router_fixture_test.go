package cause

import "github.com/slowray/slowray/internal/observe"

func init() {
	firing = append(firing, firingInRouters...)
	nearMisses = append(nearMisses, nearMissesInRouters...)
}

const routerNS = 4026532999

// router adds a network namespace that no process lives in.
func router(o *observe.Observation) *observe.NetNS {
	o.Namespaces = append(o.Namespaces, observe.NetNS{Inode: routerNS, Name: "edge", Path: "/run/netns/edge", Addrs: []string{"100.64.0.1"}, Counters: map[string]uint64{}})
	return &o.Namespaces[len(o.Namespaces)-1]
}

// droppedThere adds packets that died in the router, on their way to the service or
// from it.
func droppedThere(o *observe.Observation, reason, location, kind string, in bool, n uint64) *observe.Drop {
	d := dropped(o, reason, location, "lan0", kind, in, n)
	d.NetNS, d.In = routerNS, true
	return d
}

// callingInVain is a service whose requests all hang, with connects to a database
// that had begun before the window.
func callingInVain(o *observe.Observation) {
	strangers(func(o *observe.Observation) {
		e := nginxServed().endpoint()
		e.Earlier = &observe.Earlier{Requests: 20, OldestNS: 9e9}
		o.Endpoints = []observe.Endpoint{e}
		ns(o).Sockets = append(ns(o).Sockets, observe.SocketGroup{Side: "called", Addr: "10.9.8.1", Remote: "10.7.7.7", Port: dbPort, States: map[string]int{"SYN_SENT": 20}, LocalPorts: 20, PIDs: []int{nginxWorker1}})
	})(o)
}

var firingInRouters = []fires{
	{name: "a rule in a router that no process lives in", cause: &firewallDrop,
		inject: losing(func(o *observe.Observation) {
			r := nftRule("forward", 7, true, 62)
			router(o).Firewall = &observe.Firewall{Rules: []observe.FirewallRule{r}, All: 1}
			droppedThere(o, "NETFILTER_DROP", "nft_do_chain", observe.DropData, true, 62)
		}),
		subject: Subject{Kind: "rule", NetNS: routerNS, Rule: "nft inet fw forward_rules handle 7", Port: webPort}, minShare: 0.3,
		fix: "ip netns exec edge nft delete rule inet fw forward_rules handle 7"},
	{name: "a blackhole in a router, which connects had met before the window", cause: &noRoute,
		inject: func(o *observe.Observation) {
			callingInVain(o)
			router(o).Routes = []observe.Route{{Dst: "10.7.0.0/16", Kind: "blackhole", Table: 77}, {Dst: "192.0.2.0/24", Kind: "prohibit", Table: 254}}
			d := droppedThere(o, "", "ip_error", observe.DropSYN, true, 80)
			d.Flows = []observe.DropFlow{{Src: "10.9.8.1", Dst: "10.7.7.7", DstPort: dbPort, Segments: 80}}
		},
		subject: Subject{NetNS: routerNS, Port: dbPort, Addr: "10.7.7.7"}, minShare: 0.9, fix: "ip netns exec edge ip route del blackhole 10.7.0.0/16 table 77"},
	{name: "a client on this host, all of whose SYNs die in a router", cause: &firewallDrop,
		inject: func(o *observe.Observation) {
			strangers(func(o *observe.Observation) {
				o.Namespaces = append(o.Namespaces, observe.NetNS{Inode: clientNS, PID: clientPID, Addrs: []string{"10.9.8.2"}, Counters: map[string]uint64{},
					Sockets: []observe.SocketGroup{{Side: "called", Addr: "10.9.8.2", Remote: "10.9.8.1", Port: webPort, States: map[string]int{"SYN_SENT": 12}, LocalPorts: 12, PIDs: []int{clientPID}}}})
				r := nftRule("forward", 7, true, 30)
				r.Some = false
				router(o).Firewall = &observe.Firewall{Rules: []observe.FirewallRule{r}, All: 1}
				droppedThere(o, "NETFILTER_DROP", "nft_do_chain", observe.DropSYN, true, 30)
			})(o)
		},
		subject: Subject{Kind: "rule", NetNS: routerNS, Port: webPort}, minShare: 0.9, fix: "ip netns exec edge nft delete rule"},
}

var nearMissesInRouters = []miss{
	{"a router drops packets of others that have the same port", &firewallDrop, losing(func(o *observe.Observation) {
		r := nftRule("forward", 7, true, 62)
		router(o).Firewall = &observe.Firewall{Rules: []observe.FirewallRule{r}, All: 1}
		d := droppedThere(o, "NETFILTER_DROP", "nft_do_chain", observe.DropData, true, 62)
		d.Flows = []observe.DropFlow{{Src: "10.66.1.2", Dst: "10.66.1.1", DstPort: webPort, Segments: 62}}
	}), "62 packets were dropped by rule nft inet fw forward_rules handle 7 in network namespace edge"},
	{"a route in a router that leads nowhere, and nobody's packets", &noRoute, func(o *observe.Observation) {
		callingInVain(o)
		router(o).Routes = []observe.Route{{Dst: "10.7.0.0/16", Kind: "blackhole", Table: 254}}
		d := droppedThere(o, "", "ip_error", observe.DropSYN, true, 80)
		d.Flows = []observe.DropFlow{{Src: "10.66.1.1", Dst: "10.7.99.7", DstPort: dbPort, Segments: 80}}
	}, "80 packets were dropped"},
}
