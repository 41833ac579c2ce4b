package incident

import (
	"time"

	"github.com/slowray/slowray/lab/load"
	"github.com/slowray/slowray/lab/server"
)

// overDatabase is a web server that asks a database once for each answer.
func overDatabase(kind server.Kind, change func(*server.Setup)) func() server.Setup {
	return func() server.Setup {
		s := webAndBackend(kind, near)()
		change(&s)
		return s
	}
}

// fewer is a load of few clients that ask at once: a database that computes is
// not to fill the CPUs.
var fewer = load.Load{Conns: 2, Think: 15 * time.Millisecond}

func databases() []Incident {
	list := []Incident{{
		Name:    "mariadb-max-connections",
		Summary: "a MariaDB that takes 15 connections, and a service whose pool may open 64",
		Setup:   overDatabase(server.WebDatabase, func(s *server.Setup) { s.Query.Lazy, s.Query.Sleep = true, 5*time.Millisecond }),
		Faults: []Fault{{
			Name: "max-connections", Cause: "mariadb-connections-exhausted",
			Text:   "max_connections 15",
			Inject: func(s *server.Setup) { s.Query.Max = 15 },
		}},
		Load: load.Load{Conns: 40, Think: 5 * time.Millisecond},
	}, {
		Name:    "mariadb-lock-wait",
		Summary: "a report of another program changes all rows in a transaction, and requests that change one wait for its end",
		Setup:   overDatabase(server.WebDatabase, func(s *server.Setup) { s.Query.Update, s.Query.Rows = true, 500 }),
		Faults: []Fault{{
			Name: "transaction", Cause: "mariadb-lock-wait",
			Text: "another program holds the locks of all rows for 300 ms, again and again",
			Inject: func(s *server.Setup) {
				s.Report = server.Report{Every: 50 * time.Millisecond, Holds: 300 * time.Millisecond}
			},
		}},
		Load: load.Load{Conns: 20, Think: 5 * time.Millisecond},
	}, {
		Name:    "mariadb-full-scan",
		Summary: "a MariaDB looks at all rows to find a guest by name",
		Setup: overDatabase(server.WebDatabase, func(s *server.Setup) {
			s.Query = server.Query{ByName: true, Index: true, Rows: 400_000, Pool: 4, Slow: 10 * time.Millisecond}
		}),
		Faults: []Fault{{
			Name: "no-index", Cause: "mariadb-slow-query", Says: "index",
			Text:   "the column that is asked for has no index",
			Inject: func(s *server.Setup) { s.Query.Index = false },
		}},
		Load: fewer,
	}, {
		Name:    "postgres-max-connections",
		Summary: "a PostgreSQL that takes 15 connections, and a service whose pool may open 64",
		Setup:   overDatabase(server.WebPostgres, func(s *server.Setup) { s.Query.Lazy, s.Query.Sleep = true, 5*time.Millisecond }),
		Faults: []Fault{{
			Name: "max-connections", Cause: "postgres-connections-exhausted",
			Alongside: []string{"short-lived-process-storm", "cpu-saturated"}, // a process is forked to refuse each
			Text:      "max_connections 15",
			Inject:    func(s *server.Setup) { s.Query.Max = 15 },
		}},
		Load: load.Load{Conns: 40, Think: 5 * time.Millisecond},
	}, {
		Name:    "postgres-lock-wait",
		Summary: "a program keeps a transaction open in which it changed all rows, and requests that change one wait for its end",
		Setup:   overDatabase(server.WebPostgres, func(s *server.Setup) { s.Query.Update, s.Query.Rows, s.Query.Pool = true, 500, 24 }),
		Faults: []Fault{{
			Name: "transaction", Cause: "postgres-lock-wait", Says: "idle in transaction",
			Text: "another program holds the locks of all rows for 300 ms, again and again",
			Inject: func(s *server.Setup) {
				s.Report = server.Report{Every: 50 * time.Millisecond, Holds: 300 * time.Millisecond}
			},
		}},
		Load: load.Load{Conns: 20, Think: 5 * time.Millisecond},
	}, {
		Name:    "postgres-full-scan",
		Summary: "a PostgreSQL looks at all rows to find a guest by name",
		Setup: overDatabase(server.WebPostgres, func(s *server.Setup) {
			s.Query = server.Query{ByName: true, Index: true, Rows: 300_000, Pool: 4, Slow: 5 * time.Millisecond}
		}),
		Faults: []Fault{{
			Name: "no-index", Cause: "postgres-slow-query",
			Text:   "the column that is asked for has no index",
			Inject: func(s *server.Setup) { s.Query.Index = false },
		}},
		Load: fewer,
	}, {
		Name:    "redis-keys",
		Summary: "another program has Redis look at all of its keys, and everybody else waits meanwhile",
		Setup:   overDatabase(server.WebRedis, func(s *server.Setup) { s.Redis = server.Redis{Keys: 1_200_000} }),
		Faults: []Fault{{
			Name: "keys", Cause: "redis-slow-command", Says: "KEYS",
			Alongside: []string{"single-thread-saturated"}, // the thread of Redis, busy with KEYS
			Text:      "KEYS over 1,200,000 keys, again after each 30 ms",
			Inject:    func(s *server.Setup) { s.Report = server.Report{Every: 30 * time.Millisecond, Keys: true} },
		}},
		Load: load.Load{Conns: 20, Think: 5 * time.Millisecond},
	}, {
		Name:    "redis-max-clients",
		Summary: "a Redis that takes 12 clients, and a service that opens a connection for each request at once",
		Setup:   overDatabase(server.WebRedis, func(s *server.Setup) {}),
		Faults: []Fault{{
			Name: "max-clients", Cause: "redis-max-clients",
			Text:   "maxclients 12",
			Inject: func(s *server.Setup) { s.Redis.Max = 12 },
		}},
		Load: load.Load{Conns: 40},
	}, {
		Name:    "memcached-connections",
		Summary: "a memcached that takes 64 connections, and a service that opens one for each request at once",
		Setup:   overDatabase(server.WebMemcached, func(s *server.Setup) {}),
		Faults: []Fault{{
			Name: "connections", Cause: "memcached-connections-exhausted",
			Text:   "memcached -c 64",
			Inject: func(s *server.Setup) { s.Cache.Max = 64 },
		}},
		Load: load.Load{Conns: 150},
	}, {
		Name:    "database-pool",
		Summary: "a service with two connections to its database, which answers in 10 ms",
		Setup:   overDatabase(server.WebDatabase, func(s *server.Setup) { s.Query.Sleep = 10 * time.Millisecond }),
		Faults: []Fault{{
			Name: "pool", Cause: "connection-pool-exhausted",
			Text:   "a pool of two connections",
			Inject: func(s *server.Setup) { s.Query.Pool = 2 },
		}},
		Load: load.Load{Conns: 30},
	}}
	for n := range list {
		list[n].Quick = true
	}
	return list
}

