package cause

import (
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/observe"
)

// Process and port numbers of the fixture.
const (
	nginxMaster, nginxWorker1, nginxWorker2 = 100, 101, 102
	fpmMaster, fpmChild1, fpmChild2         = 200, 201, 202
	hog                                     = 300
	clientPID                               = 400
	webPort, fpmPort                        = 8088, 9123
	serverNS, clientNS                      = 4026532177, 4026532200
)

// healthy is a busy host on which nothing is wrong: nginx passes requests to
// php-fpm, a load generator of another namespace uses all of the CPU that is
// left. Numbers are those of a real run on Linux 6.18 (November 2026), rounded.
func healthy() *observe.Observation {
	o := &observe.Observation{
		Schema: observe.SchemaObservation,
		Host:   observe.Host{Name: "fixture", Kernel: "6.18.44", CPUs: 2, NetNS: 4026531833, MemoryBytes: 24 << 30},
		Window: observe.Window{Seconds: 10},
		Use: observe.HostUse{
			CPU:    observe.CPUTime{User: 7, System: 10, SoftIRQ: 2.5, Idle: 0.5},
			PerCPU: []observe.CPUTime{{User: 3.5, System: 5, SoftIRQ: 1.2, Idle: 0.3}, {User: 3.5, System: 5, SoftIRQ: 1.3, Idle: 0.2}},
			Memory: observe.Memory{TotalBytes: 24 << 30, AvailableBytes: 20 << 30},
			VM:     map[string]uint64{},
			Disks:  []observe.Disk{{Name: "vda", Writes: 40, WriteBytes: 40 << 12, WriteSeconds: 0.1, BusySeconds: 0.2}},
			Pressure: map[string]observe.Pressure{
				"cpu": {SomeSeconds: 9}, "memory": {}, "io": {SomeSeconds: 0.1},
			},
		},
		Sysctl: map[string]string{"net.netfilter.nf_conntrack_max": "262144", "fs.file-max": "2000000"},
		Namespaces: []observe.NetNS{{
			Inode: serverNS, PID: nginxMaster, Addrs: []string{"10.9.8.1"},
			Counters: map[string]uint64{
				"TcpExt.ListenOverflows": 0, "TcpExt.ListenDrops": 0, "TcpExt.SyncookiesSent": 0,
				"TcpExt.TCPSynRetrans": 0, "TcpExt.TCPAbortOnData": 12, "Tcp.InSegs": 1_400_000,
			},
			Sysctl: map[string]string{
				"net.core.somaxconn": "4096", "net.ipv4.ip_local_port_range": "32768 60999",
				"net.ipv4.tcp_tw_reuse": "2", "net.ipv4.tcp_fin_timeout": "60",
			},
			Conntrack: &observe.Conntrack{Entries: 30_000, PeakEntries: 31_000, Max: 262144},
			Listeners: []observe.Listener{
				{Proto: "tcp", Addr: "0.0.0.0", Port: webPort, Inode: 1, PID: nginxMaster, PIDs: []int{nginxMaster, nginxWorker1, nginxWorker2},
					Comm: "nginx", Limit: 511, QueuePeak: 3, Samples: 40, Clients: 1000, Opened: 40},
				{Proto: "tcp", Addr: "127.0.0.1", Port: fpmPort, Inode: 2, PID: fpmMaster, PIDs: []int{fpmMaster, fpmChild1, fpmChild2},
					Comm: "php-fpm8.2", Limit: 511, QueuePeak: 20, QueueMean: 2, Samples: 40, Clients: 30, Opened: 95_000},
			},
			Sockets: []observe.SocketGroup{
				{Side: "served", Port: fpmPort, States: map[string]int{"TIME_WAIT": 26_000, "ESTABLISHED": 30}},
				{Side: "called", Addr: "127.0.0.1", Remote: "127.0.0.1", Port: fpmPort, States: map[string]int{"ESTABLISHED": 30}, LocalPorts: 30},
			},
		}},
		Processes: []observe.Process{
			{PID: nginxMaster, PPID: 1, Comm: "nginx", State: "S", Threads: 1, FDs: 20, FDLimit: 20000, FDHard: 20000, NetNS: serverNS},
			{PID: nginxWorker1, PPID: nginxMaster, Comm: "nginx", State: "R", Threads: 1, UserSeconds: 1, SystemSeconds: 2, RunDelaySeconds: 5, Timeslices: 50_000, FDs: 540, FDLimit: 20000, FDHard: 20000, NetNS: serverNS},
			{PID: nginxWorker2, PPID: nginxMaster, Comm: "nginx", State: "R", Threads: 1, UserSeconds: 1, SystemSeconds: 2, RunDelaySeconds: 5, Timeslices: 50_000, FDs: 530, FDLimit: 20000, FDHard: 20000, NetNS: serverNS},
			{PID: fpmMaster, PPID: 1, Comm: "php-fpm8.2", State: "S", Threads: 1, FDs: 9, FDLimit: 20000, NetNS: serverNS},
			{PID: fpmChild1, PPID: fpmMaster, Comm: "php-fpm8.2", State: "S", Threads: 1, UserSeconds: 2, SystemSeconds: 1, RunDelaySeconds: 2, Timeslices: 30_000, RSSBytes: 12 << 20, NetNS: serverNS},
			{PID: fpmChild2, PPID: fpmMaster, Comm: "php-fpm8.2", State: "S", Threads: 1, UserSeconds: 2, SystemSeconds: 1, RunDelaySeconds: 2, Timeslices: 30_000, RSSBytes: 12 << 20, NetNS: serverNS},
			{PID: clientPID, PPID: 1, Comm: "wrk", State: "R", Threads: 3, UserSeconds: 1, SystemSeconds: 3, NetNS: clientNS},
			{PID: hog, PPID: 1, Comm: "backup", State: "R", Threads: 1, UserSeconds: 0.2, NetNS: 4026531833},
		},
		Connects: []observe.Connect{
			{PID: nginxWorker1, Comm: "nginx", NetNS: serverNS, Family: "inet", Addr: "127.0.0.1", Port: fpmPort, Calls: 47_500, Started: 47_500, Established: 47_500},
			{PID: nginxWorker2, Comm: "nginx", NetNS: serverNS, Family: "inet", Addr: "127.0.0.1", Port: fpmPort, Calls: 47_500, Started: 47_500, Established: 47_500},
			{PID: clientPID, Comm: "wrk", NetNS: clientNS, Family: "inet", Addr: "10.9.8.1", Port: webPort, Calls: 40, Started: 40, Established: 40},
		},
		CallSeconds: 10, ErrorSeconds: 1.25,
		Accepts: []observe.Accept{
			{PID: nginxWorker1, Comm: "nginx", Accepted: 20}, {PID: nginxWorker2, Comm: "nginx", Accepted: 20},
			{PID: fpmChild1, Comm: "php-fpm8.2", Accepted: 47_500}, {PID: fpmChild2, Comm: "php-fpm8.2", Accepted: 47_500},
		},
		Profile: &observe.Profile{Hz: 97, Samples: 1900, Processes: []observe.ProfileProcess{
			{PID: nginxWorker1, Comm: "nginx", Samples: 300, PortSearch: 6}, {PID: nginxWorker2, Comm: "nginx", Samples: 300, PortSearch: 6},
		}},
		Nginx: []observe.Nginx{{
			PID: nginxMaster, Workers: []int{nginxWorker1, nginxWorker2}, NetNS: serverNS, Config: "/etc/nginx/nginx.conf",
			WorkerConnections: observe.Setting{Value: "2048", File: "/etc/nginx/nginx.conf", Line: 5},
			Listens:           []observe.NginxListen{{Addr: "*", Port: webPort, Backlog: observe.Setting{Value: "511", Default: true}, File: "/etc/nginx/nginx.conf", Line: 12}},
			Upstreams: []observe.NginxUpstream{{Name: "127.0.0.1:9123", Via: "fastcgi", Servers: []string{"127.0.0.1:9123"},
				Keepalive: observe.Setting{Value: "0", Default: true}, File: "/etc/nginx/nginx.conf", Line: 15}},
			ConnectionsPeak: map[int]int{nginxWorker1: 535, nginxWorker2: 530},
			Statuses:        answers(10, observe.StatusSecond{S2xx: 9500}),
		}},
		PHPFPM: []observe.PHPFPM{{
			PID: fpmMaster, NetNS: serverNS, Config: "/etc/php/8.2/fpm/php-fpm.conf",
			Pools: []observe.FPMPool{{
				Name: "www", Listen: observe.Setting{Value: "127.0.0.1:9123", File: "/etc/php/8.2/fpm/pool.d/www.conf", Line: 36},
				ListenBacklog: observe.Setting{Value: "511", Default: true}, PM: observe.Setting{Value: "static"},
				MaxChildren: observe.Setting{Value: "20", File: "/etc/php/8.2/fpm/pool.d/www.conf", Line: 41},
				Children:    []int{fpmChild1, fpmChild2},
				Rounds:      190, AllBusyRounds: 12, BusyMean: 9, BusyPeak: 20, RunningMean: 4,
			}},
		}},
		Endpoints: busyEndpoints(),
	}
	o.Waits = healthyWaits()
	return o
}

