package cause

import (
	"testing"

	"github.com/slowray/slowray/internal/observe"
)

const (
	shopID   = "3c5a6e1f0c2b"
	shopPath = "/docker/3c5a6e1f0c2b4d7e8f9a0b1c2d3e4f5061728394a5b6c7d8e9f0a1b2c3d4e5f6"
)

// grouped is a service of one process in a container of Docker's named shop.
func grouped(o *observe.Observation, exe string, cpu, delay float64) (*observe.Process, *observe.Cgroup) {
	p := app(o, exe, cpu, delay)
	p.Container, p.Cgroup = shopID, shopPath
	o.Containers = []observe.Container{{ID: shopID, Name: "shop", Image: "shop:1", Engine: "docker", State: "running"}}
	o.Cgroups = append(o.Cgroups, observe.Cgroup{Path: shopPath, Version: 1, PIDs: []int{appPID}})
	return p, &o.Cgroups[len(o.Cgroups)-1]
}

// killed is the app in its container, which the kernel ended.
func killed(o *observe.Observation, comm string, at float64) *observe.OOMKill {
	p, c := grouped(o, comm, 1, 0)
	p.Comm = comm
	p.EndedIn = at >= 0
	c.MemoryLimitBytes, c.EndedIn = 512<<20, true
	o.Containers[0].State, o.Containers[0].OOMKilled, o.Containers[0].EndedAt = "exited", true, at
	o.OOMKills = []observe.OOMKill{{At: at, PID: appPID, Comm: comm, Cgroup: shopPath, LimitCgroup: shopPath, Container: shopID, AnonBytes: 505 << 20, LimitBytes: 512 << 20}}
	if at < 0 { // nothing of it is left
		o.Processes = o.Processes[:len(o.Processes)-1]
		o.Cgroups = nil
		o.Namespaces[0].Listeners = o.Namespaces[0].Listeners[:len(o.Namespaces[0].Listeners)-1]
	}
	return &o.OOMKills[0]
}

// starved is the app, ready to run for most of its requests' time and without a CPU.
func starved(o *observe.Observation) *observe.Process {
	p, _ := grouped(o, "app", 1, 9)
	p.Course = course(appPID, 0.1, 0.85)
	full(o)
	process(o, hog).UserSeconds = 16
	with(o, appServed().add(100, ms, ms, 0, computed))
	followed(o, map[observe.ServerPart]float64{observe.ServerRunq: 0.9, observe.ServerCPU: 0.1})
	return p
}

// onDisk is the app, whose requests wait for the disk.
func onDisk(o *observe.Observation) *observe.Cgroup {
	_, c := grouped(o, "app", 1, 0)
	with(o, appServed().add(100, ms, ms, 0, computed))
	followed(o, map[observe.ServerPart]float64{observe.ServerDisk: 0.9, observe.ServerCPU: 0.1})
	return c
}

// begins is a container that began 5 s before the window under a quota, and does
// not listen yet.
func begins(o *observe.Observation) (*observe.Process, *observe.Cgroup) {
	p, c := grouped(o, "java", 1, 9)
	o.Namespaces[0].Listeners = o.Namespaces[0].Listeners[:2]
	p.Comm, p.StartedAt = "java", -5
	c.QuotaCPUs, c.QuotaFile, c.PeriodNS, c.Periods, c.ThrottledPeriods, c.ThrottledSeconds = 0.1, "/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", 1e8, 100, 99, 8.9
	o.Connects = append(o.Connects, observe.Connect{PID: nginxWorker1, Comm: "nginx", NetNS: serverNS, Family: "inet", Addr: "10.9.8.1", Port: 8080, Calls: 400, Started: 400, Failed: 400, Refused: 400})
	return p, c
}

