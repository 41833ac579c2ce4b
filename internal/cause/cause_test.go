package cause

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/observe"
)

func valueOf(v any) string { return fmt.Sprint(v) }

// fires is a fault that must be found: what, on which subject, how bad, with a
// word of the fix and of the evidence.
type fires struct {
	name     string
	cause    *Cause
	inject   func(*observe.Observation)
	subject  Subject // the fields that are set must match
	minShare float64
	fix      string
	evidence string
}

var firing = []fires{
	{
		name: "table full, few connections left, CPU idle", cause: &conntrackFull,
		inject: func(o *observe.Observation) {
			idle(o)
			ns(o).Conntrack = &observe.Conntrack{Entries: 200, PeakEntries: 200, Max: 200, Drop: 6300}
			o.KernelLog = []observe.KernelLine{{Kind: "conntrack-table-full", NetNS: serverNS, Count: 10}}
			web(o).Opened, fpm(o).Opened = 20, 30
		},
		subject: Subject{Kind: "namespace", NetNS: serverNS}, minShare: 0.99,
		fix: "set on the host", evidence: "table full, dropping packet=10",
	},
	{
		name: "statistics not readable, but the kernel says so", cause: &conntrackFull,
		inject: func(o *observe.Observation) {
			ns(o).Conntrack = &observe.Conntrack{Entries: 200, PeakEntries: 200, Max: 200}
			o.KernelLog = []observe.KernelLine{{Kind: "conntrack-table-full", NetNS: serverNS, Count: 50}}
		},
		subject: Subject{Kind: "namespace", NetNS: serverNS}, minShare: 0.0004, fix: "nf_conntrack_max",
	},
	{
		name: "somaxconn cuts the backlog", cause: &acceptQueueOverflow,
		inject: func(o *observe.Observation) {
			ns(o).Sysctl["net.core.somaxconn"] = "10"
			ns(o).Counters["TcpExt.ListenOverflows"] = 8803
			web(o).Limit, web(o).QueuePeak, web(o).Drops, web(o).Opened = 10, 11, 4000, 4000
		},
		subject: Subject{Kind: "listener", Port: webPort, PID: nginxMaster, Comm: "nginx"}, minShare: 0.5,
		fix: "net.core.somaxconn (10) cuts the backlog", evidence: "net.core.somaxconn=10",
	},
	{
		name: "the application's backlog binds", cause: &acceptQueueOverflow,
		inject: func(o *observe.Observation) {
			server(o).Listens[0].Backlog = observe.Setting{Value: "10", File: "/etc/nginx/sites/x.conf", Line: 3}
			ns(o).Counters["TcpExt.ListenOverflows"] = 900
			web(o).Limit, web(o).QueuePeak, web(o).FullSamples, web(o).Drops = 10, 11, 4, 900
		},
		subject:  Subject{Port: webPort, Path: "/etc/nginx/sites/x.conf:3"},
		minShare: 0.9, fix: "The application's own backlog (10) binds", evidence: "backlog the application asks for=10",
	},
	{
		name: "both limits bind", cause: &acceptQueueOverflow,
		inject: func(o *observe.Observation) {
			ns(o).Sysctl["net.core.somaxconn"] = "10"
			server(o).Listens[0].Backlog = observe.Setting{Value: "10", File: "/n.conf", Line: 3}
			ns(o).Counters["TcpExt.ListenOverflows"] = 900
			web(o).Limit, web(o).QueuePeak, web(o).Drops = 10, 11, 900
		},
		subject: Subject{Port: webPort}, minShare: 0.9, fix: "Both limits bind",
	},
	{
		name: "the application does not accept", cause: &acceptQueueOverflow,
		inject: func(o *observe.Observation) {
			ns(o).Counters["TcpExt.ListenOverflows"] = 900
			web(o).QueuePeak, web(o).FullSamples, web(o).Drops, web(o).Opened = 512, 40, 900, 0
			o.Accepts = o.Accepts[2:]
			process(o, nginxWorker1).State = "T"
		},
		subject: Subject{Port: webPort, PID: nginxWorker1}, minShare: 0.99, fix: "is stopped", evidence: "state of the process=T",
	},
	{
		name: "the application does not accept, and another program has its port at another address", cause: &acceptQueueOverflow,
		inject: func(o *observe.Observation) {
			ns(o).Counters["TcpExt.ListenOverflows"] = 900
			web(o).Addr, web(o).QueuePeak, web(o).FullSamples, web(o).Drops, web(o).Opened = "10.9.8.1", 512, 40, 900, 0
			process(o, nginxWorker1).State = "T"
			admin := *web(o)
			admin.Addr, admin.Inode, admin.PID, admin.PIDs = "127.0.0.1", 4711, backupPID, []int{backupPID}
			admin.QueuePeak, admin.FullSamples, admin.Drops, admin.Opened = 1, 0, 0, 500
			ns(o).Listeners = append(ns(o).Listeners, admin)
			o.Accepts = append(o.Accepts[2:], observe.Accept{PID: backupPID, Accepted: 500})
		},
		subject: Subject{Port: webPort, PID: nginxWorker1}, minShare: 0.99, fix: "is stopped", evidence: "state of the process=T",
	},
	{
		name: "a single worker that takes 100 ms a request", cause: &acceptQueueOverflow,
		inject: func(o *observe.Observation) {
			idle(o)
			o.Nginx, o.Accepts = nil, []observe.Accept{{PID: nginxWorker1, Accepted: 100}}
			ns(o).Counters["TcpExt.ListenOverflows"] = 150
			web(o).Limit, web(o).QueuePeak, web(o).QueueMean, web(o).FullSamples, web(o).Drops, web(o).Opened = 5, 6, 5.8, 38, 150, 100
		},
		subject: Subject{Port: webPort}, minShare: 0.5, fix: "accepts only 10 connections a second",
	},
	{
		name: "the server died", cause: &acceptQueueOverflow,
		inject: func(o *observe.Observation) {
			process(o, nginxMaster).EndedIn = true
			ns(o).Counters["TcpExt.ListenOverflows"] = 98
			web(o).Limit, web(o).QueuePeak, web(o).Drops, web(o).Opened = 5, 6, 98, 22
		},
		subject: Subject{Port: webPort, PID: nginxMaster}, minShare: 0.5, fix: "ended during the window",
	},
	{
		name: "unix socket refuses with EAGAIN", cause: &acceptQueueOverflow,
		inject: func(o *observe.Observation) {
			*fpm(o) = observe.Listener{Proto: "unix", Path: "/run/php.sock", Inode: 9, PID: fpmMaster, PIDs: []int{fpmMaster}, Limit: 10, QueuePeak: 11, Samples: 40, FullSamples: 20}
			pool(o).Listen.Value = "/run/php.sock"
			o.Connects = append(o.Connects, observe.Connect{PID: nginxWorker1, NetNS: serverNS, Family: "unix", Path: "/run/php.sock", Calls: 2000, Started: 500, Errors: map[string]uint64{"EAGAIN": 1500}})
		},
		subject: Subject{Path: "/run/php.sock", PID: fpmMaster}, minShare: 0.7, fix: "backlog", evidence: "attempts dropped at this socket=1500",
	},
	{
		name: "cookies next to an overflow", cause: &synCookiesSent,
		inject: func(o *observe.Observation) {
			ns(o).Counters["TcpExt.ListenOverflows"], ns(o).Counters["TcpExt.SyncookiesSent"] = 100, 150
		},
		subject: Subject{NetNS: serverNS}, fix: "do not switch the cookies off",
	},
	{
		name: "accept fails with EMFILE", cause: &fdLimit,
		inject: func(o *observe.Observation) {
			o.Accepts[0].Errors = map[string]uint64{"EMFILE": 980}
			p := process(o, nginxWorker1)
			p.FDs, p.FDLimit, p.FDHard = 256, 256, 20000
		},
		subject: Subject{PID: nginxWorker1, Port: webPort}, minShare: 0.97, fix: "Raise the limit of open files", evidence: "open files, peak=256",
	},
	{
		name: "the whole host has no descriptor left", cause: &fdLimit,
		inject:  func(o *observe.Observation) { o.Accepts[0].Errors = map[string]uint64{"ENFILE": 20} },
		subject: Subject{PID: nginxWorker1}, minShare: 0.4, fix: "fs.file-max",
	},
	{
		name: "worker_connections, by the log", cause: &nginxWorkerConnections,
		inject: func(o *observe.Observation) {
			server(o).WorkerConnections.Value = "1024"
			server(o).ConnectionsPeak = map[int]int{nginxWorker1: 1024, nginxWorker2: 1020}
			server(o).Errors = []observe.LogKind{{Kind: "worker-connections", Count: 17_567, Seconds: 10, Example: "1024 worker_connections are not enough"}}
		},
		subject: Subject{PID: nginxMaster, Port: webPort, Path: "/etc/nginx/nginx.conf:5"}, minShare: 0.15,
		fix: "Raise worker_connections from 1024", evidence: "connections of the busiest worker, peak=1024",
	},
	{
		name: "worker_connections, with the log switched off", cause: &nginxWorkerConnections,
		inject: func(o *observe.Observation) {
			server(o).WorkerConnections.Value = "1024"
			server(o).ConnectionsPeak = map[int]int{nginxWorker1: 1024}
			server(o).Statuses = nil
			*webServed(o) = observe.Endpoint{} // nothing is recorded, and it is alone there
			ns(o).Listeners = ns(o).Listeners[:1]
			ns(o).Counters["TcpExt.TCPAbortOnData"] = 9000
		},
		subject: Subject{PID: nginxMaster}, minShare: 0.9, fix: "worker_connections",
	},
	{
		name: "children wait for something slow, CPU idle", cause: &phpFPMChildrenExhausted,
		inject: func(o *observe.Observation) {
			idle(o)
			pool(o).MaxChildren.Value = "5"
			pool(o).AllBusyRounds, pool(o).BusyMean, pool(o).RunningMean = 188, 5, 0.1
			fpm(o).QueueMean = 195
		},
		subject:  Subject{Kind: "pool", PID: fpmMaster, Port: fpmPort, Path: "/etc/php/8.2/fpm/pool.d/www.conf:41"},
		minShare: 0.97, fix: "Raise pm.max_children of pool www from 5", evidence: "busy children, mean=5",
	},
	{
		name: "children sleep while others fill the CPU", cause: &phpFPMChildrenExhausted,
		inject: func(o *observe.Observation) {
			pool(o).AllBusyRounds, pool(o).BusyMean, pool(o).RunningMean, pool(o).BlockedMean = 188, 20, 1, 17
			fpm(o).QueueMean = 80
		},
		subject: Subject{Kind: "pool"}, minShare: 0.79, fix: "pm.max_children",
	},
	{
		name: "children hold on to requests of an nginx drowned in errors", cause: &phpFPMChildrenExhausted,
		inject: func(o *observe.Observation) {
			pool(o).MaxChildren.Value, pool(o).CPUSeconds = "5", 0.46
			pool(o).Rounds, pool(o).AllBusyRounds, pool(o).BusyMean, pool(o).RunningMean, pool(o).BlockedMean = 114, 114, 5, 0.25, 0.84
			fpm(o).QueueMean = 9
			o.Endpoints[0].OK, o.Endpoints[0].Errors = o.Endpoints[0].OK/10, o.Endpoints[0].OK-o.Endpoints[0].OK/10
		},
		subject: Subject{Kind: "pool"}, minShare: 0.6, fix: "pm.max_children",
	},
	{
		name: "51 ports, all in use", cause: &ephemeralPortsExhausted,
		inject: func(o *observe.Observation) {
			ns(o).Sysctl["net.ipv4.ip_local_port_range"] = "20000 20050"
			called(o).LocalPorts, called(o).States = 51, map[string]int{"ESTABLISHED": 51}
			for i := range 2 {
				o.Connects[i].Calls, o.Connects[i].Errors = 200_000, map[string]uint64{"EADDRNOTAVAIL": 152_500}
			}
		},
		subject:  Subject{Kind: "destination", PID: nginxMaster, Addr: "127.0.0.1", Port: fpmPort, Path: "/etc/nginx/nginx.conf:15"},
		minShare: 0.76, fix: "Widen net.ipv4.ip_local_port_range (20000 20050: 51 ports)", evidence: "their states=51 ESTABLISHED",
	},
	{
		name: "port search, ports in TIME_WAIT", cause: &timeWaitPortSearch,
		inject: func(o *observe.Observation) {
			ns(o).Sysctl["net.ipv4.tcp_tw_reuse"] = "0"
			called(o).LocalPorts, called(o).States = 28_000, map[string]int{"TIME_WAIT": 27_990}
			for i := range 2 {
				o.Profile.Processes[i].Samples, o.Profile.Processes[i].PortSearch = 600, 250
			}
		},
		subject: Subject{PID: nginxMaster, Addr: "127.0.0.1", Port: fpmPort}, minShare: 0.4,
		fix: "reuse ports in TIME_WAIT", evidence: "net.ipv4.tcp_tw_reuse=0",
	},
	{
		name: "FIN_WAIT_2 holds the ports", cause: &finTimeout,
		inject: func(o *observe.Observation) {
			ns(o).Sysctl["net.ipv4.tcp_fin_timeout"] = "3600"
			called(o).LocalPorts, called(o).States = 20_000, map[string]int{"FIN_WAIT2": 20_000}
		},
		subject: Subject{Port: fpmPort}, minShare: 0.7, fix: "tcp_fin_timeout",
	},
	{
		name: "upstream refuses", cause: &nginxUpstreamErrors,
		inject: func(o *observe.Observation) {
			server(o).Errors = []observe.LogKind{{Kind: "upstream-refused", Upstream: "127.0.0.1:9123", Count: 40_000}}
			server(o).Statuses = answers(10, observe.StatusSecond{S2xx: 10, S5xx: 4000})
		},
		subject: Subject{PID: nginxMaster, Addr: "127.0.0.1:9123"}, minShare: 0.99, fix: "Nothing listens",
	},
	{
		name: "clients give up while others are answered", cause: &clientAborts,
		inject: func(o *observe.Observation) {
			server(o).Statuses = answers(10, observe.StatusSecond{S2xx: 60, S499: 30})
			leave(webServed(o), 3000, 5e9)
		},
		subject: Subject{PID: nginxMaster}, minShare: 0.2, fix: "what makes the answers slow",
	},
	{
		name: "a backup eats the CPU", cause: &cpuSaturated,
		inject: func(o *observe.Observation) {
			process(o, hog).UserSeconds = 14
			for _, pid := range []int{nginxWorker1, nginxWorker2, fpmChild1, fpmChild2} {
				p := process(o, pid)
				p.UserSeconds, p.SystemSeconds, p.RunDelaySeconds, p.Timeslices = 0.5, 0.5, 6, 900
			}
		},
		subject: Subject{PID: hog, Comm: "backup"}, minShare: 0.8, fix: "backup", evidence: "the greediest=backup (pid 300)",
	},
	{
		name: "quota", cause: &cpuQuotaThrottled,
		inject: func(o *observe.Observation) {
			o.Cgroups = []observe.Cgroup{{Path: "/docker/abc", Version: 2, PIDs: []int{nginxWorker1}, QuotaCPUs: 0.1, QuotaFile: "/sys/fs/cgroup/docker/abc/cpu.max",
				PeriodNS: 100_000_000, Periods: 100, ThrottledPeriods: 98, ThrottledSeconds: 8.7}}
			p := process(o, nginxWorker1)
			p.UserSeconds, p.SystemSeconds, p.RunDelaySeconds = 0.6, 0.4, 8.9
		},
		subject: Subject{Kind: "cgroup", Path: "/docker/abc", PID: nginxMaster, Port: webPort}, minShare: 0.85, fix: "Raise the quota from 0.1",
		evidence: "of the requests' time, held back by the quota=",
	},
	{
		name: "SYN flood", cause: &softirqSaturated,
		inject: func(o *observe.Observation) {
			o.Use.PerCPU[0] = observe.CPUTime{System: 3, SoftIRQ: 6, Idle: 1}
			o.Processes = append(o.Processes, observe.Process{PID: 15, PPID: 2, Comm: "ksoftirqd/0", Kernel: true, SystemSeconds: 4.5})
			ns(o).Counters["TcpExt.SyncookiesSent"], ns(o).Counters["Tcp.InSegs"] = 900_000, 1_000_000
			web(o).Opened, fpm(o).Opened = 10, 10
		},
		subject: Subject{NetNS: serverNS, Comm: "ksoftirqd/0"}, minShare: 0.5, fix: "Drop the flood early",
	},
	{
		name: "memory", cause: &memoryPressure,
		inject:  inTurn(quiet(fpmServed().add(100, ms/10, ms/20, 0, parts{observe.Server: 50 * ms})), pressed),
		subject: Subject{PID: fpmChild1}, minShare: 0.39, fix: "memory",
	},
	{
		name: "disk", cause: &diskSaturated,
		inject:  inTurn(quiet(fpmServed().add(100, ms/10, ms/20, 0, parts{observe.Server: 50 * ms})), backedUp),
		subject: Subject{Kind: "disk", Path: "/dev/vda"}, minShare: 0.9, fix: "backup", evidence: "most bytes=backup (pid 300)",
	},
}

