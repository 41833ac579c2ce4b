package incident

import (
	"fmt"
	"time"

	"github.com/slowray/slowray/lab/load"
	"github.com/slowray/slowray/lab/sandbox"
	"github.com/slowray/slowray/lab/server"
)

// Routers in which no process lives: one that ip-netns(8) knows by a name, and one
// that is mounted elsewhere.
var (
	edge    = sandbox.Router{Name: "edge"}
	gateway = sandbox.Router{Name: "gateway", Bound: true}
)

// behind is a setup whose clients, or whose backend if it has one, are behind
// these routers.
func behind(setup func() server.Setup, routers ...sandbox.Router) func() server.Setup {
	return func() server.Setup {
		s := setup()
		wire := &s.Wire
		if s.HasBackend() {
			wire = &s.BackWire
		}
		*wire = sandbox.Wire{}
		copy(wire.Routers[:], routers)
		return s
	}
}

// atRouter is a fault that commands in the nth router inject.
func atRouter(n int, f Fault, lines ...string) Fault {
	f.Inject = func(s *server.Setup) { s.Packets.AtRouters[n] += commands(lines...) }
	return f
}

// webCalling is a web server that calls its backend once for each answer, on a
// connection that it keeps or makes anew.
func webCalling(anew bool) func() server.Setup {
	return func() server.Setup {
		s := server.Healthy(server.WebBackend)
		s.Web.Calls, s.Web.CallClose = 1, anew
		return s
	}
}

const nftForward = "nft 'add chain inet shop forward { type filter hook forward priority 0; }'"

// callingOften is webCalling with several calls, each on a new connection.
func callingOften() server.Setup {
	s := webCalling(true)()
	s.Web.Calls = 6
	return s
}

// Rules that each new connection passes one after the other: those of kube-proxy, one for each of
// as many services, and a list of addresses that are kept out.
const (
	kubeServices = `{ echo '*nat'; echo ':KUBE-SERVICES - [0:0]'; echo '-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES'; ` +
		`seq 0 %d | awk '{printf "-A KUBE-SERVICES -d 10.%%d.%%d.%%d/32 -p tcp -m comment --comment \"shop/s%%d:http cluster IP\" -m tcp --dport 80 -j RETURN\n", 96+int($1/65536), int($1/256)%%256, $1%%256, $1}'; ` +
		`echo '-A POSTROUTING -m mark --mark 0x4000/0x4000 -j MASQUERADE'; echo COMMIT; } | iptables-nft-restore`
	keptOut = `{ echo '*filter'; echo ':OUTCASTS - [0:0]'; echo '-A FORWARD -m conntrack --ctstate NEW -j OUTCASTS'; ` +
		`seq 0 %d | awk '{printf "-A OUTCASTS -s 198.%%d.%%d.%%d/32 -j DROP\n", 18+int($1/65536), int($1/256)%%256, $1%%256}'; ` +
		`echo COMMIT; } | iptables-legacy-restore`
)

const walkOnFull = "on CPUs that other programs fill too, the walk is a small part of each request, and is not found"

// walking is what the walk of one thread's packets looks like besides.
var walking = []string{"single-thread-saturated", "cpu-hot-function"}

