package cause

import (
	"slices"
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/observe"
)

// miss looks like the cause and is not: a sign without effect, or the effect
// of something else.
type miss struct {
	name   string
	cause  *Cause
	inject func(*observe.Observation)
	why    string // in the reason it is ruled out with
}

var nearMisses = []miss{
	{"table nearly full", &conntrackFull, func(o *observe.Observation) {
		ns(o).Conntrack = &observe.Conntrack{Entries: 260_000, PeakEntries: 260_000, Max: 262_144, EarlyDrop: 12}
	}, "no packet dropped"},
	{"packets dropped since their entries clashed", &conntrackFull, func(o *observe.Observation) {
		ns(o).Conntrack = &observe.Conntrack{Entries: 3000, PeakEntries: 3000, Max: 262_144, Drop: 12, InsertFailed: 12}
	}, "12 of them as their entry clashed"},
	{"packets that the helper of a protocol dropped", &conntrackFull, func(o *observe.Observation) {
		ns(o).Conntrack = &observe.Conntrack{Entries: 3000, PeakEntries: 3000, Max: 262_144, Drop: 12}
	}, "no packet dropped for lack of room"},
	{"another namespace's table is full", &conntrackFull, func(o *observe.Observation) {
		o.Namespaces = append(o.Namespaces, observe.NetNS{Inode: 7, Conntrack: &observe.Conntrack{Max: 200, Drop: 50}})
	}, "no packet dropped"},
	{"queue at its limit, nothing dropped", &acceptQueueOverflow, func(o *observe.Observation) {
		web(o).QueuePeak = 511
	}, "no connection dropped"},
	{"SYNs lost at the socket for another reason", &acceptQueueOverflow, func(o *observe.Observation) {
		web(o).Drops = 30
	}, "no connection dropped"},
	{"cookies, but nothing overflowed", &synCookiesSent, func(o *observe.Observation) {
		ns(o).Counters["TcpExt.SyncookiesSent"] = 151
	}, "no connection was dropped"},
	{"descriptors nearly used up", &fdLimit, func(o *observe.Observation) {
		process(o, nginxWorker1).FDs, process(o, nginxWorker1).FDLimit = 1020, 1024
	}, "never failed"},
	{"a process that serves nobody has none left", &fdLimit, func(o *observe.Observation) {
		o.Accepts = append(o.Accepts, observe.Accept{PID: hog, Errors: map[string]uint64{"EMFILE": 100}})
	}, "never failed"},
	{"worker half full, resets for other reasons", &nginxWorkerConnections, func(o *observe.Observation) {
		ns(o).Counters["TcpExt.TCPAbortOnData"] = 9000
	}, "no log line"},
	{"a worker full of idle connections, next to a program that resets its own", &nginxWorkerConnections, func(o *observe.Observation) {
		server(o).WorkerConnections.Value = "1024"
		server(o).ConnectionsPeak = map[int]int{nginxWorker1: 1024}
		ns(o).Counters["TcpExt.TCPAbortOnData"] = 9000
	}, "no log line"},
	{"max_children warning, but pages are quick and the CPU is full", &phpFPMChildrenExhausted, func(o *observe.Observation) {
		pool(o).MaxChildren.Value = "5"
		pool(o).AllBusyRounds, pool(o).BusyMean, pool(o).RunningMean = 188, 5, 4
		pool(o).Log = []observe.LogKind{{Kind: "max-children", Count: 1, Number: 5}}
		fpm(o).QueueMean = 990
	}, "more children would not answer more"},
	{"children wait for the bytes of an nginx that has no CPU", &phpFPMChildrenExhausted, func(o *observe.Observation) {
		pool(o).AllBusyRounds, pool(o).BusyMean, pool(o).RunningMean, pool(o).BlockedMean = 188, 20, 6, 0.5
		pool(o).CPUSeconds = 9
		fpm(o).QueueMean = 270
	}, "more children would not answer more"},
	{"all busy, nobody waits", &phpFPMChildrenExhausted, func(o *observe.Observation) {
		idle(o)
		pool(o).AllBusyRounds, pool(o).BusyMean, pool(o).RunningMean = 188, 20, 1
		fpm(o).QueueMean = 0.1
	}, "no request waited"},
	{"an address of a family that the namespace does not have", &ephemeralPortsExhausted, func(o *observe.Observation) {
		o.Connects = append(o.Connects, observe.Connect{PID: nginxWorker1, NetNS: serverNS, Family: "inet6", Addr: "::1", Port: fpmPort, Calls: 900, Errors: map[string]uint64{"EADDRNOTAVAIL": 900}})
	}, "local ports in use"},
	{"26,000 TIME_WAIT on the server's side", &timeWaitPortSearch, func(o *observe.Observation) {
		ns(o).Sysctl["net.ipv4.tcp_tw_reuse"] = "0"
	}, "26,000 sockets in TIME_WAIT"},
	{"ports in TIME_WAIT are reused (tcp_tw_reuse = 2 on loopback)", &timeWaitPortSearch, func(o *observe.Observation) {
		called(o).LocalPorts, called(o).States = 16_400, map[string]int{"TIME_WAIT": 16_297}
		for i := range 2 {
			o.Profile.Processes[i].Samples, o.Profile.Processes[i].PortSearch = 585, 338
		}
		ns(o).Counters["Tcp.ActiveOpens"], ns(o).Counters["TcpExt.TWRecycled"] = 111_935, 111_035
	}, "takes their ports again: 111,035 times"},
	{"port search without TIME_WAIT (ports exhausted)", &timeWaitPortSearch, func(o *observe.Observation) {
		o.Profile.Processes[0].PortSearch = 200
		called(o).LocalPorts, called(o).States = 51, map[string]int{"ESTABLISHED": 51}
	}, "no process spends"},
	{"tcp_fin_timeout 3600 with TIME_WAIT", &finTimeout, func(o *observe.Observation) {
		ns(o).Sysctl["net.ipv4.tcp_fin_timeout"] = "3600"
	}, "TIME_WAIT is always 60 s"},
	{"a handful of upstream errors", &nginxUpstreamErrors, func(o *observe.Observation) {
		server(o).Errors = []observe.LogKind{{Kind: "upstream-reset", Count: 40}}
	}, "40 upstream errors"},
	{"a handful of upstream errors, without an access log", &nginxUpstreamErrors, func(o *observe.Observation) {
		server(o).Errors = []observe.LogKind{{Kind: "upstream-reset", Count: 40}}
		server(o).Statuses = nil
	}, "40 upstream errors in nginx's log, 9,"},
	{"visitors go on to another page", &clientAborts, func(o *observe.Observation) {
		server(o).Statuses = answers(10, observe.StatusSecond{S2xx: 920, S499: 20})
		leave(webServed(o), 200, ms)
	}, "visitors go on to other pages"},
	{"499s only when the load ends", &clientAborts, func(o *observe.Observation) {
		server(o).Statuses = append(answers(8, observe.StatusSecond{S2xx: 9500}), observe.StatusSecond{Offset: 8, S2xx: 2000, S499: 800}, observe.StatusSecond{Offset: 9, S499: 105})
	}, "none or few while the load lasted"},
	{"the service itself fills the CPU", &cpuSaturated, nil, "with the service and its clients"},
	{"a nice hog", &cpuSaturated, func(o *observe.Observation) {
		process(o, hog).UserSeconds, process(o, hog).Nice = 14, 19
	}, "with the service and its clients"},
	{"slowray itself", &cpuSaturated, func(o *observe.Observation) {
		process(o, hog).UserSeconds, o.Self = 14, hog
	}, "with the service and its clients"},
	{"a hog of SCHED_IDLE", &cpuSaturated, func(o *observe.Observation) {
		process(o, hog).UserSeconds, process(o, hog).Policy = 14, "idle"
	}, "with the service and its clients"},
	{"a hog next to a service that hardly waits", &cpuSaturated, func(o *observe.Observation) {
		process(o, hog).UserSeconds = 14
		for _, pid := range []int{nginxWorker1, nginxWorker2, fpmChild1, fpmChild2} {
			process(o, pid).RunDelaySeconds = 0.1
		}
	}, "waited for one only"},
	{"a quota that is not reached", &cpuQuotaThrottled, func(o *observe.Observation) {
		o.Cgroups = []observe.Cgroup{{Path: "/x", Version: 2, PIDs: []int{nginxWorker1}, QuotaCPUs: 2, Periods: 100, ThrottledPeriods: 1, ThrottledSeconds: 0.01}}
	}, "was throttled in 1.0 %"},
	{"a throttled group that serves nobody", &cpuQuotaThrottled, func(o *observe.Observation) {
		o.Cgroups = []observe.Cgroup{{Path: "/x", Version: 2, PIDs: []int{hog}, QuotaCPUs: 0.1, Periods: 100, ThrottledPeriods: 99, ThrottledSeconds: 9}}
	}, "no service runs under a CPU quota"},
	{"packet work for real requests", &softirqSaturated, func(o *observe.Observation) {
		o.Use.PerCPU[0] = observe.CPUTime{System: 3, SoftIRQ: 6, Idle: 1}
		o.Processes = append(o.Processes, observe.Process{PID: 15, PPID: 2, Comm: "ksoftirqd/0", Kernel: true, SystemSeconds: 4.5})
	}, "packets are those of the requests"},
	{"memory pressure that hits another process", &memoryPressure, func(o *observe.Observation) {
		o.Use.Pressure["memory"] = observe.Pressure{SomeSeconds: 4}
		o.Use.VM["allocstall_normal"] = 4000
		process(o, hog).MajorFaults = 90_000
	}, "0 major faults in the services"},
	{"memory pressure that no request feels", &memoryPressure, inTurn(quiet(fpmServed().add(5000, ms/10, ms/20, 0, quick)), pressed), "no request is slow for that"},
	{"a disk that a backup fills and a checkpoint waits for, while requests are quick", &diskSaturated, inTurn(quiet(fpmServed().add(5000, ms/10, ms/20, 0, quick)), backedUp), "no request is slow for that"},
	{"a busy disk that nobody waits for", &diskSaturated, func(o *observe.Observation) {
		o.Use.Disks[0] = observe.Disk{Name: "vda", Writes: 800, WriteBytes: 800 << 20, WriteSeconds: 160, BusySeconds: 9.9}
	}, "vda was busy"},
}

func allNearMisses() []miss {
	return slices.Concat(nearMisses, nearMissesOnRequests, nearMissesOnWaits, nearMissesOnCPU, nearMissesOnTransport, nearMissesOnNames, nearMissesOnLocks, nearMissesOnLacks, nearMissesOnKernelWaits(), nearMissesOnDatabases, nearMissesOnKernelWork(), nearMissesOnMachine(), ownMisses)
}

func TestNearMissesDoNotFire(t *testing.T) {
	tested := map[ID]bool{}
	for _, c := range allNearMisses() {
		tested[c.cause.ID] = true
		t.Run(string(c.cause.ID)+"/"+c.name, func(t *testing.T) {
			r := check(c.cause, c.inject)
			for _, f := range r.Findings {
				t.Errorf("fires: %s (%s)", f.Impact.Text, evidence(&f))
			}
			if because := r.RuledOut + r.NotChecked; !strings.Contains(because, c.why) {
				t.Errorf("ruled out because %q, want a word of %q", because, c.why)
			}
		})
	}
	for _, c := range Catalogue() {
		if !tested[c.ID] && c.ID != Unexplained { // account_test.go
			t.Errorf("%s has no near miss", c.ID)
		}
	}
}
