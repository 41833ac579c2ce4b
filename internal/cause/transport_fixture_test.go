package cause

import "github.com/slowray/slowray/internal/observe"

// Ledgers of requests that suffer in transport.
var (
	lateUpload = parts{observe.Upload: 450 * ms, observe.Server: 2 * ms, observe.Network: ms / 2}
	halfSecond = parts{observe.Server: 510 * ms, observe.Network: ms / 10}
)

// uploads is a service whose requests come in late.
func uploads() *traffic {
	return nginxServed().add(100, ms, ms, 0, quick).add(60, ms, ms, 0, lateUpload)
}

// failing is a service of which bad requests of n fail.
func failing(t *traffic, n, bad int) *traffic {
	t.add(n, ms/10, ms/20, 0, quick)
	t.e.Errors = uint64(bad)
	return t
}

// connects makes the connections of a service towards an address what they are here.
func connects(o *observe.Observation, pid int, family, addr string, port int, c observe.Connect) {
	c.PID, c.Comm, c.NetNS, c.Family, c.Addr, c.Port = pid, process(o, pid).Comm, serverNS, family, addr, port
	c.Started = c.Calls
	o.Connects = append(o.Connects, c)
}

// datagramChain is a worker that sends to a log which nobody reads.
var datagramChain = func() observe.WaitChain {
	h := hop(nginxWorker1, nginxWorker1, observe.WaitUnix, observe.WantsRoom, "sendto", "fd 9 → unix to /run/app/log")
	h.Datagram = true
	return ends(observe.EndSleep, "sleeps for a time that it chose itself", h,
		peer(hop(backupPID, backupPID, observe.WaitSleep, "", "clock_nanosleep", "1h"), observe.HowPeer, "has the other end, and does not read"))
}()

// nameChain is a worker that asks a name service daemon.
var nameChain = ends(observe.EndSleep, "sleeps for a time that it chose itself",
	hop(nginxWorker1, nginxWorker1, observe.WaitUnix, observe.WantsAnswer, "poll", "fd 9 → unix to /run/nscd/socket"),
	peer(hop(backupPID, backupPID, observe.WaitSleep, "", "clock_nanosleep", "1h"), observe.HowPeer, "has the other end"))

// cutCalls are calls of which some have no answer, as seq-th ones on their
// connection.
func cutCalls(n, cut int, seq uint32, took int64) *traffic {
	t := dbCalled().add(n, ms, ms, 0, quick).add(cut, ms, ms, observe.FlagUnanswered|observe.FlagReset, parts{observe.Server: took})
	for i := range t.list {
		t.list[i].Seq = seq
	}
	return t
}

// callsCut injects them, and requests that fail by them.
func callsCut(t *traffic, cut int) func(*observe.Observation) {
	return func(o *observe.Observation) {
		quiet(failing(fpmServed(), 500, cut), t)(o)
		e := &o.Endpoints[1]
		e.Errors, e.Unanswered = 0, uint64(cut)
		for i := range t.list[len(t.list)-min(cut, 20):] {
			e.Failed = append(e.Failed, t.list[len(t.list)-1-i])
		}
	}
}

