package incident

import (
	"time"

	"github.com/slowray/slowray/lab/link"
	"github.com/slowray/slowray/lab/load"
	"github.com/slowray/slowray/lab/server"
)

// onTransport changes what is between sockets.
func onTransport(change func(*server.Transport)) func(*server.Setup) {
	return func(s *server.Setup) { change(&s.Transport) }
}

// impatient are clients that make a connection for each request and do not
// wait long for it.
var impatient = load.Load{Conns: 10, First: true, Think: 40 * time.Millisecond, GiveUp: 1200 * time.Millisecond, Timeout: time.Second}

// transport is what goes wrong between sockets, apart from names.
func transport() []Incident {
	return []Incident{{
		Name:    "upstream-refused",
		Summary: "what nginx passes requests to does not run: all answers are errors, and quick",
		Setup:   nginxFPM(query),
		Faults: []Fault{{
			Name: "back-down", Cause: "upstream-refused",
			Text:  "php-fpm does not run",
			Plant: onTransport(func(t *server.Transport) { t.BackDown = true }),
		}},
		Load:  load.Load{Conns: 20},
		Quick: true,
	}, {
		Name:    "connect-timeout",
		Summary: "SYNs of calls are lost on the way, and each request waits for the time limit of its call",
		Setup: func() server.Setup {
			s := quotes(server.Quotes{Call: true, Timeout: 300 * time.Millisecond})()
			s.BackWire = emulated(near)
			return s
		},
		Faults: []Fault{{
			Name: "dropped", Cause: "connect-timeout",
			Text:  "the link loses all SYNs to the called service",
			Plant: func(s *server.Setup) { s.BackWire.PickToFar = link.Pick{SYN: true, Every: 1} },
		}},
		Load:  asking,
		Quick: true,
	}, {
		Name:    "ipv6-fallback",
		Summary: "the called service's name has an IPv6 address that leads nowhere, and is tried first",
		Setup:   quotes(server.Quotes{Call: true, Timeout: 300 * time.Millisecond}),
		Faults: []Fault{{
			Name: "dead-ipv6", Cause: "ipv6-fallback",
			Text:  "an IPv6 address beside the IPv4 one, that no machine has",
			Plant: func(s *server.Setup) { s.Quotes.DeadIPv6 = true },
		}},
		Load:  asking,
		Quick: true,
	}, {
		Name:    "connection-churn",
		Summary: "a new connection for each call of a backend 4 ms away",
		Setup:   webAndBackend(server.WebBackend, 4*time.Millisecond),
		Faults: []Fault{{
			Name: "no-keepalive", Cause: "connection-churn",
			Text:  "the service closes its connection after each call",
			Plant: func(s *server.Setup) { s.Web.CallClose = true },
		}},
		Load:  load.Load{Conns: 20},
		Quick: true,
	}, {
		Name:    "syn-flood",
		Summary: "SYNs that nobody stands behind fill the queue of half-open connections, and cookies are off",
		Setup: func() server.Setup {
			s := web(0, server.Service{})()
			s.Transport.NoCookies = true
			return s
		},
		Faults: []Fault{{
			Name: "flood", Cause: "syn-flood",
			Text:  "400 SYNs a second from an address that no machine has, tcp_syncookies 0",
			Plant: onTransport(func(t *server.Transport) { t.HalfOpen = 400 }),
		}},
		Load:  impatient,
		Quick: true,
	}, {
		Name:    "abort-on-overflow",
		Summary: "an accept queue of 10 overflows, and the clients that are turned away get a reset",
		Setup:   nginxFPM(query),
		Faults: []Fault{nginxBacklog(10), {
			Name: "abort", Cause: "abort-on-overflow",
			Text:  "tcp_abort_on_overflow 1",
			Plant: onTransport(func(t *server.Transport) { t.AbortOnOverflow = true }),
		}},
		Load: load.Load{Conns: 1000, Close: true},
	}, {
		Name:    "unix-datagram-blocked",
		Summary: "each request logs to a datagram socket, and the log daemon does not read it",
		Setup:   quotes(server.Quotes{Syslog: true}),
		Faults: []Fault{{
			Name: "unread", Cause: "unix-datagram-blocked",
			Text:  "the log daemon has the socket and reads nothing",
			Plant: func(s *server.Setup) { s.Quotes.Unread = true },
		}},
		Load:  booking,
		Quick: true,
	}, {
		Name:    "close-wait-leak",
		Summary: "a service never closes the connections that its clients have closed, until it has no descriptor left",
		Setup: func() server.Setup {
			s := web(0, server.Service{})()
			s.Transport.Files = 200
			return s
		},
		Faults: []Fault{{
			Name: "leak", Cause: "close-wait-leak", Beside: []string{"fd-limit"},
			Text:  "the service keeps closed connections, with a limit of 200 open files",
			Plant: onTransport(func(t *server.Transport) { t.Leak = true }),
		}},
		Load:  impatient,
		Quick: true,
	}, {
		Name:    "slow-start-after-idle",
		Summary: "answers of 60 kB to clients 40 ms away that pause before each request",
		Setup: func() server.Setup {
			s := farWeb(40*time.Millisecond, server.Service{Size: 60_000})()
			s.Transport.SlowStart = "0"
			return s
		},
		Faults: []Fault{{
			Name: "slow-start", Cause: "slow-start-after-idle",
			Text:  "tcp_slow_start_after_idle 1, which is the kernel's default",
			Plant: onTransport(func(t *server.Transport) { t.SlowStart = "1" }),
		}},
		Load:  load.Load{Conns: farClients, Sources: farClients, Think: 300 * time.Millisecond},
		Quick: true,
	}, {
		Name:    "window-limited",
		Summary: "clients 20 ms away with receive buffers that are too small for the way",
		Setup:   farWeb(20*time.Millisecond, server.Service{Size: 200_000}),
		Faults: []Fault{{
			Name: "small-windows", Cause: "window-limited",
			Text:  "the clients set SO_RCVBUF to 16 kB",
			Loads: func(l *load.Load) { l.ReadBuf = 16 << 10 },
		}},
		Load:  load.Load{Conns: 10, Sources: farClients, Own: true},
		Quick: true,
	}}
}

