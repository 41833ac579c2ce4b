package incident

import (
	"time"

	"github.com/slowray/slowray/lab/load"
	"github.com/slowray/slowray/lab/server"
)

func application() []Incident {
	return []Incident{{
		Name:    "nagle-delayed-ack",
		Summary: "a response in two writes without TCP_NODELAY: the second one waits for the client's delayed acknowledgement",
		Setup:   web(near, server.Service{}),
		Faults: []Fault{{
			Name: "two-writes", Cause: "nagle-delayed-ack",
			Text:   "two writes for a response, TCP_NODELAY off",
			Inject: func(s *server.Setup) { s.Web.Nagle, s.Web.Pieces = true, 2 },
		}},
		Load:  load.Load{Conns: 20},
		Quick: true,
	}, {
		Name:    "small-rows",
		Summary: "a response row by row without TCP_NODELAY: the rows wait for the client's delayed acknowledgement",
		Setup:   web(2*time.Millisecond, server.Service{Size: 800, Pieces: 8}),
		Faults: []Fault{{
			Name: "no-nodelay", Cause: "nagle-delayed-ack",
			Text:   "TCP_NODELAY off, where a response has eight writes",
			Inject: func(s *server.Setup) { s.Web.Nagle = true },
		}},
		Load:  load.Load{Conns: 20},
		Quick: true,
	}, {
		Name:    "stall-mid-response",
		Summary: "the first rows of a response leave at once, the last ones wait for the application",
		Setup:   web(near, server.Service{Size: 4000}),
		Faults: []Fault{{
			Name: "stall", Cause: "application-stall-mid-response",
			Text:   "the application stops for 60 ms in the middle of a response",
			Inject: func(s *server.Setup) { s.Web.Stall = 60 * time.Millisecond },
		}},
		Load:  load.Load{Conns: 20},
		Quick: true,
	}, {
		Name:    "event-loop-blocked",
		Summary: "an event loop that blocks for 5 ms in each request, while the requests of others wait in their sockets",
		Setup:   web(near, server.Service{Work: 5 * time.Millisecond}),
		Faults: []Fault{{
			Name: "event-loop", Cause: "application-slow-to-read", Or: []string{"event-loop-blocked", "accept-queue-wait"},
			Text:   "one thread reads, works and answers, one request after the other",
			Inject: func(s *server.Setup) { s.Web.EventLoop = true },
		}},
		Load:  load.Load{Conns: 30},
		Quick: true,
	}, {
		Name:    "accept-queue-wait",
		Summary: "connections wait to be accepted, in a queue that is long enough for all of them",
		Setup: func() server.Setup {
			s := server.Healthy(server.App)
			s.AppWork = 4 * time.Millisecond
			return s
		},
		Faults: []Fault{{
			Name: "serial", Cause: "accept-queue-wait",
			Text:   "the application accepts the next connection only when it is done with the last",
			Inject: func(s *server.Setup) { s.AppSerial = true },
		}},
		Load:  load.Load{Conns: 50, Close: true},
		Quick: true,
	}, {
		Name:    "slow-receiver",
		Summary: "clients that are slow to read large responses close their windows",
		Setup:   web(near, server.Service{Size: 400_000}),
		Faults: []Fault{{
			Name: "slow-reading", Cause: "slow-receiver",
			Text:  "clients with small receive buffers that read 8 kB every 10 ms",
			Loads: func(l *load.Load) { l.ReadPause, l.ReadBytes, l.ReadBuf = 10*time.Millisecond, 8<<10, 16<<10 },
		}},
		Load:  load.Load{Conns: 5, Think: 20 * time.Millisecond},
		Quick: true,
	}, {
		Name:    "send-buffer-limited",
		Summary: "a send buffer much smaller than what is under way to clients 20 ms away",
		Setup:   farWeb(20*time.Millisecond, server.Service{Size: 200_000}),
		Faults: []Fault{{
			Name: "small-buffer", Cause: "send-buffer-limited",
			Text:   "the application sets SO_SNDBUF to 8 kB",
			Inject: func(s *server.Setup) { s.Web.SendBuffer = 8 << 10 },
		}},
		Load:  load.Load{Conns: 10, Sources: farClients},
		Quick: true,
	}, {
		Name:    "request-waves",
		Summary: "all clients ask at the same moment, once a second, and wait for each other",
		Setup:   web(near, server.Service{Work: 3 * time.Millisecond, EventLoop: true}),
		Faults: []Fault{{
			Name: "waves", Cause: "request-waves", Or: []string{"application-slow-to-read"},
			Text:  "100 requests at once every second, not evenly spread",
			Loads: func(l *load.Load) { l.Rate, l.Burst = 0, time.Second },
		}},
		Load: load.Load{Conns: 100, Rate: 100},
	}}
}

