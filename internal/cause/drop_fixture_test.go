package cause

import (
	"slices"
	"testing"

	"github.com/slowray/slowray/internal/observe"
)

func init() {
	firing = append(firing, firingOnDrops...)
	nearMisses = append(nearMisses, nearMissesOnDrops...)
}

// losing is a service whose clients, on this host, and itself wait for segments
// to be retransmitted: 60 of theirs, 40 of its own.
func losing(inject func(*observe.Observation)) func(*observe.Observation) {
	return func(o *observe.Observation) {
		c := callsTo(webPort, "10.9.8.1", clientPID, "wrk").add(300, ms/2, ms/5, 0, quick).add(60, ms/2, ms/5, observe.FlagTimeout, waitedRTO).lost(900, 60)
		c.e.NetNS, c.e.Connections, c.e.SynRetrans, c.e.HandshakeMax = clientNS, 40, 12, 1_030*ms
		quiet(nginxServed().add(330, ms/2, ms/5, 0, quick).add(30, ms/2, ms/5, observe.FlagTimeout, waitedRTO).lost(900, 40), c)(o)
		o.Drops = &observe.Drops{Reasons: true}
		if inject != nil {
			inject(o)
		}
	}
}

// strangers is a service that is well, and drops that are nobody's.
func strangers(inject func(*observe.Observation)) func(*observe.Observation) {
	return func(o *observe.Observation) {
		quiet(nginxServed().add(2000, ms/2, ms/5, 0, quick))(o)
		o.Drops = &observe.Drops{Reasons: true}
		inject(o)
	}
}

// dropped adds packets that died: to the service, or from it.
func dropped(o *observe.Observation, reason, location, device, kind string, in bool, n uint64) *observe.Drop {
	d := observe.Drop{Reason: reason, Location: location, NetNS: serverNS, Interface: device, In: in, Kind: kind, Packets: n, Segments: n, Bytes: n * 1000, Longest: 1400, Shortest: 60}
	d.Flows = []observe.DropFlow{{Src: "10.9.8.2", Dst: "10.9.8.1", DstPort: webPort, Segments: n}}
	if !in {
		d.Flows = []observe.DropFlow{{Src: "10.9.8.1", Dst: "10.9.8.2", SrcPort: webPort, Segments: n}}
	}
	o.Drops.List = append(o.Drops.List, d)
	return &o.Drops.List[len(o.Drops.List)-1]
}

func rules(o *observe.Observation, list ...observe.FirewallRule) {
	ns(o).Firewall = &observe.Firewall{Rules: list, All: len(list) + 20}
}

func nftRule(hook string, handle uint64, counted bool, packets uint64) observe.FirewallRule {
	r := observe.FirewallRule{Backend: "nft", Family: "inet", Table: "fw", Chain: hook + "_rules", Hooks: []string{hook}, Handle: handle, Verdict: "drop",
		Text: "tcp dport 8088 numgen random mod 100 < 10 drop", Protocol: "tcp", Some: true, Counted: counted, Packets: packets, DstPorts: [][2]int{{webPort, webPort}}}
	if hook == "output" {
		r.Text, r.DstPorts, r.SrcPorts = "tcp sport 8088 drop", nil, r.DstPorts
	}
	return r
}

