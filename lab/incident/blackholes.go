package incident

import (
	"time"

	"github.com/slowray/slowray/lab/load"
	"github.com/slowray/slowray/lab/server"
)

// What is longer than this never arrives; handshakes and short answers do.
const (
	narrowLink = "ip link set dev wan0 mtu 1400"
	longAnswer = 20_000
	// oneSegment is an answer that makes one segment of nearly 1,500 bytes: those of
	// several leave a veth pair as one packet, whatever its MTU.
	oneSegment = 1320
)

// noICMP has a firewall drop the message that a packet is too long.
func noICMP(hook string) []string {
	return []string{nftTable, "nft 'add chain inet shop outgoing { type filter hook " + hook + " priority 0; }'",
		"nft add rule inet shop outgoing icmp type destination-unreachable counter drop"}
}

var givingUp = load.Load{Conns: 10, Own: true, GiveUp: 2 * time.Second, Think: 20 * time.Millisecond}

func blackHoles() []Incident {
	return []Incident{{
		Name:    "pmtu-router",
		Summary: "a router's link to the clients takes 1,400 bytes, and a rule there drops the message that says so",
		Setup:   behind(plainWeb(server.Service{Size: longAnswer}), edge),
		Faults: []Fault{atRouter(0, Fault{Name: "mtu", Cause: "pmtu-blackhole", Says: "wan0",
			Text: "an MTU of 1,400 in the router, and an nftables rule at its output that drops ICMP"}, append(noICMP("output"), narrowLink)...)},
		Load:  givingUp,
		Quick: true,
	}, {
		Name:    "pmtu-second-router",
		Summary: "the second router on the way takes 1,400 bytes, and the first one forwards no ICMP",
		Setup:   behind(plainWeb(server.Service{Size: longAnswer}), edge, gateway),
		Faults: []Fault{{Name: "mtu", Cause: "pmtu-blackhole", Says: "wan0",
			Text: "an MTU of 1,400 in the second router, and a rule of iptables in the first one that drops ICMP",
			Inject: func(s *server.Setup) {
				s.Packets.AtRouters[0] += commands("iptables-nft -A FORWARD -p icmp -j DROP")
				s.Packets.AtRouters[1] += commands(narrowLink)
			}}},
		Load:  givingUp,
		Quick: true,
	}, {
		Name:    "mtu-unequal-pair",
		Summary: "the router's end of the link to the server takes 1,300 bytes, the server's end 1,500",
		Setup:   behind(plainWeb(server.Service{Size: oneSegment}), edge),
		Faults: []Fault{atRouter(0, Fault{Name: "mtu", Cause: "mtu-mismatch", Says: "lan0",
			Text: "an MTU of 1,300 at the router's end: nobody says that a packet is too long"}, "ip link set dev lan0 mtu 1300")},
		Load:  givingUp,
		Quick: true,
	}}
}

// blackHoleControls have a link that is as narrow, and all know it.
func blackHoleControls() []Incident {
	return []Incident{{
		Name:    "pmtu-told",
		Summary: "a router's link to the clients takes 1,400 bytes, and says so",
		Setup:   behind(plainWeb(server.Service{Size: longAnswer}), edge),
		Faults: []Fault{atRouter(0, Fault{Name: "mtu", Cause: "pmtu-blackhole",
			Text: "an MTU of 1,400 in the router, whose messages arrive"}, narrowLink)},
		Load:    load.Load{Conns: 10, Rate: 200},
		Control: true,
		Quick:   true,
	}}
}
