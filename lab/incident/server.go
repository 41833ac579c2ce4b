package incident

import (
	"time"

	"github.com/slowray/slowray/lab/load"
	"github.com/slowray/slowray/lab/server"
)

// native is a healthy HTTP server in C.
func native(is server.Native) func() server.Setup {
	return func() server.Setup {
		s := server.Healthy(server.NativeApp)
		s.Native = is
		return s
	}
}

// booking is the load of most of these: clients that wait for their answers,
// and would rather give up and come again than wait for long.
var booking = load.Load{Conns: 20, Think: 5 * time.Millisecond, GiveUp: 1200 * time.Millisecond, Timeout: time.Second}

// serverWaits is services whose threads wait, inside the server, for somebody.
func serverWaits() []Incident {
	return []Incident{{
		Name:    "log-collector-stalled",
		Summary: "a log collector stops reading: the engine, the container's shim and then the service wait for it",
		Setup:   inContainer,
		Faults: []Fault{{
			Name: "collector", Cause: "log-collector-stalled",
			Text: "the log collector reads for 0.2 s, and then not for 1.3 s",
			Inject: func(s *server.Setup) {
				s.Collector = server.Collector{Every: 1500 * time.Millisecond, Reads: 200 * time.Millisecond}
			},
		}},
		Load:  load.Load{Conns: 40, Think: 40 * time.Millisecond},
		Quick: true,
	}, {
		Name:    "process-stopped-backend",
		Summary: "the application behind nginx is stopped by a signal",
		Setup: func() server.Setup {
			s := server.Healthy(server.NginxNative)
			s.Native.Work = time.Millisecond
			return s
		},
		Faults: []Fault{{
			Name: "stopped", Cause: "process-stopped",
			Text:   "the application gets a SIGSTOP when it serves",
			Inject: func(s *server.Setup) { s.Stopped = true },
		}},
		Load:  booking,
		Quick: true,
		Light: true,
	}, {
		Name:    "process-stopped-worker",
		Summary: "one of four processes that share a port is stopped; those whose connection it has wait",
		Setup:   native(server.Native{Work: time.Millisecond, Workers: 4}),
		Faults: []Fault{{
			Name: "stopped", Cause: "process-stopped",
			Text:   "the first worker gets a SIGSTOP when it serves",
			Inject: func(s *server.Setup) { s.Stopped = true },
		}},
		Load: load.Load{Conns: 20, Think: 5 * time.Millisecond},
	}, {
		Name:    "process-stopped-bursts",
		Summary: "a service is stopped for 300 ms every two seconds",
		Setup:   native(server.Native{Work: time.Millisecond}),
		Faults: []Fault{{
			Name: "stopped", Cause: "process-stopped",
			Text:   "a script sends SIGSTOP, and 300 ms later SIGCONT",
			Inject: func(s *server.Setup) { s.StoppedFor = 300 * time.Millisecond },
		}},
		Load: booking,
	}, {
		Name:    "fuse-stopped",
		Summary: "the process that serves a file system is stopped, and a service reads a file there",
		Setup:   native(server.Native{Prices: true}),
		Faults: []Fault{{
			Name: "stopped", Cause: "process-stopped",
			Text:   "the process of the file system gets a SIGSTOP",
			Inject: func(s *server.Setup) { s.PricesStopped = true },
		}},
		Load:  booking,
		Quick: true,
	}, {
		Name:    "pipe-full",
		Summary: "a service logs into a pipe whose reader is slow",
		Setup:   native(server.Native{Log: 1000}),
		Faults: []Fault{{
			Name: "slow-reader", Cause: "blocked-on-pipe",
			Text:   "what reads the pipe empties it once in 400 ms",
			Inject: func(s *server.Setup) { s.LogPause = 400 * time.Millisecond },
		}},
		Load:  booking,
		Quick: true,
		Light: true,
	}, {
		Name:    "flock-holder",
		Summary: "a report holds the lock of a file that each request takes for a moment",
		Setup:   native(server.Native{Seats: true}),
		Faults: []Fault{{
			Name: "holder", Cause: "blocked-on-file-lock",
			Text:   "another program holds the lock for 300 ms, again and again",
			Inject: func(s *server.Setup) { s.SeatsHeld = 300 * time.Millisecond },
		}},
		Load:  booking,
		Quick: true,
		Light: true,
	}, {
		Name:    "flock-passed-on",
		Summary: "all requests take the lock of a file, and each waits for something while it has it",
		Setup:   native(server.Native{Seats: true, Work: 5 * time.Millisecond}),
		Faults: []Fault{{
			Name: "inside", Cause: "blocked-on-file-lock", Says: "seats.lock",
			Text:   "a request waits its 5 ms with the lock, not without it",
			Inject: func(s *server.Setup) { s.Native.Work, s.Native.SeatsWork = 0, s.Native.Work },
		}},
		Load: booking,
	}, {
		Name:    "open-lock-passed-on",
		Summary: "all requests take a lock of fcntl(2), and each waits for something while it has it",
		Setup:   native(server.Native{Seats: true, OpenLock: true, Work: 5 * time.Millisecond}),
		Faults: []Fault{{
			Name: "inside", Cause: "blocked-on-file-lock", Says: "seats.lock",
			Text:   "a request waits its 5 ms with the lock, not without it",
			Inject: func(s *server.Setup) { s.Native.Work, s.Native.SeatsWork = 0, s.Native.Work },
		}},
		Load: booking,
	}, {
		Name:    "lock-convoy",
		Summary: "all requests take a lock, and each waits for something while it has it",
		Setup:   native(server.Native{Work: 8 * time.Millisecond}),
		Faults: []Fault{{
			Name: "inside", Cause: "lock-convoy",
			Text:   "a request waits its 8 ms inside the lock, not outside",
			Inject: func(s *server.Setup) { s.Native.Work, s.Native.Lock = 0, s.Native.Work },
		}},
		Load:  booking,
		Quick: true,
		Light: true,
	}, {
		Name:    "deadlock",
		Summary: "two threads have a lock each and wait for the other's; all that need one of the two are never answered",
		Setup:   native(server.Native{Transfers: 50}),
		Faults: []Fault{{
			Name: "opposite", Cause: "deadlock",
			Text:   "each second transfer locks the two accounts in the other order",
			Inject: func(s *server.Setup) { s.Native.Opposite = true },
		}},
		Load:  booking,
		Quick: true,
		Light: true,
	}, {
		Name:    "redis-fsync",
		Summary: "a Redis that waits for its disk before it answers, and a disk that takes few writes",
		Setup: func() server.Setup {
			s := webAndBackend(server.WebRedis, near)()
			s.Redis.Fsync = "everysec"
			return s
		},
		Faults: []Fault{{
			Name: "fsync", Cause: "fsync-bound", Or: []string{"blocked-on-disk", "cgroup-io-throttled"},
			Text:   "appendfsync always, on a disk that takes 100 writes a second",
			Inject: func(s *server.Setup) { s.Redis = server.Redis{Fsync: "always", DiskWrites: 100} },
		}},
		Load:  load.Load{Conns: 20},
		Quick: true,
	}, {
		Name:    "remote-hangs",
		Summary: "each twentieth request has a mail host greet it, and a firewall drops what is sent there",
		Setup: func() server.Setup {
			s := server.Healthy(server.NativeMail)
			s.Native.MailEvery = 20
			return s
		},
		Faults: []Fault{{
			Name: "firewall", Cause: "blocked-on-remote", Or: []string{"firewall-drop"},
			Text:   "a firewall at the mail host drops all packets to port 25; the service gives up after 1.5 s",
			Inject: func(s *server.Setup) { s.MailDropped = true },
		}},
		Load:  load.Load{Conns: 20, Think: 5 * time.Millisecond, Timeout: time.Second},
		Quick: true,
		Light: true,
	}}
}

