package incident

import (
	"slices"
	"time"

	"github.com/slowray/slowray/lab/load"
	"github.com/slowray/slowray/lab/server"
)

// crowd is more requests at once than a small pool of threads takes up.
var crowd = load.Load{Conns: 24, Think: 2 * time.Millisecond}

// threadPools is programs with a pool of threads of their own, which no setting tells of.
func threadPools() []Incident {
	const each = 50 * time.Millisecond
	list := []Incident{{
		Name:    "thread-pool-python",
		Summary: "an event loop in Python hands requests to a ThreadPoolExecutor of 4 threads, each of which waits 50 ms",
		Setup:   python(server.Python{Loop: true, Threads: 64, Work: each}),
		Faults: []Fault{{
			Name: "four", Cause: "thread-pool-exhausted", Says: "work booking.py",
			Text:   "a pool of 4 threads, where it had 64",
			Inject: func(s *server.Setup) { s.Python.Threads = 4 },
		}},
		Load:  crowd,
		Quick: true,
	}, {
		Name:    "thread-pool-native",
		Summary: "a server in C with 4 threads, each of which takes a connection from its queue and waits 50 ms",
		Setup:   native(server.Native{Threads: 64, Work: each}),
		Faults: []Fault{{
			Name: "four", Cause: "thread-pool-exhausted", Says: "fares",
			Text:   "4 threads, where it had 64",
			Inject: func(s *server.Setup) { s.Native.Threads = 4 },
		}},
		Load:  load.Load{Conns: 24, Close: true, Own: true, Think: 2 * time.Millisecond},
		Quick: true,
	}, {
		Name:    "forked-workers",
		Summary: "a program in Python of 4 processes that it forked itself, for requests that wait 50 ms",
		Setup:   python(server.Python{Workers: 32, Work: each}),
		Faults: []Fault{{
			Name: "four", Cause: "thread-pool-exhausted", Says: "work booking.py",
			Text:   "4 processes, where it had 32",
			Inject: func(s *server.Setup) { s.Python.Workers = 4 },
		}},
		Load:  load.Load{Conns: 24, Close: true, Own: true, Think: 2 * time.Millisecond},
		Quick: true,
	}, {
		Name:    "thread-pool-java",
		Summary: "an executor of Java has 4 threads for requests that wait 50 ms, and a queue without end before them",
		Setup:   java(server.Java{Fixed: 64, Work: each}),
		Faults: []Fault{{
			Name: "four", Cause: "thread-pool-exhausted", Says: "pool-1-thread",
			Text:   "Executors.newFixedThreadPool(4), where it had 64",
			Inject: func(s *server.Setup) { s.Java.Fixed = 4 },
		}},
		Load: crowd,
		// 0 of 7 runs: application-slow-to-read is first.
		Unsteady: "the pool of an executor of Java is not found in most runs",
	}, {
		Name:    "thread-pool-java-own",
		Summary: "4 threads of a service in Java take connections from a queue, and call for each another service, which answers in 50 ms as always",
		Setup: func() server.Setup {
			s := java(server.Java{Own: 64, Asks: true})()
			s.Asked = server.Python{Work: each}
			return s
		},
		Faults: []Fault{{
			Name: "four", Cause: "thread-pool-exhausted", Says: "fares", Alongside: []string{"slow-dependency"}, // quicker calls would help, too
			Text:   "4 threads, where it had 64",
			Inject: func(s *server.Setup) { s.Java.Own = 4 },
		}},
		Load: load.Load{Conns: 24, Close: true, Own: true, Think: 2 * time.Millisecond},
		// First in 2 of 4 runs, with slow-dependency as a second cause.
		Unsteady: "the pool is not found in each run, and what its threads call is named next to it",
	}}
	list = append(list, hopPools()...)
	for n := range list {
		list[n].Light = true
	}
	return list
}

// chained is a chain of small services.
func chained(hops ...server.Hop) func() server.Setup {
	return func() server.Setup {
		s := server.Healthy(server.Chain)
		s.Hops = slices.Clone(hops)
		s.Hops[0].Port = 0 // the plan's
		return s
	}
}

