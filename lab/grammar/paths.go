package grammar

import (
	"fmt"
	"strings"
	"time"

	"github.com/slowray/slowray/lab/incident"
	"github.com/slowray/slowray/lab/link"
	"github.com/slowray/slowray/lab/sandbox"
	"github.com/slowray/slowray/lab/server"
)

// answering is a chain whose first hop answers quickly, for faults on the way to it.
func (d *drawing) answering(rtt time.Duration) {
	d.chain(1, 3, programs...)
	d.where, d.shape.At = Where{Hop: -1}, 0
	d.shape.Server = d.setup.Hops[0].Language
	if rtt > 0 {
		half := link.Settings{Delay: rtt / 2}
		d.setup.Wire = sandbox.Wire{Emulated: true, ToServer: half, ToFar: half}
		d.shape.Layout = "same, an emulated link"
	}
	d.clients(8, 20)
}

// gateway puts a router between the servers and their clients: a network namespace in
// which no process runs. It answers ARP for the other end, so that neither of the two
// needs a route. The name is kept in the sandbox's mount namespace only.
var gateway = lines(
	"[ -e /run/netns/.lab ] || { mkdir -p /run/netns && mount -t tmpfs lab /run/netns && touch /run/netns/.lab; }",
	"ip netns add "+Gateway, "ip link set eth0 netns "+Gateway+" name wan0",
	"ip link add eth0 type veth peer name lan0 netns "+Gateway,
	"ip addr add {{.ServerAddr}}/30 dev eth0 && ip link set eth0 up",
	"ip netns exec "+Gateway+" sh -c 'ip link set lo up; for dev in lan0 wan0; do ip link set up dev $dev; echo 1 >/proc/sys/net/ipv4/conf/$dev/proxy_arp; echo 0 >/proc/sys/net/ipv4/neigh/$dev/proxy_delay; done; ip route add {{.ServerAddr}} dev lan0; ip route add {{.ClientAddr}} dev wan0; echo 1 >/proc/sys/net/ipv4/ip_forward'",
)

// Gateway is the name of the router's network namespace.
const Gateway = "gateway"

func lines(list ...string) string { return strings.Join(list, "\n") + "\n" }