// inContainer is a service in a container that logs a lot, to a collector that
// keeps up, with some of what looks guilty: a reload that looks at all files, a
// pool of threads without work, and TIME_WAIT that stays at 5,000 connections.
func inContainer() server.Setup {
	s := server.Healthy(server.Docker)
	s.TWBuckets = 5000
	s.Python = server.Python{Loop: true, Log: 8000, Mixed: 100, Idle: 32, Reload: true}
	return s
}

// nginxPython is a healthy service in Python, behind nginx.
func nginxPython(is server.Python) func() server.Setup {
	return func() server.Setup {
		s := server.Healthy(server.NginxPython)
		s.Python = is
		return s
	}
}

// hotFunctions is services that spend their time in one function. Which one it is
// takes slowray some seconds to tell, so none of these is quick.
func hotFunctions() []Incident {
	return []Incident{{
		Name:    "hot-function-php",
		Summary: "one function of a page takes nearly all of the time, on the CPU",
		Setup:   nginxFPM(0),
		Faults: []Fault{{
			Name: "hot", Cause: "cpu-hot-function", Says: "price_of_route",
			Text:   "price_of_route() goes through five million turns",
			Inject: func(s *server.Setup) { s.Hot = 5_000_000 },
		}},
		Load: load.Load{Conns: 2},
	}, {
		Name:    "hot-function-python",
		Summary: "one function of a service in Python takes nearly all of the time, on the CPU",
		Setup:   nginxPython(server.Python{Workers: 4}),
		Faults: []Fault{{
			Name: "hot", Cause: "cpu-hot-function", Says: "price_of_route",
			Text:   "price_of_route() goes through a million turns",
			Inject: func(s *server.Setup) { s.Python.Hot = 1_000_000 },
		}},
		Load: load.Load{Conns: 2},
	}}
}

