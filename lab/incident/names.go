package incident

import (
	"time"

	"github.com/slowray/slowray/lab/link"
	"github.com/slowray/slowray/lab/load"
	"github.com/slowray/slowray/lab/server"
)

// quotes is a healthy service in Python that looks up names, or calls by them.
func quotes(is server.Quotes) func() server.Setup {
	return func() server.Setup {
		s := server.Healthy(server.Quoting)
		s.Quotes = is
		return s
	}
}

// farNames is quotes with a nameserver that is so far away.
func farNames(rtt time.Duration) func() server.Setup {
	return func() server.Setup {
		s := quotes(server.Quotes{Lookup: true})()
		s.BackWire = emulated(rtt)
		return s
	}
}

// asking is clients that pause a little between their requests.
var asking = load.Load{Conns: 20, Think: 10 * time.Millisecond}

// names is what goes wrong with names: DNS, and the datagrams it is made of.
func names() []Incident {
	return []Incident{{
		Name:    "dns-timeout",
		Summary: "the first of two nameservers is dead: each lookup waits for the time limit before the second is asked",
		Setup:   quotes(server.Quotes{Lookup: true}),
		Faults: []Fault{{
			Name: "deaf", Cause: "dns-timeout", Says: "does not answer",
			Text:   "the first nameserver takes queries and answers none",
			Inject: func(s *server.Setup) { s.Quotes.Deaf = true },
		}},
		Load:  asking,
		Quick: true,
		Light: true,
	}, {
		Name:    "dns-slow",
		Summary: "the nameserver takes 50 ms for an answer, and each request looks up a name",
		Setup:   farNames(near),
		Faults: []Fault{{
			Name: "far", Cause: "dns-slow",
			Text: "50 ms more on the way to the nameserver and back",
			Inject: func(s *server.Setup) {
				half := link.Settings{Delay: 25 * time.Millisecond}
				s.BackWire.ToServer, s.BackWire.ToFar = half, half
			},
		}},
		Load:  asking,
		Quick: true,
		Light: true,
	}, {
		Name:    "dns-search-expansion",
		Summary: "each name is looked up under three search domains first, as in Kubernetes, by a nameserver 8 ms away",
		Setup:   farNames(8 * time.Millisecond),
		Faults: []Fault{{
			Name: "search", Cause: "dns-search-expansion", Says: "ndots",
			Text: "three search domains with ndots:5",
			Inject: func(s *server.Setup) {
				s.Quotes.Search = "shop.svc.cluster.local svc.cluster.local cluster.local"
			},
		}},
		Load:  asking,
		Quick: true,
		Light: true,
	}, {
		Name:    "dns-nat-ports",
		Summary: "a router translates the queries of a service to a few ports: those whose entry clashes with another one are dropped",
		Setup:   behind(quotes(server.Quotes{Lookup: true}), edge),
		Faults: []Fault{atRouter(0, takenPorts, shortUDP,
			"iptables-legacy -t nat -A POSTROUTING -p udp --dport 53 -j MASQUERADE --to-ports 40000-40015")},
		Load:  asking,
		Quick: true,
		Light: true,
	}, {
		Name:    "dns-nat-ports-behind",
		Summary: "the second of two routers, which no name leads to, translates queries to a few ports by a rule of nftables",
		Setup:   behind(quotes(server.Quotes{Lookup: true}), edge, gateway),
		Faults: []Fault{atRouter(1, takenPorts, shortUDP,
			"nft add table ip leave", "nft 'add chain ip leave last { type nat hook postrouting priority 100; }'",
			"nft add rule ip leave last udp dport 53 masquerade to :41000-41011")},
		Load:  asking,
		Quick: true,
		Light: true,
	}}
}

var takenPorts = Fault{Name: "ports", Cause: "dns-timeout", Says: "insert_failed", Text: "the translation of queries to port 53 has a few source ports, for a second each"}

// shortUDP lets connection tracking forget datagrams after a second, so that ports come free.
const shortUDP = "echo 1 | tee /proc/sys/net/netfilter/nf_conntrack_udp_timeout /proc/sys/net/netfilter/nf_conntrack_udp_timeout_stream >/dev/null"
