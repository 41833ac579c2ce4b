package incident

import (
	"time"

	"github.com/slowray/slowray/lab/load"
	"github.com/slowray/slowray/lab/server"
)

// tomcat is a healthy Tomcat in a container with a memory limit.
func tomcat() server.Setup {
	s := server.Healthy(server.DockerTomcat)
	s.Container = server.Container{MemoryMB: 256, JavaOpts: "-Xmx96m"}
	return s
}

// underLimits is services that a limit of their own holds back, or ends.
func underLimits() []Incident {
	return []Incident{{
		Name:    "container-oom",
		Summary: "a Tomcat in a container: its heap may grow far beyond the memory limit, and the kernel kills it",
		Setup:   tomcat,
		Faults: []Fault{{
			Name: "heap", Cause: "jvm-heap-over-limit", Or: []string{"container-oom-killed"}, Alongside: []string{"memory-pressure", "page-cache-thrash"}, Says: "-Xmx",
			Text:   "a heap of up to 2 GB in a container with 256 MB",
			Inject: func(s *server.Setup) { s.Container.JavaOpts = "-Xmx2g" },
		}},
		Load:  load.Load{Conns: 10, Think: 40 * time.Millisecond},
		Quick: true,
	}, {
		Name:    "container-cpu-quota",
		Summary: "a Tomcat in a container with a tenth of a CPU, which starts for as long as anybody looks",
		Setup: func() server.Setup {
			s := tomcat()
			s.Container.Starting = true
			return s
		},
		Faults: []Fault{{
			Name: "quota", Cause: "slow-start-on-quota", Or: []string{"cpu-quota-throttled"}, Says: "quota",
			Text:   "a CPU quota of 0.1",
			Inject: func(s *server.Setup) { s.Container.CPUs = 0.1 },
		}},
		Load:  load.Load{Conns: 10, Think: 40 * time.Millisecond},
		Lead:  5 * time.Second,
		Quick: true,
	}, {
		Name:    "pids-limit",
		Summary: "a server with a thread for each connection may have fewer threads than there are clients",
		Setup:   native(server.Native{Work: 5 * time.Millisecond}),
		Faults: []Fault{{
			Name: "tasks", Cause: "pids-limit",
			Text:   "at most 20 tasks in the server's control group",
			Inject: func(s *server.Setup) { s.Tasks = 20 },
		}},
		Load:  load.Load{Conns: 40, Think: 5 * time.Millisecond},
		Quick: true,
	}, {
		Name:    "cgroup-io-throttled",
		Summary: "a Redis that waits for its disk before it answers, and a control group that may write 100 times a second",
		Setup: func() server.Setup {
			s := webAndBackend(server.WebRedis, near)()
			s.Redis.Fsync = "always"
			return s
		},
		Faults: []Fault{{
			Name: "writes", Cause: "cgroup-io-throttled", Alongside: []string{"fsync-bound", "blocked-on-disk"},
			Text:   "100 writes a second for the control group of Redis",
			Inject: func(s *server.Setup) { s.Redis.DiskWrites = 100 },
		}},
		Load:  load.Load{Conns: 20},
		Quick: true,
	}, {
		Name:    "low-cpu-weight",
		Summary: "a service with a low CPU weight, alongside busy loops with the usual one",
		Setup: func() server.Setup {
			s := nginxFPM(query)()
			s.Burners, s.CPUWeight = 2, 100
			return s
		},
		Faults: []Fault{{
			Name: "weight", Cause: "low-cpu-weight", Alongside: []string{"cpu-saturated", "run-queue-wait"},
			Text:   "a CPU weight of 2 for the servers' control group",
			Inject: func(s *server.Setup) { s.CPUWeight = 2 },
		}},
		Load:  load.Load{Conns: 20, Think: 20 * time.Millisecond},
		Quick: true,
	}, {
		Name:    "affinity-too-narrow",
		Summary: "a service that computes, on one CPU, while another one has nothing to do",
		Setup:   nginxPython(server.Python{Workers: 4, Mixed: 5000}),
		Faults: []Fault{{
			Name: "affinity", Cause: "affinity-too-narrow", Alongside: []string{"run-queue-wait", "cpu-hot-function"},
			Text:   "a CPU affinity for CPU 0",
			Inject: func(s *server.Setup) { s.CPUs = "0" },
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
			Name: "limit", Cause: "page-cache-thrash", Alongside: []string{"cgroup-io-throttled", "blocked-on-disk", "memory-pressure"},
			Text:   "a memory limit of 24 MB, and a file of 64 MB",
			Inject: func(s *server.Setup) { s.MemoryMB = 24 },
		}},
		Load:  load.Load{Conns: 20, Think: 5 * time.Millisecond},
		Quick: true,
	}}
}

// limitControls have limits of their own, and keep within them.
func limitControls() []Incident {
	list := []Incident{{
		Name:    "container-within-limit",
		Summary: "a Tomcat in a container with a heap that fits its memory limit",
		Setup:   tomcat,
		Load:    load.Load{Conns: 10, Think: 40 * time.Millisecond},
	}, {
		Name:    "cache-up-to-limit",
		Summary: "a service whose files fill its memory limit and are all in memory, with room for few more tasks",
		Setup: func() server.Setup {
			s := native(server.Native{Scan: 20})()
			s.MemoryMB, s.Tasks = 80, 30
			return s
		},
		Load: load.Load{Conns: 20, Think: 20 * time.Millisecond},
	}}
	for n := range list {
		list[n].Control, list[n].Quick = true, true
	}
	return list
}
