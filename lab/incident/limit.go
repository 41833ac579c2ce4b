package incident

import (
	"time"

	"github.com/slowray/slowray/lab/load"
	"github.com/slowray/slowray/lab/server"
)

// underLimits is services that a limit of their own holds back, or ends.
func underLimits() []Incident {
	return []Incident{{
		Name:    "pids-limit",
		Summary: "a server with a thread for each connection may have fewer threads than there are clients",
		Setup:   native(server.Native{Work: 5 * time.Millisecond}),
		Faults: []Fault{{
			Name: "tasks", Cause: "pids-limit",
			Text:  "at most 20 tasks in the server's control group",
			Plant: func(s *server.Setup) { s.Tasks = 20 },
		}},
		Load:  load.Load{Conns: 40, Think: 5 * time.Millisecond},
		Quick: true,
	}, {
		Name:    "low-cpu-weight",
		Summary: "a service with a low CPU weight, beside busy loops with the usual one",
		Setup: func() server.Setup {
			s := nginxFPM(query)()
			s.Burners, s.CPUWeight = 2, 100
			return s
		},
		Faults: []Fault{{
			Name: "weight", Cause: "low-cpu-weight", Beside: []string{"cpu-saturated", "run-queue-wait"},
			Text:  "a CPU weight of 2 for the servers' control group",
			Plant: func(s *server.Setup) { s.CPUWeight = 2 },
		}},
		Load:  load.Load{Conns: 20, Think: 20 * time.Millisecond},
		Quick: true,
	}, {
		Name:    "affinity-too-narrow",
		Summary: "a service that computes, on one CPU, while another one has nothing to do",
		Setup:   nginxPython(server.Python{Workers: 4, Mixed: 5000}),
		Faults: []Fault{{
			Name: "affinity", Cause: "affinity-too-narrow", Beside: []string{"run-queue-wait", "cpu-hot-function"},
			Text:  "a CPU affinity for CPU 0",
			Plant: func(s *server.Setup) { s.CPUs = "0" },
		}},
		Load:  load.Load{Conns: 10},
		Quick: true,
	}, {
		Name:    "page-cache-thrash",
		Summary: "a service reads here and there in a file that its memory limit has no room for, on a disk that is not quick",
		Setup: func() server.Setup {
			s := native(server.Native{Scan: 20})()
			s.MemoryMB, s.ReadMB = 256, 60
			return s
		},
		Faults: []Fault{{
			Name: "limit", Cause: "page-cache-thrash", Beside: []string{"cgroup-io-throttled", "blocked-on-disk", "memory-pressure"},
			Text:  "a memory limit of 24 MB, and a file of 64 MB",
			Plant: func(s *server.Setup) { s.MemoryMB = 24 },
		}},
		Load:  load.Load{Conns: 20, Think: 5 * time.Millisecond},
		Quick: true,
	}}
}
