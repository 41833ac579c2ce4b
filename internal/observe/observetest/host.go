package observetest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/slowray/slowray/internal/observe"
)

// Host says how large a host is, and how much of it is ill. The zero Host has a
// gateway without anything to call.
type Host struct {
	// Called is how many addresses the gateway calls. Every second one is that
	// of a service on this host, as far as there are Services.
	Called int
	// Services is how many services answer requests, next to the gateway; each
	// calls the next one. They are spread over the namespaces.
	Services   int
	Processes  int // at least; those that belong to no service are idle
	Namespaces int // of networks, next to the host's own, with a control group each
	Sockets    int // groups of sockets without a request
	Waits      int // shapes of wait chains
	Drops      int // kinds of dropped packets
	Pools      int // of worker processes: an application server, a database and a cache each
	// Ill is the share of services, calls and pools with something wrong, 0 to 1.
	Ill  float64
	Seed uint64 // of what differs from one service to the next
}

// Large is the host that judging is measured on: 4,096 called endpoints, 2,000
// processes and 300 namespaces, and in proportion whatever else there is.
func Large() Host {
	return Host{Called: 4096, Services: 2048, Processes: 2000, Namespaces: 300, Sockets: 4096, Waits: 1024, Drops: 512, Pools: 64, Ill: 0.02}
}

const (
	hostNS    = 4026531840 // inode of the host's own network namespace
	seconds   = 10
	gateway   = 1000 // its master process; the workers follow
	workers   = 4    // of the gateway
	members   = 3    // processes of a service: a master and its workers
	firstPID  = 2000 // of services
	publicEnd = 443
)

// maker is one Observation being made.
type maker struct {
	Host
	rand *rand.Rand
	out  *observe.Observation
}

// Observation is what slowray would have recorded in a window of ten seconds.
func (h Host) Observation() *observe.Observation {
	m := &maker{Host: h, rand: rand.New(rand.NewPCG(h.Seed, 17)), out: &observe.Observation{
		Schema: observe.SchemaObservation, Version: "test",
		Host:        observe.Host{Name: "large", Kernel: "6.18.44", BootID: "5d1c", CPUs: 16, MemoryBytes: 256 << 30, NetNS: hostNS},
		Window:      observe.Window{Start: time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC), Seconds: seconds},
		CallSeconds: 1.25, ErrorSeconds: 1.25,
		Sysctl: map[string]string{"net.netfilter.nf_conntrack_max": "262144", "fs.file-max": "2000000", "fs.aio-max-nr": "65536"},
	}}
	m.use()
	m.namespaces()
	m.processes()
	m.services()
	m.calls()
	m.sockets()
	m.waits()
	m.drops()
	m.pools()
	m.rest()
	return m.out
}

// ill says whether the next thing is.
func (m *maker) ill() bool { return m.rand.Float64() < m.Ill }

// use is a host with CPU to spare.
func (m *maker) use() {
	u := &m.out.Use
	cpus := m.out.Host.CPUs
	each := observe.CPUTime{User: 2.5, System: 1, SoftIRQ: 0.25, Idle: 6.25}
	for cpu := range cpus {
		u.PerCPU = append(u.PerCPU, each)
		u.Softnet = append(u.Softnet, observe.Softnet{CPU: cpu, Processed: 100_000})
	}
	n := float64(cpus)
	u.CPU = observe.CPUTime{User: n * each.User, System: n * each.System, SoftIRQ: n * each.SoftIRQ, Idle: n * each.Idle}
	for i := range 40 {
		u.Course = append(u.Course, observe.CPUSpan{Seconds: float64(i+1) / 4, Busy: n * 3.75 / 40, Idle: n * 6.25 / 40})
	}
	u.Memory = observe.Memory{TotalBytes: 256 << 30, AvailableBytes: 128 << 30, CommitLimit: 256 << 30, Committed: 64 << 30}
	u.VM = map[string]uint64{"pgmajfault": 12}
	u.Disks = []observe.Disk{{Name: "nvme0n1", Reads: 1200, Writes: 900, ReadSeconds: 0.4, WriteSeconds: 0.6, BusySeconds: 0.9}}
	u.Pressure = map[string]observe.Pressure{"cpu": {SomeSeconds: 0.7}, "memory": {}, "io": {SomeSeconds: 0.2}}
	u.SoftIRQs = map[string][]uint64{"NET_RX": make([]uint64, cpus), "TIMER": make([]uint64, cpus)}
}

