package incident

import (
	"fmt"
	"slices"
	"time"

	"github.com/slowray/slowray/lab/load"
	"github.com/slowray/slowray/lab/server"
)

// withWorkers is a healthy server of a kind that has a limit on workers.
func withWorkers(kind server.Kind, change func(*server.Workers)) func() server.Setup {
	return func() server.Setup {
		s := server.Healthy(kind)
		if change != nil {
			change(&s.Workers)
		}
		return s
	}
}

// fewWorkers leaves too few of them for what the clients ask.
func fewWorkers(cause string, n int) Fault {
	return Fault{
		Name: "workers", Cause: cause,
		Text:   fmt.Sprintf("%d workers", n),
		Inject: func(s *server.Setup) { s.Workers.Max = n },
	}
}

// webServers is the limits of web and application servers.
func webServers() []Incident {
	// Of these, next to nothing computes.
	idle := []string{"apache-workers", "apache-event-workers", "uwsgi-queue", "gunicorn-sync-workers", "php-fpm-slow-script", "nginx-limit-req", "haproxy-no-server"}
	clients := load.Load{Conns: 24, Close: true}
	list := []Incident{{
		Name:    "apache-workers",
		Summary: "MaxRequestWorkers 4 for pages that wait 50 ms: requests wait in the accept queue",
		Setup:   withWorkers(server.Apache, nil),
		Faults:  []Fault{fewWorkers("apache-workers-exhausted", 4)},
		Load:    clients,
	}, {
		Name:    "apache-event-workers",
		Summary: "Apache's event MPM with 4 threads for pages that wait 50 ms",
		Setup:   withWorkers(server.Apache, func(w *server.Workers) { w.MPM = "event" }),
		Faults:  []Fault{fewWorkers("apache-workers-exhausted", 4)},
		Load:    load.Load{Conns: 24},
	}, {
		Name:    "uwsgi-queue",
		Summary: "2 processes of uWSGI for pages that wait 50 ms: its listen queue fills",
		Setup:   withWorkers(server.UWSGI, nil),
		Faults:  []Fault{fewWorkers("uwsgi-workers-busy", 2)},
		Load:    clients,
	}, {
		Name:    "gunicorn-sync-workers",
		Summary: "nginx before gunicorn with 2 sync workers, for pages that wait 50 ms",
		Setup:   withWorkers(server.NginxGunicorn, nil),
		Faults:  []Fault{fewWorkers("gunicorn-workers-busy", 2)},
		Load:    load.Load{Conns: 24},
	}, {
		Name:    "gunicorn-bursts",
		Summary: "a batch of requests every 900 ms before 3 sync workers of gunicorn, which are idle in between",
		Setup:   withWorkers(server.NginxGunicorn, func(w *server.Workers) { w.Work = 30 * time.Millisecond }),
		Faults:  []Fault{fewWorkers("gunicorn-workers-busy", 3)},
		Load:    load.Load{Conns: 28, Burst: 900 * time.Millisecond},
	}, {
		Name:    "tomcat-threads",
		Summary: "Tomcat with 4 threads, for pages that wait 50 ms: requests wait in their sockets",
		Setup:   withWorkers(server.Tomcat, nil),
		Faults:  []Fault{fewWorkers("tomcat-threads-exhausted", 4)},
		Load:    load.Load{Conns: 24},
	}, {
		Name:    "haproxy-maxconn",
		Summary: "HAProxy takes 10 connections at a time, and others wait to be accepted",
		Setup:   withWorkers(server.HAProxyWeb, func(w *server.Workers) { w.Work = 15 * time.Millisecond }),
		Faults: []Fault{{
			Name: "maxconn", Cause: "haproxy-maxconn", Text: "maxconn 10",
			Inject: func(s *server.Setup) { s.Workers.MaxConn = 10 },
		}},
		Load: load.Load{Conns: 60, Close: true},
	}, {
		Name:    "haproxy-idle-connections",
		Summary: "5 connections that rest between two requests are all that HAProxy takes, and others are never accepted",
		Setup:   withWorkers(server.HAProxyWeb, func(w *server.Workers) { w.Work = 80 * time.Millisecond }),
		Faults: []Fault{{
			Name: "maxconn", Cause: "haproxy-maxconn", Text: "maxconn 5",
			Inject: func(s *server.Setup) { s.Workers.MaxConn = 5 },
		}},
		Load: load.Load{Conns: 40, Burst: 750 * time.Millisecond},
	}, {
		Name:    "haproxy-server-queue",
		Summary: "HAProxy passes 4 requests at a time to its server, and others wait in its own queue",
		Setup:   withWorkers(server.HAProxyWeb, func(w *server.Workers) { w.Work = 15 * time.Millisecond }),
		Faults: []Fault{{
			Name: "server-maxconn", Cause: "haproxy-server-queue", Text: "maxconn 4 of the server",
			Inject: func(s *server.Setup) { s.Workers.ServerMaxConn = 4 },
		}},
		Load: load.Load{Conns: 40},
	}, {
		Name:    "haproxy-no-server",
		Summary: "nothing listens where HAProxy passes requests to",
		Setup:   withWorkers(server.HAProxyWeb, nil),
		Faults: []Fault{{
			Name: "server-gone", Cause: "haproxy-no-server", Or: []string{"upstream-refused"}, Text: "the server behind does not run",
			Inject: func(s *server.Setup) { s.Workers.ServerGone = true },
		}},
		Load: load.Load{Conns: 4, Think: 20 * time.Millisecond},
	}, {
		Name:    "uwsgi-harakiri",
		Summary: "one of eight requests takes 4 s, and uWSGI kills its worker after 1 s",
		Setup:   withWorkers(server.UWSGI, func(w *server.Workers) { w.Harakiri = 1 }),
		Faults: []Fault{{
			Name: "slow", Cause: "uwsgi-harakiri", Or: []string{"application-sleep"}, Text: "one of eight requests takes 4 s",
			Inject: func(s *server.Setup) { s.Workers.Slow, s.Workers.Each = 4*time.Second, 8 },
		}},
		Load: clients,
	}, {
		Name:    "php-fpm-slow-script",
		Summary: "one of twenty pages waits 1.3 s in one line, which php-fpm's slow log names",
		Setup: func() server.Setup {
			s := nginxFPM(query)()
			s.Workers.SlowLog = true
			return s
		},
		Faults: []Fault{{
			Name: "slow-script", Cause: "php-fpm-slow-script", Alongside: []string{"application-sleep"}, Says: "price_of_route", Text: "one of twenty pages waits 1.3 s",
			Inject: func(s *server.Setup) { s.Workers.Slow, s.Workers.Each = 1300*time.Millisecond, 20 },
		}},
		Load: load.Load{Conns: 12},
	}, {
		Name:    "nginx-limit-req",
		Summary: "limit_req by the client's address, and all clients come from one: a load balancer",
		Setup: func() server.Setup {
			s := nginxFPM(query)()
			s.Workers.LimitKey, s.Workers.LimitRate = "$binary_remote_addr", 100_000
			return s
		},
		Faults: []Fault{{
			Name: "limit-req", Cause: "nginx-limit-req", Text: "20 requests a second for each address",
			Inject: func(s *server.Setup) { s.Workers.LimitRate = 20 },
		}},
		Load: load.Load{Conns: 10, Think: 20 * time.Millisecond},
	}, {
		Name:    "db-pool",
		Summary: "a service keeps 3 connections to its database: requests wait for one to come free",
		Setup: func() server.Setup {
			s := server.Healthy(server.WebDatabase)
			s.Web.Calls = 1
			s.Query.Sleep = 10 * time.Millisecond
			return s
		},
		Faults: []Fault{{
			Name: "pool", Cause: "connection-pool-exhausted", Text: "a pool of 3 connections",
			Inject: func(s *server.Setup) { s.Query.Pool = 3 },
		}},
		Load: load.Load{Conns: 24},
	}}
	for n := range list {
		// Workers that wait are killed in waves, seconds apart.
		list[n].Quick = list[n].Name != "uwsgi-harakiri"
		list[n].Light = slices.Contains(idle, list[n].Name)
	}
	return list
}