// answers is n seconds of the same answers.
func answers(n int, each observe.StatusSecond) []observe.StatusSecond {
	out := make([]observe.StatusSecond, n)
	for i := range out {
		out[i] = each
		out[i].Offset = i
	}
	return out
}

func ns(o *observe.Observation) *observe.NetNS           { return &o.Namespaces[0] }
func web(o *observe.Observation) *observe.Listener       { return &o.Namespaces[0].Listeners[0] }
func fpm(o *observe.Observation) *observe.Listener       { return &o.Namespaces[0].Listeners[1] }
func pool(o *observe.Observation) *observe.FPMPool       { return &o.PHPFPM[0].Pools[0] }
func server(o *observe.Observation) *observe.Nginx       { return &o.Nginx[0] }
func called(o *observe.Observation) *observe.SocketGroup { return &o.Namespaces[0].Sockets[1] }

func process(o *observe.Observation, pid int) *observe.Process {
	for i := range o.Processes {
		if o.Processes[i].PID == pid {
			return &o.Processes[i]
		}
	}
	panic("no such process in the fixture")
}

// idle gives the fixture's machine CPU to spare.
func idle(o *observe.Observation) {
	o.Use.CPU = observe.CPUTime{User: 1, System: 2, Idle: 17}
	o.Use.PerCPU = []observe.CPUTime{{User: 0.5, System: 1, Idle: 8.5}, {User: 0.5, System: 1, Idle: 8.5}}
}

