package incident

import (
	"time"

	"github.com/slowray/slowray/lab/load"
	"github.com/slowray/slowray/lab/server"
)

// rpcs is calls of gRPC, several clients side by side on each connection.
var rpcs = load.Load{Conns: 24, RPC: true, Think: 2 * time.Millisecond}

// grpcs is services of gRPC that wait for what they call, for a lock, for one of few workers.
// Clients talk to the first one in the clear; [Incident.underTLS] has it speak TLS.
func grpcs() []Incident {
	const each, calls = 50 * time.Millisecond, 150 * time.Millisecond
	gateway := server.Hop{Language: "go", Name: "fares-api", RPC: true}
	last := func(change func(*server.Hop)) func(*server.Setup) {
		return func(s *server.Setup) { change(&s.Hops[len(s.Hops)-1]) }
	}
	inside := func(h *server.Hop) { h.Sleep, h.Lock = 0, h.Sleep }
	few := func(h *server.Hop) { h.Workers = 4 }
	slow := func(h *server.Hop) { h.Sleep = calls }
	lockText, fewText := "a call waits its 8 ms inside the lock, not outside", "4 calls at a time, where it had 64"
	asleep := []string{"application-sleep"} // what the other service does is seen, too
	const reserve = "server.(*hopSpec).reserve"
	list := []Incident{{
		Name:    "grpc-slow-dependency",
		Summary: "each call of a service of gRPC calls another one, on another machine, in the clear",
		Setup:   chained(gateway, server.Hop{Language: "go", Name: "tariffs", RPC: true, Far: true, Port: 50051}),
		Faults:  []Fault{{Name: "slow", Cause: "slow-dependency", Or: asleep, Text: "the other service takes 150 ms for each call", Inject: last(slow)}},
	}, {
		Name:    "grpc-tls-slow-dependency",
		Summary: "each page of a service of HTTP/1.1 calls a service of gRPC under TLS, on another machine",
		Setup:   chained(server.Hop{Language: "go", Name: "storefront"}, server.Hop{Language: "go", Name: "tariffs", RPC: true, TLS: true, Far: true, Port: 7443}),
		Faults:  []Fault{{Name: "slow", Cause: "slow-dependency", Or: asleep, Text: "the service of gRPC takes 150 ms for each call", Inject: last(slow)}},
		Load:    load.Load{Conns: 24, Own: true, Think: 2 * time.Millisecond},
	}, {
		Name:    "grpc-lock-convoy",
		Summary: "all calls of a service of gRPC take a lock, and each waits for something while it has it",
		Setup:   chained(server.Hop{Language: "go", Name: "stock", RPC: true, Sleep: 8 * time.Millisecond}),
		Faults:  []Fault{{Name: "inside", Cause: "lock-convoy", Says: reserve, Text: lockText, Inject: last(inside)}},
	}, {
		Name:    "grpc-tls-lock-convoy-behind",
		Summary: "a service of gRPC calls another one under TLS, all of whose calls take a lock",
		Setup:   chained(gateway, server.Hop{Language: "go", Name: "stock", RPC: true, TLS: true, Port: 8444, Sleep: 8 * time.Millisecond}),
		Faults:  []Fault{{Name: "inside", Cause: "lock-convoy", Says: reserve, Text: lockText, Inject: last(inside)}},
	}, {
		Name:    "grpc-worker-pool",
		Summary: "a service of gRPC works on 4 calls at a time, each of which waits 50 ms",
		Setup:   chained(server.Hop{Language: "go", Name: "tariffs", RPC: true, Workers: 64, Sleep: each}),
		Faults:  []Fault{{Name: "four", Cause: "thread-pool-exhausted", Text: fewText, Inject: last(few)}},
	}, {
		Name:    "grpc-tls-worker-pool-behind",
		Summary: "a service of gRPC calls another one under TLS, which works on 4 calls at a time, each of which waits 50 ms",
		Setup:   chained(gateway, server.Hop{Language: "go", Name: "tariffs", RPC: true, TLS: true, Port: 6565, Workers: 64, Sleep: each}),
		Faults:  []Fault{{Name: "four", Cause: "thread-pool-exhausted", Text: fewText, Inject: last(few)}},
	}}
	for n := range list {
		i := &list[n]
		i.Light = true // and not Quick: until a connection is known to have streams, its turns are taken for requests
		if i.Load.None() {
			i.Load = rpcs
		}
		if i.Faults[0].Cause == "thread-pool-exhausted" { // the channel that lets calls in
			i.Faults[0].Alongside = []string{"lock-convoy"}
		}
	}
	return list
}

// grpcControls have a lock and workers too, and nobody is the slower for them.
func grpcControls() []Incident {
	list := []Incident{{
		Name:    "grpc-workers-enough",
		Summary: "a service of gRPC works on as many calls at a time as there are clients, nearly all the time",
		Setup:   chained(server.Hop{Language: "go", Name: "tariffs", RPC: true, Workers: 8, Sleep: 10 * time.Millisecond}),
		Load:    load.Load{Conns: 8, RPC: true, Think: time.Millisecond},
	}, {
		Name:    "grpc-quick-dependency",
		Summary: "a service of gRPC spends most of its time on calls of another one under TLS, which are quick",
		Setup: chained(server.Hop{Language: "go", Name: "fares-api", RPC: true},
			server.Hop{Language: "go", Name: "tariffs", RPC: true, TLS: true, Port: 9443, Sleep: 2 * time.Millisecond}),
		Load: load.Load{Conns: 12, RPC: true, Think: 10 * time.Millisecond},
	}}
	for n := range list {
		list[n].Control = true
	}
	return list
}
