package incident

import (
	"time"

	"github.com/slowray/slowray/lab/load"
	"github.com/slowray/slowray/lab/server"
)

func conntrack() []Incident {
	return []Incident{{
		Name:    "conntrack-full",
		Summary: "a full connection tracking table: the CPU idles, few connections are left, no answer at all",
		Setup:   tracked(nginxFPM(query)),
		Faults:  []Fault{conntrackMax(200)},
		Load:    load.Load{Conns: 1000},
	}, {
		Name:    "conntrack-full-2000",
		Summary: "a full connection tracking table: answers for a moment, then none",
		Setup:   tracked(nginxFPM(query)),
		Faults:  []Fault{conntrackMax(2000)},
		Load:    load.Load{Conns: 1000},
	}}
}

func phpFPM() []Incident {
	return []Incident{{
		Name:    "php-fpm-children",
		Summary: "5 php-fpm children, pages that wait 50 ms",
		Setup:   nginxFPM(50 * time.Millisecond),
		Faults:  []Fault{children(5)},
		Load:    load.Load{Conns: 200},
		Quick:   true,
	}, {
		Name:    "php-fpm-children-aborts",
		Summary: "5 php-fpm children, pages that wait 50 ms, and clients that give up after a second",
		Setup:   nginxFPM(50 * time.Millisecond),
		Faults:  []Fault{children(5)},
		Load:    load.Load{Conns: 200, GiveUp: time.Second},
	}}
}

func acceptQueue() []Incident {
	return []Incident{{
		Name:    "accept-queue-nginx",
		Summary: "nginx listens with backlog=10 and gets a new connection for each request",
		Setup:   nginxFPM(query),
		Faults:  []Fault{nginxBacklog(10)},
		Load:    load.Load{Conns: 1000, Close: true},
	}, {
		Name:    "accept-queue-somaxconn",
		Summary: "somaxconn 10: more requests per second than before, while one in a hundred takes a second",
		Setup:   nginxFPM(0),
		Faults:  []Fault{somaxconn(10)},
		Load:    load.Load{Conns: 1000},
	}, {
		Name:    "accept-queue-fpm",
		Summary: "php-fpm listens with a backlog of 10",
		Setup:   nginxFPM(query),
		Faults:  []Fault{fpmBacklog(10)},
		Load:    load.Load{Conns: 1000},
	}, {
		Name:    "accept-not-accepting",
		Summary: "an accept queue overflows because the application does not accept",
		Setup: func() server.Setup {
			s := server.Healthy(server.App)
			s.AppWork = 100 * time.Millisecond
			return s
		},
		Faults: []Fault{notAccepting()},
		Load:   load.Load{Conns: 200, Close: true},
		Quick:  true,
	}}
}

func ports() []Incident {
	return []Incident{{
		Name:    "ephemeral-ports",
		Summary: "51 ephemeral ports between nginx and php-fpm: many fast answers, nearly all of them errors",
		Setup:   nginxFPM(query),
		Faults:  []Fault{fewPorts(51)},
		Load:    load.Load{Conns: 1000},
		Quick:   true,
	}, {
		Name:    "time-wait-port-search",
		Summary: "nginx to nginx without keepalive, tcp_tw_reuse 0: connect() searches for a free port",
		Setup:   nginxNginx,
		Faults:  []Fault{noReuse()},
		Load:    load.Load{Conns: 200},
		Lead:    6 * time.Second,
	}}
}

// nginxNginx is nginx in front of nginx, not over 127.0.0.1, where the
// kernel's default tcp_tw_reuse of 2 would reuse ports by itself. As in incident
// A there are at most 32,768 connections in TIME_WAIT and more ports than that:
// a port can be found, and the question is how long the search takes.
func nginxNginx() server.Setup {
	s := server.Healthy(server.NginxNginx)
	s.TWBuckets = 32768
	return s
}

func limits() []Incident {
	return append(append(underLimits(), limitControls()...), []Incident{{
		Name:    "worker-connections",
		Summary: "nginx has fewer worker_connections than clients and upstream connections need",
		Setup:   nginxFPM(query),
		Faults:  []Fault{workerConnections(1024)},
		Load:    load.Load{Conns: 1000},
	}, {
		Name:    "fd-limit",
		Summary: "a soft limit of 100 open files on the servers",
		Setup:   nginxFPM(query),
		Faults:  []Fault{fileLimit(100)},
		Load:    load.Load{Conns: 400, Close: true},
	}}...)
}

func cpu() []Incident {
	return []Incident{{
		Name:    "cpu-saturated",
		Summary: "busy loops of another program take the CPUs",
		Setup:   nginxFPM(query),
		Faults:  []Fault{busyLoops(8, 0)},
		Load:    load.Load{Conns: 50},
	}, {
		Name:    "cpu-quota",
		Summary: "the servers' control group has a CPU quota",
		Setup:   nginxFPM(query),
		Faults:  []Fault{cpuQuota(0.2)},
		Load:    load.Load{Conns: 50},
	}}
}