// firingOnTransport are the causes of sockets and of connections, see firing.
var firingOnTransport = []fires{
	{
		name: "the upstream is not there", cause: &upstreamRefused,
		inject: func(o *observe.Observation) {
			quiet(failing(nginxServed(), 1000, 990))(o)
			ns(o).Listeners = ns(o).Listeners[:1]
			o.Connects = nil
			connects(o, nginxWorker1, "inet", "127.0.0.1", fpmPort, observe.Connect{Calls: 1000, Established: 10, Failed: 990, Refused: 990})
		},
		subject: Subject{Kind: "destination", PID: nginxMaster, Comm: "nginx", Addr: "127.0.0.1", Port: fpmPort}, minShare: 0.98,
		fix: "Nothing listens at port 9123", evidence: "connections refused (ECONNREFUSED)=990",
	},
	{
		name: "one of two upstreams elsewhere is gone", cause: &upstreamRefused,
		inject: func(o *observe.Observation) {
			quiet(failing(fpmServed(), 1000, 40))(o)
			connects(o, fpmChild1, "inet", "10.7.7.7", dbPort, observe.Connect{Calls: 40, Failed: 40, Refused: 40})
		},
		subject: Subject{PID: fpmMaster, Addr: "10.7.7.7"}, minShare: 0.03, fix: "on the machine that has 10.7.7.7",
	},
	{
		name: "clients find nothing that listens", cause: &upstreamRefused,
		inject: func(o *observe.Observation) {
			quiet(failing(nginxServed(), 1000, 0))(o)
			connects(o, clientPID, "inet", "10.7.7.7", 9123, observe.Connect{Calls: 500, Failed: 500, Refused: 500})
		},
		subject: Subject{Kind: "destination", PID: clientPID, Port: 9123}, minShare: 0.9, fix: "Start what should listen at 10.7.7.7:9123", evidence: "refused (ECONNREFUSED)=500",
	},
	{
		name: "clients get no answer to their SYNs", cause: &connectTimeout,
		inject: func(o *observe.Observation) {
			quiet(failing(nginxServed(), 1000, 0))(o)
			connects(o, clientPID, "inet", "10.7.7.7", 9123, observe.Connect{Calls: 40, Failed: 40})
		},
		subject: Subject{Kind: "destination", PID: clientPID, Port: 9123}, minShare: 0.9, fix: "whether 10.7.7.7 is up", evidence: "never answered=40",
	},
	{
		name: "in a namespace that began within the window", cause: &upstreamRefused,
		inject: func(o *observe.Observation) {
			quiet(failing(fpmServed(), 1000, 900))(o)
			connects(o, fpmChild1, "inet", "127.0.0.1", dbPort, observe.Connect{Calls: 900, Failed: 900, Refused: 900})
			o.Connects[len(o.Connects)-1].NetNS = 99
		},
		subject: Subject{PID: fpmMaster, Addr: "127.0.0.1"}, minShare: 0.8, fix: "in the network namespace of php-fpm8.2 (pid 200)",
	},
	{
		name: "a host that is gone", cause: &connectTimeout,
		inject: func(o *observe.Observation) {
			quiet(failing(fpmServed(), 200, 60))(o)
			connects(o, fpmChild1, "inet", "10.7.7.7", dbPort, observe.Connect{Calls: 60, Failed: 60, Unreachable: 50})
		},
		subject: Subject{Kind: "destination", PID: fpmMaster, Addr: "10.7.7.7", Port: dbPort}, minShare: 0.29,
		fix: "ip route get 10.7.7.7", evidence: "no way there (EHOSTUNREACH, ENETUNREACH)=50",
	},
	{
		name: "each request gives up after half a second", cause: &connectTimeout,
		inject: func(o *observe.Observation) {
			quiet(fpmServed().add(60, ms/10, ms/20, 0, halfSecond))(o)
			connects(o, fpmChild1, "inet", "10.7.7.7", dbPort, observe.Connect{Calls: 60, Failed: 60})
		},
		subject: Subject{Addr: "10.7.7.7", Port: dbPort}, minShare: 0.9, fix: "a short time limit", evidence: "connections never answered=60",
	},
	{
		name: "IPv6 leads nowhere", cause: &ipv6Fallback,
		inject: func(o *observe.Observation) {
			quiet(fpmServed().add(60, ms/10, ms/20, 0, halfSecond))(o)
			connects(o, fpmChild1, "inet6", "2001:db8::7", dbPort, observe.Connect{Calls: 60, Failed: 60})
			connects(o, fpmChild1, "inet", "10.7.7.7", dbPort, observe.Connect{Calls: 60, Established: 60})
		},
		subject: Subject{Addr: "2001:db8::7", Port: dbPort, PID: fpmMaster}, minShare: 0.9, fix: "/etc/gai.conf", evidence: "connections over IPv4 at the same port=60",
	},
	{
		name: "a connection for each call over 4 ms", cause: &connectionChurn,
		inject: func(o *observe.Observation) {
			c := dbCalled().add(500, 4*ms, 4*ms, 0, parts{observe.Server: ms, observe.Network: 4 * ms})
			c.e.Connections, c.e.Handshake = 500, 500*4*ms
			quiet(fpmServed().add(500, ms, ms, 0, parts{observe.Server: 10 * ms}), c)(o)
		},
		subject: Subject{Kind: "destination", PID: fpmMaster, Port: dbPort}, minShare: 0.39, fix: "saves a round trip of 4 ms", evidence: "connections opened=500",
	},
	{
		name: "half-open connections that nobody answers", cause: &synFlood,
		inject: func(o *observe.Observation) {
			idle(o)
			ns(o).Sysctl["net.ipv4.tcp_syncookies"], ns(o).Sysctl["net.ipv4.tcp_max_syn_backlog"] = "0", "128"
			ns(o).Counters["TcpExt.TCPSynRetrans"] = 300
			ns(o).Sockets = append(ns(o).Sockets, observe.SocketGroup{Side: "served", Port: webPort, States: map[string]int{"SYN_RECV": 96}})
			web(o).Drops, web(o).Opened, web(o).Clients = 5000, 40, 10
			o.Use.Flows = []observe.Flow{{NetNS: serverNS, Proto: "tcp syn", Port: webPort, Packets: 20_000}}
		},
		subject: Subject{Kind: "listener", Port: webPort, PID: nginxMaster}, minShare: 0.9, fix: "tcp_syncookies=1", evidence: "SYNs that come in=20000",
	},
	{
		name: "a burst of far clients, cookies off", cause: &synQueueOverflow,
		inject: func(o *observe.Observation) {
			idle(o)
			ns(o).Sysctl["net.ipv4.tcp_syncookies"], ns(o).Sysctl["net.ipv4.tcp_max_syn_backlog"] = "0", "128"
			ns(o).Sockets = append(ns(o).Sockets, observe.SocketGroup{Side: "served", Port: webPort, States: map[string]int{"SYN_RECV": 90}})
			web(o).Drops, web(o).Opened, web(o).Clients = 400, 3000, 10
		},
		subject: Subject{Kind: "listener", Port: webPort}, minShare: 0.1, fix: "tcp_max_syn_backlog=4096", evidence: "connections half open, peak=90",
	},
	{
		name: "resets instead of retries", cause: &abortOnOverflow,
		inject: func(o *observe.Observation) {
			ns(o).Sysctl["net.ipv4.tcp_abort_on_overflow"] = "1"
			ns(o).Counters["TcpExt.ListenOverflows"], ns(o).Counters["TcpExt.EmbryonicRsts"] = 900, 800
			web(o).Limit, web(o).QueuePeak, web(o).Drops, web(o).Opened = 10, 11, 900, 1000
		},
		subject: Subject{Kind: "listener", Port: webPort}, minShare: 0.4, fix: "tcp_abort_on_overflow=0", evidence: "handshakes that were reset in the namespace=800",
	},
	{
		name: "uploads do not fit", cause: &receiveBufferPruned,
		inject: func(o *observe.Observation) {
			quiet(uploads())(o)
			ns(o).Counters["TcpExt.TCPRcvQDrop"] = 700
		},
		subject: Subject{Kind: "namespace", NetNS: serverNS, Port: webPort}, minShare: 0.9, fix: "tcp_rmem", evidence: "TCPRcvQDrop=700",
	},
	{
		name: "the socket is locked for long", cause: &socketBacklogDrop,
		inject: func(o *observe.Observation) {
			quiet(uploads())(o)
			ns(o).Counters["TcpExt.TCPBacklogDrop"] = 200
		},
		subject: Subject{Kind: "namespace", NetNS: serverNS}, minShare: 0.9, fix: "bl and d in skmem", evidence: "TCPBacklogDrop=200",
	},
	{
		name: "timestamps of several machines behind one address", cause: &pawsDrop,
		inject: func(o *observe.Observation) {
			quiet(uploads())(o)
			ns(o).Counters["TcpExt.PAWSEstab"] = 90
		},
		subject: Subject{Kind: "namespace", NetNS: serverNS}, minShare: 0.9, fix: "behind one address", evidence: "PAWSEstab=90",
	},
	{
		name: "answers are cut off", cause: &timeWaitBuckets,
		inject: func(o *observe.Observation) {
			quiet(nginxServed().add(1000, ms, ms, 0, quick).add(50, ms, ms, observe.FlagReset|observe.FlagTruncated, quick))(o)
			ns(o).Counters["TcpExt.TCPTimeWaitOverflow"] = 900
			ns(o).Sysctl["net.ipv4.tcp_max_tw_buckets"] = "10"
		},
		subject: Subject{Kind: "namespace", Port: webPort}, minShare: 0.04, fix: "tcp_max_tw_buckets=262144", evidence: "sockets closed without TIME_WAIT=900",
	},
	{
		name: "all of tcp_mem is in use", cause: &tcpMemoryPressure,
		inject: func(o *observe.Observation) {
			quiet(uploads())(o)
			ns(o).SockStat = map[string]int64{"TCP.mem": 900}
			ns(o).Counters["TcpExt.TCPMemoryPressures"] = 4
			o.Sysctl["net.ipv4.tcp_mem"] = "400 600 1000"
		},
		subject: Subject{Kind: "host"}, minShare: 0.9, fix: "net.ipv4.tcp_mem=294912 393216 589824", evidence: "memory of all TCP sockets=900",
	},
	{
		name: "orphans are reset", cause: &orphansLimit,
		inject: func(o *observe.Observation) {
			quiet(nginxServed().add(1000, ms, ms, 0, quick).add(50, ms, ms, observe.FlagReset|observe.FlagTruncated, quick))(o)
			ns(o).SockStat = map[string]int64{"TCP.orphan": 5000}
			o.KernelLog = []observe.KernelLine{{Kind: "orphans", Count: 3}}
			o.Sysctl["net.ipv4.tcp_max_orphans"] = "4096"
		},
		subject: Subject{Kind: "host"}, minShare: 0.04, fix: "tcp_max_orphans", evidence: "too many orphaned sockets=3",
	},
	{
		name: "a hundred closed connections are kept", cause: &closeWaitLeak,
		inject: func(o *observe.Observation) {
			idle(o)
			ns(o).Sockets = append(ns(o).Sockets, observe.SocketGroup{Side: "served", Port: webPort, States: map[string]int{"CLOSE_WAIT": 90}})
			process(o, nginxWorker1).FDs, process(o, nginxWorker1).FDLimit = 100, 100
			o.Accepts[0].Errors = map[string]uint64{"EMFILE": 500}
		},
		subject: Subject{Kind: "process", PID: nginxWorker1, Port: webPort}, minShare: 0.9, fix: "close() a connection", evidence: "connections in CLOSE_WAIT=87",
	},
	{
		name: "segments overtake each other", cause: &reordering,
		inject: func(o *observe.Observation) {
			quiet(nginxServed().add(500, 20*ms, ms, observe.FlagReordered, parts{observe.Server: 2 * ms, observe.Network: 15 * ms, observe.Retrans: 10 * ms}).lost(6000, 300))(o)
			for name, n := range map[string]uint64{"TcpExt.TCPDSACKRecv": 290, "TcpExt.TCPSACKReorder": 200, "Tcp.RetransSegs": 300} {
				ns(o).Counters[name] = n
			}
		},
		subject: Subject{Kind: "listener", Port: webPort}, minShare: 0.9, fix: "balance-rr", evidence: "got twice=290",
	},
	{
		name: "a log daemon that does not read", cause: &unixDatagramBlocked,
		inject:  stuck(stuckWeb(10), waitShare(nginxMaster, 40_000*ms, 9, datagramChain)),
		subject: Subject{Kind: "process", PID: nginxMaster, Port: webPort}, minShare: 0.7, fix: "backup (pid 530) has the other end", evidence: "full=fd 9 → unix to /run/app/log",
	},
	{
		name: "nscd does not answer", cause: &nssStall,
		inject:  stuck(stuckWeb(10), waitShare(nginxMaster, 40_000*ms, 9, nameChain)),
		subject: Subject{Kind: "process", PID: nginxMaster, Port: webPort}, minShare: 0.7, fix: "nsswitch.conf", evidence: "asked at=unix to /run/nscd/socket",
	},
	{
		name: "kept connections are closed as requests are sent", cause: &keepaliveRace,
		inject:  callsCut(cutCalls(450, 30, 7, ms), 30),
		subject: Subject{Kind: "destination", PID: fpmMaster, Port: dbPort}, minShare: 0.05, fix: "close idle connections to 10.7.7.7:3306 sooner", evidence: "calls without an answer=30",
	},
	{
		name: "60 kB after a pause, 40 ms away", cause: &slowStartAfterIdle,
		inject: func(o *observe.Observation) {
			t := nginxServed().add(200, 41*ms, 40*ms, 0, parts{observe.Server: 2 * ms, observe.Network: 120 * ms}).peers(8, 40*ms)
			for i := range t.list {
				t.list[i].BytesOut = 60_000
			}
			quiet(t)(o)
			web(o).Clients = 20
			ns(o).Sysctl["net.ipv4.tcp_slow_start_after_idle"] = "1"
		},
		subject: Subject{Kind: "listener", Port: webPort}, minShare: 0.5, fix: "tcp_slow_start_after_idle=0", evidence: "round trips for an answer, mean=3",
	},
}