// webServerControls have all workers taken, or say that they have, and nobody
// waits.
func webServerControls() []Incident {
	list := []Incident{{
		Name:    "apache-warns-only",
		Summary: "Apache logs that it reached MaxRequestWorkers while it has workers to spare for what is asked",
		Setup:   withWorkers(server.Apache, func(w *server.Workers) { w.Max, w.Work = 8, 5*time.Millisecond }),
		Load:    load.Load{Conns: 6, Close: true, Think: 10 * time.Millisecond},
	}, {
		Name:    "event-keep-alive",
		Summary: "many connections that ask for nothing, to Apache's event MPM, which needs no worker for them",
		Setup:   withWorkers(server.Apache, func(w *server.Workers) { w.MPM, w.Max, w.Work = "event", 16, 5*time.Millisecond }),
		Load:    load.Load{Conns: 8, Idle: 100},
	}, {
		Name:    "uwsgi-all-busy",
		Summary: "as many clients as uWSGI has workers: all are busy, and nobody waits",
		Setup:   withWorkers(server.UWSGI, func(w *server.Workers) { w.Max = 6 }),
		Load:    load.Load{Conns: 6, Close: true, Think: 2 * time.Millisecond},
	}}
	for n := range list {
		list[n].Control, list[n].Quick = true, true
	}
	return list
}
