package cause

import (
	"testing"

	"github.com/slowray/slowray/internal/observe"
)

// nearMissesOnCPU are those of the causes that are judged by what threads do
// with the CPUs.
var nearMissesOnCPU = []miss{
	{"a client that is known by its requests alone", &cpuSaturated, func(o *observe.Observation) {
		full(o)
		process(o, hog).UserSeconds = 14
		o.Endpoints = append(o.Endpoints, callsTo(webPort, "10.9.8.1", hog, "wrk").add(1000, ms, ms, 0, quick).endpoint())
	}, "with the service and its clients"},
	{"a lock that takes little of the time", &lockConvoy, behindALock("python3.11", 0.2), "locks took 20 %"},
	{"a Go program, whose threads idle in futex", &lockConvoy, func(o *observe.Observation) {
		behindALock("server", 0.7)(o)
		process(o, appPID).Go = true
	}, "it is a Go program"},
	{"threads of Python that take turns", &lockConvoy, func(o *observe.Observation) {
		behindALock("python3.11", 0.7)(o)
		p := process(o, appPID)
		p.UserSeconds, p.Threads = 10, 5
		p.Busiest = []observe.Thread{{TID: 501, CPUSeconds: 2.7}, {TID: 502, CPUSeconds: 2.6}, {TID: 503, CPUSeconds: 2.4}}
	}, "that is the interpreter's"},
	{"threads that wait for their own pool", &lockConvoy, func(o *observe.Observation) {
		behindALock("java", 0.7)(o)
		o.Endpoints[0].Flags = nil
	}, "0 of 300 requests"},
	{"a busy thread whose requests are not slow", &singleThreadSaturated, func(o *observe.Observation) {
		eventLoop("redis-server")(o)
		with(o, appServed().add(9000, ms, ms, 0, quick))
	}, "no request is slow for lack of a thread"},
	{"a batch next to the service", &singleThreadSaturated, func(o *observe.Observation) {
		quiet(nginxServed().add(300, ms, ms, 0, computed))(o)
		process(o, hog).UserSeconds = 9.9
	}, "the busiest thread behind :8088"},
	{"a thread that computes for nobody, in the process that answers", &singleThreadSaturated, func(o *observe.Observation) {
		eventLoop("app")(o)
		with(o, appServed().add(300, ms, ms, 0, waitsForDB))
		o.Waits = &observe.WaitGraph{Slow: []observe.SlowTime{{PID: appPID, Requests: 300, NS: 60e9, ComputeNS: 1e9}}}
	}, "requests wait for something else"},
	{"all CPUs are full", &singleThreadSaturated, func(o *observe.Observation) {
		eventLoop("node")(o)
		full(o)
	}, "CPUs are idle: others would have none"},
	{"all workers are busy", &singleThreadSaturated, func(o *observe.Observation) {
		app(o, "gunicorn", 9.7, 0)
		o.Processes = append(o.Processes, *process(o, appPID))
		o.Processes[len(o.Processes)-1].PID = appPID + 1
		t := appServed().add(1000, ms, ms, 0, queued)
		t.e.PIDs = []int{appPID, appPID + 1}
		with(o, t)
		o.Host.CPUs = 8
	}, "so are 2 threads of it"},
	{"one client, one request at a time", &singleThreadSaturated, func(o *observe.Observation) {
		app(o, "node", 9.7, 0)
		with(o, appServed().add(33, ms, ms, 0, computed))
	}, "requests are under way at once"},
	{"a thread that lacks a CPU", &singleThreadSaturated, func(o *observe.Observation) {
		p := app(o, "node", 2, 7.5)
		p.Course = course(appPID, 0.2, 0.78)
		with(o, appServed().add(1000, ms, ms, 0, queued))
	}, "it lacks a CPU"},

	{"a service that computes in many functions", &cpuHotFunction, func(o *observe.Observation) {
		app(o, "app", 9, 0)
		with(o, appServed().add(200, ms, ms, 0, parts{observe.RecvWait: ms, observe.Server: 45 * ms, observe.Network: ms / 10}))
		sampled(o, appPID, 900, function(observe.FrameNative, "main", "app", 0, 900, 4), function(observe.FrameNative, "parse", "app", 300, 300, 0),
			function(observe.FrameNative, "render", "app", 290, 310, 0), function(observe.FrameNative, "sort", "app", 280, 280, 0))
	}, "but no function has 50 % of it: parse 33 %, render 32 %, sort 31 %"},
	{"a hot function in quick requests", &cpuHotFunction, func(o *observe.Observation) {
		app(o, "app", 9, 0)
		with(o, appServed().add(9000, ms, ms, 0, quick))
		sampled(o, appPID, 900, collapse...)
	}, "no request is slow for what the service does"},
	{"one of nine requests is slow, and waits for a lock", &cpuHotFunction, pricedAtTimes(0.66, observe.ServerLock, interpreted...), "no request is slow for what the service does"},
	{"one of nine requests computes, in many functions of no interpreter", &cpuHotFunction, pricedAtTimes(0.66, observe.ServerCPU,
		function(observe.FrameNative, "parse", "app", 60, 60, 0), function(observe.FrameNative, "render", "app", 60, 60, 0), function(observe.FrameNative, "sort", "app", 60, 60, 0)),
		"but no function has 50 % of it"},
	{"one of nine requests computes, and an interpreter has little part in it", &cpuHotFunction, pricedAtTimes(0.66, observe.ServerCPU,
		function(observe.FrameNative, "_PyEval_EvalFrameDefault", "libpython3.11.so.1.0", 55, 55, 0), function(observe.FrameNative, "dgemm", "libblas.so.3", 70, 70, 0)),
		"but no function has 50 % of it"},
	{"a few requests of 12 ms among quick ones compute", &cpuHotFunction, func(o *observe.Observation) {
		pricedAtTimes(0.66, observe.ServerCPU, interpreted...)(o)
		with(o, appServed().add(517, ms, ms, 0, parts{observe.Server: ms}).add(64, ms, ms, 0, parts{observe.Server: 12 * ms}))
		followed(o, map[observe.ServerPart]float64{observe.ServerCPU: 0.9})
	}, "no request is slow for what the service does"},
	{"of two services the one that computes more is reported", &cpuHotFunction, func(o *observe.Observation) {
		app(o, "app", 0.02, 0)
		with(o, appServed().add(17, ms, ms, 0, parts{observe.Server: 4 * ms, observe.Stall: 30 * ms}),
			fpmServed().add(100, ms, ms, 0, parts{observe.Server: 200 * ms}))
		process(o, fpmChild1).UserSeconds = 3
	}, "a request on :9123 computes for"},
	{"a great many small requests on full CPUs, which all send", &cpuHotFunction, func(o *observe.Observation) {
		app(o, "nginx", 12, 50)
		full(o)
		with(o, appServed().add(9000, ms, ms, 0, crowded))
		sampled(o, appPID, 1200, function(observe.FrameKernel, "tcp_sendmsg", "vmlinux", 20, 800, 3))
	}, "but no function has 50 % of it"},
	{"requests that wait for a database, next to a thread that computes", &cpuHotFunction, func(o *observe.Observation) {
		app(o, "app", 9, 0)
		with(o, appServed().add(40, ms, ms, 0, waitsForDB))
		sampled(o, appPID, 900, collapse...)
		o.Waits = &observe.WaitGraph{Slow: []observe.SlowTime{{PID: appPID, Requests: 40, NS: 8e9, ComputeNS: 1e8}}}
	}, "a request on :8000 computes for"},
	{"few samples", &cpuHotFunction, func(o *observe.Observation) {
		app(o, "app", 3, 0)
		with(o, appServed().add(10, ms, ms, 0, computed))
		sampled(o, appPID, 20, collapse...)
	}, "too few samples of it have a name"},

	{"threads of Python that leave the lock while they compute", &gilContention, func(o *observe.Observation) {
		p := app(o, "python3.11", 18, 0)
		p.Threads = 3
		p.Busiest = []observe.Thread{{TID: 501, CPUSeconds: 9}, {TID: 502, CPUSeconds: 9}}
		with(o, appServed().add(200, ms, ms, 0, computed))
	}, "2 threads of app (pid 500) compute, with 1.80 CPUs together"},
	{"a thread that serves nothing, and sleeps at times", &gilContention, indexing(0.5, waitsForTurn), "1 threads of app (pid 500) compute"},
	{"a thread that serves nothing, while requests wait for something else", &gilContention,
		indexing(0.97, map[observe.ServerPart]float64{observe.ServerCall: 0.95, observe.ServerCPU: 0.05}), "1 threads of app (pid 500) compute"},
	{"one busy thread of Python", &gilContention, func(o *observe.Observation) {
		p := app(o, "python3.11", 9.9, 0)
		p.Threads = 3
		p.Busiest = []observe.Thread{{TID: 501, CPUSeconds: 9.3}, {TID: 502, CPUSeconds: 0.6}}
		with(o, appServed().add(200, ms, ms, 0, computed))
	}, "with 0.99 CPUs together"},
	{"threads of Python that share the lock, and nobody minds", &gilContention, func(o *observe.Observation) {
		p := app(o, "python3.11", 9.9, 0)
		p.Threads = 3
		p.Busiest = []observe.Thread{{TID: 501, CPUSeconds: 5}, {TID: 502, CPUSeconds: 4.9}}
		with(o, appServed().add(200, ms, ms, 0, quick))
	}, "no request is slow for it"},
	{"threads of Java", &gilContention, func(o *observe.Observation) {
		p := app(o, "java", 9.9, 0)
		p.Busiest = []observe.Thread{{TID: 501, CPUSeconds: 5}, {TID: 502, CPUSeconds: 4.9}}
		with(o, appServed().add(200, ms, ms, 0, computed))
	}, "no service in Python"},

	{"a JVM that collects a little", &gcPauses, func(o *observe.Observation) {
		app(o, "java", 8, 0).Busiest = []observe.Thread{{TID: 501, Comm: "exec-1", CPUSeconds: 6}, {TID: 510, Comm: "GC Thread#0", CPUSeconds: 0.4}}
		with(o, appServed().add(200, ms, ms, 0, computed))
	}, "app spends 5.0 % of its CPU time in garbage collection"},
	{"a JVM that collects a lot, and nobody waits", &gcPauses, func(o *observe.Observation) {
		app(o, "java", 8, 0).Busiest = []observe.Thread{{TID: 510, Comm: "GC Thread#0", CPUSeconds: 6}}
		with(o, appServed().add(2000, ms, ms, 0, quick))
	}, "no request is slow for it"},
	{"a Go program that is in garbage collection", &singleThreadSaturated, func(o *observe.Observation) {
		p := app(o, "app", 9.6, 0)
		p.Go, p.Threads = true, 4
		p.Busiest = []observe.Thread{{TID: 501, CPUSeconds: 9.5}}
		with(o, appServed().add(200, ms, ms, 0, computed))
		sampled(o, appPID, 900, function(observe.FrameGo, "runtime.gcBgMarkWorker", "app", 10, 500, 3))
	}, "in garbage collection"},
	{"a JVM that collects a little, and answers nobody", &gcPauses, func(o *observe.Observation) {
		app(o, "java", 1, 0).Busiest = []observe.Thread{{TID: 510, Comm: "GC Thread#0", CPUSeconds: 0.4}}
		t := appServed()
		t.e.Unfinished = 40
		with(o, t)
	}, "only 0 requests"},
	{"a JVM that collects a lot, while requests wait for a database", &gcPauses, func(o *observe.Observation) {
		app(o, "java", 1, 0).Busiest = []observe.Thread{{TID: 510, Comm: "GC Thread#0", CPUSeconds: 0.6}}
		with(o, appServed().add(200, ms, ms, 0, waitsForDB))
		followed(o, map[observe.ServerPart]float64{observe.ServerCPU: 0.03, observe.ServerCall: 0.97})
	}, "requests wait for something else"},

	{"threads that read late, each for itself", &eventLoopBlocked, func(o *observe.Observation) {
		app(o, "app", 1, 0).Busiest = []observe.Thread{{TID: 501, CPUSeconds: 0.5}, {TID: 502, CPUSeconds: 0.5}}
		with(o, appServed().add(1000, ms, ms, 0, quick).add(40, ms, ms, 0, readLate))
	}, "does not answer all its requests with one thread"},
	{"long requests, and others that lie unread when none of those is in hand", &eventLoopBlocked, func(o *observe.Observation) {
		app(o, "python3.11", 3.5, 0).Course = course(appPID, 0.35, 0)
		with(o, appServed().add(10, ms, ms, 0, longest).add(400, ms, ms, 0, behind).add(400, ms, ms, 0, quick))
		longAndBehind(o, 150*ms)
	}, "does not answer all its requests with one thread"},
	{"a server that reads without waiting for events", &eventLoopBlocked, func(o *observe.Observation) {
		app(o, "app", 1, 0).States.Poll = 0
		with(o, appServed().add(1000, ms, ms, 0, quick).add(40, ms, ms, 0, readLate))
		together(o)
	}, "waits for no events"},
	{"an event loop that waits for events while requests lie unread", &eventLoopBlocked, func(o *observe.Observation) {
		p := app(o, "nginx", 0.15, 0)
		p.Course = course(appPID, 0.016, 0)
		p.States.Running, p.States.Poll = 0, 40
		with(o, appServed().add(1000, ms, ms, 0, quick).add(40, ms, ms, 0, readLate))
		together(o)
	}, "waits for events meanwhile"},
	{"an event loop on full CPUs", &eventLoopBlocked, func(o *observe.Observation) {
		app(o, "app", 1, 0)
		full(o)
		process(o, appPID).RunDelaySeconds = 5
		with(o, appServed().add(1000, ms, ms, 0, quick).add(40, ms, ms, 0, readLate))
		together(o)
	}, "the CPUs are full"},
	{"an event loop that is quick", &eventLoopBlocked, func(o *observe.Observation) {
		app(o, "app", 1, 0)
		with(o, appServed().add(1000, ms, ms, 0, quick))
	}, "no request waits long to be read"},

	{"a reload that looks at files once a second", &autoreloadStatStorm, func(o *observe.Observation) {
		app(o, "python3.11", 1, 0)
		with(o, appServed().add(1000, ms, ms, 0, computed))
		sampled(o, appPID, 100, function(observe.FrameKernel, "vfs_statx", "vmlinux", 10, 30, 2))
	}, "app spends 30 % of its CPU time looking at files (vfs_statx), 3.0 % of a CPU"},
	{"a file server whose requests are quick", &autoreloadStatStorm, func(o *observe.Observation) {
		app(o, "nginx", 5, 0)
		with(o, appServed().add(1000, ms, ms, 0, quick))
		sampled(o, appPID, 500, function(observe.FrameKernel, "vfs_statx", "vmlinux", 10, 300, 2))
	}, "no request is slow for it"},

	{"the service and its clients fill the CPUs", &runQueueWait, nil, "with the service and its clients"},
	{"a quota holds it back", &runQueueWait, func(o *observe.Observation) {
		p := app(o, "app", 1, 8.5)
		p.Course = course(appPID, 0.1, 0.85)
		with(o, appServed().add(200, ms, ms, 0, computed))
		o.Cgroups = []observe.Cgroup{{Path: "/x", PIDs: []int{appPID}, QuotaCPUs: 0.1, Periods: 100, ThrottledPeriods: 97, ThrottledSeconds: 8.3}}
	}, "the quota of /x is what holds them back"},
	{"threads wait for a CPU, and requests are quick", &runQueueWait, func(o *observe.Observation) {
		p := app(o, "app", 1, 4)
		p.Course = course(appPID, 0.1, 0.4)
		with(o, appServed().add(2000, ms, ms, 0, quick))
	}, "no request is slow for lack of a thread"},
	{"slow requests that wait for something else", &runQueueWait, func(o *observe.Observation) {
		p := app(o, "app", 3, 0.4)
		p.Course = course(appPID, 0.3, 0.04)
		with(o, appServed().add(200, ms, ms, 0, computed))
	}, "were ready and had no CPU for 400 ms, and ran for 3 s"},

	{"pages that start a program, and are quick", &shortLivedProcessStorm, func(o *observe.Observation) {
		app(o, "php-fpm8.2", 1, 0)
		with(o, appServed().add(2000, ms, ms, 0, quick))
		o.Use.Forks = 2000
		o.Profile.ShortLived = []observe.ProfileShort{{Comm: "sh", Parent: appPID, Processes: 90, Samples: 800}}
	}, "no request is slow for lack of a thread"},
	{"a server that starts workers of its own for a statement", &shortLivedProcessStorm, func(o *observe.Observation) {
		app(o, "postgres", 1, 0)
		with(o, appServed().add(90, ms, ms, 0, forked))
		o.Use.Forks = 180
		o.Profile.ShortLived = []observe.ProfileShort{{Comm: "postgres", Parent: appPID, ParentComm: "postgres", Processes: 80, Samples: 850}}
	}, "processes that ended at once took 0 %"},
	{"a build next to a service, on CPUs that are not full", &shortLivedProcessStorm, func(o *observe.Observation) {
		app(o, "app", 1, 0)
		with(o, appServed().add(200, ms, ms, 0, waitsForDB))
		o.Use.Forks = 2000
		o.Profile.ShortLived = []observe.ProfileShort{{Comm: "cc1", Parent: hog, ParentComm: "backup", Processes: 90, Samples: 800}}
	}, "the service waits for a CPU 0 %"},
	{"a server that begins a thread for each request", &shortLivedProcessStorm, func(o *observe.Observation) {
		app(o, "app", 5, 0)
		with(o, appServed().add(2000, ms, ms, 0, computed))
		o.Use.Forks = 2000
	}, "200 processes and threads began each second, and processes that ended at once took 0 %"},
	{"a shell that was waited for after an hour", &shortLivedProcessStorm, func(o *observe.Observation) {
		process(o, hog).ChildSeconds = 3600
		o.Use.Forks = 100
	}, "took 0 %"},
	{"a build with a nice value, on CPUs that it fills", &shortLivedProcessStorm, func(o *observe.Observation) {
		app(o, "app", 1, 9)
		full(o)
		with(o, appServed().add(100, ms, ms, 0, computed))
		o.Use.Forks = 9000
		o.Profile.ShortLived = []observe.ProfileShort{{Comm: "compile", Parent: hog, ParentComm: "backup", Processes: 900, Samples: 1000, Nice: 19}}
	}, "took 0 %"},
	{"three programs that take long, and end within the window", &shortLivedProcessStorm, func(o *observe.Observation) {
		app(o, "app", 1, 9)
		full(o)
		with(o, appServed().add(100, ms, ms, 0, computed))
		o.Use.Forks = 90
		o.Profile.ShortLived = []observe.ProfileShort{{Comm: "gzip", Parent: hog, ParentComm: "backup", Processes: 3, Samples: 1000}}
	}, "took 52 % of the CPUs at most (those of backup)"},

	{"ksoftirqd at work for requests that are quick", &kernelThreadBusy, func(o *observe.Observation) {
		app(o, "app", 1, 0)
		with(o, appServed().add(2000, ms, ms, 0, quick))
		flood(o)
	}, "the requests do not suffer"},
	{"a kworker at work while requests wait for a database", &kernelThreadBusy, func(o *observe.Observation) {
		app(o, "app", 1, 0.1)
		with(o, appServed().add(200, ms, ms, 0, waitsForDB))
		o.Processes = append(o.Processes, observe.Process{PID: 60, PPID: 2, Comm: "kworker/u8:1", Kernel: true, SystemSeconds: 6})
	}, "kworker/u8:1 (work that drivers and the kernel put off), uses 60 % of a CPU; the requests do not suffer"},
	{"a kworker takes a CPU next to brief requests, and others are idle", &kernelThreadBusy, func(o *observe.Observation) {
		app(o, "php-fpm8.2", 4, 14).Course = course(appPID, 0.2, 0.7)
		with(o, appServed().add(1000, ms, ms, 0, brief))
		o.Processes = append(o.Processes, observe.Process{PID: 60, PPID: 2, Comm: "kworker/u8:1+loop0", Kernel: true, SystemSeconds: 7})
	}, "the requests do not suffer"},
	{"kernel threads that do a little", &kernelThreadBusy, func(o *observe.Observation) {
		o.Processes = append(o.Processes, observe.Process{PID: 60, PPID: 2, Comm: "jbd2/vda-8", Kernel: true, SystemSeconds: 0.6})
	}, "jbd2/vda-8 (writes the journal of a file system), uses 6.0 % of a CPU"},

	{"packets that nobody wants, and that cost nobody anything", &softirqSaturated, func(o *observe.Observation) {
		app(o, "app", 1, 0)
		with(o, appServed().add(2000, ms, ms, 0, quick))
		flood(o)
		for i := range o.Processes {
			o.Processes[i].RunDelaySeconds = 0.01
		}
		ns(o).Counters["Udp.NoPorts"] = 5_000_000
	}, "no request is slow, and nothing is dropped"},
	{"busy loops next to a service that hardly notices", &cpuSaturated, func(o *observe.Observation) {
		app(o, "app", 0.2, 1.5)
		full(o)
		process(o, hog).UserSeconds = 17
		with(o, appServed().add(200, ms, ms, 0, quick))
	}, "but no request is slow for that: the slowest 10 of 200 requests on :8000"},
	{"a quota that throttles, and no request is slow", &cpuQuotaThrottled, func(o *observe.Observation) {
		app(o, "app", 1, 1)
		with(o, appServed().add(2000, ms, ms, 0, quick))
		o.Cgroups = []observe.Cgroup{{Path: "/x", Version: 2, PIDs: []int{appPID}, QuotaCPUs: 0.5, Periods: 100, ThrottledPeriods: 30, ThrottledSeconds: 0.9}}
	}, "was throttled in 30 % of its periods, for 900 ms in all, but no request of it is slow for that"},
	{"a quota that throttles a little, next to a slow database", &cpuQuotaThrottled, func(o *observe.Observation) {
		app(o, "app", 1, 1)
		with(o, appServed().add(200, ms, ms, 0, waitsForDB))
		followed(o, map[observe.ServerPart]float64{observe.ServerCPU: 0.03, observe.ServerThrottled: 0.03, observe.ServerCall: 0.94})
		o.Cgroups = []observe.Cgroup{{Path: "/x", Version: 2, PIDs: []int{appPID}, QuotaCPUs: 0.5, Periods: 100, ThrottledPeriods: 30, ThrottledSeconds: 0.9}}
	}, "but no request of it is slow for that: the slowest 10 of 200 requests on :8000"},
	{"threads of a batch wait for a CPU, those that answer wait for a database", &runQueueWait, func(o *observe.Observation) {
		p := app(o, "app", 2, 9)
		p.Course = course(appPID, 0.2, 0.75)
		with(o, appServed().add(200, ms, ms, 0, waitsForDB))
		followed(o, map[observe.ServerPart]float64{observe.ServerCPU: 0.03, observe.ServerRunq: 0.02, observe.ServerCall: 0.95})
	}, "were ready and had no CPU for 9 s"},
	{"a batch computes in the process, those that answer wait for a lock", &cpuHotFunction, func(o *observe.Observation) {
		app(o, "app", 9, 0)
		with(o, appServed().add(30, ms, ms, 0, computed))
		followed(o, map[observe.ServerPart]float64{observe.ServerCPU: 0.1, observe.ServerLock: 0.9})
		sampled(o, appPID, 900, collapse...)
	}, "a request on :8000 computes for 30 ms, of 301 ms that it takes"},
}