// inode is that of a namespace; 0 is the host's own.
func inode(space int) uint64 {
	if space == 0 {
		return hostNS
	}
	return 4026532000 + uint64(space)
}

// address is the own one of a namespace.
func address(space int) string { return fmt.Sprintf("10.%d.%d.2", 64+space/250, 1+space%250) }

// namespaces are the host's own and those of pods, each with what packets pass there.
func (m *maker) namespaces() {
	for space := range m.Namespaces + 1 {
		ns := observe.NetNS{
			Inode: inode(space), Host: space == 0, PID: m.inhabitant(space), Addrs: []string{address(space), fmt.Sprintf("fd00::%x", space+2)},
			Counters: map[string]uint64{"Tcp.InSegs": 90_000, "Tcp.OutSegs": 90_000, "Tcp.RetransSegs": 3, "TcpExt.ListenOverflows": 0,
				"TcpExt.ListenDrops": 0, "TcpExt.TCPSynRetrans": 1, "Ip.InReceives": 90_000},
			SockStat:  map[string]int64{"TCP.inuse": 40, "TCP.tw": 12, "TCP.orphan": 0, "TCP.mem": 30},
			Sysctl:    map[string]string{"net.core.somaxconn": "4096", "net.ipv4.ip_local_port_range": "32768 60999", "net.ipv4.tcp_tw_reuse": "2", "net.ipv4.tcp_fin_timeout": "60"},
			Conntrack: &observe.Conntrack{Entries: 400, PeakEntries: 420, Max: 262144},
			Links: []observe.Link{{Name: "lo", Index: 1, MTU: 65536, Up: true},
				{Name: "eth0", Index: 2, Kind: "veth", MTU: 1500, Up: true, PeerNetNS: hostNS, PeerName: fmt.Sprintf("veth%d", space), PeerMTU: 1500, RxPackets: 90_000, TxPackets: 90_000}},
			Interfaces: []observe.Interface{{Name: "eth0", RxPackets: 90_000, TxPackets: 90_000}},
			Qdiscs:     []observe.Qdisc{{Interface: "eth0", Kind: "fq_codel", Handle: "8001:", Parent: "root", Packets: 90_000}},
			Routes:     []observe.Route{{Dst: "192.168.0.0/16", Kind: "blackhole", Table: 254}},
			Neighbours: []observe.Neighbour{{Addr: fmt.Sprintf("10.%d.%d.99", 64+space/250, 1+space%250), Interface: "eth0", State: "failed"}},
			UDP:        []observe.UDPSocket{{Addr: "0.0.0.0", Port: 8125, Inode: uint64(7_000_000 + space), PID: m.inhabitant(space)}},
			Firewall: &observe.Firewall{All: 40, Rules: []observe.FirewallRule{{Backend: "nft", Family: "inet", Table: "filter", Chain: "input",
				Hooks: []string{"input"}, Handle: 7, Text: "tcp dport 9 drop", Verdict: "drop", Counted: true, Protocol: "tcp", DstPorts: [][2]int{{9, 9}}}}},
		}
		if m.ill() {
			ns.Qdiscs[0].Drops, ns.Counters["TcpExt.ListenOverflows"], ns.Conntrack.Drop = 400, 60, 30
			ns.Conntrack.PeakEntries = ns.Conntrack.Max
			ns.Firewall.Rules[0].Packets = 200
		}
		m.out.Namespaces = append(m.out.Namespaces, ns)
	}
	for space := range m.Namespaces {
		m.out.Namespaces[0].Links = append(m.out.Namespaces[0].Links, observe.Link{Name: fmt.Sprintf("veth%d", space+1), Index: 10 + space, Kind: "veth", MTU: 1500, Up: true,
			PeerNetNS: inode(space + 1), PeerName: "eth0", PeerMTU: 1500})
	}
}

// space is the namespace of a service, which is that of its processes.
func (m *maker) space(service int) int {
	if m.Namespaces == 0 {
		return 0
	}
	return 1 + service%m.families()%m.Namespaces
}

// master is the pid of a service's master process. There may be more services
// than a host has processes: then one process answers several.
func (m *maker) master(service int) int {
	if service < 0 {
		return gateway
	}
	return firstPID + members*(service%m.families())
}

// families is how many services have processes of their own.
func (m *maker) families() int {
	return max(min(m.Services, (m.Processes-workers-2)/members), 1)
}

// inhabitant is a process that lives in a namespace.
func (m *maker) inhabitant(space int) int { return m.master(space - 1) }

func (m *maker) group(service int) string {
	return fmt.Sprintf("/kubepods/pod%d", m.space(service))
}