// pressed is a machine short of memory, whose services read pages again.
func pressed(o *observe.Observation) {
	o.Use.Pressure["memory"] = observe.Pressure{SomeSeconds: 4}
	o.Use.VM["allocstall_normal"], o.Use.VM["pswpin"] = 4000, 90_000
	process(o, fpmChild1).MajorFaults = 5000
}

// backedUp is a disk that a backup keeps busy, for which a thread of a service waits.
func backedUp(o *observe.Observation) {
	o.Use.Disks[0] = observe.Disk{Name: "vda", Writes: 800, WriteBytes: 800 << 20, WriteSeconds: 160, BusySeconds: 9.9}
	process(o, fpmChild1).States = &observe.ThreadStates{Rounds: 40, Samples: 40, Disk: 30, Accept: 10}
	process(o, hog).WriteBytes = 700 << 20
}

// webServed is what nginx serves.
func webServed(o *observe.Observation) *observe.Endpoint {
	return &o.Endpoints[slices.IndexFunc(o.Endpoints, func(e observe.Endpoint) bool { return e.Port == webPort && e.Side == "served" })]
}

// leave has clients close n connections, after a time each, before they got an answer.
func leave(e *observe.Endpoint, n uint64, after int64) {
	e.Unanswered = n
	e.Failed = []observe.RequestSample{{TotalNS: after, Flags: []string{"unanswered", "half_closed"}}}
}

