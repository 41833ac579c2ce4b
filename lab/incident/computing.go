package incident

import (
	"time"

	"github.com/slowray/slowray/lab/load"
	"github.com/slowray/slowray/lab/server"
)

// framework is PHP whose pages consist of many files, kept compiled.
func framework(revalidate string) func() server.Setup {
	return func() server.Setup {
		s := nginxFPM(0)()
		s.Includes, s.Revalidate = 6000, revalidate
		return s
	}
}

// computing is CPUs that are busy with something else than requests: with garbage,
// with turns, with looking at files, with starting programs, inside the kernel.
func computing() []Incident {
	list := []Incident{{
		Name:    "gc-pauses",
		Summary: "a service in Java whose heap is nearly full of what it keeps, so that it is in garbage collection all the time",
		Setup:   java(server.Java{HeapMB: 512, Live: 70, Garbage: 4 << 20}),
		Faults: []Fault{{
			Name: "small-heap", Cause: "gc-pauses", Alongside: []string{"lock-convoy"}, // of the machine's own, whose holder waits for the collector
			Text:   "a heap of 76 MB, where it had 512",
			Inject: func(s *server.Setup) { s.Java.HeapMB = 76 },
		}},
		Load: load.Load{Conns: 8, Think: 5 * time.Millisecond},
	}, {
		Name:    "gc-heap-full",
		Summary: "a heap of Java that is full of what it keeps: it collects without end, and hardly a request is answered",
		Setup:   java(server.Java{HeapMB: 512, Live: 90, Garbage: 256 << 10, Endless: true}),
		Faults: []Fault{{
			Name: "full-heap", Cause: "gc-pauses", Alongside: []string{"lock-convoy"}, // of the machine's own, whose holder waits for the collector
			Text:   "a heap of 96 MB, where it had 512",
			Inject: func(s *server.Setup) { s.Java.HeapMB = 96 },
		}},
		Load: load.Load{Conns: 8, Think: 5 * time.Millisecond},
	}, {
		Name:    "gc-memory-limit-go",
		Summary: "a service in Go whose GOMEMLIMIT is hardly more than what it keeps: requests help the collector",
		Setup:   golang(server.Go{Heap: 4, Garbage: 256 << 10, MemoryMiB: 1024}),
		Faults: []Fault{{
			Name: "limit", Cause: "gc-pauses", Says: "GOMEMLIMIT",
			Text:   "GOMEMLIMIT=76MiB, where it had 1 GiB",
			Inject: func(s *server.Setup) { s.Go.MemoryMiB = 76 },
		}},
		Load: load.Load{Conns: 8, Think: 5 * time.Millisecond},
	}, {
		Name:    "gil-contention",
		Summary: "threads of one Python process compute in turns, on one CPU of several",
		Setup:   python(server.Python{Workers: 4, Threaded: true, Mixed: 8000}),
		Faults: []Fault{{
			Name: "one-process", Cause: "gil-contention",
			Text:   "one process, where it had four",
			Inject: func(s *server.Setup) { s.Python.Workers = 1 },
		}},
		Load: load.Load{Conns: 8},
	}, {
		Name:    "event-loop-computes",
		Summary: "an event loop that computes for long in one of 25 requests, while all others wait unread",
		Setup:   python(server.Python{Loop: true, Inline: true}),
		Faults: []Fault{{
			Name: "long", Cause: "event-loop-blocked", Or: []string{"cpu-hot-function"}, Says: "price_of_route",
			Text:   "one of 25 requests goes through two and a half million turns of price_of_route()",
			Inject: func(s *server.Setup) { s.Python.Long, s.Python.LongEvery = 2_500_000, 25 },
		}},
		Load: load.Load{Conns: 30, Rate: 80},
	}, {
		Name:    "autoreload-stat-storm",
		Summary: "PHP looks at each of the 6,000 files of a page whether it has changed, for each request",
		Setup:   framework("never"),
		Faults: []Fault{{
			Name: "revalidate", Cause: "autoreload-stat-storm",
			Text:   "opcache.validate_timestamps with opcache.revalidate_freq 0",
			Inject: func(s *server.Setup) { s.Revalidate = "always" },
		}},
		Load: load.Load{Conns: 4},
	}, {
		Name:    "process-storm",
		Summary: "scripts of another program start a small program again and again, which is gone before top shows it",
		Setup: func() server.Setup {
			s := nginxFPM(0)()
			s.Mixed = 8000
			return s
		},
		Faults: []Fault{{
			Name: "scripts", Cause: "short-lived-process-storm",
			Text:   "six shells that start gzip in a loop, for a small file each",
			Inject: func(s *server.Setup) { s.Storm = 6 },
		}},
		Load: load.Load{Conns: 4},
	}, {
		Name:    "kernel-thread-busy",
		Summary: "a thread of the kernel copies what programs write to the image of a disk: they take next to no CPU, and it does",
		Setup: func() server.Setup {
			s := nginxFPM(0)()
			s.Mixed = 8000
			return s
		},
		Faults: []Fault{{
			Name: "export", Cause: "kernel-thread-busy", Says: "loop",
			Text:   "two exports, to a loop device",
			Inject: func(s *server.Setup) { s.Exports = 2 },
		}},
		Load: load.Load{Conns: 4},
	}}
	for n := range list {
		list[n].Quick = true
	}
	return list
}

// computingControls do as much, and no request is the slower for it.
func computingControls() []Incident {
	list := []Incident{{
		Name:    "gc-often",
		Summary: "a service in Java that makes a lot of garbage, and has room for it",
		Setup:   java(server.Java{HeapMB: 512, Live: 40, Garbage: 1 << 20}),
		Load:    load.Load{Conns: 4, Think: 40 * time.Millisecond},
	}, {
		Name:    "opcache-revalidates",
		Summary: "PHP looks at the 6,000 files of a page every two seconds, as by default",
		Setup:   framework("often"),
		Load:    load.Load{Conns: 2, Think: 20 * time.Millisecond},
	}, {
		Name:    "nice-build",
		Summary: "a build of nice 19 starts programs all the time, next to a service with little to do",
		Setup: func() server.Setup {
			s := nginxFPM(query)()
			s.Storm, s.BurnerNice = 2, 19
			return s
		},
		Load: load.Load{Conns: 20, Rate: 200},
	}}
	for n := range list {
		list[n].Control, list[n].Quick = true, true
	}
	return list
}