func routers() []Incident {
	return []Incident{{
		Name:    "kube-proxy-rules",
		Summary: "kube-proxy keeps 30,000 rules of iptables, and each call makes a new connection, which passes them all",
		Setup:   behind(callingOften, edge),
		Faults: []Fault{atRouter(0, Fault{Name: "rules", Cause: "long-rule-list", Says: "KUBE-SERVICES", Alongside: walking, Text: "30,000 rules of kube-proxy in the router"},
			fmt.Sprintf(kubeServices, 29_999))},
		Load:     load.Load{Conns: 20},
		Quick:    true,
		Unsteady: walkOnFull,
	}, {
		Name:    "ban-list",
		Summary: "a router has a list of 80,000 addresses that are kept out, a rule each, which each new connection passes",
		Setup:   behind(callingOften, gateway),
		Faults: []Fault{atRouter(0, Fault{Name: "rules", Cause: "long-rule-list", Says: "OUTCASTS", Alongside: walking, Text: "80,000 rules of iptables-legacy in the router"},
			fmt.Sprintf(keptOut, 79_999))},
		Load:     load.Load{Conns: 20},
		Quick:    true,
		Unsteady: walkOnFull,
	}, {
		Name:    "router-firewall",
		Summary: "a router that no process lives in drops one packet in twenty between the clients and the service",
		Setup:   behind(plainWeb(server.Service{}), edge),
		Faults: []Fault{atRouter(0, Fault{Name: "rule", Cause: "firewall-drop", Says: "inet shop forward handle",
			Text: "an nftables rule with a counter in the router drops 5 % of what is for the service"},
			nftTable, nftForward, "nft add rule inet shop forward tcp dport {{.FrontPort}} numgen random mod 100 '<' 5 counter drop")},
		Load:  load.Load{Conns: 10},
		Quick: true,
	}, {
		Name:    "router-firewall-behind",
		Summary: "the second of two routers on the way to the backend, which no process lives in and no name leads to, drops packets",
		Setup:   behind(webCalling(false), edge, gateway),
		Faults: []Fault{atRouter(1, Fault{Name: "rule", Cause: "firewall-drop", Says: "iptables-legacy ip filter FORWARD",
			Text: "a rule of iptables-legacy in the second router drops 8 % of the backend's answers"},
			"iptables-legacy -A FORWARD -p tcp --sport {{.BackPort}} -m statistic --mode random --probability 0.08 -j DROP")},
		Load:  load.Load{Conns: 10},
		Quick: true,
	}, {
		Name:    "router-shaper",
		Summary: "a router that is mounted somewhere shapes what the clients get, with a queue of a few packets",
		Setup:   behind(plainWeb(server.Service{Size: 30_000}), gateway),
		Faults: []Fault{atRouter(0, Fault{Name: "shaper", Cause: "qdisc-drop", Says: "tbf",
			Text: "the router's device towards the clients is shaped to 20 Mbit/s, with a queue of a few packets"},
			"tc qdisc add dev wan0 root tbf rate 20mbit burst 16k limit 24k")},
		Load:  load.Load{Conns: 20},
		Quick: true,
	}, {
		Name:    "router-blackhole",
		Summary: "a router on the way to the backend has a route for it that leads nowhere",
		Setup:   behind(webCalling(true), edge),
		Faults: []Fault{atRouter(0, Fault{Name: "route", Cause: "no-route", Says: "blackhole",
			Text: "a blackhole route for the backend in the router"},
			"ip route add blackhole {{.BackendAddr}}/32 table 77", "ip rule add to {{.BackendAddr}} pref 100 lookup 77")},
		Load:  load.Load{Conns: 20, Own: true},
		Quick: true,
	}, {
		Name:    "router-rp-filter",
		Summary: "a router takes the clients' packets for forged: its route to them leads over another device",
		Setup:   behind(plainWeb(server.Service{}), edge, gateway),
		Faults: []Fault{{Name: "rp-filter", Cause: "rp-filter-drop", Says: "rp_filter=2",
			Text: "the second router's route to the clients leads elsewhere, and its rp_filter is 1",
			Inject: func(s *server.Setup) {
				s.Packets.AtRouters[1] = commands("ip link add dmz0 type veth peer name dmz1", "ip link set dmz0 up", "ip link set dmz1 up",
					"ip route add {{.ClientAddr}}/32 dev dmz0 table 78", "ip rule add to {{.ClientAddr}} pref 100 lookup 78",
					"ip link set dev wan0 address 02:00:00:00:00:02", "echo 1 >/proc/sys/net/ipv4/conf/wan0/rp_filter")
				// The filter keeps ARP requests of those addresses out, too.
				s.Packets.AtClients = commands("ip neigh replace 100.64.2.1 lladdr 02:00:00:00:00:02 dev eth0 nud permanent")
			}}},
		Load:  load.Load{Conns: 10, Close: true, Own: true, GiveUp: 1500 * time.Millisecond},
		Quick: true,
	}}
}

// routerControls drop packets in routers that nobody waits for, or lie on the way
// and drop none.
func routerControls() []Incident {
	return []Incident{{
		Name:    "kube-proxy-rules-kept",
		Summary: "kube-proxy keeps 30,000 rules of iptables, and the calls keep their connections, which passed them once",
		Setup:   behind(webCalling(false), edge),
		Faults: []Fault{atRouter(0, Fault{Name: "rules", Cause: "long-rule-list", Text: "30,000 rules of kube-proxy in the router"},
			fmt.Sprintf(kubeServices, 29_999))},
		Load:    load.Load{Conns: 8, Rate: 500},
		Control: true,
		Quick:   true,
	}, {
		Name:    "router-innocent",
		Summary: "a firewall in a router keeps out what is for other ports, on a way of three routers",
		Setup:   behind(plainWeb(server.Service{Work: 2e6}), edge, gateway, sandbox.Router{Name: "core"}),
		Faults: []Fault{{Name: "scan", Cause: "firewall-drop", Text: "a stranger scans ports, and the second router drops what is for other ports than the service's",
			Inject: func(s *server.Setup) {
				s.Packets.AtRouters[1] = commands(nftTable, nftForward, "nft add rule inet shop forward iifname wan0 tcp dport 7000-65535 counter drop")
				s.Packets.Stray = commands("exec timeout 60 hping3 --quiet --syn --interval u2000 --destport ++7000 {{.ServerAddr}} >/dev/null 2>&1")
			}}},
		Load:    load.Load{Conns: 10, Rate: 500},
		Control: true,
		Quick:   true,
	}}
}
