package incident

import (
	"time"

	"github.com/slowray/slowray/lab/load"
	"github.com/slowray/slowray/lab/server"
)

// controls look like incidents to a naive eye, or are nothing at all. The
// right answer to each is no finding.
func controls() []Incident {
	list := []Incident{{
		Name:    "max-children-warning",
		Summary: "php-fpm warns that it reached 5 children, but pages are so quick that 5 are enough",
		Setup:   nginxFPM(0),
		Faults:  []Fault{children(5)},
		Load:    load.Load{Conns: 50},
	}, {
		Name:    "time-wait-harmless",
		Summary: "tens of thousands of TIME_WAIT, on the side of php-fpm, where they hold no port of a client",
		Setup:   nginxFPM(0),
		Faults:  []Fault{noReuse()},
		Load:    load.Load{Conns: 200},
		Lead:    5 * time.Second,
	}, {
		Name:    "tw-reuse-loopback",
		Summary: "nginx to nginx over 127.0.0.1 with tcp_tw_reuse 2, which does reuse ports on loopback",
		Setup: func() server.Setup {
			s := nginxNginx()
			s.ProxyLoopback = true
			return s
		},
		Faults: []Fault{{
			Name: "tw-reuse-2", Cause: "time-wait-port-search", Text: "tcp_tw_reuse 2",
			Inject: func(s *server.Setup) { s.TWReuse = "2" },
		}},
		Load: load.Load{Conns: 200},
		Lead: 6 * time.Second,
	}, {
		Name:      "aborts-at-end",
		Summary:   "499s in the access log only because the load ends, inside the window",
		Setup:     nginxFPM(query),
		Load:      load.Load{Conns: 1000},
		EndInside: true,
	}, {
		Name:    "fin-timeout",
		Summary: "tcp_fin_timeout 3600, which does not set how long TIME_WAIT lasts",
		Setup:   nginxFPM(query),
		Faults:  []Fault{finTimeout()},
		Load:    load.Load{Conns: 200},
	}, {
		Name:    "healthy-idle",
		Summary: "healthy servers without any load",
		Setup:   nginxFPM(query),
	}, {
		Name:    "healthy-busy",
		Summary: "healthy servers that use all of the CPU",
		Setup:   nginxFPM(query),
		Load:    load.Load{Conns: 1000},
	}, {
		Name:    "batch-beside",
		Summary: "a busy loop of nice 19 next to a healthy service with little to do",
		Setup:   nginxFPM(query),
		Faults:  []Fault{busyLoops(1, 19)},
		Load:    load.Load{Conns: 20, Rate: 200},
	}}
	for n := range list {
		list[n].Control = true
	}
	return list
}
