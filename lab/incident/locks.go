package incident

import (
	"time"

	"github.com/slowray/slowray/lab/load"
	"github.com/slowray/slowray/lab/server"
)

// golang is a healthy HTTP service in Go.
func golang(is server.Go) func() server.Setup {
	return func() server.Setup {
		s := server.Healthy(server.GoApp)
		s.Go = is
		return s
	}
}

// java is a healthy HTTP service in Java.
func java(is server.Java) func() server.Setup {
	return func() server.Setup {
		s := server.Healthy(server.JavaApp)
		s.Java = is
		return s
	}
}

// python is a healthy HTTP service in Python, without a server before it.
func python(is server.Python) func() server.Setup {
	return func() server.Setup {
		s := server.Healthy(server.PythonApp)
		s.Python = is
		return s
	}
}

// runtimes is services that wait inside the runtime of their language: for locks
// whose owner is written nowhere, for the garbage collector, for themselves.
func runtimes() []Incident {
	list := []Incident{{
		Name:    "deadlock-go",
		Summary: "two goroutines have a lock each and wait for the other's; all that need one of the two are never answered",
		Setup:   golang(server.Go{Transfers: 50}),
		Faults: []Fault{{
			Name: "opposite", Cause: "deadlock", Says: "server.transfer",
			Text:   "each second transfer locks the two accounts in the other order",
			Inject: func(s *server.Setup) { s.Go.Opposite = true },
		}},
		Load: booking,
	}, {
		Name:    "lock-convoy-go",
		Summary: "all requests of a service in Go take a lock, and each waits for something while it has it",
		Setup:   golang(server.Go{Work: 8 * time.Millisecond}),
		Faults: []Fault{{
			Name: "inside", Cause: "lock-convoy", Says: "server.(*bookings).book",
			Text:   "a request waits its 8 ms inside the lock, not outside",
			Inject: func(s *server.Setup) { s.Go.Work, s.Go.Lock = 0, s.Go.Work },
		}},
		Load: booking,
	}, {
		Name:    "deadlock-java",
		Summary: "two threads of Java have entered a monitor each and wait for the other's",
		Setup:   java(server.Java{Transfers: 50}),
		Faults: []Fault{{
			Name: "opposite", Cause: "deadlock", Says: "Booking$Account",
			Text:   "each second transfer locks the two accounts in the other order",
			Inject: func(s *server.Setup) { s.Java.Opposite = true },
		}},
		Load: booking,
	}, {
		Name:    "lock-convoy-java",
		Summary: "all requests of a service in Java enter a monitor, and each waits for something in it",
		Setup:   java(server.Java{Work: 8 * time.Millisecond}),
		Faults: []Fault{{
			Name: "inside", Cause: "lock-convoy", Says: "Java monitor",
			Text:   "a request waits its 8 ms inside the monitor, not outside",
			Inject: func(s *server.Setup) { s.Java.Work, s.Java.Lock = 0, s.Java.Work },
		}},
		Load: booking,
	}, {
		Name:    "deadlock-python",
		Summary: "two threads of Python have a lock each and wait for the other's",
		Setup:   python(server.Python{Threaded: true, Transfers: 50}),
		Faults: []Fault{{
			Name: "opposite", Cause: "deadlock", Says: "transfer booking.py",
			Text:   "each second transfer locks the two accounts in the other order",
			Inject: func(s *server.Setup) { s.Python.Opposite = true },
		}},
		Load: booking,
	}, {
		Name:    "lock-convoy-python",
		Summary: "all requests of a service in Python take a lock, and each waits for something while it has it",
		Setup:   python(server.Python{Threaded: true, Work: 8 * time.Millisecond}),
		Faults: []Fault{{
			Name: "inside", Cause: "lock-convoy", Says: "book booking.py",
			Text:   "a request waits its 8 ms inside the lock, not outside",
			Inject: func(s *server.Setup) { s.Python.Work, s.Python.Lock = 0, s.Python.Work },
		}},
		Load: booking,
	}}
	for n := range list {
		list[n].Quick, list[n].Light = true, true
	}
	return list
}