func TestCausesFire(t *testing.T) {
	tested := map[ID]bool{}
	for _, c := range allFiring() {
		tested[c.cause.ID] = true
		t.Run(string(c.cause.ID)+"/"+c.name, func(t *testing.T) {
			r := check(c.cause, c.inject)
			if len(r.Findings) != 1 {
				t.Fatalf("findings: %d, want 1 (ruled out: %s)", len(r.Findings), r.RuledOut)
			}
			f := &r.Findings[0]
			matches(t, f.Subject, c.subject)
			if f.Impact.Share < c.minShare || f.Impact.Share > 1 {
				t.Errorf("share %v, want at least %v", f.Impact.Share, c.minShare)
			}
			text := f.Fix.Text + fmt.Sprint(f.Fix.Commands, f.Fix.Persist) + evidence(f)
			if !strings.Contains(text, c.fix) {
				t.Errorf("fix %q %q does not mention %q", f.Fix.Text, f.Fix.Commands, c.fix)
			}
			if !strings.Contains(evidence(f), c.evidence) {
				t.Errorf("evidence %s lacks %q", evidence(f), c.evidence)
			}
			if f.Fix.Text == "" || f.Title == "" || f.Impact.Text == "" || len(f.Evidence) == 0 {
				t.Errorf("incomplete finding: %+v", f)
			}
		})
	}
	for _, c := range Catalogue() {
		if !tested[c.ID] && !c.Informational && c.ID != Unexplained { // what the others leave: account_test.go, and the corpus
			t.Errorf("%s has no fixture in which it fires", c.ID)
		}
	}
}