var firingOnDrops = []fires{
	{name: "a rule with a counter, on the way in", cause: &firewallDrop,
		inject: losing(func(o *observe.Observation) {
			rules(o, nftRule("input", 7, true, 62), nftRule("output", 9, true, 0))
			dropped(o, "NETFILTER_DROP", "nft_do_chain", "eth0", observe.DropData, true, 62)
		}),
		subject: Subject{Kind: "rule", NetNS: serverNS, Rule: "nft inet fw input_rules handle 7", Port: webPort}, minShare: 0.3,
		fix: "nft delete rule inet fw input_rules handle 7", evidence: "counter of the rule=62"},
	{name: "a rule without a counter, on the way out, next to one with", cause: &firewallDrop,
		inject: losing(func(o *observe.Observation) {
			rules(o, nftRule("output", 7, false, 0), nftRule("output", 8, true, 2))
			dropped(o, "NETFILTER_DROP", "nft_do_chain", "", observe.DropData, false, 50)
		}),
		subject: Subject{Kind: "rule", Rule: "nft inet fw output_rules handle 7"}, minShare: 0.2, fix: "handle 7", evidence: "counter of the rule=none"},
	{name: "iptables-legacy, which a kernel function tells from nftables", cause: &firewallDrop,
		inject: losing(func(o *observe.Observation) {
			rules(o, observe.FirewallRule{Backend: "iptables-legacy", Family: "ip", Table: "filter", Chain: "INPUT", Hooks: []string{"input"}, Number: 3, Text: "-A INPUT -j DROP", Verdict: "drop", Counted: true, Packets: 60})
			dropped(o, "NETFILTER_DROP", "nf_hook_slow", "eth0", observe.DropData, true, 60)
		}),
		subject: Subject{Rule: "iptables-legacy ip filter INPUT rule 3"}, fix: "iptables-legacy -t filter -D INPUT 3"},
	{name: "the policy of a chain, towards what the service calls", cause: &firewallDrop,
		inject: losing(func(o *observe.Observation) {
			p := nftRule("output", 0, false, 0)
			p.Verdict, p.SrcPorts, p.Text = "policy drop", nil, "chain output_rules { type filter hook output policy drop }"
			rules(o, p)
			for i := range o.Endpoints[:1] {
				o.Endpoints[i].Errors = 200
			}
			o.Connects = append(o.Connects, observe.Connect{PID: nginxWorker1, Comm: "nginx", NetNS: serverNS, Family: "inet", Addr: "10.7.7.7", Port: dbPort, Calls: 40, Started: 40})
			d := dropped(o, "NETFILTER_DROP", "nft_do_chain", "", observe.DropSYN, false, 90)
			d.Flows = []observe.DropFlow{{Src: "10.9.8.1", Dst: "10.7.7.7", DstPort: dbPort, Segments: 90}}
		}),
		subject: Subject{Rule: "nft inet fw output_rules policy", Port: dbPort, Addr: "10.7.7.7"}, minShare: 0.9, fix: "tcp dport 3306 accept"},
	{name: "without the kernel's word, by the counter alone", cause: &firewallDrop,
		inject: losing(func(o *observe.Observation) {
			o.Drops = nil
			rules(o, nftRule("input", 7, true, 62))
		}),
		subject: Subject{Rule: "nft inet fw input_rules handle 7"}, fix: "handle 7"},
	{name: "clients elsewhere, of whom one packet in ten dies here", cause: &firewallDrop,
		inject: strangers(func(o *observe.Observation) {
			rules(o, nftRule("input", 7, true, 200))
			dropped(o, "NETFILTER_DROP", "nft_do_chain", "eth0", observe.DropData, true, 200)
		}),
		subject: Subject{Rule: "nft inet fw input_rules handle 7"}, minShare: 0.05, fix: "handle 7"},
	{name: "a client that serves nobody, towards a port where nobody listens", cause: &firewallDrop,
		inject: strangers(func(o *observe.Observation) {
			r := nftRule("output", 9, false, 0)
			r.SrcPorts, r.DstPorts, r.Text = nil, [][2]int{{9102, 9102}}, "tcp dport 9102 drop"
			rules(o, r)
			o.Connects = append(o.Connects, observe.Connect{PID: 9, Comm: "cli", NetNS: serverNS, Family: "inet", Addr: "10.9.8.1", Port: 9102, Calls: 60, Started: 60, Failed: 60})
			d := dropped(o, "NETFILTER_DROP", "nft_do_chain", "", observe.DropSYN, false, 60)
			d.Flows = []observe.DropFlow{{Src: "10.9.8.1", Dst: "10.9.8.1", DstPort: 9102, Segments: 60}}
		}),
		subject: Subject{Rule: "nft inet fw output_rules handle 9"}, minShare: 0.9, fix: "handle 9"},
	{name: "a rule that rejects", cause: &firewallReject,
		inject: losing(func(o *observe.Observation) {
			r := nftRule("input", 4, false, 0)
			r.Verdict = "reject"
			rules(o, r)
			dropped(o, "NETFILTER_DROP", "nft_do_chain", "eth0", observe.DropData, true, 60)
		}),
		subject: Subject{Rule: "nft inet fw input_rules handle 4"}, fix: "handle 4"},
	{name: "a shaper", cause: &qdiscDrop,
		inject: losing(func(o *observe.Observation) {
			ns(o).Qdiscs = []observe.Qdisc{{Interface: "eth0", Kind: "tbf", Handle: "8001:", Parent: "root", Packets: 900, Drops: 80, Overlimits: 300, RateBits: 10e6}}
			dropped(o, "QDISC_DROP", "__dev_queue_xmit", "eth0", observe.DropData, false, 80)
		}),
		subject: Subject{Kind: "interface", Interface: "eth0", Rule: "qdisc tbf 8001:"}, minShare: 0.2, fix: "shaped to 10 Mbit/s", evidence: "rate that it is shaped to=10"},
	{name: "a shaper of which TCP knows at once", cause: &qdiscDrop,
		inject: strangers(func(o *observe.Observation) {
			o.Endpoints[0] = nginxServed().add(300, 9*ms, 3*ms, 0, parts{observe.Server: ms, observe.Network: 60 * ms}).lost(7000, 0).endpoint()
			ns(o).Qdiscs = []observe.Qdisc{{Interface: "eth0", Kind: "tbf", Handle: "8001:", Parent: "root", Packets: 7394, Drops: 574, RateBits: 20e6}}
			d := dropped(o, "QDISC_DROP", "__dev_queue_xmit", "eth0", observe.DropData, false, 546)
			d.Segments, d.Flows[0].Segments = 1505, 1432
		}),
		subject: Subject{Kind: "interface", Interface: "eth0", Port: webPort}, minShare: 0.9, fix: "shaped to 20 Mbit/s", evidence: "before they left"},
	{name: "an emulator", cause: &qdiscDrop,
		inject: losing(func(o *observe.Observation) {
			ns(o).Qdiscs = []observe.Qdisc{{Interface: "eth0", Kind: "netem", Handle: "8001:", Parent: "root", Packets: 900, Drops: 80, Loss: 0.1}}
			dropped(o, "QDISC_DROP", "netem_enqueue", "eth0", observe.DropData, false, 80)
		}),
		subject: Subject{Interface: "eth0"}, fix: "take it away", evidence: "loss that it is configured to make=10 %"},
	{name: "a BPF program at the ingress", cause: &tcIngressDrop,
		inject: losing(func(o *observe.Observation) {
			ns(o).Filters = []observe.TrafficFilter{{Interface: "eth0", Way: "ingress", Kind: "bpf", Name: "cni/lose", Program: 44, Preference: 1}}
			dropped(o, "TC_INGRESS", "__netif_receive_skb_core", "eth0", observe.DropData, true, 55)
		}),
		subject: Subject{Interface: "eth0", Rule: "bpf pref 1 cni/lose (BPF program 44)"}, fix: "bpftool prog show id 44"},
	{name: "a BPF program at the egress", cause: &tcEgressDrop,
		inject: losing(func(o *observe.Observation) {
			ns(o).Filters = []observe.TrafficFilter{{Interface: "eth0", Way: "egress", Kind: "bpf", Name: "tcx", Program: 45}}
			dropped(o, "TC_EGRESS", "__dev_queue_xmit", "eth0", observe.DropData, false, 55)
		}),
		subject: Subject{Interface: "eth0"}, fix: "bpftool prog show id 45"},
	{name: "a program of the driver's own", cause: &xdpDrop,
		inject: losing(func(o *observe.Observation) {
			ns(o).Links = []observe.Link{{Name: "eth0", Index: 2, MTU: 1500, XDP: "driver", XDPProgram: 46, Errors: map[string]uint64{"rx_dropped": 90}}}
		}),
		subject: Subject{Interface: "eth0"}, fix: "ip link set dev eth0 xdp off"},
	{name: "a CPU's backlog is full", cause: &softnetBacklog,
		inject: losing(func(o *observe.Observation) {
			o.Sysctl["net.core.netdev_max_backlog"] = "1000"
			dropped(o, "CPU_BACKLOG", "enqueue_to_backlog", "eth0", observe.DropData, true, 300)
		}),
		subject: Subject{Kind: "host"}, fix: "netdev_max_backlog", evidence: "net.core.netdev_max_backlog=1000"},
	{name: "a veth whose other end takes less", cause: &mtuMismatch,
		inject: losing(func(o *observe.Observation) {
			ns(o).Links = []observe.Link{{Name: "eth0", Index: 2, MTU: 400, PeerNetNS: clientNS, PeerName: "eth1", PeerMTU: 1500}}
			o.Namespaces = append(o.Namespaces, observe.NetNS{Inode: clientNS, PID: clientPID, Addrs: []string{"10.9.8.2"},
				Links: []observe.Link{{Name: "eth1", Index: 2, MTU: 1500, PeerNetNS: serverNS, PeerName: "eth0", PeerMTU: 400}}})
			d := dropped(o, "", "__dev_forward_skb", "eth1", observe.DropData, false, 60)
			d.NetNS, d.Flows[0] = clientNS, observe.DropFlow{Src: "10.9.8.2", Dst: "10.9.8.1", DstPort: webPort, Segments: 60}
		}),
		subject: Subject{Kind: "interface", NetNS: serverNS, Interface: "eth0"}, fix: "ip link set dev eth0 mtu 1500", evidence: "MTU of eth0"},
	{name: "a veth of which no request comes through", cause: &mtuMismatch,
		inject: func(o *observe.Observation) {
			served, calls := nginxServed(), callsTo(webPort, "10.9.8.1", clientPID, "wrk")
			served.e.Connections, calls.e.Connections, calls.e.NetNS = 16, 16, clientNS
			idle(o)
			o.Endpoints = []observe.Endpoint{served.endpoint(), calls.endpoint()}
			web(o).Clients = 16
			ns(o).Links = []observe.Link{{Name: "eth0", Index: 2, MTU: 80, PeerNetNS: clientNS, PeerName: "eth0", PeerMTU: 1500}}
			o.Namespaces = append(o.Namespaces, observe.NetNS{Inode: clientNS, PID: clientPID, Links: []observe.Link{{Name: "eth0", Index: 2, MTU: 1500, PeerNetNS: serverNS, PeerName: "eth0", PeerMTU: 80}}})
			o.Drops = &observe.Drops{Reasons: true}
			d := dropped(o, "", "__dev_forward_skb2", "eth0", observe.DropData, false, 184)
			d.NetNS, d.Longest, d.Flows[0] = clientNS, 133, observe.DropFlow{Src: "10.9.8.2", Dst: "10.9.8.1", DstPort: webPort, Segments: 184}
		},
		subject: Subject{Kind: "interface", NetNS: serverNS, Interface: "eth0", Port: webPort}, minShare: 0.99, fix: "mtu 1500"},
	{name: "a veth of which nothing comes through on old connections", cause: &mtuMismatch,
		inject: func(o *observe.Observation) {
			idle(o)
			o.Endpoints = nil
			web(o).Clients, web(o).Opened = 10, 0
			ns(o).Links = []observe.Link{{Name: "eth0", Index: 2, MTU: 80, PeerNetNS: clientNS, PeerName: "eth0", PeerMTU: 1500}}
			o.Namespaces = append(o.Namespaces, observe.NetNS{Inode: clientNS, PID: clientPID, Links: []observe.Link{{Name: "eth0", Index: 2, MTU: 1500, PeerNetNS: serverNS, PeerName: "eth0", PeerMTU: 80}}})
			o.Drops = &observe.Drops{Reasons: true}
			d := dropped(o, "", "__dev_forward_skb2", "eth0", observe.DropData, false, 90)
			d.NetNS, d.Flows[0] = clientNS, observe.DropFlow{Src: "10.9.8.2", Dst: "10.9.8.1", DstPort: webPort, Segments: 90}
		},
		subject: Subject{Kind: "interface", NetNS: serverNS, Port: webPort}, minShare: 0.99, fix: "mtu 1500"},
	{name: "the message that a packet is too long is dropped", cause: &pmtuBlackhole,
		inject: losing(func(o *observe.Observation) {
			r := nftRule("input", 5, true, 20)
			r.Protocol, r.DstPorts, r.Text = "icmp", nil, "icmp type destination-unreachable drop"
			rules(o, r)
			d := dropped(o, "NETFILTER_DROP", "nft_do_chain", "eth0", "icmp", true, 20)
			d.Flows = []observe.DropFlow{{Src: "10.1.1.1", Dst: "10.9.8.1", Segments: 20}}
		}),
		subject: Subject{Port: webPort}, fix: "say that a packet is too long", evidence: "ICMP messages dropped"},
	{name: "a ring that is full", cause: &nicRing,
		inject: losing(func(o *observe.Observation) {
			ns(o).Links = []observe.Link{{Name: "eth0", Index: 2, MTU: 1500, RxPackets: 9000, Errors: map[string]uint64{"rx_missed": 200}}}
		}),
		subject: Subject{Interface: "eth0"}, fix: "ethtool -G eth0", evidence: "rx_missed=200"},
	{name: "a bad cable", cause: &linkErrors,
		inject: losing(func(o *observe.Observation) {
			ns(o).Links = []observe.Link{{Name: "eth0", Index: 2, MTU: 1500, RxPackets: 9000, Errors: map[string]uint64{"rx_crc": 120}}}
		}),
		subject: Subject{Interface: "eth0"}, fix: "cable", evidence: "rx_crc=120"},
	{name: "two networks, a strict filter", cause: &rpFilterDrop,
		inject: losing(func(o *observe.Observation) {
			ns(o).Counters["TcpExt.IPReversePathFilter"] = 70
			dropped(o, "IP_RPFILTER", "ip_rcv_finish_core", "eth1", observe.DropData, true, 70)
		}),
		subject: Subject{Interface: "eth1"}, fix: "net.ipv4.conf.eth1.rp_filter=2", evidence: "for instance from 10.9.8.2"},
	{name: "a blackhole", cause: &noRoute,
		inject: losing(func(o *observe.Observation) {
			ns(o).Routes = []observe.Route{{Dst: "10.9.8.2/32", Kind: "blackhole", Table: 254}}
			dropped(o, "IP_OUTNOROUTES", "__ip_queue_xmit", "", observe.DropData, false, 90)
		}),
		subject: Subject{NetNS: serverNS}, fix: "ip route del blackhole 10.9.8.2/32 table 254"},
	{name: "connect() fails for lack of a route, and requests with it", cause: &noRoute,
		inject: strangers(func(o *observe.Observation) {
			o.Endpoints[0].Errors = 900
			ns(o).Counters["Ip.OutNoRoutes"] = 900
			o.CallErrors = []observe.CallError{{PID: nginxWorker1, Comm: "nginx", NetNS: serverNS, Call: "connect", Error: "ENETUNREACH", Calls: 90}}
		}),
		subject: Subject{NetNS: serverNS, Port: webPort}, minShare: 0.4, fix: "route"},
	{name: "connect() fails at once, by a route that is unreachable", cause: &noRoute,
		inject: strangers(func(o *observe.Observation) {
			o.Endpoints[0].Errors, o.ErrorSeconds = 900, 1
			ns(o).Routes = []observe.Route{{Dst: "10.0.0.0/8", Kind: "blackhole", Table: 254}, {Dst: "10.7.7.7/32", Kind: "unreachable", Table: 254}}
			o.CallErrors = []observe.CallError{{PID: nginxWorker1, Comm: "nginx", NetNS: serverNS, Call: "connect", Error: "EHOSTUNREACH", Calls: 90, Path: "10.7.7.7"}}
		}),
		subject: Subject{NetNS: serverNS, Port: webPort, Addr: "10.7.7.7"}, minShare: 0.4, fix: "ip route del unreachable 10.7.7.7/32 table 254"},
	{name: "a database that is down", cause: &neighbourUnresolved,
		inject: losing(func(o *observe.Observation) {
			o.Endpoints[0].Errors = 200
			ns(o).Neighbours = []observe.Neighbour{{Addr: "10.7.7.7", Interface: "eth0", State: "failed"}}
			o.Connects = append(o.Connects, observe.Connect{PID: nginxWorker1, Comm: "nginx", NetNS: serverNS, Family: "inet", Addr: "10.7.7.7", Port: dbPort, Calls: 40, Started: 40, Failed: 40})
			d := dropped(o, "NEIGH_FAILED", "__neigh_event_send", "eth0", observe.DropSYN, false, 80)
			d.Flows = []observe.DropFlow{{Src: "10.9.8.1", Dst: "10.7.7.7", DstPort: dbPort, Segments: 80}}
		}),
		subject: Subject{Addr: "10.7.7.7", Interface: "eth0"}, fix: "ip neigh show dev eth0", evidence: "neighbour 10.7.7.7 on eth0=failed"},
	{name: "a database that is down, and every request hangs", cause: &neighbourUnresolved,
		inject: strangers(func(o *observe.Observation) {
			t := nginxServed()
			t.e.Unfinished = 20
			e := t.endpoint()
			e.Unfinished = 20
			o.Endpoints = []observe.Endpoint{e}
			o.Connects = append(o.Connects, observe.Connect{PID: nginxWorker1, Comm: "nginx", NetNS: serverNS, Family: "inet", Addr: "10.7.7.7", Port: dbPort, Calls: 20, Started: 20, Failed: 20, Unreachable: 20})
			d := dropped(o, "NEIGH_FAILED", "neigh_invalidate", "eth1", observe.DropSYN, false, 20)
			d.Flows = []observe.DropFlow{{Src: "10.9.8.1", Dst: "10.7.7.7", DstPort: dbPort, Segments: 20}}
		}),
		subject: Subject{Interface: "eth1", Port: dbPort}, minShare: 0.9, fix: "next hop"},
	{name: "no room for another neighbour", cause: &neighbourTable,
		inject: losing(func(o *observe.Observation) {
			ns(o).Counters["Arp.table_fulls"] = 40
			dropped(o, "NEIGH_CREATEFAIL", "ip_finish_output2", "eth0", observe.DropData, false, 60)
		}),
		subject: Subject{Kind: "host"}, fix: "gc_thresh3", evidence: "times that the table was full=40"},
	{name: "fragments are missing", cause: &ipReassembly,
		inject: losing(func(o *observe.Observation) {
			dropped(o, "FRAG_REASM_TIMEOUT", "ip_expire", "eth0", "fragment", true, 60)
		}),
		subject: Subject{NetNS: serverNS}, fix: "fragments"},
	{name: "a policy without keys", cause: &ipsecPolicy,
		inject: losing(func(o *observe.Observation) {
			dropped(o, "XFRM_POLICY", "ip_forward", "eth0", observe.DropData, true, 60)
		}),
		subject: Subject{NetNS: serverNS}, fix: "policies of both ends"},
	{name: "damaged on the way", cause: &checksumErrors,
		inject: losing(func(o *observe.Observation) {
			dropped(o, "TCP_CSUM", "tcp_v4_rcv", "eth0", observe.DropData, true, 60)
		}),
		subject: Subject{NetNS: serverNS}, fix: "checksum offload"},
}

