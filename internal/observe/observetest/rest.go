package observetest

import (
	"fmt"

	"github.com/slowray/slowray/internal/observe"
)

// sockets are groups of connections over which no request went.
func (m *maker) sockets() {
	for i := range m.Sockets {
		ns := &m.out.Namespaces[i%len(m.out.Namespaces)]
		g := observe.SocketGroup{Side: "called", Addr: ns.Addrs[0], Remote: fmt.Sprintf("198.19.%d.%d", i/250%250, 1+i%250), Port: 5000 + i%1000,
			States: map[string]int{"ESTABLISHED": 2}, LocalPorts: 2}
		switch i % 4 {
		case 0:
			g = observe.SocketGroup{Side: "served", Port: port(i), States: map[string]int{"ESTABLISHED": 4, "TIME_WAIT": 20, "CLOSE_WAIT": 1, "SYN_RECV": 1}}
		case 1:
			g.States["SYN_SENT"] = 1
		}
		ns.Sockets = append(ns.Sockets, g)
	}
}

// waits are chains from a service's threads over those of others to what they wait for.
func (m *maker) waits() {
	w := &observe.WaitGraph{Looks: 90, Processes: 3 * m.families(), EveryNS: 100e6, SlowerNS: 50e6, Followed: 60, UnknownNS: 2e9, Parked: 40, ParkedNS: 9e9}
	m.out.Waits = w
	ends := map[observe.WaitKind]observe.WaitEnd{observe.WaitLock: observe.EndGone, observe.WaitPipe: observe.EndRunning, observe.WaitUnix: observe.EndIdle,
		observe.WaitTCP: observe.EndRemote, observe.WaitDisk: observe.EndDisk, observe.WaitFileLock: observe.EndStopped}
	kinds := []observe.WaitKind{observe.WaitLock, observe.WaitPipe, observe.WaitUnix, observe.WaitTCP, observe.WaitDisk, observe.WaitFileLock}
	for i := range m.Waits {
		var hops []observe.WaitHop
		for hop := range 1 + i%4 {
			pid := m.master(i + hop)
			h := observe.WaitHop{Process: observe.WaitProcess{PID: pid, Comm: m.comm(i + hop), NetNS: inode(m.space(i + hop))}, TID: pid + 1, Comm: m.comm(i + hop), State: "S",
				Syscall: "futex", Kind: kinds[(i+hop)%len(kinds)], Wants: observe.WantsRelease, Object: fmt.Sprintf("fd %d → pipe:[%d]", hop, i), ForNS: 400e6}
			if hop > 0 {
				h.How, h.Why = observe.HowOwner, "holds the mutex"
			}
			hops = append(hops, h)
		}
		last := &hops[len(hops)-1]
		share := observe.WaitShare{PID: hops[0].Process.PID, Samples: 40, Threads: 3, AtOnce: 2, ThreadNS: 4e9, LongestNS: 900e6, FirstNS: 1e9, LastNS: 9e9,
			SlowNS: 10e6 + m.rand.Int64N(20e6), SlowRequests: 3, Reader: i%2 == 0,
			Chain: observe.WaitChain{Threads: []int{hops[0].TID}, Count: 1, Hops: hops, Text: "waits", BackTo: -1, End: ends[last.Kind]}}
		if m.ill() {
			share.SlowNS = 2e9
		}
		w.Shares = append(w.Shares, share)
	}
	for i := range min(m.families(), m.Waits) {
		w.Slow = append(w.Slow, observe.SlowTime{PID: m.master(i), Requests: 30, NS: 3e9, ComputeNS: 3e8, LongestNS: 900e6})
	}
}

// drops are packets of the services' connections, and of nobody's.
func (m *maker) drops() {
	d := &observe.Drops{Reasons: true}
	m.out.Drops = d
	reasons := []string{"NETFILTER_DROP", "QDISC_DROP", "TCP_OLD_DATA", "IP_RPFILTER", "SOCKET_RCVBUFF", "TC_INGRESS", "NEIGH_FAILED", "XDP"}
	kinds := []string{observe.DropSYN, observe.DropData, observe.DropACK, "udp"}
	for i := range m.Drops {
		space := m.space(i)
		drop := observe.Drop{Reason: reasons[i%len(reasons)], Location: "nf_hook_slow", NetNS: inode(space), Interface: "eth0", In: i%2 == 0, Kind: kinds[i/8%len(kinds)],
			Packets: 5, Segments: 5, Bytes: 7000, Longest: 1500, Shortest: 60}
		if m.ill() {
			drop.Packets, drop.Segments = 400, 400
		}
		for f := range 1 + i%32 {
			service := i + f
			drop.Flows = append(drop.Flows, observe.DropFlow{Src: fmt.Sprintf("10.200.%d.%d", f, 1+i%250), Dst: address(m.space(service)), DstPort: port(service), Segments: 1})
		}
		d.List = append(d.List, drop)
	}
}

