package incident

import (
	"time"

	"github.com/slowray/slowray/lab/drop"
	"github.com/slowray/slowray/lab/link"
	"github.com/slowray/slowray/lab/load"
	"github.com/slowray/slowray/lab/sandbox"
	"github.com/slowray/slowray/lab/server"
)

// web is a healthy web server whose clients are on the other side of a wire,
// a packet's way there and back taking this long.
func web(rtt time.Duration, is server.Service) func() server.Setup {
	return func() server.Setup {
		s := server.Healthy(server.Web)
		s.Web, s.Wire = is, emulated(rtt)
		return s
	}
}

// webAndBackend is a web server that calls what is behind it once for each
// answer, both over emulated links.
func webAndBackend(kind server.Kind, rtt time.Duration) func() server.Setup {
	return func() server.Setup {
		s := server.Healthy(kind)
		s.Web.Calls = 1
		s.Wire, s.BackWire = emulated(rtt), emulated(rtt)
		return s
	}
}

func emulated(rtt time.Duration) sandbox.Wire {
	half := link.Settings{Delay: rtt / 2}
	return sandbox.Wire{Emulated: true, ToServer: half, ToFar: half}
}

// farWeb is web with clients all over the world: they have many addresses.
func farWeb(rtt time.Duration, is server.Service) func() server.Setup {
	return func() server.Setup {
		s := web(rtt, is)()
		s.ClientAddrs = farClients
		return s
	}
}

// farClients is how many addresses they have. Their load has as many Sources.
const farClients = 40

// near is a round trip within one place.
const near = 400 * time.Microsecond

func network() []Incident {
	return append(packets(), []Incident{{
		Name:    "lost-response-segment",
		Summary: "one response in fifty is lost on its way, which is noticed only after 200 ms",
		Setup:   web(2*time.Millisecond, server.Service{}),
		Faults: []Fault{{
			Name: "lost-response", Cause: "rto-tail-loss", Or: []string{"network-loss"},
			Text:   "the link loses each 50th segment with payload to the clients",
			Inject: func(s *server.Setup) { s.Wire.PickToFar = link.Pick{Every: 50} },
		}},
		Load:  load.Load{Conns: 10},
		Quick: true,
	}, {
		Name:    "network-loss",
		Summary: "3 % of the packets to the clients are lost",
		Setup:   web(2*time.Millisecond, server.Service{Size: 30_000}),
		Faults: []Fault{{
			Name: "loss", Cause: "network-loss", Or: []string{"rto-tail-loss"},
			Text:   "the link loses 3 % of the packets to the clients",
			Inject: func(s *server.Setup) { s.Wire.ToFar.Loss = 0.03 },
		}},
		Load:  load.Load{Conns: 10},
		Quick: true,
	}, {
		Name:    "network-loss-driver",
		Summary: "a network device of the clients loses each 40th packet it gets",
		Setup: func() server.Setup {
			s := server.Healthy(server.Web)
			s.Web.Size = 30_000
			return s
		},
		Faults: []Fault{{
			Name: "dropper", Cause: "tc-ingress-drop", AtClients: true,
			Text:   "a program at the ingress of the clients' device drops each 40th packet",
			Inject: func(s *server.Setup) { s.Wire.DropAtFar = drop.Rule{Every: 40} },
		}},
		Load:  load.Load{Conns: 10},
		Quick: true,
	}, {
		Name:    "delay-crossed-twice",
		Summary: "17 ms of delay on the server's way out: twice, because it calls a backend by the same way",
		Setup:   webAndBackend(server.WebBackend, near),
		Faults: []Fault{{
			Name: "delay", Cause: "high-rtt",
			Text: "17 ms more from the server to its clients, and from it to its backend",
			Inject: func(s *server.Setup) {
				s.Wire.ToFar.Delay += 17 * time.Millisecond
				s.BackWire.ToFar.Delay += 17 * time.Millisecond
			},
		}},
		Load:  load.Load{Conns: 20},
		Quick: true,
	}, {
		Name:    "long-queue",
		Summary: "a link of 30 Mbit/s whose long queue fills: round trips take a hundred times what they need",
		Setup:   web(2*time.Millisecond, server.Service{Size: 60_000}),
		Faults: []Fault{{
			Name: "queue", Cause: "high-rtt",
			Text:   "30 Mbit/s to the clients, with a queue of 2,000 packets",
			Inject: func(s *server.Setup) { s.Wire.ToFar.Rate, s.Wire.ToFar.Queue = 30e6, 2000 },
		}},
		Load:  load.Load{Conns: 20},
		Quick: true,
	}, {
		Name:    "syn-lost",
		Summary: "one connection in twenty to the backend takes a second because its first packet is lost",
		Setup: func() server.Setup {
			s := webAndBackend(server.WebBackend, near)()
			s.Web.CallClose = true
			return s
		},
		Faults: []Fault{{
			Name: "syn", Cause: "syn-retransmits", Or: []string{"slow-dependency"},
			Text:   "the link loses each 20th SYN to the backend",
			Inject: func(s *server.Setup) { s.BackWire.PickToFar = link.Pick{SYN: true, Every: 20} },
		}},
		Load:  load.Load{Conns: 20},
		Quick: true,
	}, {
		Name:    "syn-ack-lost",
		Summary: "clients that make a connection for each request, and lose one answer to a SYN in twenty",
		Setup:   web(near, server.Service{}),
		Faults: []Fault{{
			Name: "syn-ack", Cause: "syn-retransmits", AtClients: true,
			Text:   "the link loses each 20th SYN-ACK to the clients",
			Inject: func(s *server.Setup) { s.Wire.PickToFar = link.Pick{SYN: true, Every: 20} },
		}},
		Load:  load.Load{Conns: 20, Close: true},
		Quick: true,
	}}...)
}