// TestComputeCausesFold: what follows from a hot function, or from a lack of
// CPUs, is reported as that.
func TestComputeCausesFold(t *testing.T) {
	inject := func(o *observe.Observation) {
		eventLoop("node")(o)
		with(o, appServed().add(40, ms, ms, 0, parts{observe.RecvWait: 500 * ms, observe.Server: 240 * ms}))
		sampled(o, appPID, 930, collapse...)
	}
	hot, one := check(&cpuHotFunction, inject), check(&singleThreadSaturated, inject)
	if len(hot.Findings) != 1 || len(one.Findings) != 1 {
		t.Fatalf("findings: %d and %d, want one each (%s; %s)", len(hot.Findings), len(one.Findings), hot.RuledOut, one.RuledOut)
	}
	if !one.Findings[0].MayFollow(&hot.Findings[0]) {
		t.Error("the busy thread does not follow from the hot function")
	}
}

// TestHottest: of functions that are in most stacks the one is named that does
// most itself, with its interpreter's work, and none that only leads to others.
func TestHottest(t *testing.T) {
	native := func(name string, own, total uint64) observe.ProfileFunction {
		return function(observe.FrameNative, name, "app", own, total, 1)
	}
	python := func(name string, own, total uint64) observe.ProfileFunction {
		return function(observe.FramePython, name, "", own, total, 1)
	}
	for _, c := range []struct {
		name string
		list []observe.ProfileFunction
		want string
	}{
		{"does it itself", []observe.ProfileFunction{native("main", 0, 100), native("serve", 2, 95), native("parse", 60, 80), native("compare", 20, 20)}, "parse"},
		{"shares it with what it calls", []observe.ProfileFunction{native("serve", 2, 95), native("parse", 40, 90), native("compare", 45, 45)}, "parse"},
		{"calls what shares the work", []observe.ProfileFunction{python("work", 3, 98), python("a", 33, 33), python("b", 32, 32), python("c", 30, 30)}, ""},
		{"only the way in", []observe.ProfileFunction{native("main", 50, 100), native("start_thread", 40, 100), native("[libc.so.6+0x1234]", 90, 90)}, ""},
		{"the service's language", []observe.ProfileFunction{native("_PyEval_EvalFrameDefault", 0, 99), python("handle", 5, 98), python("price", 88, 90)}, "price"},
		{"nothing", nil, ""},
	} {
		e := executed{samples: 100, functions: c.list}
		got := ""
		if f := e.hottest(hotShare); f != nil {
			got = f.Name
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