// serial is a JVM that saw one CPU and collects for a fifth of the time.
func serial(o *observe.Observation) *observe.Heap {
	_, c := grouped(o, "java", 5, 0)
	c.QuotaCPUs = 1
	with(o, appServed().add(100, ms, ms, 0, computed))
	o.Heaps = []observe.Heap{{PID: appPID, Comm: "java", Runtime: "jvm", MaxBytes: 256 << 20, UsedBytes: 250 << 20, Published: true, Collector: "serial", Collections: 40, GCSeconds: 2.1}}
	return &o.Heaps[0]
}

func init() { firingOnCPU = append(firingOnCPU, firingOnLimits...) }

var firingOnLimits = []fires{
	{
		name: "in the window", cause: &containerOOMKilled, inject: func(o *observe.Observation) { killed(o, "python3", 4) },
		subject: Subject{PID: appPID, Comm: "python3", Port: appPort, Path: shopPath}, minShare: 1, fix: "docker update --memory 1024m --memory-swap 1024m shop", evidence: "its own memory when it was killed=505",
	},
	{
		name: "gone before the window", cause: &containerOOMKilled, inject: func(o *observe.Observation) { killed(o, "python3", -60) },
		subject: Subject{PID: appPID, Path: shopPath}, minShare: 1, fix: "docker start shop", evidence: "python3 (pid 500), 70 s before its end",
	},
	{
		name: "removed, and the engine remembers its name", cause: &containerOOMKilled,
		inject: func(o *observe.Observation) {
			killed(o, "python3", -60)
			o.Containers[0] = observe.Container{ID: shopID, Name: "shop", Engine: "docker", State: "removed", EndedAt: -60}
		},
		subject: Subject{PID: appPID}, minShare: 1, fix: "container shop (3c5a6e1f0c2b)", evidence: "removed",
	},
	{
		name: "asked for by its port, whose callers are refused", cause: &containerOOMKilled,
		inject: func(o *observe.Observation) {
			killed(o, "python3", -60)
			o.Filter.Port = webPort
			o.Connects = append(o.Connects, observe.Connect{PID: nginxWorker1, Comm: "nginx", NetNS: serverNS, Family: "inet", Addr: "10.9.8.1", Port: appPort, Calls: 50, Started: 50, Failed: 50, Refused: 50})
		},
		subject: Subject{PID: appPID}, minShare: 1, fix: "Raise the memory limit",
	},
	{
		name: "the log could not be read, but the group counts", cause: &containerOOMKilled,
		inject: func(o *observe.Observation) {
			killed(o, "python3", 4)
			o.OOMKills = nil
			o.Gaps = []observe.Gap{{Kind: observe.KindKernelLog, Because: "not permitted", Partial: true}}
			o.Cgroups[0].OOMKills = 1
		},
		subject: Subject{PID: appPID, Path: shopPath}, minShare: 1, fix: "from 512 MB",
	},
	{
		name: "one worker, whose parent goes on", cause: &containerOOMKilled,
		inject: func(o *observe.Observation) {
			k := killed(o, "python3", 4)
			o.Containers[0] = observe.Container{ID: shopID, Name: "shop", Engine: "docker", State: "running"}
			p := process(o, appPID)
			p.EndedIn = false
			k.PID = appPID + 3
			o.Processes = append(o.Processes, observe.Process{PID: k.PID, PPID: appPID, Comm: "python3", Container: shopID, EndedIn: true})
			t := appServed().add(90, ms, ms, 0, quick).add(30, ms, ms, observe.FlagReset, quick)
			with(o, t)
		},
		subject: Subject{PID: appPID + 3, Port: appPort}, minShare: 0.2, fix: "docker update", evidence: "killed by the kernel",
	},
	{
		name: "a container of no engine, two seconds before, and its callers are refused", cause: &containerOOMKilled,
		inject: func(o *observe.Observation) {
			killed(o, "python3", -2)
			o.Containers = nil
			o.Filter.Port = webPort
			o.Connects = append(o.Connects, observe.Connect{PID: nginxWorker1, Comm: "nginx", NetNS: serverNS, Family: "inet", Addr: "10.9.8.1", Port: appPort, Calls: 50, Started: 50, Failed: 50, Refused: 50})
		},
		subject: Subject{PID: appPID, Comm: "python3"}, minShare: 1, fix: "Raise the memory limit", evidence: "killed by the kernel",
	},
	{
		name: "as the window began", cause: &containerOOMKilled,
		inject: func(o *observe.Observation) {
			k := killed(o, "python3", 0)
			k.At = -0.2
		},
		subject: Subject{PID: appPID, Comm: "python3", Port: appPort}, minShare: 1, fix: "--memory 1024m", evidence: "killed by the kernel",
	},
	{
		name: "a unit", cause: &hostOOMKilled,
		inject: func(o *observe.Observation) {
			o.OOMKills = []observe.OOMKill{{At: -100, PID: 900, Comm: "mariadbd", Host: true, Cgroup: "/system.slice/mariadb.service", Unit: "mariadb.service", AnonBytes: 20 << 30, By: "backup"}}
		},
		subject: Subject{PID: 900, Comm: "mariadbd"}, minShare: 1, fix: "systemctl restart mariadb.service", evidence: "who asked for memory when there was none left=backup",
	},
	{
		name: "seen while it ran", cause: &jvmHeapOverLimit,
		inject: func(o *observe.Observation) {
			killed(o, "java", 4)
			o.Heaps = []observe.Heap{{PID: appPID, Comm: "java", Runtime: "jvm", MaxBytes: 1995 << 20, From: "default", Published: true}}
		},
		subject: Subject{PID: appPID, Comm: "java", Port: appPort}, minShare: 1, fix: "-Xmx384m", evidence: "how far the heap may grow=1.95 GB",
	},
	{
		name: "gone, and the engine knows its options", cause: &jvmHeapOverLimit,
		inject: func(o *observe.Observation) {
			killed(o, "java", -60)
			o.Containers[0].Heap = &observe.Heap{Runtime: "jvm", MaxBytes: 2 << 30, From: "-Xmx2g"}
		},
		subject: Subject{PID: appPID}, minShare: 1, fix: "-Xmx384m", evidence: "how far the heap may grow=2 GB",
	},
	{
		name: "an option of node", cause: &nodeHeapOverLimit,
		inject: func(o *observe.Observation) {
			killed(o, "node", 4)
			o.Heaps = []observe.Heap{{PID: appPID, Comm: "node", Runtime: "node", MaxBytes: 4 << 30, From: "--max-old-space-size=4096"}}
		},
		subject: Subject{PID: appPID, Comm: "node"}, minShare: 1, fix: "--max-old-space-size=384", evidence: "how far the heap may grow=4 GB",
	},
	{
		name: "eight workers", cause: &workersOverLimit,
		inject: func(o *observe.Observation) {
			killed(o, "gunicorn", 4).AnonBytes = 70 << 20
			for i := range 7 {
				o.Processes = append(o.Processes, observe.Process{PID: appPID + 1 + i, PPID: 1, Comm: "gunicorn", Container: shopID, Cgroup: shopPath})
			}
		},
		subject: Subject{PID: appPID, Comm: "gunicorn"}, minShare: 1, fix: "at most 5 workers", evidence: "8 processes of gunicorn, of 70 MB each=560 MB",
	},
	{
		name: "killed twice", cause: &leakTowardLimit,
		inject: func(o *observe.Observation) {
			k := *killed(o, "app", 4)
			k.At = -236
			o.OOMKills = append([]observe.OOMKill{k}, o.OOMKills...)
		},
		subject: Subject{PID: appPID}, minShare: 1, fix: "heap dump", evidence: "from one kill to the next it took=240 s",
	},
	{
		name: "not listening yet", cause: &slowStart, inject: func(o *observe.Observation) { begins(o) },
		subject: Subject{Kind: "cgroup", PID: appPID, Comm: "java", Path: shopPath}, minShare: 1, fix: "from 0.1 to 1 CPUs", evidence: "waited for a CPU=0.9;",
	},
	{
		name: "listens since the middle of the window", cause: &slowStart,
		inject: func(o *observe.Observation) {
			begins(o)
			o.Connects[len(o.Connects)-1].Established = 30
			o.Namespaces[0].Listeners = append(o.Namespaces[0].Listeners, observe.Listener{Proto: "tcp", Addr: "10.9.8.1", Port: 8080, Inode: 78, PID: appPID, PIDs: []int{appPID}, Since: 6})
		},
		subject: Subject{PID: appPID, Port: 8080}, minShare: 0.6, fix: "from 0.1 to 1 CPUs", evidence: "periods in which it was throttled=99",
	},
	{
		name: "gone at the end", cause: &slowStart,
		inject: func(o *observe.Observation) {
			p, c := begins(o)
			p.UserSeconds, p.RunDelaySeconds, p.EndedIn, c.EndedIn = 0, 0, true, true
		},
		subject: Subject{PID: appPID}, minShare: 1, fix: "Raise the quota", evidence: "waited for a CPU=0.899;",
	},
	{
		name: "shares of a container", cause: &lowCPUWeight,
		inject: func(o *observe.Observation) {
			starved(o)
			o.Cgroups[0].CPUWeight, o.Cgroups[0].WeightFile = 2, "/sys/fs/cgroup/cpu/docker/x/cpu.shares"
		},
		subject: Subject{Kind: "cgroup", Path: shopPath, Port: appPort}, minShare: 0.5, fix: "echo 1024 > /sys/fs/cgroup/cpu/docker/x/cpu.shares", evidence: "CPU weight of container shop (3c5a6e1f0c2b)=2",
	},
	{
		name: "a nice value", cause: &lowCPUWeight, inject: func(o *observe.Observation) { starved(o).Nice = 10 },
		subject: Subject{Kind: "process", Port: appPort}, minShare: 0.5, fix: "renice -n 0 -p $(ps -L -o lwp= -p 500)", evidence: "its nice value",
	},
	{
		name: "one CPU of two", cause: &affinityTooNarrow,
		inject: func(o *observe.Observation) {
			starved(o).CPUs = "0"
			o.Use.PerCPU = []observe.CPUTime{{User: 9.9, Idle: 0.1}, {User: 1, Idle: 9}}
		},
		subject: Subject{Port: appPort}, minShare: 0.5, fix: "taskset --all-tasks --cpu-list --pid 0-1 500", evidence: "the other CPUs were idle, or slowray used them=0.9",
	},
	{
		name: "a cpuset", cause: &affinityTooNarrow,
		inject: func(o *observe.Observation) {
			p := starved(o)
			p.CPUs, p.CPUSet = "0", "/sys/fs/cgroup/cpuset"+shopPath+"/cpuset.cpus"
			o.Use.PerCPU = []observe.CPUTime{{User: 9.9, Idle: 0.1}, {User: 1, Idle: 9}}
		},
		subject: Subject{Port: appPort}, minShare: 0.5, fix: "taskset does not help",
	},
	{
		name: "a process of SCHED_FIFO", cause: &realtimeHog,
		inject:  func(o *observe.Observation) { starved(o); process(o, hog).Policy = "fifo" },
		subject: Subject{Kind: "process", PID: hog, Comm: "backup"}, minShare: 0.5, fix: "chrt --all-tasks --other --pid 0 300", evidence: "policy fifo=1",
	},
	{
		name: "two fifths of the CPUs", cause: &cpuSteal,
		inject: func(o *observe.Observation) {
			starved(o)
			o.Use.CPU = observe.CPUTime{User: 10, Steal: 8, Idle: 2}
			followed(o, map[observe.ServerPart]float64{observe.ServerCPU: 1})
		},
		subject: Subject{Kind: "host"}, minShare: 0.4, fix: "burst credits", evidence: "CPU time that the hypervisor took=0.4",
	},
	{
		name: "a quota of one CPU", cause: &jvmSerialGC, inject: func(o *observe.Observation) { serial(o) },
		subject: Subject{PID: appPID, Comm: "java"}, minShare: 0.2, fix: "ActiveProcessorCount=2", evidence: "CPUs that it sees=1, for the quota",
	},
	{
		name: "above memory.high", cause: &memoryHighThrottled,
		inject: func(o *observe.Observation) {
			_, c := grouped(o, "app", 1, 0)
			with(o, appServed().add(100, ms, ms, 0, computed))
			c.Version, c.MemoryHighBytes, c.MemoryUsedBytes, c.MemoryAtHigh, c.MemoryStallSeconds, c.HighFile = 2, 100<<20, 104<<20, 900, 7, "/sys/fs/cgroup/x/memory.high"
		},
		subject: Subject{Kind: "cgroup", Path: shopPath}, minShare: 0.9, fix: "> /sys/fs/cgroup/x/memory.high", evidence: "times it was slowed down=900",
	},
	{
		name: "no room for files", cause: &pageCacheThrash,
		inject: func(o *observe.Observation) {
			c := onDisk(o)
			c.MemoryLimitBytes, c.MemoryUsedBytes, c.Refaults, c.MemoryFile = 64<<20, 64<<20, 90_000, "/sys/fs/cgroup/memory/x/memory.limit_in_bytes"
		},
		subject: Subject{Kind: "cgroup", Path: shopPath, Port: appPort}, minShare: 0.8, fix: "echo 134217728 > /sys/fs/cgroup/memory/x/memory.limit_in_bytes", evidence: "pages of files read again soon after they were dropped=9000",
	},
	{
		name: "writes", cause: &cgroupIOThrottled,
		inject: func(o *observe.Observation) {
			onDisk(o).IO = []observe.IOLimit{{Disk: "vda", Number: "254:0", File: "/sys/fs/cgroup/blkio/x/blkio.throttle.write_iops_device", WriteIOPS: 100, WriteBPS: 1e9, Writes: 990, WriteBytes: 4e6}}
		},
		subject: Subject{Kind: "cgroup", Path: shopPath, Port: appPort}, minShare: 0.8, fix: "echo '254:0 400' > /sys/fs/cgroup/blkio/x/blkio.throttle.write_iops_device", evidence: "writes a second on vda by container shop (3c5a6e1f0c2b)=99",
	},
	{
		name: "threads refused, connections reset", cause: &pidsLimit,
		inject: func(o *observe.Observation) {
			_, c := grouped(o, "app", 1, 0)
			c.PIDsLimit, c.Tasks, c.PIDsRefused, c.PIDsFile = 20, 20, 50, "/sys/fs/cgroup/pids/x/pids.max"
			with(o, appServed().add(50, ms, ms, 0, quick).add(50, ms, ms, observe.FlagReset|observe.FlagUnanswered, quick))
		},
		subject: Subject{Kind: "cgroup", Path: shopPath, Port: appPort}, minShare: 0.5, fix: "echo 512 > /sys/fs/cgroup/pids/x/pids.max", evidence: "could not be started=50",
	},
}

// A kill that is reported twice, by the heap that led to it and by itself, is one.
func TestKillFoldsUnderItsHeap(t *testing.T) {
	o := healthy()
	killed(o, "java", 4)
	o.Heaps = []observe.Heap{{PID: appPID, Comm: "java", Runtime: "jvm", MaxBytes: 2 << 30, From: "-Xmx2g"}}
	v := NewView(o)
	heap, kill := jvmHeapOverLimit.Judge(v).Findings, containerOOMKilled.Judge(v).Findings
	if len(heap) != 1 || len(kill) != 1 || !kill[0].MayFollow(&heap[0]) {
		t.Errorf("%d, %d findings, or the kill does not follow", len(heap), len(kill))
	}
	other := heap[0]
	other.Subject.PID++
	if kill[0].MayFollow(&other) {
		t.Error("the kill follows from another one's heap")
	}
}
