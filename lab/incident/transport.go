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

// transport is what goes wrong between sockets, apart from names.
func transport() []Incident {
	return []Incident{{
		Name:    "upstream-refused",
		Summary: "what nginx passes requests to does not run: all answers are errors, and quick",
		Setup:   nginxFPM(query),
		Faults: []Fault{{
			Name: "back-down", Cause: "upstream-refused",
			Text:   "php-fpm does not run",
			Inject: onTransport(func(t *server.Transport) { t.BackDown = true }),
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
			Text:   "the link loses all SYNs to the called service",
			Inject: func(s *server.Setup) { s.BackWire.PickToFar = link.Pick{SYN: true, Every: 1} },
		}},
		Load:  asking,
		Quick: true,
		Light: true,
	}, {
		Name:    "ipv6-fallback",
		Summary: "the called service's name has an IPv6 address that leads nowhere, and is tried first",
		Setup:   quotes(server.Quotes{Call: true, Timeout: 300 * time.Millisecond}),
		Faults: []Fault{{
			Name: "dead-ipv6", Cause: "ipv6-fallback", Or: []string{"neighbour-unresolved"},
			Text:   "an IPv6 address next to the IPv4 one, that no machine has",
			Inject: func(s *server.Setup) { s.Quotes.DeadIPv6 = true },
		}},
		Load:  asking,
		Quick: true,
		Light: true,
	}, {
		Name:    "syn-flood",
		Summary: "2,000 SYNs a second come from forged addresses all over the world, and SYN cookies are off",
		Setup:   on(plainWeb(server.Service{}), onTransport(func(t *server.Transport) { t.NoCookies = true })),
		Faults: []Fault{{
			Name: "flood", Cause: "syn-flood",
			Text:   "2,000 SYNs a second from random addresses",
			Inject: onTransport(func(t *server.Transport) { t.HalfOpen, t.Forged = 2000, true }),
		}},
		Load:  load.Load{Conns: 20, Close: true, GiveUp: 3 * time.Second, Think: 20 * time.Millisecond},
		Quick: true,
		Light: true,
	}, {
		Name:    "syn-flood-backlog",
		Summary: "SYNs of one address that nobody has fill the short queue of nginx, and SYN cookies are off",
		Setup: on(nginxFPM(time.Millisecond), func(s *server.Setup) {
			s.NginxBacklog = 32
			onTransport(func(t *server.Transport) { t.NoCookies = true })(s)
		}),
		Faults: []Fault{{
			Name: "flood", Cause: "syn-flood",
			Text:   "200 SYNs a second from an address that nobody has",
			Inject: onTransport(func(t *server.Transport) { t.HalfOpen = 200 }),
		}},
		Load:  load.Load{Conns: 10, Close: true, GiveUp: 3 * time.Second, Think: 20 * time.Millisecond},
		Quick: true,
		Light: true,
	}, {
		Name:    "tls-handshake-wait",
		Summary: "each request opens a connection of TLS, and the server asks somebody who may connect before it answers a ClientHello",
		Setup:   on(plainWeb(server.Service{}), func(s *server.Setup) { s.TLS.On = true }),
		Faults: []Fault{{
			Name: "wait", Cause: "tls-handshake-slow",
			Text:   "250 ms in GetConfigForClient of a program in Go",
			Inject: func(s *server.Setup) { s.TLS.Wait = 250 * time.Millisecond },
		}},
		Load:  load.Load{Conns: 20, Close: true, TLS: true, Think: 20 * time.Millisecond},
		Quick: true,
		Light: true,
	}, {
		Name:    "tls-handshake-rsa",
		Summary: "each request opens a connection of TLS, and the one worker of nginx signs with an RSA key of 4,096 bits",
		Setup:   on(nginxFPM(time.Millisecond), func(s *server.Setup) { s.TLS.On = true }),
		Faults: []Fault{{
			Name: "key", Cause: "tls-handshake-slow", Alongside: []string{"single-thread-saturated", "cpu-hot-function"},
			Text:   "an RSA key of 4,096 bits, not one of ECDSA",
			Inject: func(s *server.Setup) { s.TLS.RSA = 4096 },
		}},
		Load:  load.Load{Conns: 40, Close: true, TLS: true},
		Quick: true,
	}, {
		Name:    "tls-handshake-call",
		Summary: "each request opens a connection of TLS, and the server asks another one before it answers a ClientHello",
		Setup: on(func() server.Setup {
			s := server.Healthy(server.WebBackend)
			s.Backend.Work = 120 * time.Millisecond
			return s
		}, func(s *server.Setup) { s.TLS.On = true }),
		Faults: []Fault{{
			Name: "ask", Cause: "tls-handshake-call",
			Text:   "a call in GetConfigForClient of a program in Go, which takes 120 ms",
			Inject: func(s *server.Setup) { s.TLS.Ask = true },
		}},
		Load:  load.Load{Conns: 20, Close: true, TLS: true, Think: 20 * time.Millisecond},
		Quick: true,
		Light: true,
	}, {
		Name:    "tls-session-refused",
		Summary: "clients that come back offer their sessions of TLS, and the cache of nginx has room for few",
		Setup: on(nginxFPM(time.Millisecond), func(s *server.Setup) {
			s.TLS = server.TLS{On: true, RSA: 4096, Cache: "shared:SSL:10m"}
		}),
		Faults: []Fault{{
			Name: "cache", Cause: "tls-session-refused", Alongside: []string{"single-thread-saturated", "cpu-hot-function"},
			Text:   "ssl_session_cache shared:SSL:32k",
			Inject: func(s *server.Setup) { s.TLS.Cache = "shared:SSL:32k" },
		}},
		Load:  load.Load{Conns: 120, Close: true, TLS: true, Resume: true, Think: 50 * time.Millisecond},
		Quick: true,
	}, {
		Name:    "tls-session-keys",
		Summary: "clients that come back offer tickets of TLS, and the servers behind the name share no keys",
		Setup: on(plainWeb(server.Service{}), func(s *server.Setup) {
			s.TLS = server.TLS{On: true, RSA: 4096}
		}),
		Faults: []Fault{{
			Name: "keys", Cause: "tls-session-refused", Alongside: []string{"cpu-hot-function", "cpu-saturated"},
			Text:   "other keys for each connection, by SetSessionTicketKeys of a program in Go",
			Inject: func(s *server.Setup) { s.TLS.Keys = true },
		}},
		Load:  load.Load{Conns: 40, Close: true, TLS: true, Resume: true, Think: 20 * time.Millisecond},
		Quick: true,
	}, {
		Name:    "tls-no-resumption",
		Summary: "each request opens a connection of TLS 1.2 from 30 ms away, and nginx keeps no sessions",
		Setup: on(nginxFPM(time.Millisecond), func(s *server.Setup) {
			s.Wire, s.TLS = emulated(30*time.Millisecond), server.TLS{On: true, V12: true}
		}),
		Faults: []Fault{{
			Name: "none", Cause: "tls-no-resumption", Alongside: []string{"high-rtt"},
			Text:   "ssl_session_cache off, ssl_session_tickets off",
			Inject: func(s *server.Setup) { s.TLS.None = true },
		}},
		Load:  load.Load{Conns: 20, Close: true, TLS: true, Resume: true, Think: 40 * time.Millisecond},
		Quick: true,
	}, {
		Name:    "tls-no-tickets",
		Summary: "each request opens a connection of TLS 1.2 from 30 ms away, and a program in Go gives no tickets",
		Setup: on(web(30*time.Millisecond, server.Service{Work: 5 * time.Millisecond}), func(s *server.Setup) {
			s.TLS = server.TLS{On: true, V12: true}
		}),
		Faults: []Fault{{
			Name: "none", Cause: "tls-no-resumption", Alongside: []string{"high-rtt"},
			Text:   "SessionTicketsDisabled of a program in Go",
			Inject: func(s *server.Setup) { s.TLS.None = true },
		}},
		Load:  load.Load{Conns: 20, Close: true, TLS: true, Resume: true, Think: 40 * time.Millisecond},
		Quick: true,
	}, {
		Name:    "unix-datagram-blocked",
		Summary: "each request logs to a datagram socket, and the log daemon does not read it",
		Setup:   quotes(server.Quotes{Syslog: true}),
		Faults: []Fault{{
			Name: "unread", Cause: "unix-datagram-blocked",
			Text:   "the log daemon has the socket and reads nothing",
			Inject: func(s *server.Setup) { s.Quotes.Unread = true },
		}},
		Load:  booking,
		Quick: true,
		Light: true,
	}}
}