// pools are servers with a limit on what they take up at once: each kind of them
// stands behind a service.
func (m *maker) pools() {
	any := observe.Setting{Value: "128", File: "/etc/app.conf", Line: 7}
	for i := range m.Pools {
		pid, space, at := m.master(i), m.space(i), port(i)
		netns, children := inode(space), []int{m.master(i) + 1, m.master(i) + 2}
		busy := 5
		if m.ill() {
			busy = 190
		}
		log := []observe.LogKind{{Kind: "worker-timeout", Count: int64(busy / 100), Seconds: 2, Example: "[CRITICAL] WORKER TIMEOUT"}}
		m.out.Nginx = append(m.out.Nginx, observe.Nginx{PID: pid, Workers: children, NetNS: netns, Config: "/etc/nginx/nginx.conf", WorkerConnections: any, WorkerProcesses: any,
			Listens:         []observe.NginxListen{{Addr: "*", Port: at, Backlog: any, File: "/etc/nginx/nginx.conf", Line: 3}},
			Upstreams:       []observe.NginxUpstream{{Name: "up", Via: "proxy", Servers: []string{fmt.Sprintf("%s:%d", address(m.space(i+1)), port(i+1))}, Keepalive: any, File: "/etc/nginx/nginx.conf", Line: 9}},
			ConnectionsPeak: map[int]int{pid + 1: 40, pid + 2: busy},
			Errors:          []observe.LogKind{{Kind: "upstream-timed-out", Upstream: address(m.space(i + 1)), Count: int64(busy), Seconds: 5}}})
		m.out.PHPFPM = append(m.out.PHPFPM, observe.PHPFPM{PID: pid, NetNS: netns, Config: "/etc/php/fpm.conf", Pools: []observe.FPMPool{{Name: "www",
			Listen: observe.Setting{Value: fmt.Sprintf("0.0.0.0:%d", at)}, ListenBacklog: any, PM: observe.Setting{Value: "static"}, MaxChildren: observe.Setting{Value: "2"},
			Children: children, Rounds: 200, AllBusyRounds: busy, BusyMean: 1, BusyPeak: 2, RunningMean: 0.5}}})
		m.out.AppServers = append(m.out.AppServers,
			observe.AppServer{Kind: observe.KindGunicorn, Model: "sync", PID: pid, Workers: children, NetNS: netns, Log: log, Pools: []observe.WorkerPool{{Name: "workers",
				Listens: []observe.AppListen{{Port: at}}, Limit: 2, Setting: any, Knob: "workers", Threads: 1, Rounds: 200, AllBusyRounds: busy, BusyMean: 1}}},
			observe.AppServer{Kind: observe.KindHAProxy, PID: pid, NetNS: netns, Pools: []observe.WorkerPool{{Name: "front", Listens: []observe.AppListen{{Port: at}}, Limit: 200, Setting: any, Knob: "maxconn", PerConn: true,
				Status: &observe.PoolStatus{State: "OPEN", Current: busy, CurrentPeak: busy, Limit: 200, Samples: 40}}},
				Backends: []observe.ProxyBackend{{Backend: "b", Server: "s", Addr: fmt.Sprintf("%s:%d", address(m.space(i+1)), port(i+1)), MaxConn: any, Frontends: []string{"front"},
					Status: &observe.PoolStatus{State: "UP", Queue: busy / 100, QueueMean: float64(busy / 100), Samples: 40}}}})
		for _, kind := range []string{"postgresql", "redis"} {
			m.out.Databases = append(m.out.Databases, observe.Database{Kind: kind, PID: pid, NetNS: netns, Ports: []int{at}, MaxConnections: any, Samples: 40, ConnectionsPeak: busy, ConnectionsMean: 5,
				Sessions: &observe.Sessions{Rounds: 40, BackendsMean: 9, WaitingMean: float64(busy / 100), WaitingPeak: busy / 50, WaitingRounds: busy / 5},
				Status:   &observe.DatabaseStatus{Begin: map[string]float64{"connected_clients": 4}, End: map[string]float64{"connected_clients": 5}},
				Slow: &observe.SlowLog{Source: "log", Threshold: any, Entries: 10, NS: 5e9, Joined: 10,
					Statements: []observe.SlowStatement{{Statement: "SELECT ?", Count: 10, NS: 5e9, LongestNS: 1e9, Joined: 10, RequestNS: 5e9, ServerNS: 4e9,
						Callers: []observe.SlowCaller{{PID: gateway, Joined: 10, RequestNS: 5e9, ServerNS: 4e9}}}}}})
		}
	}
}