var nearMissesOnTransport = []miss{
	{"refused, and another upstream answers", &upstreamRefused, func(o *observe.Observation) {
		quiet(failing(nginxServed(), 1000, 0))(o)
		connects(o, nginxWorker1, "inet", "10.7.7.7", fpmPort, observe.Connect{Calls: 500, Failed: 500, Refused: 500})
	}, "0 of 1,000 requests of nginx failed"},
	{"a client waits for a server that begins", &upstreamRefused, func(o *observe.Observation) {
		quiet(failing(nginxServed(), 1000, 0))(o)
		connects(o, clientPID, "inet", "10.7.7.7", fpmPort, observe.Connect{Calls: 500, Established: 491, Failed: 9, Refused: 9})
	}, "9 of 500 connections"},
	{"a proxy that answers nobody looks whether another is back", &upstreamRefused, func(o *observe.Observation) {
		quiet(failing(nginxServed(), 1000, 0))(o)
		connects(o, fpmChild1, "inet", "10.7.7.7", dbPort, observe.Connect{Calls: 20, Failed: 20, Refused: 20})
	}, "no connection that a service or a client opened was refused"},
	{"requests fail, and three attempts were refused", &upstreamRefused, func(o *observe.Observation) {
		quiet(failing(nginxServed(), 1000, 500))(o)
		connects(o, nginxWorker1, "inet", "10.7.7.7", fpmPort, observe.Connect{Calls: 3, Failed: 3, Refused: 3})
	}, "3 of 3 connections"},
	{"a monitor tries in the background", &connectTimeout, func(o *observe.Observation) {
		quiet(failing(fpmServed(), 1000, 0))(o)
		connects(o, fpmChild1, "inet", "10.7.7.7", dbPort, observe.Connect{Calls: 20, Failed: 20})
	}, "20 of 20 connections"},
	{"IPv6 in vain at once with IPv4", &ipv6Fallback, func(o *observe.Observation) {
		quiet(failing(fpmServed(), 1000, 0))(o)
		connects(o, fpmChild1, "inet6", "2001:db8::7", dbPort, observe.Connect{Calls: 60, Failed: 60})
		connects(o, fpmChild1, "inet", "10.7.7.7", dbPort, observe.Connect{Calls: 60, Established: 60})
	}, "got no answer, and 60"},
	{"IPv6 in vain is no timeout of the service", &connectTimeout, func(o *observe.Observation) {
		quiet(fpmServed().add(60, ms/10, ms/20, 0, halfSecond))(o)
		connects(o, fpmChild1, "inet6", "2001:db8::7", dbPort, observe.Connect{Calls: 60, Failed: 60})
		connects(o, fpmChild1, "inet", "10.7.7.7", dbPort, observe.Connect{Calls: 60, Established: 60})
	}, "then made to 10.7.7.7"},
	{"a connection for each call on loopback", &connectionChurn, func(o *observe.Observation) {
		c := fpmCalled().add(5000, ms/20, ms/20, 0, parts{observe.Server: ms})
		c.e.Connections, c.e.Handshake = 5000, 5000*ms/20
		quiet(nginxServed().add(5000, ms, ms, 0, parts{observe.Server: ms}), c)(o)
	}, "5,000 connections for 5,000 calls"},
	{"handshakes that meet something else than distance", &connectionChurn, func(o *observe.Observation) {
		c := dbCalled().add(500, 4*ms, 4*ms, 0, parts{observe.Server: ms, observe.Network: 4 * ms})
		c.e.Connections, c.e.Handshake = 500, 500*90*ms
		quiet(fpmServed().add(500, ms, ms, 0, parts{observe.Server: 100 * ms}), c)(o)
	}, "a handshake takes 90 ms"},
	{"a flood that cookies answer", &synFlood, func(o *observe.Observation) {
		ns(o).Sockets = append(ns(o).Sockets, observe.SocketGroup{Side: "served", Port: webPort, States: map[string]int{"SYN_RECV": 511}})
		ns(o).Counters["TcpExt.SyncookiesSent"], ns(o).Counters["TcpExt.TCPSynRetrans"] = 90_000, 3000
	}, "90,000 SYN cookies sent, which lose nothing"},
	{"SYNs dropped by a full accept queue", &synQueueOverflow, func(o *observe.Observation) {
		ns(o).Sockets = append(ns(o).Sockets, observe.SocketGroup{Side: "served", Port: webPort, States: map[string]int{"SYN_RECV": 400}})
		ns(o).Counters["TcpExt.ListenOverflows"], web(o).Drops = 900, 900
	}, "0 SYNs dropped there"},
	{"connections that stay half open behind a full accept queue", &synFlood, func(o *observe.Observation) {
		ns(o).Sysctl["net.ipv4.tcp_syncookies"], ns(o).Sysctl["net.ipv4.tcp_max_syn_backlog"] = "0", "128"
		ns(o).Counters["TcpExt.TCPSynRetrans"] = 300
		ns(o).Sockets = append(ns(o).Sockets, observe.SocketGroup{Side: "served", Port: webPort, States: map[string]int{"SYN_RECV": 96}})
		web(o).Drops, web(o).Opened, web(o).Clients, web(o).FullSamples = 5000, 40, 10, 7
	}, "behind an accept queue that is full"},
	{"on, and nothing overflows", &abortOnOverflow, func(o *observe.Observation) {
		ns(o).Sysctl["net.ipv4.tcp_abort_on_overflow"] = "1"
	}, "no accept queue was full"},
	{"pruned, and nobody waits", &receiveBufferPruned, func(o *observe.Observation) {
		quiet(nginxServed().add(1000, ms, ms, 0, quick))(o)
		ns(o).Counters["TcpExt.RcvPruned"] = 300
	}, "no request waited for that"},
	{"late uploads, and nothing is dropped", &receiveBufferPruned, quiet(uploads()), "all segments that came fitted"},
	{"a few in the backlog", &socketBacklogDrop, func(o *observe.Observation) {
		quiet(uploads())(o)
		ns(o).Counters["TcpExt.TCPBacklogDrop"] = 3
	}, "3 segments"},
	{"old timestamps of closed connections", &pawsDrop, func(o *observe.Observation) {
		quiet(nginxServed().add(1000, ms, ms, 0, quick))(o)
		ns(o).Counters["TcpExt.PAWSTimewait"] = 60
	}, "60 segments"},
	{"no room in TIME_WAIT, and no answer is cut off", &timeWaitBuckets, func(o *observe.Observation) {
		quiet(nginxServed().add(1000, ms, ms, 0, quick))(o)
		ns(o).Counters["TcpExt.TCPTimeWaitOverflow"] = 900
	}, "no answer was cut off"},
	{"memory above the pressure mark, and nobody waits", &tcpMemoryPressure, func(o *observe.Observation) {
		quiet(nginxServed().add(1000, ms, ms, 0, quick))(o)
		ns(o).SockStat = map[string]int64{"TCP.mem": 700}
		o.Sysctl["net.ipv4.tcp_mem"] = "400 600 1000"
	}, "no request waited for that"},
	{"orphans by the thousand", &orphansLimit, func(o *observe.Observation) {
		ns(o).SockStat = map[string]int64{"TCP.orphan": 3000}
		o.Sysctl["net.ipv4.tcp_max_orphans"] = "65536"
	}, "3,000 sockets closed by their process still send"},
	{"3,000 CLOSE_WAIT, and descriptors left", &closeWaitLeak, func(o *observe.Observation) {
		ns(o).Sockets = append(ns(o).Sockets, observe.SocketGroup{Side: "served", Port: webPort, States: map[string]int{"CLOSE_WAIT": 3000}})
	}, "2,997 connections of :8088 wait for it to close them"},
	{"no descriptor left, and clients that gave up wait in the queue", &closeWaitLeak, func(o *observe.Observation) {
		ns(o).Sockets = append(ns(o).Sockets, observe.SocketGroup{Side: "served", Port: webPort, States: map[string]int{"CLOSE_WAIT": 300}})
		process(o, nginxWorker1).FDs, process(o, nginxWorker1).FDLimit, web(o).QueuePeak = 100, 100, 290
		o.Accepts[0].Errors = map[string]uint64{"EMFILE": 500}
	}, "10 connections"},
	{"no descriptor left, for busy connections", &closeWaitLeak, func(o *observe.Observation) {
		ns(o).Sockets = append(ns(o).Sockets, observe.SocketGroup{Side: "served", Port: webPort, States: map[string]int{"CLOSE_WAIT": 4}})
		process(o, nginxWorker1).FDs, process(o, nginxWorker1).FDLimit = 100, 100
		o.Accepts[0].Errors = map[string]uint64{"EMFILE": 500}
	}, "1 connections of :8088"},
	{"loss, which is not reordering", &reordering, func(o *observe.Observation) {
		quiet(nginxServed().add(500, ms, ms, 0, waitedRTO).lost(6000, 300))(o)
		ns(o).Counters["TcpExt.TCPDSACKRecv"], ns(o).Counters["Tcp.RetransSegs"] = 20, 300
	}, "20 of 300 segments"},
	{"large answers on connections without a pause", &slowStartAfterIdle, func(o *observe.Observation) {
		t := nginxServed().add(2000, 41*ms, 40*ms, 0, parts{observe.Server: 2 * ms, observe.Network: 120 * ms}).peers(8, 40*ms)
		for i := range t.list {
			t.list[i].BytesOut = 60_000
		}
		quiet(t)(o)
		web(o).Clients = 26
		ns(o).Sysctl["net.ipv4.tcp_slow_start_after_idle"] = "1"
	}, "answers of 60 kB"},
	{"small answers after a pause", &slowStartAfterIdle, func(o *observe.Observation) {
		quiet(nginxServed().add(200, 41*ms, 40*ms, 0, parts{observe.Server: 2 * ms, observe.Network: 41 * ms}).peers(8, 40*ms))(o)
		web(o).Clients = 20
		ns(o).Sysctl["net.ipv4.tcp_slow_start_after_idle"] = "1"
	}, "answers of 3 kB"},
	{"a log socket that is full now and then", &unixDatagramBlocked, stuck(stuckWeb(20), waitShare(nginxMaster, 3000*ms, 1, datagramChain)), "3.0 % of the time"},
	{"a name service that takes its time now and then", &nssStall, stuck(stuckWeb(20), waitShare(nginxMaster, 3000*ms, 1, nameChain)), "3.0 % of the time"},
	{"the other end closes new connections", &keepaliveRace, callsCut(cutCalls(450, 30, 1, ms), 30), "0 of 20 looked at on a kept connection"},
	{"the other end closes while it works", &keepaliveRace, callsCut(cutCalls(450, 30, 7, 900*ms), 30), "0 of 20 looked at on a kept connection"},
	{"calls are made again", &keepaliveRace, func(o *observe.Observation) {
		callsCut(cutCalls(450, 30, 7, ms), 30)(o)
		o.Endpoints[0].Errors = 0
	}, "30 of 480 calls"},
	{"a small window on a short way", &windowLimited, quiet(nginxServed().add(100, ms/5, ms/5, observe.FlagRecvWindow,
		parts{observe.Server: 2 * ms, observe.SendWait: 400 * ms, observe.Network: ms / 5})), "met a small window"},
}