var nearMissesOnDrops = []miss{
	{"a firewall that keeps a scan of ports out", &firewallDrop, strangers(func(o *observe.Observation) {
		r := nftRule("input", 7, true, 5000)
		r.DstPorts, r.Some = nil, false
		rules(o, r)
		d := dropped(o, "NETFILTER_DROP", "nft_do_chain", "eth0", observe.DropSYN, true, 5000)
		d.Flows = []observe.DropFlow{{Src: "203.0.113.9", Dst: "10.9.8.1", DstPort: 22, Segments: 10}, {Src: "203.0.113.9", Dst: "10.9.8.1", DstPort: 3306, Segments: 10}}
	}), "5,000 packets were dropped by rule nft inet fw input_rules handle 7"},
	{"a program of this host that scans ports", &firewallDrop, strangers(func(o *observe.Observation) {
		r := nftRule("output", 9, false, 0)
		r.SrcPorts, r.Some, r.Text = nil, false, "drop"
		rules(o, r)
		d := dropped(o, "NETFILTER_DROP", "nft_do_chain", "", observe.DropSYN, false, 200)
		d.Flows = nil
		for port := 1; port <= 200; port++ {
			o.Connects = append(o.Connects, observe.Connect{PID: 9, Comm: "scan", NetNS: serverNS, Family: "inet", Addr: "10.7.7.7", Port: port, Calls: 1, Started: 1})
			d.Flows = append(d.Flows, observe.DropFlow{Src: "10.9.8.1", Dst: "10.7.7.7", DstPort: port, Segments: 1})
		}
	}), "no request or connection waited for them"},
	{"strangers who are kept out of the service's own port", &firewallDrop, strangers(func(o *observe.Observation) {
		r := nftRule("input", 7, true, 500)
		r.Some = false
		rules(o, r)
		d := dropped(o, "NETFILTER_DROP", "nft_do_chain", "eth0", observe.DropSYN, true, 500)
		d.Flows[0].Src = "203.0.113.9"
	}), "no request or connection waited for them"},
	{"loss on the path, and a firewall that drops something else", &firewallDrop, losing(func(o *observe.Observation) {
		rules(o, nftRule("input", 7, true, 30))
		d := dropped(o, "NETFILTER_DROP", "nft_do_chain", "eth0", "udp", true, 30)
		d.Flows[0].DstPort = 53
	}), "30 packets were dropped"},
	{"a full connection tracking table drops at the same place", &firewallDrop, losing(func(o *observe.Observation) {
		ns(o).Conntrack = &observe.Conntrack{Entries: 200, PeakEntries: 200, Max: 200, Drop: 60}
		dropped(o, "NETFILTER_DROP", "nf_hook_slow", "eth0", observe.DropSYN, true, 60)
	}), "no packet was dropped by a firewall"},
	{"strangers are rejected", &firewallReject, strangers(func(o *observe.Observation) {
		r := nftRule("input", 7, true, 50)
		r.Verdict, r.DstPorts = "reject", nil
		rules(o, r)
		d := dropped(o, "NETFILTER_DROP", "nft_do_chain", "eth0", observe.DropSYN, true, 50)
		d.Flows[0].Src, d.Flows[0].DstPort = "203.0.113.9", 23
	}), "50 packets were dropped"},
	{"a link that is full, by which TCP finds its rate", &qdiscDrop, strangers(func(o *observe.Observation) {
		o.Endpoints[0] = nginxServed().add(2000, ms, ms, 0, parts{observe.Server: 60 * ms, observe.Retrans: ms / 2}).lost(60_000, 90).endpoint()
		ns(o).Qdiscs = []observe.Qdisc{{Interface: "eth0", Kind: "fq_codel", Handle: "0:", Parent: "root", Drops: 90}}
		dropped(o, "QDISC_DROP", "__dev_queue_xmit", "eth0", observe.DropData, false, 90)
	}), "no request or connection waited for them"},
	{"a filter that keeps strangers out", &tcIngressDrop, strangers(func(o *observe.Observation) {
		d := dropped(o, "TC_INGRESS", "__netif_receive_skb_core", "eth0", observe.DropSYN, true, 400)
		d.Flows[0].DstPort = 9999
	}), "400 packets were dropped by tc-ingress at eth0"},
	{"a filter that keeps something in", &tcEgressDrop, strangers(func(o *observe.Observation) {
		d := dropped(o, "TC_EGRESS", "__dev_queue_xmit", "eth0", "udp", false, 40)
		d.Flows[0].SrcPort = 0
	}), "40 packets"},
	{"a program that drops a flood", &xdpDrop, strangers(func(o *observe.Observation) {
		d := dropped(o, "XDP", "do_xdp_generic", "eth0", observe.DropSYN, true, 90_000)
		d.Flows[0].Src = "203.0.113.9"
	}), "90,000 packets"},
	{"a backlog that was full of nobody's packets", &softnetBacklog, strangers(func(o *observe.Observation) {
		o.Use.Softnet = []observe.Softnet{{CPU: 1, Processed: 90_000, Dropped: 300}}
	}), "300 packets"},
	{"different MTUs, and segments that are smaller than both", &mtuMismatch, losing(func(o *observe.Observation) {
		ns(o).Links = []observe.Link{{Name: "eth0", Index: 2, MTU: 1450, PeerNetNS: clientNS, PeerName: "eth1", PeerMTU: 1500}}
	}), "no packet was too long"},
	{"a device that is down", &mtuMismatch, losing(func(o *observe.Observation) {
		ns(o).Links = []observe.Link{{Name: "eth0", Index: 2, MTU: 1500, PeerNetNS: clientNS, PeerName: "eth1", PeerMTU: 1500}}
		dropped(o, "", "__dev_forward_skb", "eth0", observe.DropData, false, 60)
	}), "no packet was too long"},
	{"pings that a firewall drops", &pmtuBlackhole, strangers(func(o *observe.Observation) {
		r := nftRule("input", 5, true, 20)
		r.Protocol, r.DstPorts = "icmp", nil
		rules(o, r)
		d := dropped(o, "NETFILTER_DROP", "nft_do_chain", "eth0", "icmp", true, 20)
		d.Flows = []observe.DropFlow{{Src: "203.0.113.9", Dst: "10.9.8.1", Segments: 20}}
	}), "20 ICMP messages were dropped"},
	{"packets that nobody wanted (rx_dropped)", &nicRing, losing(func(o *observe.Observation) {
		ns(o).Links = []observe.Link{{Name: "eth0", Index: 2, MTU: 1500, RxPackets: 9000, Errors: map[string]uint64{"rx_dropped": 200}}}
	}), "no device lost packets"},
	{"damaged packets, and no request notices", &linkErrors, strangers(func(o *observe.Observation) {
		ns(o).Links = []observe.Link{{Name: "eth0", Index: 2, MTU: 1500, RxPackets: 900_000, Errors: map[string]uint64{"rx_crc": 4}}}
	}), "4 packets were dropped at eth0 (rx_crc)"},
	{"forged packets", &rpFilterDrop, strangers(func(o *observe.Observation) {
		ns(o).Counters["TcpExt.IPReversePathFilter"] = 70
	}), "70 packets were dropped by rp-filter (TcpExt.IPReversePathFilter)"},
	{"a call without a route now and then, of a service that answers", &noRoute, strangers(func(o *observe.Observation) {
		o.ErrorSeconds = 1
		o.CallErrors = []observe.CallError{{PID: nginxWorker1, Comm: "nginx", NetNS: serverNS, Call: "connect", Error: "ENETUNREACH", Calls: 3, Path: "2001:db8::7"}}
	}), "connect() of nginx"},
	{"clients that give up, and a counter of somebody else's packets", &noRoute, strangers(func(o *observe.Observation) {
		o.Endpoints[0].Errors, o.ErrorSeconds = 900, 1
		ns(o).Counters["Ip.OutNoRoutes"] = 900
	}), "900 packets"},
	{"a program that tries IPv6 first", &noRoute, strangers(func(o *observe.Observation) {
		ns(o).Counters["Ip.OutNoRoutes"] = 300
	}), "300 packets"},
	{"what is left of a container that is gone, of the same address as a client's", &noRoute, losing(func(o *observe.Observation) {
		d := dropped(o, "IP_OUTNOROUTES", "__ip_queue_xmit", "", observe.DropData, false, 60)
		d.NetNS, d.Flows[0] = clientNS+1, observe.DropFlow{Src: "10.9.8.2", Dst: "10.9.8.1", DstPort: webPort, Segments: 60}
	}), "60 packets were dropped"},
	{"what connections of a pod still send when its namespace has no process any more", &noRoute, losing(func(o *observe.Observation) {
		ns(o).PID, ns(o).Name = 0, ""
		dropped(o, "IP_OUTNOROUTES", "__ip_queue_xmit", "", observe.DropData, false, 90)
	}), "90 packets were dropped by routing in network namespace 4026532177, which has no process any more"},
	{"a neighbour that failed, and nobody sends to", &neighbourUnresolved, strangers(func(o *observe.Observation) {
		ns(o).Neighbours = []observe.Neighbour{{Addr: "10.7.7.7", Interface: "eth0", State: "failed"}}
		d := dropped(o, "NEIGH_FAILED", "__neigh_event_send", "eth0", "icmp", false, 8)
		d.Flows = []observe.DropFlow{{Src: "10.9.8.1", Dst: "10.7.7.7", Segments: 8}}
	}), "8 packets"},
	{"a neighbour that does not answer, with room in the table", &neighbourTable, losing(func(o *observe.Observation) {
		dropped(o, "NEIGH_FAILED", "__neigh_event_send", "eth0", observe.DropData, false, 60)
	}), "the neighbour table was not full"},
	{"fragments of a scan", &ipReassembly, strangers(func(o *observe.Observation) {
		ns(o).Counters["Ip.ReasmFails"] = 9
	}), "9 packets"},
	{"strangers without IPsec", &ipsecPolicy, strangers(func(o *observe.Observation) {
		d := dropped(o, "XFRM_POLICY", "xfrm_policy", "eth0", observe.DropSYN, true, 12)
		d.Flows[0].Src = "203.0.113.9"
	}), "12 packets"},
	{"a few damaged packets of a scan", &checksumErrors, strangers(func(o *observe.Observation) {
		ns(o).Counters["Tcp.InCsumErrors"] = 5
	}), "5 packets"},
}