// outages began before anybody looks: whoever had the lock never gives it back, all
// requests wait for it, and none begins or ends any more.
func outages() []Incident {
	const never = 30 * time.Minute
	all := load.Load{Conns: 20, Think: 5 * time.Millisecond, Timeout: time.Second}
	list := []Incident{{
		Name:    "outage-python",
		Summary: "a thread of a service in Python keeps a lock for ever; no request begins or ends while one looks",
		Setup:   python(server.Python{Threaded: true}),
		Faults: []Fault{{
			Name: "kept", Cause: "lock-convoy", Says: "book booking.py",
			Text:   "a request waits for half an hour inside the lock",
			Inject: func(s *server.Setup) { s.Python.Lock = never },
		}},
	}, {
		Name:    "outage-go",
		Summary: "a goroutine keeps a lock for ever; no request begins or ends while one looks",
		Setup:   golang(server.Go{}),
		Faults: []Fault{{
			Name: "kept", Cause: "lock-convoy", Says: "server.(*bookings).book",
			Text:   "a request waits for half an hour inside the lock",
			Inject: func(s *server.Setup) { s.Go.Lock = never },
		}},
	}, {
		Name:    "outage-java",
		Summary: "a thread of Java never leaves its monitor; no request begins or ends while one looks",
		Setup:   java(server.Java{}),
		Faults: []Fault{{
			Name: "kept", Cause: "lock-convoy", Says: "Java monitor",
			Text:   "a request waits for half an hour inside the monitor",
			Inject: func(s *server.Setup) { s.Java.Lock = never },
		}},
	}}
	for n := range list {
		list[n].Load, list[n].Lead = all, 4*time.Second
		list[n].Quick, list[n].Light = true, true
	}
	return list
}

// sleepers is services that are slow by their own choice.
func sleepers() []Incident {
	const pause = 250 * time.Millisecond
	list := []Incident{{
		Name:    "sleep-python",
		Summary: "each request of a service in Python sleeps for a quarter of a second",
		Setup:   python(server.Python{Threaded: true}),
		Faults: []Fault{{
			Name: "pause", Cause: "application-sleep", Says: "work booking.py",
			Text:   "a request sleeps for 250 ms",
			Inject: func(s *server.Setup) { s.Python.Work = pause },
		}},
	}, {
		Name:    "sleep-python-pool",
		Summary: "an event loop hands requests to a pool, whose threads sleep for a quarter of a second each",
		Setup:   python(server.Python{Loop: true}),
		Faults: []Fault{{
			Name: "pause", Cause: "application-sleep", Says: "work booking.py",
			Text:   "a request sleeps for 250 ms",
			Inject: func(s *server.Setup) { s.Python.Work = pause },
		}},
	}, {
		Name:    "sleep-go",
		Summary: "each request of a service in Go sleeps for a quarter of a second",
		Setup:   golang(server.Go{}),
		Faults: []Fault{{
			Name: "pause", Cause: "application-sleep", Says: "server.",
			Text:   "a request sleeps for 250 ms",
			Inject: func(s *server.Setup) { s.Go.Work = pause },
		}},
	}, {
		Name:    "sleep-behind-nginx",
		Summary: "nginx waits for a service in Python, which sleeps",
		Setup: func() server.Setup {
			s := server.Healthy(server.NginxPython)
			s.Python = server.Python{Threaded: true}
			return s
		},
		Faults: []Fault{{
			Name: "pause", Cause: "application-sleep", Says: "work booking.py",
			Text:   "a request sleeps for 250 ms",
			Inject: func(s *server.Setup) { s.Python.Work = pause },
		}},
	}}
	for n := range list {
		list[n].Load = load.Load{Conns: 8, Think: 20 * time.Millisecond}
		list[n].Quick, list[n].Light = true, true
	}
	return list
}

// runtimeControls have locks, pools and collectors too, and nobody is the slower
// for them.
func runtimeControls() []Incident {
	list := []Incident{{
		Name:    "idle-pool-go",
		Summary: "a hundred goroutines wait for work that never comes",
		Setup:   golang(server.Go{Work: time.Millisecond, Pool: 100}),
		Load:    load.Load{Conns: 20, Think: 5 * time.Millisecond},
	}, {
		Name:    "mutex-often-go",
		Summary: "a lock is taken a million times a second, and nobody has to wait for it to speak of",
		Setup:   golang(server.Go{Locks: 5000}),
		Load:    load.Load{Conns: 10, Think: 40 * time.Millisecond},
	}, {
		Name:    "idle-pool-java",
		Summary: "a hundred threads of Java wait for work that never comes",
		Setup:   java(server.Java{Work: time.Millisecond, Pool: 100}),
		Load:    load.Load{Conns: 20, Think: 5 * time.Millisecond},
	}}
	for n := range list {
		list[n].Control, list[n].Quick = true, true
	}
	return list
}
