package cause

import (
	"github.com/slowray/slowray/internal/observe"
)

// firingOnCPU are the causes that are judged by what threads do with the CPUs,
// see firing.
var firingOnCPU = []fires{
	{
		name: "a lock whose owner is written nowhere", cause: &lockConvoy, inject: behindALock("python3.11", 0.7),
		subject: Subject{PID: appPID, Comm: "app", Port: appPort}, minShare: 0.65, fix: "wait for each other", evidence: "woke theirs=300",
	},
	{
		name: "node computes for all", cause: &singleThreadSaturated, inject: eventLoop("node"),
		subject: Subject{Kind: "process", PID: appPID, Comm: "app", Port: appPort, NetNS: serverNS}, minShare: 0.9,
		fix: "worker_threads", evidence: "the main thread of app (pid 500) is on a CPU, while the slowest requests are under way=0.97",
	},
	{
		name: "node computes for all, next to a build with a nice value", cause: &singleThreadSaturated,
		inject: func(o *observe.Observation) {
			eventLoop("node")(o)
			o.Use.CPU = observe.CPUTime{User: 11, Nice: 8, System: 0.9, Idle: 0.1}
		},
		subject: Subject{PID: appPID}, minShare: 0.9, fix: "worker_threads", evidence: "used by niced processes=0.81",
	},
	{
		name: "one thread of several, and what it executes", cause: &singleThreadSaturated,
		inject: func(o *observe.Observation) {
			p := app(o, "redis-server", 10.2, 0.3)
			p.Threads = 5
			p.Busiest = []observe.Thread{{TID: appThread, Comm: "main_loop", CPUSeconds: 9.7}, {TID: appThread + 1, Comm: "io_thd_1", CPUSeconds: 0.3}}
			with(o, appServed().add(1000, ms, ms, 0, queued))
			o.Use.CPU = observe.CPUTime{User: 11, System: 1, Idle: 8}
			o.Profile.Processes = append(o.Profile.Processes, observe.ProfileProcess{PID: appPID, Samples: 990, Threads: []observe.ProfileThread{
				{TID: appThread, Samples: 900, Functions: []observe.ProfileFunction{function(observe.FrameNative, "keysCommand", "redis-server", 300, 700, 2)}}}})
		},
		subject: Subject{PID: appPID, Port: appPort}, minShare: 0.9, fix: "SLOWLOG GET", evidence: "it executes keysCommand (redis-server)=0.778",
	},
	{
		name: "one worker of two is busy while the load lasts, in half of the window", cause: &singleThreadSaturated,
		inject: func(o *observe.Observation) {
			p := app(o, "nginx", 4.8, 0)
			p.Course = course(appPID, 0.02, 0)
			for i := range 20 {
				p.Course[i].TopCPU = 0.24
			}
			t := appServed().add(1000, ms, ms, 0, queued)
			t.e.Arrivals = make([]uint32, 100)
			for i := range 50 {
				t.e.Arrivals[i] = 20
			}
			with(o, t)
			for i := range o.Endpoints[0].Slowest {
				o.Endpoints[0].Slowest[i].StartNS /= 3
			}
		},
		subject: Subject{PID: appPID}, minShare: 0.9, fix: "worker_processes auto",
	},
	{
		name: "each request computes 300 ms in one function", cause: &cpuHotFunction,
		inject: func(o *observe.Observation) {
			app(o, "app", 9.3, 0)
			with(o, appServed().add(30, ms, ms, 0, computed))
			sampled(o, appPID, 930, collapse...)
		},
		subject: Subject{Kind: "process", PID: appPID, Port: appPort, Path: "app"}, minShare: 0.9,
		fix: "Have price_of_route do less", evidence: "CPU time in price_of_route (app), with what it calls=0.968",
	},
	{
		name: "one of nine requests computes 24 of 36 ms, in an interpreter whose functions are not known", cause: &cpuHotFunction,
		inject:  pricedAtTimes(0.66, observe.ServerCPU, interpreted...),
		subject: Subject{Kind: "process", PID: appPID, Port: appPort, Path: "libpython3.11.so.1.0"}, minShare: 0.6,
		fix: "Find which function of the Python code it is", evidence: "with what it calls=0.668",
	},
	{
		name: "the CPUs are full of one function of the service", cause: &cpuHotFunction,
		inject: func(o *observe.Observation) {
			app(o, "php-fpm8.2", 19, 60)
			full(o)
			with(o, appServed().add(1000, ms, ms, 0, parts{observe.AcceptWait: 50 * ms, observe.Server: 40 * ms}))
			sampled(o, appPID, 1800, observe.ProfileFunction{Frame: observe.Frame{Name: "execute_ex", Kind: observe.FrameNative, Module: "php-fpm8.2"}, Self: 1600, Total: 1750},
				observe.ProfileFunction{Frame: observe.Frame{Name: "price_of_route", Kind: observe.FramePHP, File: "/srv/www/index.php", Line: 12}, Own: 1600, Total: 1700, Height: 3})
		},
		subject: Subject{PID: appPID, Path: "/srv/www/index.php:12"}, minShare: 0.9, fix: "Have price_of_route do less", evidence: "most of it themselves=price_of_route 89 %;",
	},
	{
		name: "many children that compute a little each, on CPUs that others fill too", cause: &cpuHotFunction,
		inject: func(o *observe.Observation) {
			app(o, "php-fpm8.2", 4, 60)
			o.Processes = append(o.Processes, *process(o, appPID))
			o.Processes[len(o.Processes)-1].PID, o.Processes[len(o.Processes)-1].UserSeconds = appPID+1, 4
			full(o)
			process(o, hog).UserSeconds = 9
			t := appServed().add(1500, ms, ms, 0, parts{observe.Server: 56 * ms})
			t.e.PIDs = []int{appPID, appPID + 1}
			with(o, t)
			followed(o, map[observe.ServerPart]float64{observe.ServerCPU: 0.082, observe.ServerRunq: 0.918})
			for pid := appPID; pid < appPID+2; pid++ {
				o.Profile.Processes = append(o.Profile.Processes, observe.ProfileProcess{PID: pid, Samples: 390, Looked: 30, Functions: []observe.ProfileFunction{
					{Frame: observe.Frame{Name: "price_of_route", Kind: observe.FramePHP, File: "/srv/www/index.php", Line: 12}, Self: 29, Own: 29, Total: 29}}})
			}
		},
		subject: Subject{PID: appPID, Path: "/srv/www/index.php:12"}, minShare: 0.35, fix: "price_of_route", evidence: "why its requests wait for it=the CPUs are full (1.0 % idle), 40 % of what is used by the service",
	},
	{
		name: "one request of a hundred computes", cause: &cpuHotFunction,
		inject: func(o *observe.Observation) {
			p := app(o, "app", 7, 0)
			p.Course = course(appPID, 0.9, 0)
			with(o, appServed().add(1000, ms, ms, 0, quick).add(20, ms, ms, 0, computed))
			sampled(o, appPID, 700, function(observe.FrameNative, "match", "libpcre2-8.so", 600, 600, 0))
		},
		subject: Subject{PID: appPID, Path: "libpcre2-8.so"}, minShare: 0.8, fix: "limit on its input",
	},
	{
		name: "few requests compute, and all others wait behind them", cause: &cpuHotFunction,
		inject: func(o *observe.Observation) {
			eventLoop("node")(o)
			with(o, appServed().add(3000, ms, ms, 0, parts{observe.RecvWait: ms / 10, observe.Server: ms / 20}).
				add(150, ms, ms, 0, parts{observe.RecvWait: 98 * ms, observe.Server: ms / 20}).add(10, ms, ms, 0, parts{observe.RecvWait: 40 * ms, observe.Server: 60 * ms}))
			followed(o, map[observe.ServerPart]float64{observe.ServerCPU: 1})
			sampled(o, appPID, 900, observe.ProfileFunction{Frame: observe.Frame{Name: "price", Kind: observe.FrameNode, File: "/srv/busy.js", Line: 2}, Self: 800, Own: 800, Total: 850})
		},
		subject: Subject{PID: appPID, Path: "/srv/busy.js:2"}, minShare: 0.8, fix: "Have price do less", evidence: "the main thread of app (pid 500) computes all the time",
	},
	{
		name: "Python code, of which the function is not known", cause: &cpuHotFunction,
		inject: func(o *observe.Observation) {
			app(o, "python3.11", 9, 0)
			with(o, appServed().add(30, ms, ms, 0, computed))
			sampled(o, appPID, 900, function(observe.FrameNative, "_PyEval_EvalFrameDefault", "python3.11", 700, 880, 0.2))
		},
		subject: Subject{PID: appPID}, minShare: 0.9, fix: "function of the Python code",
	},
	{
		name: "threads of Python that wait for each other's turns in one function", cause: &cpuHotFunction,
		inject: func(o *observe.Observation) {
			p := app(o, "python3.11", 9.5, 5)
			p.Threads = 5
			p.Busiest = []observe.Thread{{TID: 501, CPUSeconds: 3.2}, {TID: 502, CPUSeconds: 3.2}, {TID: 503, CPUSeconds: 3.1}}
			with(o, appServed().add(500, ms, ms, 0, parts{observe.Server: 165 * ms}))
			followed(o, map[observe.ServerPart]float64{observe.ServerLock: 0.67, observe.ServerCPU: 0.16, observe.ServerRunq: 0.17})
			sampled(o, appPID, 900, observe.ProfileFunction{Frame: observe.Frame{Name: "price_of_route", Kind: observe.FramePython, File: "/srv/app.py", Line: 6}, Self: 300, Own: 870, Total: 880, Height: 1})
		},
		subject: Subject{PID: appPID, Path: "/srv/app.py:6"}, minShare: 0.9, fix: "price_of_route", evidence: "take turns to compute",
	},
	{
		name: "four threads of one Python process", cause: &gilContention,
		inject: func(o *observe.Observation) {
			p := app(o, "python3.11", 10.1, 20)
			p.Threads = 5
			p.Busiest = []observe.Thread{{TID: 501, CPUSeconds: 2.7}, {TID: 502, CPUSeconds: 2.6}, {TID: 503, CPUSeconds: 2.4}, {TID: 504, CPUSeconds: 2.3}}
			with(o, appServed().add(200, ms, ms, 0, computed))
			o.Use.CPU = observe.CPUTime{User: 11, System: 1, Idle: 8}
		},
		subject: Subject{Kind: "process", PID: appPID, Port: appPort}, minShare: 0.9, fix: "more processes instead of more threads", evidence: "its busiest threads=501 2.7 s",
	},
	{
		name: "a thread that serves nothing keeps the interpreter's lock", cause: &gilContention, inject: indexing(0.97, waitsForTurn),
		subject: Subject{Kind: "process", PID: appPID, Port: appPort, Path: "rebuild_index gil.py:5"}, minShare: 0.8,
		fix: "Move rebuild_index (rebuild_index gil.py:5) out", evidence: "threads that serve no request and compute=thread 522, in rebuild_index gil.py:5",
	},
	{
		name: "a JVM stands still while it collects", cause: &gcPauses,
		inject: func(o *observe.Observation) {
			p := app(o, "java", 8, 0)
			p.Threads, p.RSSBytes = 40, 500<<20
			p.Busiest = []observe.Thread{{TID: 510, Comm: "GC Thread#0", CPUSeconds: 3}, {TID: 511, Comm: "GC Thread#1", CPUSeconds: 2.8}, {TID: 501, Comm: "exec-1", CPUSeconds: 1}}
			p.Course = course(510, 0.7, 0)
			with(o, appServed().add(1000, ms, ms, 0, quick).add(40, ms, ms, 0, parts{observe.Server: 400 * ms}))
		},
		subject: Subject{Kind: "process", PID: appPID, Port: appPort}, minShare: 0.6, fix: "larger heap", evidence: "CPU time in which garbage is collected=0.725",
	},
	{
		name: "a Go service that helps its collector", cause: &gcPauses,
		inject: func(o *observe.Observation) {
			app(o, "app", 9, 0)
			with(o, appServed().add(30, ms, ms, 0, computed))
			sampled(o, appPID, 900, function(observe.FrameGo, "runtime.gcAssistAlloc", "app", 10, 500, 3), function(observe.FrameGo, "runtime.scanobject", "app", 400, 410, 0))
		},
		subject: Subject{PID: appPID}, minShare: 0.5, fix: "GOMEMLIMIT", evidence: "by runtime.gcAssistAlloc=0.556",
	},
	{
		name: "a Go service near its GOMEMLIMIT collects in workers and in requests", cause: &gcPauses,
		inject: func(o *observe.Observation) {
			app(o, "app", 9, 0).Go = true
			with(o, appServed().add(30, ms, ms, 0, computed))
			o.Heaps = []observe.Heap{{PID: appPID, Comm: "app", Runtime: "go", MaxBytes: 64 << 20, From: "GOMEMLIMIT=64MiB"}}
			sampled(o, appPID, 900, function(observe.FrameGo, "runtime.gcBgMarkWorker", "app", 10, 200, 3), function(observe.FrameGo, "runtime.gcAssistAlloc", "app", 10, 150, 3))
		},
		subject: Subject{PID: appPID}, minShare: 0.35, fix: "GOMEMLIMIT=128MiB, where it has 64 MB (GOMEMLIMIT=64MiB)", evidence: "how far its heap may grow=64 MB",
	},
	{
		name: "a JVM collects without end, and no request is answered", cause: &gcPauses,
		inject: func(o *observe.Observation) {
			app(o, "java", 9.5, 0).Busiest = []observe.Thread{{TID: 510, Comm: "GC Thread#0", CPUSeconds: 8.5}, {TID: 501, Comm: "exec-1", CPUSeconds: 0.1}}
			t := appServed()
			t.e.Unfinished = 40
			with(o, t)
			o.Heaps = []observe.Heap{{PID: appPID, Comm: "java", Runtime: "jvm", MaxBytes: 76 << 20, UsedBytes: 75 << 20, From: "-Xmx76m", Published: true, Collections: 300, GCSeconds: 9.4}}
		},
		subject: Subject{Kind: "process", PID: appPID, Port: appPort}, minShare: 0.9, fix: "-Xmx152m, where it has 76 MB", evidence: "in collections=9.4",
	},
	{
		name: "an event loop computes for 300 ms now and then", cause: &eventLoopBlocked,
		inject: func(o *observe.Observation) {
			p := app(o, "node", 4, 0)
			p.Course = course(appPID, 0.8, 0)
			with(o, appServed().add(1000, ms, ms, 0, quick).add(40, ms, ms, 0, readLate))
			together(o)
			sampled(o, appPID, 400, function(observe.FrameNode, "parseAll", "app.js", 300, 350, 0))
		},
		subject: Subject{Kind: "process", PID: appPID, Port: appPort}, minShare: 0.8, fix: "worker_threads", evidence: "it executes parseAll",
	},
	{
		name: "an event loop makes a call that blocks", cause: &eventLoopBlocked,
		inject: func(o *observe.Observation) {
			p := app(o, "python3.11", 0.5, 0)
			p.Course = course(appPID, 0.05, 0)
			p.States.Waiting, p.States.Samples = 12, 52
			with(o, appServed().add(1000, ms, ms, 0, quick).add(40, ms, ms, 0, readLate))
			together(o)
		},
		subject: Subject{PID: appPID}, minShare: 0.8, fix: "a call that blocks", evidence: "in another call=0, 12",
	},
	{
		name: "an event loop computes in a few requests, each of which holds up others", cause: &eventLoopBlocked,
		inject: func(o *observe.Observation) {
			p := app(o, "python3.11", 3.5, 0)
			p.Course = course(appPID, 0.35, 0)
			with(o, appServed().add(10, ms, ms, 0, longest).add(400, ms, ms, 0, behind).add(400, ms, ms, 0, quick))
			longAndBehind(o, 20*ms)
			followed(o, map[observe.ServerPart]float64{observe.ServerCPU: 0.97})
		},
		subject: Subject{PID: appPID, Port: appPort}, minShare: 0.8, fix: "Something computes in the event loop",
	},
	{
		name: "a reload that looks at thousands of files all the time", cause: &autoreloadStatStorm,
		inject: func(o *observe.Observation) {
			p := app(o, "python3.11", 9.6, 0)
			p.Course = course(appPID, 0.97, 0)
			with(o, appServed().add(1000, ms, ms, 0, queued))
			sampled(o, appPID, 900, function(observe.FrameKernel, "vfs_statx", "vmlinux", 100, 700, 2), function(observe.FrameNative, "_PyEval_EvalFrameDefault", "python3.11", 100, 890, 6))
		},
		subject: Subject{PID: appPID}, minShare: 0.7, fix: "automatic reload",
	},
	{
		name: "pinned to one CPU, with others", cause: &runQueueWait,
		inject: func(o *observe.Observation) {
			p := app(o, "app", 2, 7.5)
			p.CPUs, p.Course = "0", course(appPID, 0.2, 0.75)
			o.Host.CPUs = 4
			with(o, appServed().add(200, ms, ms, 0, computed))
		},
		subject: Subject{Kind: "process", PID: appPID, Port: appPort}, minShare: 0.7, fix: "taskset --all-tasks --cpu-list --pid 0-3 500", evidence: "CPUs that pid 500 may run on=0",
	},
	{
		name: "a batch takes all CPUs, for a second at a time", cause: &runQueueWait,
		inject: func(o *observe.Observation) {
			p := app(o, "app", 2, 3)
			p.Course = course(appPID, 0.2, 0.7)
			with(o, appServed().add(1000, ms, ms, 0, quick).add(40, ms, ms, 0, readLate))
		},
		subject: Subject{PID: appPID}, minShare: 0.55, fix: "in bursts", evidence: "waits for a CPU, while the slowest requests are under way=0.7",
	},
	{
		name: "a neighbour at times, as the requests themselves show", cause: &runQueueWait,
		inject: func(o *observe.Observation) {
			p := app(o, "app", 2, 2)
			p.Course = course(appPID, 0.2, 0.2)
			with(o, appServed().add(200, ms, ms, 0, computed))
			followed(o, map[observe.ServerPart]float64{observe.ServerCPU: 0.3, observe.ServerRunq: 0.7})
		},
		subject: Subject{PID: appPID}, minShare: 0.65, fix: "in bursts",
	},
	{
		name: "a quota, as the requests themselves show", cause: &cpuQuotaThrottled,
		inject: func(o *observe.Observation) {
			app(o, "app", 1, 2)
			with(o, appServed().add(100, ms, ms, 0, computed))
			followed(o, map[observe.ServerPart]float64{observe.ServerCPU: 0.1, observe.ServerThrottled: 0.6, observe.ServerSleep: 0.3})
			o.Cgroups = []observe.Cgroup{{Path: "/x", Version: 2, PIDs: []int{appPID}, QuotaCPUs: 0.1, Periods: 100, ThrottledPeriods: 90, ThrottledSeconds: 2}}
		},
		subject: Subject{Kind: "cgroup", PID: appPID, Port: appPort}, minShare: 0.59, fix: "Raise the quota", evidence: "of the requests' time, held back by the quota=180",
	},
	{
		name: "a quota that was lifted before the window ended", cause: &cpuQuotaThrottled,
		inject: func(o *observe.Observation) {
			app(o, "app", 1, 2)
			with(o, appServed().add(100, ms, ms, 0, computed))
			followed(o, map[observe.ServerPart]float64{observe.ServerCPU: 0.1, observe.ServerThrottled: 0.6, observe.ServerSleep: 0.3})
			o.Cgroups = []observe.Cgroup{{Path: "/x", Version: 2, PIDs: []int{appPID}, Periods: 100, ThrottledPeriods: 90, ThrottledSeconds: 2}}
		},
		subject: Subject{Kind: "cgroup", PID: appPID, Port: appPort}, minShare: 0.59, fix: "The quota is gone by now", evidence: "quota at the end of the window=none: it was lifted",
	},
	{
		name: "each page starts a program", cause: &shortLivedProcessStorm,
		inject: func(o *observe.Observation) {
			app(o, "php-fpm8.2", 1, 0)
			with(o, appServed().add(90, ms, ms, 0, forked))
			o.Use.Forks = 180
			o.Profile.ShortLived = []observe.ProfileShort{{Comm: "convert", Parent: appPID, ParentComm: "app", Processes: 80, Samples: 850}}
		},
		subject: Subject{Kind: "process", PID: appPID, Comm: "app"}, minShare: 0.7, fix: "start convert less often", evidence: "a request starts them: 97.4 ms",
	},
	{
		name: "a script next to the service starts programs without end", cause: &shortLivedProcessStorm,
		inject: func(o *observe.Observation) {
			app(o, "app", 1, 9)
			full(o)
			with(o, appServed().add(100, ms, ms, 0, computed))
			o.Use.Forks = 9000
			o.Profile.ShortLived = []observe.ProfileShort{{Comm: "grep", Parent: hog, ParentComm: "backup", Processes: 900, Samples: 1000}}
		},
		subject: Subject{PID: hog, Comm: "backup"}, minShare: 0.45, fix: "backup (pid 300) start grep", evidence: "processes and threads that begin=900",
	},
	{
		name: "ksoftirqd takes the CPU of the service", cause: &kernelThreadBusy,
		inject: func(o *observe.Observation) {
			p := app(o, "app", 1, 8)
			p.Course = course(appPID, 0.1, 0.8)
			with(o, appServed().add(200, ms, ms, 0, computed))
			o.Processes = append(o.Processes, observe.Process{PID: ksoftirqd, PPID: 2, Comm: "ksoftirqd/0", Kernel: true, SystemSeconds: 5})
			sampled(o, ksoftirqd, 480, function(observe.FrameKernel, "run_ksoftirqd", "vmlinux", 0, 480, 9), function(observe.FrameKernel, "net_rx_action", "vmlinux", 30, 470, 5),
				function(observe.FrameKernel, "tcp_conn_request", "vmlinux", 120, 300, 1))
		},
		subject: Subject{Kind: "process", PID: ksoftirqd, Comm: "ksoftirqd/0"}, minShare: 0.6, fix: "Find the packets", evidence: "handshakes of TCP: SYNs (tcp_conn_request, 62 % of its samples)",
	},
	{
		name: "a kworker takes a CPU of a service whose requests are brief", cause: &kernelThreadBusy,
		inject: func(o *observe.Observation) {
			p := app(o, "php-fpm8.2", 4, 14)
			p.Course = course(appPID, 0.2, 0.7)
			full(o)
			with(o, appServed().add(1000, ms, ms, 0, brief))
			o.Processes = append(o.Processes, observe.Process{PID: 60, PPID: 2, Comm: "kworker/u8:1+loop0", Kernel: true, SystemSeconds: 3},
				observe.Process{PID: 61, PPID: 2, Comm: "kworker/u8:2-flush-7:0", Kernel: true, SystemSeconds: 2})
		},
		subject: Subject{PID: 60, Comm: "kworker/u8:1+loop0"}, minShare: 0.6, fix: "Its stacks name the driver",
	},
	{
		name: "kswapd, and a service that waits for memory", cause: &kernelThreadBusy,
		inject: func(o *observe.Observation) {
			p := app(o, "app", 1, 0.1)
			p.States = &observe.ThreadStates{Rounds: 40, Samples: 40, Disk: 30, Poll: 10}
			with(o, appServed().add(200, ms, ms, 0, computed))
			o.Processes = append(o.Processes, observe.Process{PID: 60, PPID: 2, Comm: "kswapd0", Kernel: true, SystemSeconds: 4})
		},
		subject: Subject{PID: 60, Comm: "kswapd0"}, minShare: 0.9, fix: "Memory is short",
	},
	{
		name: "SYNs whose sender resets what answers them, next to a service that sleeps", cause: &softirqSaturated,
		inject: func(o *observe.Observation) {
			app(o, "app", 0.7, 2.3)
			with(o, appServed().add(2000, ms, ms, 0, quick))
			flood(o)
			ns(o).Counters["Tcp.AttemptFails"], ns(o).Counters["Tcp.InSegs"] = 1_986_847, 4_001_552
			ns(o).Interfaces = []observe.Interface{{Name: "eth0", RxPackets: 4_001_881, RxBytes: 217_573_756}}
		},
		subject: Subject{NetNS: serverNS, Comm: "ksoftirqd/0"}, minShare: 0.5, fix: "Drop the flood early", evidence: "handshakes that came to nothing=1986847",
	},
	{
		name: "a flood of SYNs from one address", cause: &softirqSaturated,
		inject: func(o *observe.Observation) {
			flood(o)
			o.Use.SoftIRQs = map[string][]uint64{"NET_RX": {900_000, 100}, "TIMER": {2500, 2500}}
			ns(o).Interfaces = []observe.Interface{{Name: "eth0", RxPackets: 2_000_000, RxBytes: 120_000_000}}
			o.Use.Flows = []observe.Flow{
				{NetNS: serverNS, Interface: "eth0", Proto: "tcp syn", Port: webPort, Peer: "10.9.8.66", PeerShare: 1, Packets: 95_000},
				{NetNS: serverNS, Interface: "eth0", Proto: "tcp reset", Port: webPort, Peer: "10.9.8.66", PeerShare: 1, Packets: 94_000},
				{NetNS: serverNS, Interface: "eth0", Proto: "tcp", Port: webPort, Peer: "10.9.8.2", PeerShare: 0.5, Packets: 10_000},
			}
		},
		subject: Subject{NetNS: serverNS, Comm: "ksoftirqd/0", Port: webPort, Addr: "10.9.8.66"}, minShare: 0.5, fix: "saddr 10.9.8.66 drop",
		evidence: "packets: SYNs to port 8088 on eth0, 100 % of them from 10.9.8.66=0.477",
	},
}