// transportControls show counters and socket states that alarm people, and harm
// nobody.
func transportControls() []Incident {
	list := []Incident{{
		Name:    "resets-after-answers",
		Summary: "clients that end each connection by a reset, once they have their answer",
		Setup:   web(0, server.Service{}),
		Load:    load.Load{Conns: 10, First: true, Reset: true, Think: 40 * time.Millisecond},
	}}
	list = append(list, Incident{
		Name:    "syn-burst",
		Summary: "a burst of SYNs from forged addresses, which SYN cookies answer, and then no more",
		Setup:   on(plainWeb(server.Service{}), func(s *server.Setup) { s.AppBacklog = 64 }),
		Faults: []Fault{{
			Name: "burst", Cause: "syn-flood",
			Text:   "2,000 SYNs a second for three seconds, from random addresses",
			Inject: onTransport(func(t *server.Transport) { t.HalfOpen, t.Forged, t.FloodFor = 2000, true, 3*time.Second }),
		}},
		Load: load.Load{Conns: 10, Close: true, Own: true, Think: 20 * time.Millisecond},
	}, Incident{
		Name:    "syn-flood-cookies",
		Summary: "SYNs from forged addresses all the time, which SYN cookies answer",
		Setup:   on(plainWeb(server.Service{}), func(s *server.Setup) { s.AppBacklog = 64 }),
		Faults: []Fault{{
			Name: "flood", Cause: "syn-flood",
			Text:   "2,000 SYNs a second from random addresses",
			Inject: onTransport(func(t *server.Transport) { t.HalfOpen, t.Forged = 2000, true }),
		}},
		Load: load.Load{Conns: 10, Close: true, Own: true, Think: 20 * time.Millisecond},
	}, Incident{
		Name:    "tls-handshakes",
		Summary: "each request opens a connection of TLS, from clients 30 ms away",
		Setup:   on(web(30*time.Millisecond, server.Service{Work: 5 * time.Millisecond}), func(s *server.Setup) { s.TLS.On = true }),
		Load:    load.Load{Conns: 20, Close: true, TLS: true, Think: 40 * time.Millisecond},
	})
	for n := range list {
		list[n].Control, list[n].Quick = true, true
	}
	return list
}
