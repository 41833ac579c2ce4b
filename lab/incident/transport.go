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
		Light: true,
	}, {
		Name:    "ipv6-fallback",
		Summary: "the called service's name has an IPv6 address that leads nowhere, and is tried first",
		Setup:   quotes(server.Quotes{Call: true, Timeout: 300 * time.Millisecond}),
		Faults: []Fault{{
			Name: "dead-ipv6", Cause: "ipv6-fallback", Or: []string{"neighbour-unresolved"},
			Text:  "an IPv6 address beside the IPv4 one, that no machine has",
			Plant: func(s *server.Setup) { s.Quotes.DeadIPv6 = true },
		}},
		Load:  asking,
		Quick: true,
		Light: true,
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
	for n := range list {
		list[n].Control, list[n].Quick = true, true
	}
	return list
}
