package observetest

import (
	"fmt"

	"github.com/slowray/slowray/internal/observe"
)

// processes are the gateway's, those of the services, and idle ones.
func (m *maker) processes() {
	add := func(p observe.Process) { m.out.Processes = append(m.out.Processes, p) }
	add(observe.Process{PID: 1, Comm: "systemd", State: "S", Threads: 1, NetNS: hostNS})
	add(observe.Process{PID: 2, Comm: "kthreadd", State: "S", Threads: 1, Kernel: true, NetNS: hostNS})
	for i := range workers + 1 {
		p := observe.Process{PID: gateway + i, PPID: gateway, Comm: "gateway", State: "S", Threads: 8, NetNS: hostNS, Unit: "gateway.service",
			Cgroup: "/system.slice/gateway.service", UserSeconds: 2, SystemSeconds: 1, RunDelaySeconds: 0.1, Timeslices: 40_000, FDs: 5000, FDLimit: 65536, FDHard: 65536, Exe: "gateway",
			States: &observe.ThreadStates{Rounds: 40, Samples: 320, Running: 40, Poll: 280}, RSSBytes: 200 << 20}
		if i == 0 {
			p.PPID = 1
		}
		add(p)
	}
	for family := range m.families() {
		for i := range members {
			pid := m.master(family) + i
			p := observe.Process{PID: pid, PPID: m.master(family), Comm: m.comm(family), Cmdline: "/usr/bin/app --config /etc/app.conf", State: "S", Threads: 4,
				NetNS: inode(m.space(family)), Cgroup: m.group(family), Container: fmt.Sprintf("%012x", m.space(family)),
				UserSeconds: 0.05, SystemSeconds: 0.02, RunDelaySeconds: 0.01, Timeslices: 900, FDs: 40, FDLimit: 1024, FDHard: 4096, RSSBytes: 40 << 20, Exe: "app",
				States: &observe.ThreadStates{Rounds: 20, Samples: 80, Running: 2, Waiting: 3, Poll: 75}}
			if i == 0 {
				p.PPID = 1
			}
			for t := range 4 {
				p.Busiest = append(p.Busiest, observe.Thread{TID: pid*10 + t, CPUSeconds: 0.01, RunDelaySeconds: 0.002})
			}
			for s := range 10 {
				p.Course = append(p.Course, observe.RunSpan{Seconds: float64(s + 1), CPU: 0.007, Delay: 0.001, TopTID: pid, TopCPU: 0.004})
			}
			if m.ill() {
				p.RunDelaySeconds, p.State, p.FDs = 3, "D", 1020
				p.States = &observe.ThreadStates{Rounds: 20, Samples: 80, Disk: 40, Waiting: 40}
			}
			add(p)
		}
	}
	for pid := firstPID + members*m.families(); len(m.out.Processes) < m.Processes; pid++ {
		add(observe.Process{PID: pid, PPID: 1, Comm: fmt.Sprintf("idle%d", pid%50), State: "S", Threads: 2, NetNS: hostNS, Cgroup: "/user.slice"})
	}
}

func (m *maker) comm(service int) string { return fmt.Sprintf("app%d", service%m.families()) }

// port is where a service listens; several services of a namespace differ by it.
func port(service int) int { return 8000 + service%20_000 }

