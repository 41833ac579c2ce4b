package incident

import (
	"time"

	"github.com/slowray/slowray/lab/load"
	"github.com/slowray/slowray/lab/server"
)

// doings is services that are slow, or fail, by what they do themselves, or by what
// another one on this host does, with CPUs to spare.
func doings() []Incident {
	asks := func(s server.Setup, retries int) func() server.Setup {
		s.Python.Asks, s.Python.Retries, s.Python.Threaded = true, retries, true
		return func() server.Setup { return s }
	}
	refuse := func(status int) func(*server.Setup) {
		return func(s *server.Setup) { s.Asked.Refuse = status }
	}
	slept := []string{"application-sleep"} // between the tries
	list := []Incident{{
		Name:    "limit-passed-on",
		Summary: "what a service asks refuses by a limit of its own (429), and the service answers 503",
		Setup:   asks(server.Healthy(server.PythonApp), 0),
		Faults:  []Fault{{Name: "limit", Cause: "error-answers", Says: "429 Too Many Requests", Text: "what is asked answers 429", Inject: refuse(429)}},
	}, {
		Name:    "error-behind-two-hops",
		Summary: "nginx passes on the 502 of a service, whose own upstream answers 500",
		Setup:   asks(server.Healthy(server.NginxPython), 0),
		Faults:  []Fault{{Name: "fails", Cause: "error-answers", Says: "500 Internal Server Error", Text: "what is asked answers 500", Inject: refuse(500)}},
	}, {
		Name:    "retry-python",
		Summary: "a service in Python tries again, with longer and longer pauses, what answers 503",
		Setup:   asks(server.Healthy(server.PythonApp), 3),
		Faults:  []Fault{{Name: "fails", Cause: "error-answers", Alongside: slept, Says: "quota booking.py", Text: "what is asked answers 503", Inject: refuse(503)}},
	}, {
		Name:    "retry-go",
		Summary: "a service in Go tries again, with longer and longer pauses, what refuses it by a limit (429)",
		Setup: func() server.Setup {
			s := server.Healthy(server.GoApp)
			s.Go.Asks, s.Go.Retries = true, 3
			return s
		},
		Faults: []Fault{{Name: "limit", Cause: "error-answers", Alongside: slept, Says: "429 Too Many Requests", Text: "what is asked answers 429", Inject: refuse(429)}},
	}, {
		Name:    "hot-python",
		Summary: "each request of a service in Python computes for a tenth of a second, and the CPUs are mostly idle",
		Setup:   python(server.Python{Threaded: true}),
		Faults: []Fault{{Name: "hot", Cause: "cpu-hot-function", Says: "price_of_route", Text: "1,500,000 turns of price_of_route()",
			Inject: func(s *server.Setup) { s.Python.Hot = 1_500_000 }}},
	}, {
		Name:    "hot-regex-python",
		Summary: "each request of a service in Python matches a pattern that takes for ever on what does not match",
		Setup:   python(server.Python{Threaded: true}),
		Faults: []Fault{{Name: "regex", Cause: "cpu-hot-function", Says: "check_name", Text: "a pattern that goes back over 19 letters",
			Inject: func(s *server.Setup) { s.Python.Regex = 19 }}},
	}, {
		Name:    "hot-go",
		Summary: "each request of a service in Go computes for a tenth of a second, and the CPUs are mostly idle",
		Setup:   golang(server.Go{}),
		Faults: []Fault{{Name: "hot", Cause: "cpu-hot-function", Says: "priceOfRoute", Text: "60,000,000 turns of priceOfRoute()",
			Inject: func(s *server.Setup) { s.Go.Hot = 60_000_000 }}},
	}, {
		Name:    "hot-java",
		Summary: "each request of a service in Java computes for a tenth of a second, and the CPUs are mostly idle",
		Setup:   java(server.Java{}),
		Faults: []Fault{{Name: "hot", Cause: "cpu-hot-function", Says: "priceOfRoute", Text: "150,000,000 turns of priceOfRoute()",
			Inject: func(s *server.Setup) { s.Java.Hot = 150_000_000 }}},
	}, {
		Name:    "hot-php",
		Summary: "each page of PHP computes for a tenth of a second, and the CPUs are mostly idle",
		Setup:   nginxFPM(0),
		Faults: []Fault{{Name: "hot", Cause: "cpu-hot-function", Text: "20,000,000 turns of one function",
			Inject: func(s *server.Setup) { s.Hot = 20_000_000 }}},
	}}
	for n := range list {
		list[n].Load = load.Load{Conns: 4, Think: 20 * time.Millisecond}
		hot := list[n].Faults[0].Cause == "cpu-hot-function"
		if hot {
			list[n].Load = load.Load{Conns: 1, Think: 60 * time.Millisecond}
		}
		list[n].Quick, list[n].Light = !hot, !hot // the names of functions take a while
	}
	return append(list, slowDatabases()...)
}

