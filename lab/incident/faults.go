package incident

import (
	"fmt"
	"time"

	"github.com/slowray/slowray/lab/server"
)

// query is how long the page of most incidents waits: 5 children then answer
// fewer requests than two CPUs could, 40 answer more.
const query = time.Millisecond

func conntrackMax(n int) Fault {
	return Fault{
		Name: "conntrack", Cause: "conntrack-full",
		Text:   fmt.Sprintf("nf_conntrack_max %d, with a firewall rule that tracks connections", n),
		Inject: func(s *server.Setup) { s.Track, s.ConntrackMax = true, n },
	}
}

func children(n int) Fault {
	return Fault{
		Name: "php-fpm-children", Cause: "php-fpm-children-exhausted",
		Text:   fmt.Sprintf("pm.max_children %d", n),
		Inject: func(s *server.Setup) { s.Children = n },
	}
}

// acceptQueues is incident A's: one fault, three settings, fixed together.
func acceptQueues() Fault {
	return Fault{
		Name: "accept-queue", Cause: "accept-queue-overflow",
		Text: "somaxconn 10, nginx backlog=10, php-fpm listen.backlog 511",
		Inject: func(s *server.Setup) {
			s.Somaxconn, s.NginxBacklog, s.FPMBacklog = 10, 10, 511
		},
	}
}

func nginxBacklog(n int) Fault {
	return Fault{
		Name: "nginx-backlog", Cause: "accept-queue-overflow", Says: "backlog",
		Text:   fmt.Sprintf("nginx listen backlog=%d", n),
		Inject: func(s *server.Setup) { s.NginxBacklog = n },
	}
}

func somaxconn(n int) Fault {
	return Fault{
		Name: "somaxconn", Cause: "accept-queue-overflow", Says: "somaxconn",
		Text:   fmt.Sprintf("net.core.somaxconn %d", n),
		Inject: func(s *server.Setup) { s.Somaxconn = n },
	}
}

func fpmBacklog(n int) Fault {
	return Fault{
		Name: "fpm-backlog", Cause: "accept-queue-overflow", Says: "backlog",
		Text:   fmt.Sprintf("php-fpm listen.backlog %d", n),
		Inject: func(s *server.Setup) { s.FPMBacklog = n },
	}
}

func notAccepting() Fault {
	return Fault{
		Name: "not-accepting", Cause: "accept-queue-overflow", Says: "accept",
		Text: "an application that accepts the next connection only when it is done with the last, backlog 64",
		Inject: func(s *server.Setup) {
			s.AppSerial, s.AppBacklog = true, 64
		},
	}
}

func fewPorts(n int) Fault {
	return Fault{
		Name: "ephemeral-ports", Cause: "ephemeral-ports-exhausted",
		Text:   fmt.Sprintf("ip_local_port_range of %d ports", n),
		Inject: func(s *server.Setup) { s.PortRange = n },
	}
}

func noReuse() Fault {
	return Fault{
		Name: "tw-reuse", Cause: "time-wait-port-search",
		Text:   "tcp_tw_reuse 0",
		Inject: func(s *server.Setup) { s.TWReuse = "0" },
	}
}

func workerConnections(n int) Fault {
	return Fault{
		Name: "worker-connections", Cause: "nginx-worker-connections",
		Text:   fmt.Sprintf("worker_connections %d, 2 workers", n),
		Inject: func(s *server.Setup) { s.WorkerConnections = n },
	}
}

func fileLimit(n uint64) Fault {
	return Fault{
		Name: "fd-limit", Cause: "fd-limit",
		Text:   fmt.Sprintf("soft limit of %d open files for the servers", n),
		Inject: func(s *server.Setup) { s.NoFile = n },
	}
}

func busyLoops(n, nice int) Fault {
	return Fault{
		Name: "busy-loops", Cause: "cpu-saturated",
		Text:   fmt.Sprintf("%d busy loops of another program, nice %d", n, nice),
		Inject: func(s *server.Setup) { s.Burners, s.BurnerNice = n, nice },
	}
}

func cpuQuota(cpus float64) Fault {
	return Fault{
		Name: "cpu-quota", Cause: "cpu-quota-throttled",
		Text:   fmt.Sprintf("a control group quota of %g CPUs for the servers", cpus),
		Inject: func(s *server.Setup) { s.QuotaCPUs = cpus },
	}
}

// finTimeout is incident A's decoy: the setting does not say how long
// TIME_WAIT lasts, which is fixed (TCP_TIMEWAIT_LEN, include/net/tcp.h).
func finTimeout() Fault {
	return Fault{
		Name: "fin-timeout", Text: "tcp_fin_timeout 3600", Decoy: true, RuledOut: "fin_timeout",
		Inject: func(s *server.Setup) { s.FinTimeout = 3600 },
	}
}