// services listen and answer; each calls the next one, and what is elsewhere.
func (m *maker) services() {
	public := m.listener(publicEnd, gateway, "gateway")
	public.PIDs = []int{gateway, gateway + 1, gateway + 2, gateway + 3, gateway + 4}
	public.Clients, public.Opened = 900, 400
	m.out.Namespaces[0].Listeners = append(m.out.Namespaces[0].Listeners, public)
	m.out.Endpoints = append(m.out.Endpoints, m.endpoint(observe.Served, hostNS, "203.0.113.1", publicEnd, gateway, "gateway", m.ill()))
	for i := range m.Services {
		pid, space := m.master(i), m.space(i)
		l := m.listener(port(i), pid, m.comm(i))
		l.PIDs, l.Clients, l.Opened = []int{pid, pid + 1, pid + 2}, 4, 4
		l.ClientPIDs = []int{gateway}
		if m.ill() {
			l.QueuePeak, l.FullSamples, l.Drops, l.Limit = 129, 30, 50, 128
		}
		ns := &m.out.Namespaces[space]
		ns.Listeners = append(ns.Listeners, l)
		m.out.Endpoints = append(m.out.Endpoints, m.endpoint(observe.Served, inode(space), address(space), port(i), pid, m.comm(i), m.ill()))
		m.out.Accepts = append(m.out.Accepts, observe.Accept{PID: pid + 1, Comm: m.comm(i), Accepted: 4})
		if i+1 < m.Services && i%8 != 7 {
			m.call(pid, space, m.comm(i), address(m.space(i+1)), port(i+1), m.ill())
		}
	}
}

// calls are the gateway's.
func (m *maker) calls() {
	for i := range m.Called {
		addr, at := fmt.Sprintf("198.18.%d.%d", i/250, 1+i%250), 9000
		if service := i / 2; i%2 == 0 && service < m.Services {
			addr, at = address(m.space(service)), port(service)
		}
		m.call(gateway, 0, "gateway", addr, at, m.ill())
	}
}

// call is requests from a process to an address, with the connections they go over.
func (m *maker) call(pid, space int, comm, addr string, at int, ill bool) {
	m.out.Endpoints = append(m.out.Endpoints, m.endpoint(observe.Called, inode(space), addr, at, pid, comm, ill))
	c := observe.Connect{PID: pid + m.rand.IntN(members), Comm: comm, NetNS: inode(space), Family: "inet", Addr: addr, Port: at, Calls: 4, Started: 4, Established: 4}
	if ill {
		c.Calls, c.Started, c.Failed, c.TimedOut, c.Refused, c.Errors = 80, 60, 50, 20, 30, map[string]uint64{"EADDRNOTAVAIL": 20}
	}
	m.out.Connects = append(m.out.Connects, c)
	ns := &m.out.Namespaces[space]
	ns.Sockets = append(ns.Sockets, observe.SocketGroup{Side: "called", Addr: address(space), Remote: addr, Port: at,
		States: map[string]int{"ESTABLISHED": 4, "TIME_WAIT": 6}, LocalPorts: 10, PIDs: []int{pid}})
}

func (m *maker) listener(at, pid int, comm string) observe.Listener {
	return observe.Listener{Proto: "tcp", Addr: "0.0.0.0", Port: at, Inode: uint64(6_000_000 + m.rand.IntN(1_000_000)), PID: pid, Comm: comm,
		Limit: 511, QueuePeak: 1, Samples: 40}
}