// ownFiring and ownMisses are the fixtures of causes that have a file of their own.
var (
	ownFiring []fires
	ownMisses []miss
)

// fixturePair adds the fixtures of a cause's own file.
func fixturePair(f fires, near ...miss) bool {
	ownFiring, ownMisses = append(ownFiring, f), append(ownMisses, near...)
	return true
}

// check runs one cause on the fixture changed by inject.
func check(c *Cause, inject func(*observe.Observation)) Result {
	o := healthy()
	if inject != nil {
		inject(o)
	}
	return c.Judge(NewView(o))
}

// evidence joins the facts and values of a finding, to look for text in.
func evidence(f *Finding) string {
	var b strings.Builder
	for _, e := range f.Evidence {
		b.WriteString(e.Fact + "=" + valueOf(e.Value) + ";")
	}
	return b.String()
}

func TestHealthyHostHasNoFinding(t *testing.T) {
	v := NewView(healthy())
	for _, c := range Catalogue() {
		r := c.Judge(v)
		for _, f := range r.Findings {
			t.Errorf("%s fires on a healthy busy host: %s", c.ID, f.Impact.Text)
		}
		if len(r.Findings) == 0 && r.RuledOut == "" {
			t.Errorf("%s is ruled out without a reason", c.ID)
		}
	}
}

func TestNothingAtAllHasNoFinding(t *testing.T) {
	v := NewView(&observe.Observation{})
	for _, c := range Catalogue() {
		r := c.Judge(v)
		if len(r.Findings) != 0 || r.RuledOut+r.NotChecked == "" {
			t.Errorf("%s: findings %d, ruled out %q, not checked %q", c.ID, len(r.Findings), r.RuledOut, r.NotChecked)
		}
	}
}