func matches(t *testing.T, got, want Subject) {
	t.Helper()
	for _, f := range []struct {
		name      string
		got, want any
		set       bool
	}{
		{"kind", got.Kind, want.Kind, want.Kind != ""},
		{"netns", got.NetNS, want.NetNS, want.NetNS != 0},
		{"pid", got.PID, want.PID, want.PID != 0},
		{"comm", got.Comm, want.Comm, want.Comm != ""},
		{"port", got.Port, want.Port, want.Port != 0},
		{"addr", got.Addr, want.Addr, want.Addr != ""},
		{"path", got.Path, want.Path, want.Path != ""},
	} {
		if f.set && f.got != f.want {
			t.Errorf("subject %s = %v, want %v", f.name, f.got, f.want)
		}
	}
}

// TestPortsHeldByUnansweredSYNs: ports that are full only because nothing gets
// an answer are not what to fix first.
func TestPortsHeldByUnansweredSYNs(t *testing.T) {
	inject := func(o *observe.Observation) {
		ns(o).Sysctl["net.ipv4.ip_local_port_range"] = "20000 20050"
		called(o).LocalPorts, called(o).States = 51, map[string]int{"SYN_SENT": 51}
		for i := range 2 {
			o.Connects[i] = observe.Connect{PID: nginxWorker1 + i, NetNS: serverNS, Family: "inet", Addr: "127.0.0.1", Port: fpmPort, Calls: 30_000, Errors: map[string]uint64{"EADDRNOTAVAIL": 30_000}}
		}
		ns(o).Conntrack = &observe.Conntrack{PeakEntries: 200, Max: 200, Drop: 1800}
		web(o).Opened, fpm(o).Opened = 10, 0
	}
	ports := check(&ephemeralPortsExhausted, inject)
	full := check(&conntrackFull, inject)
	if len(ports.Findings) != 1 || len(full.Findings) != 1 {
		t.Fatalf("findings: %d and %d, want 1 and 1", len(ports.Findings), len(full.Findings))
	}
	if p, c := ports.Findings[0].Weight, full.Findings[0].Weight; p >= c {
		t.Errorf("weight of the ports %v is not below that of the full table %v", p, c)
	}
}