// behindALock is a service whose requests queue for a lock inside of it.
func behindALock(exe string, share float64) func(*observe.Observation) {
	return func(o *observe.Observation) {
		app(o, exe, 1, 0.1)
		with(o, appServed().add(300, ms, ms, observe.FlagContended, parts{observe.Server: 120 * ms, observe.Network: ms / 5}))
		o.Waits = waitGraph(observe.SlowTime{PID: appPID, Requests: 300, NS: 30e9})
		followed(o, map[observe.ServerPart]float64{observe.ServerLock: share, observe.ServerSleep: 1 - share})
	}
}

var _ = fixturePair(fires{
	name: "requests that compute for long, in many functions", cause: &cpuHotFunction,
	inject: func(o *observe.Observation) {
		app(o, "app", 9, 0)
		with(o, appServed().add(30, ms, ms, 0, computed))
		sampled(o, appPID, 900, function(observe.FrameNative, "main", "app", 0, 900, 4), function(observe.FrameNative, "parse", "app", 300, 300, 0),
			function(observe.FrameNative, "render", "app", 290, 310, 0), function(observe.FrameNative, "sort", "app", 280, 280, 0))
	},
	subject: Subject{Kind: "process", PID: appPID, Port: appPort}, minShare: 0.9, fix: "Find which function of app it is", evidence: "functions that do most of it themselves=parse 33 %, render 32 %",
})

