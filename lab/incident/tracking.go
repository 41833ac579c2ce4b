package incident

import (
	"time"

	"github.com/slowray/slowray/lab/load"
	"github.com/slowray/slowray/lab/server"
)

// Rules that are in order: they drop what connection tracking finds invalid.
const (
	invalidNFT      = "nft add rule inet shop input ct state invalid drop"
	invalidForward  = "nft add rule inet shop forward ct state invalid drop"
	invalidIPTables = "iptables-legacy -A FORWARD -m conntrack --ctstate INVALID -j DROP"
	invalidInput    = "iptables-legacy -A INPUT -m conntrack --ctstate INVALID -j DROP"
	// What is in the middle of a connection is invalid, as on firewalls that are strict.
	strict = "echo 0 >/proc/sys/net/netfilter/nf_conntrack_tcp_loose"
)

// guarded is a setup with these commands in it, in the servers' namespace or in that
// of the first router.
func guarded(setup func() server.Setup, inRouter bool, lines ...string) func() server.Setup {
	return func() server.Setup {
		s := setup()
		if inRouter {
			s.Packets.AtRouters[0] += commands(lines...)
		} else {
			s.Packets.AtServer += commands(lines...)
		}
		return s
	}
}

func smallTable(n int) Fault {
	return Fault{Name: "table", Cause: "conntrack-full", Says: "nf_conntrack_max", Text: "nf_conntrack_max is too small for the connections",
		Inject: func(s *server.Setup) { s.ConntrackMax = n }}
}

// idleClients keep their connections, and pause for longer than a firewall may
// remember them. One that gets no answer comes again on a new connection.
var idleClients = load.Load{Conns: 40, Own: true, Think: 1600 * time.Millisecond, GiveUp: time.Second}

func tracking() []Incident {
	return []Incident{{
		Name:    "conntrack-full-invalid",
		Summary: "a full connection tracking table, with a rule next to it that drops what is invalid and has no counter",
		Setup:   guarded(tracked(plainWeb(server.Service{})), false, nftTable, nftInput, invalidNFT),
		Faults:  []Fault{smallTable(300)},
		Load:    load.Load{Conns: 600, Close: true},
	}, {
		Name:    "conntrack-full-router",
		Summary: "the connection tracking table of a router is full, and its rule of iptables drops what is invalid",
		Setup:   guarded(behind(plainWeb(server.Service{}), edge), true, invalidIPTables),
		Faults:  []Fault{smallTable(300)},
		Load:    load.Load{Conns: 600, Close: true},
	}, {
		Name:    "conntrack-timeout-router",
		Summary: "a router forgets connections after a second without a packet, and drops what they send then",
		Setup:   guarded(behind(plainWeb(server.Service{}), gateway), true, nftTable, nftForward, invalidForward, strict),
		Faults: []Fault{atRouter(0, Fault{Name: "timeout", Cause: "conntrack-forgot", Says: "nf_conntrack_tcp_timeout_established",
			Text: "nf_conntrack_tcp_timeout_established is 1 s in the router"}, "echo 1 >/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_established")},
		Load: idleClients,
	}, {
		Name:    "conntrack-emptied",
		Summary: "a program empties the connection tracking table again and again: open connections are dead from then on",
		Setup:   guarded(plainWeb(server.Service{}), false, invalidInput, strict),
		Faults: []Fault{atServer(Fault{Name: "empties", Cause: "conntrack-forgot", Says: "conntrack -F",
			Text: "conntrack -F each 2 s"}, "timeout 60 sh -c 'while sleep 2; do conntrack -F; done' >/dev/null 2>&1 &")},
		Load: load.Load{Conns: 20, Own: true, Think: 50 * time.Millisecond, GiveUp: time.Second},
	}}
}

// trackingControls have firewalls that drop what is invalid, and no connection that
// suffers by it.
func trackingControls() []Incident {
	return []Incident{{
		Name:    "conntrack-strays",
		Summary: "a stranger sends what belongs to no connection, and the firewall drops it as invalid",
		Setup:   guarded(tracked(plainWeb(server.Service{Work: 2e6})), false, nftTable, nftInput, invalidNFT, strict),
		Faults: []Fault{{Name: "strays", Cause: "conntrack-forgot", Text: "acknowledgements for the service's port that no connection has",
			Inject: func(s *server.Setup) {
				s.Packets.Stray = commands("exec timeout 60 hping3 --quiet --ack --interval u5000 --destport {{.FrontPort}} {{.ServerAddr}} >/dev/null 2>&1")
			}}},
		Load:    load.Load{Conns: 10, Rate: 500},
		Control: true,
		Quick:   true,
	}}
}