// TestPortsFilledByTimeWait: an ample range that is full of TIME_WAIT is not
// to blame; a small one is, whatever fills it.
func TestPortsFilledByTimeWait(t *testing.T) {
	for _, c := range []struct {
		rng   string
		ports int
		want  bool
	}{{"32768 60999", 28_232, true}, {"20000 20999", 1000, false}} {
		r := check(&ephemeralPortsExhausted, func(o *observe.Observation) {
			ns(o).Sysctl["net.ipv4.ip_local_port_range"], ns(o).Sysctl["net.ipv4.tcp_tw_reuse"] = c.rng, "0"
			called(o).LocalPorts, called(o).States = c.ports, map[string]int{"TIME_WAIT": c.ports}
			o.Connects[0].Errors = map[string]uint64{"EADDRNOTAVAIL": 5901}
		})
		if len(r.Findings) != 1 {
			t.Fatalf("%s: findings: %d, want 1 (%s)", c.rng, len(r.Findings), r.RuledOut)
		}
		f := r.Findings[0]
		if got := f.ConsequenceOf != nil; got != c.want {
			t.Errorf("%s: consequence of the search: %v, want %v", c.rng, got, c.want)
		}
		if !strings.Contains(f.Fix.Text, "tcp_tw_reuse") {
			t.Errorf("%s: fix %q does not mention tcp_tw_reuse", c.rng, f.Fix.Text)
		}
	}
}