// transportControls show counters and socket states that alarm people, and harm
// nobody.
func transportControls() []Incident {
	list := []Incident{{
		Name:    "close-wait-harmless",
		Summary: "more and more connections in CLOSE_WAIT, and descriptors enough",
		Setup:   web(0, server.Service{}),
		Faults: []Fault{{
			Name: "leak", Cause: "close-wait-leak", Text: "the service keeps closed connections",
			Plant: onTransport(func(t *server.Transport) { t.Leak = true }),
		}},
		Load: impatient,
	}, {
		Name:    "resets-after-answers",
		Summary: "clients that end each connection by a reset, once they have their answer",
		Setup:   web(0, server.Service{}),
		Load:    load.Load{Conns: 10, First: true, Reset: true, Think: 40 * time.Millisecond},
	}, {
		Name:    "tw-buckets-harmless",
		Summary: "tcp_max_tw_buckets is reached all the time, and connections are closed without TIME_WAIT",
		Setup:   nginxFPM(query),
		Faults: []Fault{{
			Name: "buckets", Cause: "time-wait-bucket-overflow", Text: "tcp_max_tw_buckets 10",
			Plant: func(s *server.Setup) { s.TWBuckets = 10 },
		}},
		Load: load.Load{Conns: 10, Close: true, Own: true, Think: 20 * time.Millisecond},
	}, {
		Name:    "churn-nearby",
		Summary: "a new connection for each call of a backend beside it",
		Setup: func() server.Setup {
			s := webAndBackend(server.WebBackend, 0)()
			s.Wire, s.BackWire, s.Web.CallClose = sandboxVeth, sandboxVeth, true
			return s
		},
		Load: load.Load{Conns: 10, Think: 10 * time.Millisecond},
	}, {
		Name:    "syn-flood-cookies",
		Summary: "SYNs that nobody stands behind, answered by cookies",
		Setup: func() server.Setup {
			s := web(0, server.Service{})()
			s.AppBacklog = 64
			return s
		},
		Faults: []Fault{{
			Name: "flood", Cause: "syn-flood", Text: "400 SYNs a second from an address that no machine has, tcp_syncookies 1",
			Plant: onTransport(func(t *server.Transport) { t.HalfOpen = 400 }),
		}},
		Load: impatient,
	}}
	for n := range list {
		list[n].Control, list[n].Quick = true, true
	}
	return list
}