// endpoint is some hundred requests, of which some are slow: where it is ill, for the
// network, a queue, or what threads did.
func (m *maker) endpoint(side observe.Side, netns uint64, addr string, at, pid int, comm string, ill bool) observe.Endpoint {
	const requests, slow = 300, 10
	e := observe.Endpoint{Side: side.String(), NetNS: netns, Addr: addr, Port: at, PID: pid, PIDs: []int{pid, pid + 1}, Comm: comm,
		Requests: requests, OK: requests, Recorded: requests, BytesIn: 30_000, BytesOut: 900_000, Segments: 900, MinRTT: 80_000, Connections: 4,
		Parts: map[string]observe.PartStats{}, SlowParts: map[string]int64{}, SlowCount: slow, Flags: map[string]uint64{}, Statuses: map[string]uint64{"2xx": requests},
		Arrivals: make([]uint32, 10*seconds)}
	for i := range e.Arrivals {
		e.Arrivals[i] = requests / uint32(len(e.Arrivals))
	}
	usual := map[observe.Part]int64{observe.RecvWait: 40_000, observe.Server: 1_500_000 + m.rand.Int64N(1_000_000), observe.Network: 120_000}
	worst := map[observe.Part]int64{observe.RecvWait: 90_000, observe.Server: 6_000_000, observe.Network: 400_000}
	if ill {
		switch m.rand.IntN(5) {
		case 0: // loss
			worst[observe.Retrans], usual[observe.Retrans] = 400_000_000, 20_000_000
			e.Retrans, e.Flags["timeout"] = 60, 9
		case 1: // not accepted
			usual[observe.AcceptWait], worst[observe.AcceptWait] = 40_000_000, 300_000_000
		case 2: // not read
			usual[observe.RecvWait], worst[observe.RecvWait] = 60_000_000, 300_000_000
		case 3: // slow by itself, or for what it calls
			usual[observe.Server], worst[observe.Server] = 200_000_000, 900_000_000
			e.OK, e.Errors, e.Statuses["5xx"] = requests-40, 40, 40
		case 4: // the other end is slow to read
			usual[observe.SendWait], worst[observe.SendWait] = 50_000_000, 300_000_000
			e.Flags["zero_window"] = 100
		}
	}
	var total int64
	for p := range observe.NumParts {
		if usual[p] == 0 {
			continue
		}
		stats := observe.PartStats{SumNS: (requests-slow)*usual[p] + slow*worst[p]}
		stats.Hist.AddN(usual[p], requests-slow)
		stats.Hist.AddN(worst[p], slow)
		e.Parts[p.String()], e.SlowParts[p.String()] = stats, slow*worst[p]
		total += usual[p]
	}
	var most int64
	for _, ns := range worst {
		most += ns
	}
	e.Total.AddN(total, requests-slow)
	e.Total.AddN(most, slow)
	e.RTT.AddN(100_000, requests)
	if side == observe.Served {
		e.Split = split(requests, e.Parts[observe.Server.String()].SumNS, e.SlowParts[observe.Server.String()], m.rand.IntN(3))
	}
	for i := range 4 {
		e.Peers = append(e.Peers, observe.PeerStats{Addr: fmt.Sprintf("10.200.%d.%d", at%250, i+1), Requests: requests / 4, TotalNS: total * requests / 4, MinRTT: 80_000})
	}
	for range 4 {
		e.Slowest = append(e.Slowest, observe.RequestSample{StartNS: m.out.Window.Start.UnixNano() + m.rand.Int64N(seconds*1e9), Local: addr, Peer: "10.200.1.1:40000", PID: pid, Seq: 7,
			TotalNS: most, Parts: map[string]int64{"server": worst[observe.Server], "network": worst[observe.Network]}, RTTNS: 100_000, MinRTTNS: 80_000, Status: "ok", HTTP: 200})
	}
	return e
}

// split is what threads did in the server's time, mostly one thing.
func split(requests uint64, server, slow int64, mostly int) *observe.SplitStats {
	shares := map[observe.ServerPart]int64{observe.ServerCPU: 30, observe.ServerCall: 60, observe.ServerLock: 10}
	switch mostly {
	case 1:
		shares = map[observe.ServerPart]int64{observe.ServerCPU: 80, observe.ServerRunq: 10, observe.ServerDisk: 10}
	case 2:
		shares = map[observe.ServerPart]int64{observe.ServerCPU: 20, observe.ServerLock: 60, observe.ServerPipe: 20}
	}
	s := &observe.SplitStats{Requests: requests, ServerNS: server, SlowServerNS: slow, Parts: map[string]observe.PartStats{}, SlowParts: map[string]int64{}}
	for p := range observe.NumServerParts {
		if share := shares[p]; share > 0 {
			stats := observe.PartStats{SumNS: server * share / 100}
			stats.Hist.AddN(stats.SumNS/int64(requests), requests)
			s.Parts[p.String()], s.SlowParts[p.String()] = stats, slow*share/100
		}
	}
	return s
}