func TestOverflowFollowsExhaustedChildren(t *testing.T) {
	for _, c := range []struct {
		limit uint32
		want  bool
	}{{128, true}, {10, false}} {
		r := check(&acceptQueueOverflow, func(o *observe.Observation) {
			idle(o)
			pool(o).AllBusyRounds, pool(o).BusyMean, pool(o).RunningMean = 188, 5, 0.1
			ns(o).Counters["TcpExt.ListenOverflows"] = 8363
			fpm(o).Limit, fpm(o).QueuePeak, fpm(o).QueueMean, fpm(o).Drops = c.limit, c.limit+1, float64(c.limit), 8363
		})
		if len(r.Findings) != 1 {
			t.Fatalf("limit %d: findings: %d, want 1", c.limit, len(r.Findings))
		}
		if got := r.Findings[0].ConsequenceOf != nil; got != c.want {
			t.Errorf("limit %d: consequence of the children: %v, want %v", c.limit, got, c.want)
		}
	}
}

func TestFilter(t *testing.T) {
	for _, c := range []struct {
		name   string
		filter observe.Filter
		want   []int // ports of the services in view
	}{
		{"none", observe.Filter{}, []int{webPort, fpmPort}},
		{"port, and what it calls", observe.Filter{Port: webPort}, []int{webPort, fpmPort}},
		{"port of the called one", observe.Filter{Port: fpmPort}, []int{fpmPort}},
		{"pid of a worker", observe.Filter{PID: nginxWorker2}, []int{webPort, fpmPort}},
		{"pid of a child", observe.Filter{PID: fpmChild1}, []int{fpmPort}},
		{"unknown unit", observe.Filter{Unit: "x.service"}, nil},
	} {
		o := healthy()
		o.Filter = c.filter
		var got []int
		for _, s := range NewView(o).Services {
			got = append(got, s.Port())
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: services at %v, want %v", c.name, got, c.want)
		}
	}
}

func TestCatalogueIsSound(t *testing.T) {
	id := regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	known := map[ID]bool{}
	for _, c := range Catalogue() {
		if !id.MatchString(string(c.ID)) || known[c.ID] || len(c.Title) < 8 || len(c.Needs) == 0 || c.Check == nil {
			t.Errorf("unsound declaration: %+v", c)
		}
		known[c.ID] = true
	}
	for _, c := range Catalogue() {
		for _, parent := range c.ConsequenceOf {
			if id, ok := parent.(ID); ok && (!known[id] || id == c.ID) {
				t.Errorf("%s is a consequence of %q, which is not in the catalogue", c.ID, id)
			}
		}
	}
}