// rest is what is there once for each namespace or so, and what is known of the machine.
func (m *maker) rest() {
	o := m.out
	p := &observe.Profile{Hz: 97, Samples: 6000}
	o.Profile = p
	for i := range o.Processes {
		pr := &o.Processes[i]
		p.Processes = append(p.Processes, observe.ProfileProcess{PID: pr.PID, Comm: pr.Comm, Parent: pr.PPID, Samples: 4, Kernel: 1,
			Threads:   []observe.ProfileThread{{TID: pr.PID, Comm: pr.Comm, Samples: 4}},
			Functions: []observe.ProfileFunction{{Frame: observe.Frame{Name: "main.serve", Kind: observe.FrameGo}, Self: 2, Total: 4, Own: 2}}})
	}
	for space := range m.Namespaces {
		pids := []int{}
		for family := space; family < m.families(); family += m.Namespaces {
			pids = append(pids, m.master(family), m.master(family)+1, m.master(family)+2)
		}
		group := fmt.Sprintf("/kubepods/pod%d", space+1)
		c := observe.Cgroup{Path: group, Version: 2, PIDs: pids, QuotaCPUs: 2, QuotaFile: "/sys/fs/cgroup" + group + "/cpu.max", PeriodNS: 1e8, Periods: 100,
			MemoryLimitBytes: 1 << 30, MemoryUsedBytes: 1 << 29, MemoryFile: "/sys/fs/cgroup" + group + "/memory.max", CPUWeight: 100, Tasks: 12, PIDsLimit: 4096,
			PIDsFile: "/sys/fs/cgroup" + group + "/pids.max", WeightFile: "/sys/fs/cgroup" + group + "/cpu.weight"}
		if m.ill() {
			c.ThrottledPeriods, c.ThrottledSeconds, c.MemoryAtLimit, c.OOMKills, c.Refaults = 80, 6, 9, 1, 90_000
			if len(pids) > 0 {
				o.OOMKills = append(o.OOMKills, observe.OOMKill{At: 3, PID: pids[0] + 2, Comm: m.comm(space), Cgroup: group, LimitCgroup: group, Container: fmt.Sprintf("%012x", space+1), AnonBytes: 1 << 29, LimitBytes: 1 << 30})
			}
		}
		o.Cgroups = append(o.Cgroups, c)
		o.Containers = append(o.Containers, observe.Container{ID: fmt.Sprintf("%012x", space+1), Name: fmt.Sprintf("pod-%d", space+1), Image: "app:1", Engine: "containerd", State: "running", MemoryLimitBytes: 1 << 30})
		pid := m.inhabitant(space + 1)
		o.Heaps = append(o.Heaps, observe.Heap{PID: pid, Comm: m.comm(space), Runtime: "jvm", MaxBytes: 1 << 29, From: "-Xmx512m", UsedBytes: 1 << 28})
		o.DNS = append(o.DNS, observe.DNS{PID: pid, Comm: m.comm(space), NetNS: inode(space + 1), Lookups: 40, LookupNS: 4e8, LookupMaxNS: 5e7,
			Servers:  []observe.DNSServer{{Addr: "10.96.0.10", Queries: 80, Answered: 80, AnswerNS: 4e8, AnswerMaxNS: 5e7}},
			Resolver: &observe.Resolver{File: "/etc/resolv.conf", NameServers: []string{"10.96.0.10"}, NDots: 5, TimeoutSeconds: 5, Attempts: 2}})
		o.Filesystems = append(o.Filesystems, observe.Filesystem{Dir: "/", MountNS: uint64(4026533000 + space), PID: pid, Type: "overlay", Source: "overlay", Device: fmt.Sprintf("0:%d", space+50),
			SizeBytes: 100 << 30, FreeBytes: 40 << 30})
		if space%4 == 0 {
			o.CallErrors = append(o.CallErrors, observe.CallError{PID: pid, Comm: m.comm(space), NetNS: inode(space + 1), Call: "write", Error: "ENOSPC", Calls: 3, Path: "/data/x",
				Device: fmt.Sprintf("0:%d", space+50), Mount: "/", MountNS: uint64(4026533000 + space)})
			o.KernelLog = append(o.KernelLog, observe.KernelLine{Kind: "syn-flood", Port: port(space), Count: 1, Example: "TCP: request_sock_TCP: Possible SYN flooding on port"})
		}
		o.Changes = append(o.Changes, observe.Change{Kind: observe.ChangeConfig, At: o.Window.Start, What: "changed", Path: "/etc/app.conf", PID: pid, Comm: m.comm(space)})
	}
}
