package cause

import "github.com/slowray/slowray/internal/observe"

func init() { nearMissesOnCPU = append(nearMissesOnCPU, nearMissesOnLimits...) }

var nearMissesOnLimits = []miss{
	{"nothing was killed", &containerOOMKilled, nil, "killed no process"},
	{"killed before the window, and back", &containerOOMKilled, func(o *observe.Observation) {
		killed(o, "python3", -60)
		o.Containers[0].State = "running"
		o.Processes = append(o.Processes, observe.Process{PID: 888, PPID: 1, Comm: "python3", Container: shopID, Cgroup: shopPath})
	}, "runs again"},
	{"another container of that name has taken its place", &containerOOMKilled, func(o *observe.Observation) {
		killed(o, "python3", -60)
		o.Containers = append(o.Containers, observe.Container{ID: "aaaaaaaaaaaa", Name: "shop", Engine: "docker", State: "running"})
	}, "runs again"},
	{"the log could not be read", &hostOOMKilled, func(o *observe.Observation) {
		o.Gaps = []observe.Gap{{Kind: observe.KindKernelLog, Because: "not permitted", Partial: true}}
	}, "could not be read"},
	{"a container of no engine that listens again", &containerOOMKilled, func(o *observe.Observation) {
		killed(o, "python3", -2)
		o.Containers = nil
		o.Filter.Port = webPort
		o.Processes = append(o.Processes, observe.Process{PID: appPID + 9, Comm: "python3", Cgroup: shopPath})
		o.Namespaces[0].Listeners = append(o.Namespaces[0].Listeners, observe.Listener{Port: appPort + 1, PIDs: []int{appPID + 9}})
		o.Connects = append(o.Connects, observe.Connect{PID: nginxWorker1, Comm: "nginx", NetNS: serverNS, Family: "inet", Addr: "10.9.8.1", Port: appPort, Calls: 50, Started: 50, Failed: 50, Refused: 50})
	}, "no service in view is the worse"},
	{"a group of no engine, three minutes before its caller began", &containerOOMKilled, func(o *observe.Observation) {
		killed(o, "python3", -180)
		o.Containers = nil
		o.OOMKills[0].Container = ""
		o.Filter.Port = webPort
		process(o, nginxWorker1).StartedAt = -20
		o.Connects = append(o.Connects, observe.Connect{PID: nginxWorker1, Comm: "nginx", NetNS: serverNS, Family: "inet", Addr: "10.9.8.1", Port: appPort, Calls: 50, Started: 50, Failed: 50, Refused: 50})
	}, "no service in view is the worse"},
	{"another one died later, and is what callers miss", &hostOOMKilled, func(o *observe.Observation) {
		k := *killed(o, "python3", -60)
		o.OOMKills = append(o.OOMKills, observe.OOMKill{At: -300, PID: 777, Comm: "java", Host: true, Cgroup: "/system.slice/old.service", Unit: "old.service"})
		_ = k
		o.Filter.Port = webPort
		o.Connects = append(o.Connects, observe.Connect{PID: nginxWorker1, Comm: "nginx", NetNS: serverNS, Family: "inet", Addr: "10.9.8.1", Port: appPort, Calls: 50, Started: 50, Failed: 50, Refused: 50})
	}, "no service in view is the worse"},
	{"removed ten minutes ago", &containerOOMKilled, func(o *observe.Observation) {
		killed(o, "python3", -600)
		o.Containers[0] = observe.Container{ID: shopID, Name: "shop", Engine: "docker", State: "removed", EndedAt: -600}
	}, "was removed since"},
	{"a batch job in a group of its own", &containerOOMKilled, func(o *observe.Observation) {
		o.OOMKills = []observe.OOMKill{{At: 3, PID: 900, Comm: "gzip", Cgroup: "/batch", LimitCgroup: "/batch", AnonBytes: 60 << 20, LimitBytes: 64 << 20}}
	}, "gzip (pid 900) was killed"},
	{"a container that nobody asked for", &containerOOMKilled, func(o *observe.Observation) {
		killed(o, "python3", -60)
		o.Filter.Port = webPort
	}, "no service in view is the worse"},
	{"another container was asked for", &containerOOMKilled, func(o *observe.Observation) {
		killed(o, "python3", -60)
		o.Filter.Container = "ffffffffffff"
	}, "no service in view is the worse"},
	{"a process outside any service", &hostOOMKilled, func(o *observe.Observation) {
		o.OOMKills = []observe.OOMKill{{At: 3, PID: 900, Comm: "stress", Host: true, Cgroup: "/user.slice/session-1.scope", Unit: "session-1.scope"}}
	}, "stress (pid 900) was killed"},
	{"a heap that could outgrow its limit, and has not", &jvmHeapOverLimit, func(o *observe.Observation) {
		_, c := grouped(o, "java", 1, 0)
		c.MemoryLimitBytes, c.MemoryUsedBytes = 512<<20, 300<<20
		o.Heaps = []observe.Heap{{PID: appPID, Comm: "java", Runtime: "jvm", MaxBytes: 2 << 30, From: "-Xmx2g"}}
	}, "it was not killed"},
	{"killed with a heap well below its limit", &jvmHeapOverLimit, func(o *observe.Observation) {
		killed(o, "java", 4)
		o.Heaps = []observe.Heap{{PID: appPID, Comm: "java", Runtime: "jvm", MaxBytes: 128 << 20, From: "-Xmx128m"}}
	}, "the heap of java"},
	{"no option", &nodeHeapOverLimit, func(o *observe.Observation) { killed(o, "node", 4) }, "no such runtime"},
	{"one large process among small ones", &workersOverLimit, func(o *observe.Observation) {
		killed(o, "gunicorn", 4)
		for i := range 7 {
			o.Processes = append(o.Processes, observe.Process{PID: appPID + 1 + i, PPID: 1, Comm: "gunicorn", Container: shopID, Cgroup: shopPath})
		}
	}, "no worker of several"},
	{"killed once", &leakTowardLimit, func(o *observe.Observation) { killed(o, "app", 4) }, "twice"},
	{"killed twice for the heap's limit", &leakTowardLimit, func(o *observe.Observation) {
		k := *killed(o, "java", 4)
		k.At = -236
		o.OOMKills = append([]observe.OOMKill{k}, o.OOMKills...)
		o.Heaps = []observe.Heap{{PID: appPID, Comm: "java", Runtime: "jvm", MaxBytes: 2 << 30}}
	}, "explains that"},
	{"nobody was refused", &slowStart, func(o *observe.Observation) {
		begins(o)
		o.Connects = o.Connects[:len(o.Connects)-1]
	}, "nobody was refused"},
	{"what was refused lies elsewhere", &slowStart, func(o *observe.Observation) {
		begins(o)
		o.Connects[len(o.Connects)-1].Addr = "10.200.0.1"
	}, "nobody was refused"},
	{"it served before", &slowStart, func(o *observe.Observation) {
		begins(o)
		o.Namespaces[0].Listeners = append(o.Namespaces[0].Listeners, observe.Listener{Proto: "tcp", Port: 8080, PID: appPID, PIDs: []int{appPID}})
	}, "no service starts"},
	{"throttled, but it hardly waits", &slowStart, func(o *observe.Observation) {
		p, _ := begins(o)
		p.UserSeconds, p.RunDelaySeconds = 5, 1
	}, "waited 17 %"},
	{"a low weight, and CPUs with time to spare", &lowCPUWeight, func(o *observe.Observation) {
		_, c := grouped(o, "app", 3, 0.1)
		c.CPUWeight = 2
		with(o, appServed().add(100, ms, ms, 0, computed))
	}, "no request is slow for that"},
	{"a low weight against the service's own clients", &lowCPUWeight, func(o *observe.Observation) {
		starved(o)
		o.Cgroups[0].CPUWeight = 2
		process(o, hog).UserSeconds = 0.1
	}, "have nice 0, and no control group"},
	{"the usual weight", &lowCPUWeight, func(o *observe.Observation) { starved(o) }, "have nice 0, and no control group"},
	{"one CPU, and the whole machine is full", &affinityTooNarrow, func(o *observe.Observation) { starved(o).CPUs = "0" }, "and the others idle"},
	{"all CPUs allowed", &affinityTooNarrow, func(o *observe.Observation) { starved(o) }, "may run on all CPUs"},
	{"a real-time process that nobody waits for", &realtimeHog, func(o *observe.Observation) {
		app(o, "app", 1, 0)
		process(o, hog).UserSeconds, process(o, hog).Policy = 9, "fifo"
		with(o, appServed().add(100, ms, ms, 0, quick))
	}, "no request is slow for that"},
	{"a real-time process on a CPU of its own", &realtimeHog, func(o *observe.Observation) {
		p := starved(o)
		p.CPUs, p.UserSeconds = "0", 9.8
		process(o, hog).UserSeconds, process(o, hog).Policy = 10, "fifo"
		o.Use.PerCPU = []observe.CPUTime{{User: 9.9, Idle: 0.1}, {User: 10}}
	}, "but not of those"},
	{"a real-time process on another CPU than that of the service", &realtimeHog, func(o *observe.Observation) {
		p := starved(o)
		p.CPUs, p.UserSeconds, p.SystemSeconds = "0", 1, 0
		process(o, hog).UserSeconds, process(o, hog).Policy = 10, "fifo"
		o.Use.PerCPU = []observe.CPUTime{{User: 1.5, Idle: 8.5}, {User: 10}}
	}, "but not of those"},
	{"a real-time process with one of 32 CPUs", &realtimeHog, func(o *observe.Observation) {
		starved(o)
		process(o, hog).UserSeconds, process(o, hog).Policy = 10, "fifo"
		o.Use.CPU = observe.CPUTime{User: 60, Idle: 260}
	}, "but not of those"},
	{"a real-time process with little to do", &realtimeHog, func(o *observe.Observation) {
		starved(o)
		process(o, hog).UserSeconds, process(o, hog).Policy = 0.5, "rr"
	}, "uses 5.0 % of a CPU"},
	{"stolen time, and requests that wait for others", &cpuSteal, func(o *observe.Observation) {
		app(o, "app", 1, 0)
		o.Use.CPU = observe.CPUTime{User: 3, Steal: 2, Idle: 15}
		with(o, appServed().add(100, ms, ms, 0, computed))
		followed(o, map[observe.ServerPart]float64{observe.ServerSleep: 0.98, observe.ServerCPU: 0.02})
	}, "of the requests on"},
	{"hardly any", &cpuSteal, func(o *observe.Observation) { o.Use.CPU.Steal = 0.1 }, "the hypervisor took"},
	{"it hardly collects", &jvmSerialGC, func(o *observe.Observation) { serial(o).GCSeconds = 0.05 }, "0.5 % of the time"},
	{"an option asked for it", &jvmSerialGC, func(o *observe.Observation) { serial(o).Chosen = true }, "which an option asks for"},
	{"it may use two CPUs", &jvmSerialGC, func(o *observe.Observation) {
		serial(o)
		o.Cgroups[0].QuotaCPUs = 2
	}, "more than one CPU"},
	{"memory.high passed now and then", &memoryHighThrottled, func(o *observe.Observation) {
		_, c := grouped(o, "app", 1, 0)
		with(o, appServed().add(100, ms, ms, 0, quick))
		c.MemoryHighBytes, c.MemoryUsedBytes, c.MemoryAtHigh, c.MemoryStallSeconds = 100<<20, 100<<20, 3, 0.01
	}, "it passed it 3 times"},
	{"page cache up to the limit, and nothing is read twice", &pageCacheThrash, func(o *observe.Observation) {
		c := onDisk(o)
		c.MemoryLimitBytes, c.MemoryUsedBytes, c.Refaults = 64<<20, 64<<20, 100
	}, "10 pages of files a second"},
	{"files read again by what no request waits for", &pageCacheThrash, func(o *observe.Observation) {
		_, c := grouped(o, "app", 1, 0)
		c.MemoryLimitBytes, c.MemoryUsedBytes, c.Refaults = 64<<20, 64<<20, 90_000
		with(o, appServed().add(100, ms, ms, 0, quick))
	}, "no request is slow for it"},
	{"half of the limit used", &cgroupIOThrottled, func(o *observe.Observation) {
		onDisk(o).IO = []observe.IOLimit{{Disk: "vda", WriteIOPS: 100, Writes: 500}}
	}, "used 50 %"},
	{"all of it, in the background", &cgroupIOThrottled, func(o *observe.Observation) {
		_, c := grouped(o, "app", 1, 0)
		c.IO = []observe.IOLimit{{Disk: "vda", WriteIOPS: 100, Writes: 1000}}
		with(o, appServed().add(100, ms, ms, 0, quick))
	}, "no request is slow for it"},
	{"refused, and all requests answered", &pidsLimit, func(o *observe.Observation) {
		_, c := grouped(o, "app", 1, 0)
		c.PIDsLimit, c.Tasks, c.PIDsRefused = 20, 20, 50
		with(o, appServed().add(100, ms, ms, 0, quick))
	}, "answered in time"},
	{"near its limit", &pidsLimit, func(o *observe.Observation) {
		_, c := grouped(o, "app", 1, 0)
		c.PIDsLimit, c.Tasks = 20, 19
		with(o, appServed().add(100, ms, ms, 0, quick))
	}, "19 of 20 tasks"},
}