// databaseControls look like trouble in a database, and no request waits for
// it.
func databaseControls() []Incident {
	list := []Incident{{
		Name:    "database-idle-connections",
		Summary: "a database that holds 170 connections, most of them idle, and takes 200",
		Setup:   overDatabase(server.WebPostgres, func(s *server.Setup) { s.Query.Pool, s.Query.Max = 170, 200 }),
		Load:    load.Load{Conns: 10, Think: 20 * time.Millisecond},
	}, {
		Name:    "database-nightly-report",
		Summary: "a slow log full of the statements of a report, which no request waits for",
		Setup: overDatabase(server.WebDatabase, func(s *server.Setup) {
			s.Query = server.Query{Rows: 100_000, Slow: 5 * time.Millisecond}
			s.Report = server.Report{Every: 100 * time.Millisecond, Scans: true}
		}),
		Load: load.Load{Conns: 10, Think: 20 * time.Millisecond},
	}, {
		Name:    "redis-quick-keys",
		Summary: "a program asks Redis for all of few keys, which takes no time to speak of",
		Setup: overDatabase(server.WebRedis, func(s *server.Setup) {
			s.Redis = server.Redis{Keys: 2000}
			s.Report = server.Report{Every: 20 * time.Millisecond, Keys: true}
		}),
		Load: load.Load{Conns: 20, Think: 5 * time.Millisecond},
	}}
	for n := range list {
		list[n].Control, list[n].Quick = true, true
	}
	return list
}