// paths are faults of the way between clients and servers.
func paths() []kind {
	return []kind{
		{"loss", func(d *drawing) {
			d.answering(d.ms(1, 8))
			share := d.between(0.03, 0.1)
			d.fault("network-loss", fmt.Sprintf("the link loses %.1f %% of the packets to the clients", 100*share), func(s *server.Setup) { s.Wire.ToFar.Loss = share }).
				Or = []string{"rto-tail-loss"}
		}},
		{"firewall-in", func(d *drawing) {
			d.answering(0)
			share := d.count(3, 12)
			d.fault("firewall-drop", fmt.Sprintf("a rule drops %d of 100 incoming packets", share), func(s *server.Setup) {
				s.Packets.AtServer = lines("nft add table inet edge", "nft 'add chain inet edge guard { type filter hook input priority 0; }'",
					fmt.Sprintf("nft add rule inet edge guard tcp dport {{.FrontPort}} numgen random mod 100 '<' %d counter drop", share))
			})
		}},
		{"firewall-out", func(d *drawing) {
			d.answering(0)
			share := d.count(3, 12)
			d.fault("firewall-drop", fmt.Sprintf("a rule drops %d of 100 outgoing packets", share), func(s *server.Setup) {
				s.Packets.AtServer = lines("nft add table ip mangle2", "nft 'add chain ip mangle2 egress { type filter hook output priority 10; }'",
					fmt.Sprintf("nft add rule ip mangle2 egress tcp sport {{.FrontPort}} numgen random mod 100 '<' %d drop", share))
			})
		}},
		{"gateway-firewall", func(d *drawing) {
			d.answering(0)
			d.setup.Packets.AtServer = gateway
			d.shape.Layout = "behind a router without a process"
			share := d.count(4, 15)
			d.fault("firewall-drop", fmt.Sprintf("a rule of the router drops %d of 100 forwarded packets", share), func(s *server.Setup) {
				s.Packets.AtServer += lines("ip netns exec gateway nft add table inet fw", "ip netns exec gateway nft 'add chain inet fw transit { type filter hook forward priority 0; }'",
					fmt.Sprintf("ip netns exec gateway nft add rule inet fw transit tcp dport {{.FrontPort}} numgen random mod 100 '<' %d counter drop", share))
			})
		}},
		{"mtu", func(d *drawing) {
			d.answering(0)
			d.fault("mtu-mismatch", "an MTU of 90 at the clients' end, 1500 at the servers'", func(s *server.Setup) {
				s.Packets.AtServer = lines("ip link set dev eth0 mtu 90")
			})
		}},
		{"far", func(d *drawing) {
			d.answering(time.Millisecond)
			more := d.ms(120, 350)
			d.fault("high-rtt", fmt.Sprintf("%v more on the way to the clients", more), func(s *server.Setup) { s.Wire.ToFar.Delay += more })
		}},
		{"syn-lost", func(d *drawing) {
			d.answering(time.Millisecond)
			every := d.count(5, 20)
			d.load.Close, d.load.GiveUp = true, 0
			d.fault("syn-retransmits", fmt.Sprintf("the link loses one of %d SYN-ACKs", every), func(s *server.Setup) {
				s.Wire.PickToFar = link.Pick{SYN: true, Every: every}
			}).AtClients = true
		}},
		{"slow-readers", func(d *drawing) {
			d.take("slow-receiver")
			pause, size := d.ms(8, 30), d.count(4, 12)<<10
			d.faults[0].Loads = nil
			d.whole = true
			f := &d.faults[0]
			f.Text = fmt.Sprintf("clients read %d bytes every %v", size, pause)
			d.shape.Strength = f.Text
			f.Loads = readSlowly(pause, size)
		}},
		{"nagle", func(d *drawing) {
			d.take("nagle-delayed-ack")
			d.load.Conns, d.load.Think = d.count(8, 24), d.ms(2, 10)
		}},
		{"stall", func(d *drawing) {
			d.take("stall-mid-response")
			stall := d.ms(60, 400)
			d.inject(fmt.Sprintf("the application stops for %v in the middle of an answer", stall), func(s *server.Setup) { s.Web.Stall = stall })
			d.load.Conns = d.count(6, 24)
		}},
		{"neighbours-busy", func(d *drawing) {
			d.chain(1, 3, programs...)
			d.where, d.shape.At = Where{Hop: -1}, 0
			d.shape.Server = d.setup.Hops[0].Language
			for i := range d.setup.Hops {
				d.setup.Hops[i].Spin = d.ms(2, 5)
			}
			n := d.count(6, 14)
			f := d.fault("cpu-saturated", fmt.Sprintf("%d busy loops of another program", n), func(s *server.Setup) { s.Burners = n })
			f.Alongside = []string{"run-queue-wait"}
			d.load.Conns, d.load.Own, d.shape.Load, d.whole, d.busy = d.count(4, 12), true, "closed", true, true
		}},
	}
}

// take takes an incident of the lab's list as it is; what is drawn changes it.
func (d *drawing) take(name string) {
	i, err := incident.Find(name)
	if err != nil {
		panic(err) // a mistake in the grammar
	}
	d.setup, d.load, d.lead = i.Setup(), i.Load, i.Lead
	d.faults = append([]incident.Fault{}, i.Faults...)
	for n := range d.faults {
		d.faults[n].Says = "" // for the text that was written for it
	}
	d.shape.Cause, d.shape.Strength = i.Faults[0].Cause, i.Faults[0].Text
	d.shape.Server, d.shape.Load = name, "as in "+name
}

// inject gives the fault that was taken another strength.
func (d *drawing) inject(text string, inject func(*server.Setup)) {
	d.faults[0].Text, d.faults[0].Inject, d.shape.Strength = text, inject, text
}