// hopPools is pools of threads behind a proxy, and one that the runtime of a language has.
func hopPools() []Incident {
	const each = 50 * time.Millisecond
	edge := server.Hop{Language: "nginx", Name: "edge"}
	few := func(text string, change func(*server.Hop)) []Fault {
		return []Fault{{Name: "four", Cause: "thread-pool-exhausted", Text: text, Inject: func(s *server.Setup) { change(&s.Hops[len(s.Hops)-1]) }}}
	}
	workers := func(h *server.Hop) { h.Workers = 4 }
	threads := func(h *server.Hop) { h.Threads = 0 }
	looksUp := server.Hop{Language: "node", Name: "tariffs", Port: 5102, Lookup: each, Threads: 64}
	reads := looksUp
	reads.Read, reads.Every, reads.Boxed = true, 2, true
	list := []Incident{{
		Name:    "worker-pool-go",
		Summary: "nginx before a service in Go that works on 4 requests at a time, each of which waits 50 ms",
		Setup:   chained(edge, server.Hop{Language: "go", Name: "tariffs", Port: 5102, Workers: 64, Sleep: each}),
		Faults:  few("4 requests at a time, where it had 64", workers),
	}, {
		Name:    "worker-pool-native",
		Summary: "nginx before a service in C, in a container, with 4 threads that each accept connections, for requests that wait 50 ms",
		Setup:   chained(edge, server.Hop{Language: "c", Name: "tariffs", Port: 5102, Workers: 64, Sleep: each, Boxed: true}),
		Faults:  few("4 threads, where it had 64", workers),
	}, {
		Name:    "libuv-pool-lookups",
		Summary: "a request of a service in Node looks up a name, which takes 50 ms and one of the 4 threads of libuv",
		Setup:   chained(looksUp),
		Faults:  few("UV_THREADPOOL_SIZE as by default, where it was 64", threads),
	}, {
		Name:    "libuv-pool-files",
		Summary: "nginx before a service in Node, in a container: each second request looks up a name in 50 ms, and all read a file, for which the 4 threads of libuv are taken",
		Setup:   chained(edge, reads),
		Faults:  few("UV_THREADPOOL_SIZE as by default, where it was 64", threads),
	}}
	list[0].Faults[0].Alongside = []string{"lock-convoy"} // of the channel that lets requests in
	for n := range list {
		list[n].Load = load.Load{Conns: 24, Own: true, Think: 2 * time.Millisecond}
		if n > 1 {
			list[n].Faults[0].Alongside, list[n].Faults[0].Says = []string{"dns-slow"}, "UV_THREADPOOL_SIZE"
		}
	}
	return list
}

// background is threads of the service's own that keep the lock of the interpreter and
// serve nobody.
func background() []Incident {
	list := []Incident{{
		Name:    "gil-refresh",
		Summary: "a thread of a service in Python reads a large document over and over, and no request asks for it",
		Setup:   python(server.Python{Threaded: true}),
		Faults: []Fault{{
			Name: "refresh", Cause: "gil-contention", Says: "refresh_catalogue",
			Text:   "a thread that does nothing but json.loads()",
			Inject: func(s *server.Setup) { s.Python.Refresh = 1 },
		}},
	}, {
		Name:    "gil-index",
		Summary: "two threads of a service in Python count in a loop, and no request asks for it",
		Setup:   python(server.Python{Threaded: true}),
		Faults: []Fault{{
			Name: "index", Cause: "gil-contention", Says: "rebuild_index",
			Text:   "two threads that run a loop in Python",
			Inject: func(s *server.Setup) { s.Python.Index = 2 },
		}},
	}}
	for n := range list {
		list[n].Quick = true
		list[n].Load = load.Load{Conns: 6, Think: 5 * time.Millisecond}
	}
	return list
}

// threadPoolControls have as many threads as it takes, and threads of their own that let
// others go first.
func threadPoolControls() []Incident {
	list := []Incident{{
		Name:    "pool-all-busy",
		Summary: "as many clients as a ThreadPoolExecutor has threads: all are busy, and nobody waits",
		Setup:   python(server.Python{Loop: true, Threads: 8, Work: 5 * time.Millisecond}),
		Load:    load.Load{Conns: 8, Think: time.Millisecond},
	}, {
		Name:    "pool-at-work-java",
		Summary: "an executor of Java with 32 threads, of which a few are always at work and all others wait for some",
		Setup:   java(server.Java{Fixed: 32, Work: 5 * time.Millisecond}),
		Load:    load.Load{Conns: 12, Think: 10 * time.Millisecond},
	}, {
		Name:    "pool-at-work-native",
		Summary: "a server in C with 32 threads, of which a few are always at work and all others wait for some",
		Setup:   native(server.Native{Threads: 32, Work: 5 * time.Millisecond}),
		Load:    load.Load{Conns: 12, Think: 10 * time.Millisecond},
	}, {
		Name:    "gil-rests",
		Summary: "a thread of a service in Python counts for a moment, and then sleeps for longer",
		Setup:   python(server.Python{Threaded: true, Index: 1, Rest: 100 * time.Millisecond}),
		Load:    load.Load{Conns: 4, Think: 10 * time.Millisecond},
	}}
	list = append(list, Incident{
		Name:    "worker-pool-go-enough",
		Summary: "a service in Go behind nginx works on as many requests at a time as there are clients, nearly all the time",
		Setup:   chained(server.Hop{Language: "nginx", Name: "edge"}, server.Hop{Language: "go", Name: "tariffs", Port: 5102, Workers: 8, Sleep: 10 * time.Millisecond}),
		Load:    load.Load{Conns: 8, Own: true, Think: time.Millisecond},
	}, Incident{
		Name:    "libuv-pool-enough",
		Summary: "the 4 threads of libuv's pool are busy with names, and there are no more requests than that",
		Setup:   chained(server.Hop{Language: "node", Name: "tariffs", Lookup: 5 * time.Millisecond}),
		Load:    load.Load{Conns: 4, Own: true, Think: time.Millisecond},
	})
	for n := range list {
		list[n].Control, list[n].Quick = true, true
	}
	return list
}