func dependencies() []Incident {
	return []Incident{{
		Name:    "slow-dependency",
		Summary: "a backend that takes 150 ms for each call",
		Setup:   webAndBackend(server.WebBackend, near),
		Faults: []Fault{{
			Name: "slow-backend", Cause: "slow-dependency",
			Text:   "the backend works for 150 ms for each call",
			Inject: func(s *server.Setup) { s.Backend.Work = 150 * time.Millisecond },
		}},
		Load:  load.Load{Conns: 20},
		Quick: true,
	}, {
		Name:    "slow-query",
		Summary: "a database that takes 150 ms for a query",
		Setup:   webAndBackend(server.WebDatabase, near),
		Faults: []Fault{{
			Name: "slow-query", Cause: "slow-dependency",
			Text:   "the query takes 150 ms more in MariaDB",
			Inject: func(s *server.Setup) { s.Query.Sleep = 150 * time.Millisecond },
		}},
		Load:  load.Load{Conns: 20},
		Quick: true,
	}, {
		Name:    "slow-query-is-network",
		Summary: "queries take long because the network between application and database loses them",
		Setup: func() server.Setup {
			s := webAndBackend(server.WebDatabase, 2*time.Millisecond)()
			s.Query.Pool, s.Query.Slow = 20, 10*time.Millisecond
			return s
		},
		Faults: []Fault{{
			Name: "loss", Cause: "network-loss", Or: []string{"rto-tail-loss"},
			Text:   "the link loses 5 % of the packets to the database",
			Inject: func(s *server.Setup) { s.BackWire.ToFar.Loss = 0.05 },
		}},
		Load:  load.Load{Conns: 20},
		Quick: true,
	}}
}

// networkControls look slow to who measures on the wire, or lossy, and are not
// to be fixed where the service is.
func networkControls() []Incident {
	list := append(packetControls(), []Incident{{
		Name:    "far-clients",
		Summary: "clients all over the world, 40 ms away: distance, which nothing at the service shortens",
		Setup:   farWeb(40*time.Millisecond, server.Service{}),
		Load:    load.Load{Conns: farClients, Sources: farClients},
	}, {
		Name:    "loss-without-effect",
		Summary: "one packet in ten thousand is lost",
		Setup: func() server.Setup {
			s := web(near, server.Service{Size: 2000})()
			s.Wire.ToFar.Loss = 1e-4
			return s
		},
		Load: load.Load{Conns: 10},
	}, {
		Name:    "late-acks",
		Summary: "clients that think before they ask again, and acknowledge late: nobody waits for that",
		Setup:   web(near, server.Service{Work: 3 * time.Millisecond}),
		Load:    load.Load{Conns: 20, Think: 60 * time.Millisecond},
	}, {
		Name:    "long-poll",
		Summary: "requests that wait for news by design",
		Setup:   web(near, server.Service{Work: 2 * time.Second}),
		Load:    load.Load{Conns: 50, Think: 10 * time.Millisecond, Timeout: 10 * time.Second},
	}, {
		Name:    "waves-answered",
		Summary: "requests in waves that are answered at once",
		Setup:   web(near, server.Service{}),
		Load:    load.Load{Conns: 50, Burst: time.Second},
	}, {
		Name:    "quick-database",
		Summary: "a service that spends most of its time on calls of a database, which are quick",
		Setup: func() server.Setup {
			s := webAndBackend(server.WebDatabase, near)()
			s.Web.Calls = 2
			return s
		},
		Load: load.Load{Conns: 20, Think: 20 * time.Millisecond},
	}}...)
	for n := range list {
		list[n].Control, list[n].Quick = true, true
	}
	return list
}