// serverCPU is services whose threads compute, or want to.
func serverCPU() []Incident {
	return []Incident{{
		Name:    "single-thread",
		Summary: "an event loop that computes all the time, while another CPU has nothing to do",
		Setup:   nginxPython(server.Python{Workers: 4, Loop: true, Inline: true, Mixed: 5000}),
		Faults: []Fault{{
			Name: "one-process", Cause: "single-thread-saturated",
			Text:   "one process with one thread, not four",
			Inject: func(s *server.Setup) { s.Python.Workers = 1 },
		}},
		Load:  load.Load{Conns: 10},
		Quick: true,
	}, {
		Name:    "ksoftirqd-flood",
		Summary: "a flood of SYNs keeps a CPU busy with interrupts",
		Setup: func() server.Setup {
			s := server.Healthy(server.Web)
			s.Web.Work = 2 * time.Millisecond
			return s
		},
		Faults: []Fault{{
			Name: "flood", Cause: "softirq-saturated", Or: []string{"kernel-thread-busy"}, Alongside: []string{"cpu-saturated"},
			Text:   "one client sends SYNs as fast as it can",
			Inject: func(s *server.Setup) { s.Flood = true },
		}},
		Load:  load.Load{Conns: 20},
		Quick: true,
	}}
}

// serverControls wait, log and compute, and nobody is the slower for it.
func serverControls() []Incident {
	list := []Incident{{
		Name:    "log-collector-reads",
		Summary: "a service in a container that logs a lot, to a collector that keeps up",
		Setup:   inContainer,
		Load:    load.Load{Conns: 40, Think: 40 * time.Millisecond},
	}, {
		Name:    "pipe-read",
		Summary: "a service logs a lot, into a pipe whose reader keeps up",
		Setup:   native(server.Native{Log: 4000}),
		Load:    load.Load{Conns: 20, Think: 5 * time.Millisecond},
	}, {
		Name:    "idle-pool",
		Summary: "a hundred threads wait for work that never comes",
		Setup:   native(server.Native{Work: time.Millisecond, Pool: 100}),
		Load:    load.Load{Conns: 20, Think: 5 * time.Millisecond},
	}, {
		Name:    "busy-php",
		Summary: "pages that compute, in several functions, with all of the CPU and no more to do than it can",
		Setup: func() server.Setup {
			s := nginxFPM(0)()
			s.Mixed = 10_000
			return s
		},
		Load: load.Load{Conns: 2},
	}, {
		Name:    "busy-python",
		Summary: "a service in Python that computes, in several functions, with all of the CPU and no more to do than it can",
		Setup:   nginxPython(server.Python{Workers: 4, Mixed: 15_000}),
		Load:    load.Load{Conns: 2},
	}}
	for n := range list {
		list[n].Control, list[n].Quick = true, true
	}
	return list
}
