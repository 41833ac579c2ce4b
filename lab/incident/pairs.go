package incident

import (
	"time"

	"github.com/slowray/slowray/lab/load"
	"github.com/slowray/slowray/lab/server"
)

// Pair is two faults at once that have nothing to do with each other: of two
// services on one host, or in one service.
type Pair struct {
	Name string
	// Two incidents of [All] with one fault each, side by side on one host.
	First, Second string
	// Or one incident with two faults in one service.
	Both *Incident
}

// FindPair gives the pair of that name.
func FindPair(name string) (Pair, bool) {
	for _, p := range Pairs() {
		if p.Name == name {
			return p, true
		}
	}
	return Pair{}, false
}

// Pairs are faults of different layers, none of which takes the CPUs from the
// other: what each does alone it does next to the other too, which is measured.
func Pairs() []Pair {
	var list []Pair
	for _, p := range [][2]string{
		{"stall-mid-response", "lock-convoy"},
		{"nagle-delayed-ack", "flock-holder"},
		{"slow-dependency", "php-fpm-children"},
		{"lost-response-segment", "pipe-full"},
		{"syn-lost", "deadlock"},
		{"send-buffer-limited", "slow-query"},
		{"slow-receiver", "lock-convoy"},
		{"accept-not-accepting", "slow-dependency"},
		{"delay-crossed-twice", "php-fpm-children"},
		{"network-loss", "flock-holder"},
	} {
		list = append(list, Pair{Name: p[0] + " + " + p[1], First: p[0], Second: p[1]})
	}
	for n := range inOneService {
		list = append(list, Pair{Name: inOneService[n].Name, Both: &inOneService[n]})
	}
	return list
}

// inOneService is pairs in which both take their part of each request.
var inOneService = []Incident{{
	Name:    "slow backend, and a stall",
	Summary: "a backend that takes 60 ms, and a web server that stops for 50 ms in the middle of its answer",
	Setup:   webAndBackend(server.WebBackend, near),
	Faults: []Fault{
		{Name: "slow-backend", Cause: "slow-dependency", Text: "the backend works for 60 ms for each call",
			Inject: func(s *server.Setup) { s.Backend.Work = 60 * time.Millisecond }},
		{Name: "stall", Cause: "application-stall-mid-response", Text: "the web server stops for 50 ms in the middle of a response",
			Inject: func(s *server.Setup) { s.Web.Size, s.Web.Stall = 4000, 50*time.Millisecond }},
	},
	Load:  load.Load{Conns: 20},
	Quick: true,
}, {
	Name:    "slow query, and Nagle",
	Summary: "a query that takes 50 ms, and an answer in two writes without TCP_NODELAY",
	Setup:   webAndBackend(server.WebDatabase, near),
	Faults: []Fault{
		{Name: "slow-query", Cause: "slow-dependency", Text: "the query takes 50 ms more in MariaDB",
			Inject: func(s *server.Setup) { s.Query.Sleep = 50 * time.Millisecond }},
		{Name: "two-writes", Cause: "nagle-delayed-ack", Text: "two writes for a response, TCP_NODELAY off",
			Inject: func(s *server.Setup) { s.Web.Nagle, s.Web.Pieces = true, 2 }},
	},
	Load:  load.Load{Conns: 20},
	Quick: true,
}}