// slowDatabases look at all rows for each statement, and keep no log of slow ones.
func slowDatabases() []Incident {
	scan := func(kind server.Kind, rows, parallel int, renamed bool) func() server.Setup {
		return overDatabase(kind, func(s *server.Setup) {
			s.Query, s.Renamed = server.Query{ByName: true, Index: true, Rows: rows, Pool: 4, Parallel: parallel}, renamed
		})
	}
	noIndex := func(cause, says string) []Fault {
		return []Fault{{Name: "no-index", Cause: cause, Says: says, Text: "the column that is asked for has no index", Inject: func(s *server.Setup) { s.Query.Index = false }}}
	}
	list := []Incident{
		{Name: "postgres-scan-without-log", Summary: "a PostgreSQL looks at all rows to find a guest by name, and logs nothing",
			Setup: scan(server.WebPostgres, 300_000, 0, false), Faults: noIndex("postgres-slow-query", "from row to row"), Load: fewer},
		{Name: "postgres-parallel-scan", Summary: "a PostgreSQL looks at all rows with two more processes for each statement, which come and go, and logs nothing",
			Setup: scan(server.WebPostgres, 600_000, 2, false), Faults: noIndex("postgres-slow-query", ""), Load: load.Load{Conns: 1, Think: 40 * time.Millisecond}},
		{Name: "mariadb-scan-without-log", Summary: "a MariaDB looks at all rows to find a guest by name, and has no slow log",
			Setup: scan(server.WebDatabase, 400_000, 0, false), Faults: noIndex("mariadb-slow-query", "from row to row"), Load: fewer},
		{Name: "renamed-postgres", Summary: "a PostgreSQL whose program is called something else looks at all rows",
			Setup: scan(server.WebPostgres, 300_000, 0, true), Faults: noIndex("postgres-slow-query", "from row to row"), Load: fewer},
		{Name: "pgbouncer-pool", Summary: "a PgBouncer keeps two connections to its PostgreSQL, which answers in 5 ms",
			Setup:  overDatabase(server.WebPostgres, func(s *server.Setup) { s.Query.Sleep, s.Query.Bouncer = 5*time.Millisecond, 60 }),
			Faults: []Fault{{Name: "pool", Cause: "connection-pool-exhausted", Says: "default_pool_size", Text: "default_pool_size 2", Inject: func(s *server.Setup) { s.Query.Bouncer = 2 }}},
			Load:   load.Load{Conns: 30}},
		{Name: "renamed-pgbouncer-pool", Summary: "a PgBouncer whose program is called something else keeps three connections for one database",
			Setup: overDatabase(server.WebPostgres, func(s *server.Setup) {
				s.Query.Sleep, s.Query.Bouncer, s.Query.BouncerOwn, s.Renamed = 5*time.Millisecond, 60, true, true
			}),
			Faults: []Fault{{Name: "pool", Cause: "connection-pool-exhausted", Says: "pool_size of lab", Text: "pool_size 3", Inject: func(s *server.Setup) { s.Query.Bouncer = 3 }}},
			Load:   load.Load{Conns: 30}},
		{Name: "renamed-mariadb", Summary: "a MariaDB whose program is called something else takes 15 connections",
			Setup: overDatabase(server.WebDatabase, func(s *server.Setup) { s.Query.Lazy, s.Query.Sleep, s.Renamed = true, 5*time.Millisecond, true }),
			Faults: []Fault{{Name: "max-connections", Cause: "mariadb-connections-exhausted", Text: "max_connections 15",
				Inject: func(s *server.Setup) { s.Query.Max = 15 }}},
			Load: load.Load{Conns: 40, Think: 5 * time.Millisecond}},
		{Name: "renamed-redis", Summary: "a Redis whose program is called something else looks at all of its keys for another program",
			Setup: overDatabase(server.WebRedis, func(s *server.Setup) { s.Redis, s.Renamed = server.Redis{Keys: 1_200_000}, true }),
			Faults: []Fault{{Name: "keys", Cause: "redis-slow-command", Says: "KEYS", Alongside: []string{"single-thread-saturated"},
				Text: "KEYS over 1,200,000 keys, again after each 30 ms", Inject: func(s *server.Setup) { s.Report = server.Report{Every: 30 * time.Millisecond, Keys: true} }}},
			Load: load.Load{Conns: 20, Think: 5 * time.Millisecond}},
	}
	for n := range list {
		list[n].Quick = true
	}
	return list
}

// doingControls answer with errors, sleep or compute too, and nobody is harmed by it.
func doingControls() []Incident {
	list := []Incident{{
		Name:    "asked-says-no",
		Summary: "a service asks another one, which answers 404 to each call, and answers well",
		Setup: func() server.Setup {
			s := server.Healthy(server.PythonApp)
			s.Python.Asks, s.Python.Threaded, s.Asked.Refuse = true, true, 404
			return s
		},
	}, {
		Name:    "computes-a-little",
		Summary: "each request of a service in Python computes for a few milliseconds",
		Setup:   python(server.Python{Threaded: true, Hot: 60_000}),
	}}
	for n := range list {
		list[n].Load = load.Load{Conns: 2, Think: 30 * time.Millisecond}
		list[n].Control, list[n].Quick = true, true
	}
	return list
}
