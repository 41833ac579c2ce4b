package incident

import (
	"fmt"
	"strings"
	"time"

	"github.com/slowray/slowray/lab/drop"
	"github.com/slowray/slowray/lab/load"
	"github.com/slowray/slowray/lab/server"
)

// atServer is a fault that commands in the servers' network namespace inject.
func atServer(f Fault, lines ...string) Fault {
	f.Inject = func(s *server.Setup) { s.Packets.AtServer += commands(lines...) }
	return f
}

func commands(lines ...string) string { return strings.Join(lines, "\n") + "\n" }

// Commands that make what a rule needs.
const (
	nftTable  = "nft add table inet shop"
	nftInput  = "nft 'add chain inet shop input { type filter hook input priority 0; }'"
	nftOutput = "nft 'add chain inet shop output { type filter hook output priority 0; }'"
)

func firewallIn(percent int) Fault {
	return atServer(Fault{
		Name: "nft-input", Cause: "firewall-drop", Says: "inet shop input handle",
		Text: fmt.Sprintf("an nftables rule with a counter drops %d %% of what comes in for the service", percent),
	}, nftTable, nftInput, fmt.Sprintf("nft add rule inet shop input tcp dport {{.FrontPort}} numgen random mod 100 '<' %d counter drop", percent))
}

func firewallOut(percent int) Fault {
	return atServer(Fault{
		Name: "nft-output", Cause: "firewall-drop", Says: "inet shop output handle",
		Text: fmt.Sprintf("an nftables rule without a counter drops %d %% of what the service sends", percent),
	}, nftTable, nftOutput, fmt.Sprintf("nft add rule inet shop output tcp sport {{.FrontPort}} numgen random mod 100 '<' %d drop", percent))
}

func iptablesNFT(share float64) Fault {
	return atServer(Fault{
		Name: "iptables-nft", Cause: "firewall-drop", Says: "iptables-nft ip filter INPUT",
		Text: fmt.Sprintf("a rule of iptables-nft in INPUT drops %.0f %% of the packets for the service", 100*share),
	}, fmt.Sprintf("iptables-nft -A INPUT -p tcp --dport {{.FrontPort}} -m statistic --mode random --probability %g -j DROP", share))
}

func iptablesLegacy(share float64) Fault {
	return atServer(Fault{
		Name: "iptables-legacy", Cause: "firewall-drop", Says: "iptables-legacy ip filter OUTPUT",
		Text: fmt.Sprintf("a rule of iptables-legacy in OUTPUT drops %.0f %% of the packets of the service", 100*share),
	}, fmt.Sprintf("iptables-legacy -A OUTPUT -p tcp --sport {{.FrontPort}} -m statistic --mode random --probability %g -j DROP", share))
}

func ingressDropper(every int) Fault {
	return Fault{
		Name: "tc-ingress", Cause: "tc-ingress-drop",
		Text:   fmt.Sprintf("a BPF program at the ingress of the server's device drops each %s packet", map[bool]string{true: "3rd", false: fmt.Sprintf("%dth", every)}[every == 3]),
		Inject: func(s *server.Setup) { s.Wire.DropAtServer = drop.Rule{Every: every} },
	}
}

// smallMTU lets handshakes in, and no request.
func smallMTU() Fault {
	return atServer(Fault{
		Name: "mtu", Cause: "mtu-mismatch", Says: "ip link set dev eth0 mtu 1500",
		Text: "the server's end of the link has an MTU of 80: handshakes pass, requests do not",
	}, "ip link set dev eth0 mtu 80")
}

func shaper() Fault {
	return atServer(Fault{
		Name: "shaper", Cause: "qdisc-drop", Says: "tbf",
		Text: "the server's device is shaped to 20 Mbit/s, with a queue of a few packets",
	}, "tc qdisc add dev eth0 root tbf rate 20mbit burst 16k limit 24k")
}

func plainWeb(is server.Service) func() server.Setup {
	return func() server.Setup {
		s := server.Healthy(server.Web)
		s.Web = is
		return s
	}
}