var _ = fixturePair(fires{
	name: "more threads of its own than there are CPUs, at times", cause: &runQueueWait,
	inject: func(o *observe.Observation) {
		p := app(o, "app", 5, 4)
		p.Course, p.Threads = course(appPID, 0.2, 0.7), 8
		for tid := range 4 {
			p.Busiest = append(p.Busiest, observe.Thread{TID: appPID + tid, CPUSeconds: 1.2, RunDelaySeconds: 1})
		}
		process(o, hog).UserSeconds = 0.1
		with(o, appServed().add(1000, ms, ms, 0, quick).add(40, ms, ms, 0, readLate))
	},
	subject: Subject{PID: appPID}, minShare: 0.55, fix: "Its own threads take the CPUs from each other", evidence: "threads and processes of it that ran=4",
})

// waitsForTurn is how the time of requests is split that wait for the interpreter.
var waitsForTurn = map[observe.ServerPart]float64{observe.ServerLock: 0.95, observe.ServerCPU: 0.05}

// indexing is a service in Python with a thread of its own that computes in so many of
// the looks at it.
func indexing(running float64, split map[observe.ServerPart]float64) func(*observe.Observation) {
	return func(o *observe.Observation) {
		p := app(o, "python3.11", 9.8, 1)
		p.Threads = 8
		p.Busiest = []observe.Thread{{TID: 522, CPUSeconds: 9}, {TID: 523, CPUSeconds: 0.3}}
		with(o, appServed().add(900, ms/10, ms/20, 0, parts{observe.Server: 28 * ms}))
		followed(o, split)
		o.Waits = &observe.WaitGraph{Looks: 100, Processes: 1, SlowerNS: 25 * ms, Pools: []observe.ThreadPool{{PID: appPID, Name: "python3", Root: "rebuild_index gil.py", Busy: 1, Looks: 100, Running: running,
			TIDs: []int{522}, Switches: 4000, Does: []observe.PoolCall{{Name: "running", Share: running}, {Name: "clock_nanosleep", Share: 1 - running}},
			At: "rebuild_index gil.py:5", Stack: []string{"rebuild_index gil.py:5", "Thread.run threading.py:975"}}}}
	}
}