// TestKnownDropsCarryTheLoss: what died on this host is the reason for the
// loss where it accounts for it, and only there.
func TestKnownDropsCarryTheLoss(t *testing.T) {
	for _, c := range []struct {
		name    string
		dropped uint64
		follows bool
	}{{"all of it", 110, true}, {"half of it", 60, true}, {"little of it", 12, false}} {
		t.Run(c.name, func(t *testing.T) {
			o := healthy()
			losing(func(o *observe.Observation) {
				rules(o, nftRule("input", 7, true, c.dropped))
				dropped(o, "NETFILTER_DROP", "nft_do_chain", "eth0", observe.DropData, true, c.dropped)
			})(o)
			v := NewView(o)
			loss, rule := networkLoss.Judge(v), firewallDrop.Judge(v)
			if len(loss.Findings) == 0 || len(rule.Findings) == 0 {
				t.Fatalf("loss: %d findings, rule: %d (%s)", len(loss.Findings), len(rule.Findings), rule.RuledOut)
			}
			if got := loss.Findings[0].MayFollow(&rule.Findings[0]); got != c.follows {
				t.Errorf("network-loss may follow from the rule: %v, want %v", got, c.follows)
			}
		})
	}
}

// TestRulesShareDrops: rules are given what their counters show, and one
// without a counter what is left over.
func TestRulesShareDrops(t *testing.T) {
	o := healthy()
	losing(func(o *observe.Observation) {
		rules(o, nftRule("input", 1, true, 40), nftRule("input", 2, false, 0), nftRule("output", 3, true, 10))
		dropped(o, "NETFILTER_DROP", "nft_do_chain", "eth0", observe.DropData, true, 100)
		dropped(o, "NETFILTER_DROP", "nft_do_chain", "", observe.DropData, false, 10)
	})(o)
	got := map[uint64]uint64{}
	for _, s := range NewView(o).Sites() {
		if s.Rule != nil {
			got[s.Rule.Handle] += s.Packets
		}
	}
	if got[1] != 40 || got[2] != 60 || got[3] != 10 {
		t.Errorf("packets by handle: %v", got)
	}
}

// TestDropCausesAreJudged: every layer that they judge is one.
func TestDropCausesAreJudged(t *testing.T) {
	for _, l := range dropJudged {
		if !slices.Contains(DropLayers(), l) {
			t.Errorf("layer %s has no place", l)
		}
	}
}