func packets() []Incident {
	return []Incident{{
		// Incident C: what hurts most is fixed first. Connection tracking is in
		// use all the time, and has nothing to do with it.
		Name:    "packet-loss-layers",
		Summary: "packets die at five layers, which are fixed one by one: MTU, a BPF program, and three firewalls",
		Setup:   plainWeb(server.Service{}),
		Stepped: true,
		Faults: []Fault{smallMTU(), ingressDropper(3), iptablesNFT(0.15), firewallOut(7), iptablesLegacy(0.03),
			{Name: "conntrack", Text: "connection tracking in use, far from its limit", Decoy: true, RuledOut: "conntrack-full",
				Inject: func(s *server.Setup) { s.Track = true }}},
		// Clients that give up and come again on a new connection: those that wait
		// double their wait each time, until nobody sends anything.
		Load:  load.Load{Conns: 60, Own: true, GiveUp: time.Second, Think: 5 * time.Millisecond},
		Quick: true,
	}, {
		Name:    "firewall-drop",
		Summary: "a firewall rule drops one packet in twenty on its way to the service",
		Setup:   plainWeb(server.Service{}),
		Faults:  []Fault{firewallIn(5)},
		Load:    load.Load{Conns: 10},
		Quick:   true,
	}, {
		Name:    "firewall-drop-out",
		Summary: "a firewall rule without a counter drops one packet in twenty of the answers",
		Setup:   plainWeb(server.Service{}),
		Faults:  []Fault{firewallOut(5)},
		Load:    load.Load{Conns: 10},
		Quick:   true,
	}, {
		Name:    "mtu-mismatch",
		Summary: "the two ends of a link have different MTUs: handshakes pass, requests do not",
		Setup:   plainWeb(server.Service{}),
		Faults:  []Fault{smallMTU()},
		Load:    load.Load{Conns: 10},
		Quick:   true,
	}, {
		Name:    "qdisc-drop",
		Summary: "a shaper with a short queue drops a good part of large answers",
		Setup:   plainWeb(server.Service{Size: 30_000}),
		Faults:  []Fault{shaper()},
		Load:    load.Load{Conns: 20},
		Quick:   true,
	}, {
		Name:    "rp-filter-drop",
		Summary: "clients of a second network come in at a device that answers to them would not leave by",
		Setup: func() server.Setup {
			s := server.Healthy(server.Web)
			s.ClientAddrs = farClients
			return s
		},
		Faults: []Fault{{
			Name: "rp-filter", Cause: "rp-filter-drop", Says: "rp_filter=2",
			Text: "the route to those clients leads elsewhere, and rp_filter is 1",
			Inject: func(s *server.Setup) {
				s.Packets.AtServer = commands("ip link add dmz0 type veth peer name dmz1", "ip link set dmz0 up", "ip link set dmz1 up",
					"ip link set dev eth0 address 02:00:00:00:00:01",
					"ip route replace "+server.ClientNet+"0/24 dev dmz0", "echo 1 >/proc/sys/net/ipv4/conf/eth0/rp_filter")
				// The filter keeps ARP requests of those addresses out, too.
				s.Packets.AtClients = commands("ip neigh replace {{.ServerAddr}} lladdr 02:00:00:00:00:01 dev eth0 nud permanent")
			},
		}},
		Load:  load.Load{Conns: 40, Close: true, Own: true, Sources: farClients, GiveUp: 1500e6},
		Quick: true,
	}, {
		Name:    "neighbour-unresolved",
		Summary: "the machine behind the service does not answer ARP",
		Setup: func() server.Setup {
			s := server.Healthy(server.WebBackend)
			s.Web.Calls, s.Web.CallClose = 1, true
			return s
		},
		Faults: []Fault{{
			Name: "arp", Cause: "neighbour-unresolved",
			Text:   "the backend's device does not answer ARP",
			Inject: func(s *server.Setup) { s.Packets.AtBackend = commands("ip link set dev eth0 arp off") },
		}},
		Load:  load.Load{Conns: 20, Own: true},
		Quick: true,
	}}
}

// packetControls drop packets that nobody waits for.
func packetControls() []Incident {
	return []Incident{{
		Name:    "firewall-scan",
		Summary: "a firewall keeps a port scan out, and the service does not notice",
		Setup:   plainWeb(server.Service{Work: 2e6}),
		Faults: []Fault{{
			Name: "scan", Cause: "firewall-drop",
			Text: "a stranger scans the server's ports, and the firewall drops what is for other ports than the service's",
			Inject: func(s *server.Setup) {
				s.Packets.AtServer = commands(nftTable, nftInput, "nft add rule inet shop input tcp dport != {{.FrontPort}} counter drop")
				s.Packets.Stray = commands("exec timeout 60 hping3 --quiet --syn --interval u2000 --destport ++7000 {{.ServerAddr}} >/dev/null 2>&1")
			},
		}},
		Load:    load.Load{Conns: 10, Rate: 500},
		Control: true,
		Quick:   true,
	}}
}
