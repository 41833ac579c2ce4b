package cause

import (
	"github.com/slowray/slowray/internal/observe"
)

// Ledgers of requests that something went wrong with.
var (
	waitedRTO   = parts{observe.Server: 3 * ms, observe.Retrans: 203 * ms, observe.Network: ms / 5}
	zeroWindow  = parts{observe.Server: 2 * ms, observe.SendWait: 3000 * ms, observe.Network: ms}
	nagled      = parts{observe.Server: 2 * ms, observe.SendWait: 40 * ms, observe.Network: ms / 10}
	stalled     = parts{observe.Server: 2 * ms, observe.Stall: 300 * ms, observe.Network: ms / 10}
	readLate    = parts{observe.RecvWait: 400 * ms, observe.Server: 2 * ms, observe.Network: ms / 10}
	acceptLate  = parts{observe.AcceptWait: 250 * ms, observe.Server: 50 * ms, observe.Network: ms / 10}
	waitsForDB  = parts{observe.Server: 210 * ms, observe.Network: ms / 10}
	slowDB      = parts{observe.Server: 200 * ms, observe.Network: ms / 2}
	farAway     = parts{observe.Server: 3 * ms, observe.Network: 17 * ms}
	bufferbloat = parts{observe.Server: 3 * ms, observe.Network: 300 * ms}
)

// dependencyThat is nginx before a php-fpm that is slow for what it does in nine
// tenths of its time.
func dependencyThat(does observe.ServerPart) func(*observe.Observation) {
	return func(o *observe.Observation) {
		quiet(fpmServed().add(300, ms, ms, 0, slowDB), nginxServed().add(300, ms, ms, 0, waitsForDB), fpmCalled().add(300, ms, ms, 0, slowDB))(o)
		followed(o, map[observe.ServerPart]float64{does: 0.9, observe.ServerNet: 0.1})
	}
}

// neverArrive is answers of so many bytes on average, and six of which so many bytes are
// retransmitted in vain.
func neverArrive(usual uint64, unacked uint32) *traffic {
	t := nginxServed().add(300, ms/2, ms/5, 0, quick).
		add(6, ms/2, ms/5, observe.FlagTimeout|observe.FlagUnfinished, parts{observe.Server: 2 * ms, observe.Retrans: 4000 * ms})
	for i := range t.list {
		if s := &t.list[i]; i < 300 {
			s.BytesOut = usual
		} else {
			s.BytesOut, s.Unacked, s.MSS, s.Retrans = 0, unacked, 1448, 4
		}
	}
	return t
}

// goneClients are requests whose clients vanish: their answers go out, and again.
func goneClients() *traffic {
	t := fpmServed().add(12, 2*ms, 2*ms, observe.FlagTruncated|observe.FlagTimeout, parts{observe.Server: 2 * ms, observe.Network: 8000 * ms})
	t.e.Addr, t.e.Peers = "10.9.8.1", nil
	for i := range t.list {
		t.list[i].Unacked, t.list[i].MSS, t.list[i].Retrans = 101, 1448, 1
	}
	return t.lost(24, 12)
}

// remains is the same of a service that ended before the window, with its namespace.
func remains(o *observe.Observation) *traffic {
	t := goneClients()
	t.e.NetNS, t.e.Port, t.e.PID, t.e.PIDs, t.e.Comm = 4026532999, 4841, 31818, []int{31818}, "booking"
	t.e.Arrivals = make([]uint32, 100)
	for i := range t.list {
		t.list[i].StartNS = o.Window.Start.UnixNano() - 100_000*ms
	}
	return t
}

// endpointCut is an endpoint all of whose requests end with their connection.
func (t *traffic) endpointCut() observe.Endpoint {
	e := t.endpoint()
	e.OK, e.Errors, e.Failed = 0, e.Requests, e.Slowest
	return e
}

// firingOnRequests are the causes that are judged by requests, see firing.
var firingOnRequests = []fires{
	{
		name: "one of a hundred segments", cause: &networkLoss,
		inject:  quiet(nginxServed().add(2000, ms/2, ms/5, 0, quick).add(60, ms/2, ms/5, observe.FlagTimeout, waitedRTO).lost(6000, 60)),
		subject: Subject{Kind: "listener", NetNS: serverNS, PID: nginxMaster, Comm: "nginx", Port: webPort}, minShare: 0.7,
		fix: "nsenter --net=/proc/100/ns/net tc -s qdisc show", evidence: "segments retransmitted=60",
	},
	{
		name: "on the way to the database", cause: &networkLoss,
		inject: quiet(fpmServed().add(2000, ms/5, ms/5, 0, parts{observe.Server: 12 * ms}),
			dbCalled().add(2000, ms/2, ms/5, 0, parts{observe.Server: ms, observe.Network: ms / 2}).
				add(100, ms/2, ms/5, observe.FlagTimeout, waitedRTO).lost(6000, 60)),
		subject: Subject{Kind: "destination", PID: fpmMaster, Port: dbPort, Addr: "10.7.7.7"}, minShare: 0.7, fix: "Find where they are lost",
	},
	{
		name: "on the way to one client", cause: &networkLoss,
		inject: func(o *observe.Observation) {
			t := nginxServed().add(2000, ms/2, ms/5, 0, quick).add(60, ms/2, ms/5, observe.FlagTimeout, waitedRTO).lost(6000, 60).peers(4, ms/5)
			t.e.Peers[2].Retrans = 60
			quiet(t)(o)
		},
		subject: Subject{Port: webPort}, minShare: 0.7, fix: "on the way to 10.9.8.4",
	},
	{
		name: "answers that never arrive", cause: &networkLoss,
		inject:  quiet(neverArrive(3000, 500)),
		subject: Subject{Kind: "listener", PID: nginxMaster, Port: webPort}, minShare: 0.01, fix: "tracepath -n 10.9.8.2", evidence: "never acknowledged=6",
	},
	{
		name: "clients of a service that lives vanish while their answers are out", cause: &networkLoss,
		inject: func(o *observe.Observation) {
			quiet()(o)
			o.Endpoints = append(o.Endpoints, goneClients().endpointCut())
		},
		subject: Subject{Kind: "listener", PID: fpmMaster, Port: fpmPort}, minShare: 0.9, fix: "Find where they are lost", evidence: "never acknowledged=12",
	},
	{
		name: "long answers never arrive, short ones do", cause: &pmtuBlackhole,
		inject:  quiet(neverArrive(300, 20_000)),
		subject: Subject{Kind: "listener", PID: nginxMaster, Port: webPort}, minShare: 0.01, fix: "maxseg size set 1240", evidence: "never acknowledged=6",
	},
	{
		name: "one segment in two thousand, each costs 200 ms", cause: &rtoTailLoss,
		inject:  quiet(nginxServed().add(2000, ms/2, ms/5, 0, quick).add(6, ms/2, ms/5, observe.FlagTimeout, waitedRTO).lost(12000, 6)),
		subject: Subject{Kind: "listener", Port: webPort}, minShare: 0.7, fix: "Fix the loss", evidence: "median of the slowest=203",
	},
	{
		name: "one in two thousand quick requests, by the tail loss probe", cause: &rtoTailLoss,
		inject:  quiet(nginxServed().add(20_000, ms/10, ms/20, 0, parts{observe.Server: ms / 20}).add(10, ms/10, ms/20, 0, waitedRTO).lost(20_010, 10)),
		subject: Subject{Port: webPort}, minShare: 0.5, fix: "rto_min", evidence: "waited for a retransmission timer=10",
	},
	{
		name: "with the tail loss probe switched off", cause: &rtoTailLoss,
		inject: func(o *observe.Observation) {
			quiet(nginxServed().add(2000, ms/2, ms/5, 0, quick).add(6, ms/2, ms/5, observe.FlagTimeout, waitedRTO).lost(12000, 6))(o)
			ns(o).Sysctl["net.ipv4.tcp_early_retrans"] = "0"
		},
		subject: Subject{Port: webPort}, minShare: 0.7, fix: "sysctl -w net.ipv4.tcp_early_retrans=3", evidence: "tcp_early_retrans=0",
	},
	{
		name: "SYNs of a client on this host are dropped", cause: &synRetransmits,
		inject: func(o *observe.Observation) {
			c := callsTo(webPort, "10.9.8.1", clientPID, "wrk").add(200, ms, ms, 0, quick)
			c.e.NetNS, c.e.Connections, c.e.SynRetrans, c.e.Handshake, c.e.HandshakeMax = clientNS, 200, 60, 70_000*ms, 3010*ms
			quiet(nginxServed().add(200, ms, ms, 0, quick), c)(o)
		},
		subject: Subject{Kind: "destination", PID: clientPID, Port: webPort}, minShare: 0.2, fix: "what drops the SYNs", evidence: "handshake, longest=3010",
	},
	{
		name: "SYNs to a database are dropped, and requests wait for it", cause: &synRetransmits,
		inject: func(o *observe.Observation) {
			c := dbCalled().add(180, ms, ms, 0, quick)
			c.e.Connections, c.e.SynRetrans, c.e.Handshake, c.e.HandshakeMax = 180, 20, 20_000*ms, 1020*ms
			quiet(fpmServed().add(180, ms, ms, 0, quick).add(20, ms, ms, 0, parts{observe.Server: 1025 * ms}), c)(o)
		},
		subject: Subject{Kind: "destination", PID: fpmMaster, Port: dbPort}, minShare: 0.1, fix: "keep connections open",
	},
	{
		name: "17 ms to the only client", cause: &highRTT,
		inject:  quiet(nginxServed().add(2000, 17*ms, 17*ms, 0, farAway).peers(1, 17*ms)),
		subject: Subject{Kind: "listener", Port: webPort}, minShare: 0.8, fix: "at least 17 ms", evidence: "least round trip of a connection=17",
	},
	{
		name: "a full link on the way", cause: &highRTT,
		inject:  quiet(nginxServed().add(500, 250*ms, 2*ms, 0, bufferbloat).peers(2, 2*ms)),
		subject: Subject{Port: webPort}, minShare: 0.9, fix: "fq_codel", evidence: "far above the least of the connection=20",
	},
	{
		name: "the database is far away", cause: &highRTT,
		inject: quiet(fpmServed().add(300, ms, ms, 0, parts{observe.Server: 80 * ms}),
			dbCalled().add(900, 25*ms, 24*ms, 0, parts{observe.Server: ms, observe.Network: 25 * ms}).peers(1, 24*ms)),
		subject: Subject{Kind: "destination", PID: fpmMaster, Port: dbPort}, minShare: 0.9, fix: "make fewer calls",
	},
	{
		name: "clients do not read", cause: &slowReceiver,
		inject:  quiet(nginxServed().add(300, ms, ms, 0, quick).add(6, ms, ms, observe.FlagZeroWindow|observe.FlagSendBuffer, zeroWindow)),
		subject: Subject{Kind: "listener", Port: webPort}, minShare: 0.9, fix: "does not read", evidence: "closed window=6",
	},
	{
		name: "a client of this host that sleeps between reads, while others keep the CPUs full", cause: &slowReceiver,
		inject: func(o *observe.Observation) {
			o.Endpoints[0] = nginxServed().add(500, ms, ms, observe.FlagZeroWindow, parts{observe.Server: 3 * ms, observe.SendWait: 60 * ms}).endpoint()
			process(o, clientPID).RunDelaySeconds = 0.2
		},
		subject: Subject{Kind: "listener", Port: webPort}, minShare: 0.9, fix: "does not read", evidence: "closed window=500",
	},
	{
		name: "three downloads that stand still", cause: &slowReceiver,
		inject:  quiet(nginxServed().add(3, ms, ms, observe.FlagZeroWindow|observe.FlagUnfinished, zeroWindow)),
		subject: Subject{Port: webPort}, minShare: 0.9, fix: "does not read", evidence: "still going on at the end=3",
	},
	{
		name: "a small window", cause: &windowLimited,
		inject: quiet(nginxServed().add(100, 20*ms, 20*ms, observe.FlagRecvWindow,
			parts{observe.Server: 2 * ms, observe.SendWait: 400 * ms, observe.Network: 20 * ms}).peers(1, 20*ms)),
		subject: Subject{Port: webPort}, minShare: 0.9, fix: "larger receive buffer",
	},
	{
		name: "a small send buffer on a long way", cause: &sendBufferLimited,
		inject: quiet(nginxServed().add(100, 20*ms, 20*ms, observe.FlagSendBuffer,
			parts{observe.Server: 2 * ms, observe.SendWait: 400 * ms, observe.Network: 20 * ms})),
		subject: Subject{Port: webPort}, minShare: 0.9, fix: "tcp_wmem", evidence: "filled the send buffer=100",
	},
	{
		name: "answers in two writes", cause: &nagleDelayedAck,
		inject: func(o *observe.Observation) {
			quiet(nginxServed().add(200, ms, ms, observe.FlagNagle, nagled))(o)
			ns(o).Counters["TcpExt.DelayedACKs"] = 201
		},
		subject: Subject{Kind: "listener", Port: webPort}, minShare: 0.9, fix: "Set TCP_NODELAY on the sockets of nginx", evidence: "delayed acknowledgements sent in the namespace=201",
	},
	{
		name: "answers in two writes of a slow service", cause: &nagleDelayedAck,
		inject:  quiet(nginxServed().add(200, ms, ms, observe.FlagNagle, parts{observe.Server: 90 * ms, observe.SendWait: 41 * ms})),
		subject: Subject{Kind: "listener", Port: webPort}, minShare: 0.3, fix: "Set TCP_NODELAY on the sockets of nginx",
	},
	{
		name: "calls in two writes", cause: &nagleDelayedAck,
		inject: quiet(fpmServed().add(200, ms, ms, 0, parts{observe.Server: 50 * ms}),
			dbCalled().add(200, ms, ms, observe.FlagNagle, parts{observe.Upload: 40 * ms, observe.Server: ms, observe.Network: ms / 5})),
		subject: Subject{Kind: "destination", Port: dbPort}, minShare: 0.9, fix: "TCP_NODELAY on the sockets of php-fpm",
	},
	{
		name: "requests in two writes", cause: &nagleDelayedAck,
		inject:  quiet(nginxServed().add(200, ms, ms, observe.FlagUploadAcks, parts{observe.Upload: 41 * ms, observe.Server: ms, observe.Network: ms / 5})),
		subject: Subject{Kind: "listener", Port: webPort}, minShare: 0.9, fix: "TCP_NODELAY in the client",
	},
	{
		name: "a single worker that sleeps", cause: &acceptQueueWait,
		inject:  quiet(nginxServed().add(100, ms, ms, observe.FlagClosed, acceptLate)),
		subject: Subject{Kind: "listener", PID: nginxMaster, Port: webPort}, minShare: 0.8, fix: "accepts connections late", evidence: "accept queue, peak=3",
	},
	{
		name: "an event loop that is held up", cause: &applicationSlowToRead,
		inject:  quiet(nginxServed().add(1000, ms, ms, 0, quick).add(40, ms, ms, 0, readLate)),
		subject: Subject{PID: nginxMaster, Port: webPort}, minShare: 0.8, fix: "mostly waits for something else",
	},
	{
		name: "one process computes while a CPU is idle", cause: &applicationSlowToRead,
		inject: func(o *observe.Observation) {
			t := nginxServed().add(1000, ms, ms, 0, readLate)
			t.e.PIDs = []int{nginxWorker1}
			quiet(t)(o)
			process(o, nginxWorker1).UserSeconds = 9.6
		},
		subject: Subject{PID: nginxMaster, Port: webPort}, minShare: 0.9, fix: "computes all the time",
	},
	{
		name: "the last row comes late", cause: &applicationStall,
		inject:  quiet(nginxServed().add(50, ms, ms, 0, stalled)),
		subject: Subject{PID: nginxMaster, Port: webPort}, minShare: 0.9, fix: "The network is not at fault",
	},
	{
		name: "the last row comes late, while others have the CPUs", cause: &applicationStall,
		inject: func(o *observe.Observation) {
			quiet(nginxServed().add(50, ms, ms, 0, stalled))(o)
			o.Use.CPU = observe.CPUTime{User: 17, System: 2, Idle: 0.1}
			process(o, nginxWorker1).RunDelaySeconds, process(o, nginxWorker2).RunDelaySeconds = 0.5, 0.5
		},
		subject: Subject{PID: nginxMaster, Port: webPort}, minShare: 0.9, fix: "The network is not at fault",
	},
	{
		name: "a database that takes 200 ms", cause: &slowDependency,
		inject:  quiet(fpmServed().add(300, ms, ms, 0, waitsForDB), dbCalled().add(300, ms, ms, 0, slowDB)),
		subject: Subject{Kind: "destination", PID: fpmMaster, Comm: "php-fpm8.2", Port: dbPort, Addr: "10.7.7.7"}, minShare: 0.9, fix: "10.7.7.7:3306",
		evidence: "of the slowest calls",
	},
	{
		name: "a database that is slow at times", cause: &slowDependency,
		inject: quiet(fpmServed().add(1000, ms, ms, 0, quick).add(40, ms, ms, 0, waitsForDB),
			dbCalled().add(1000, ms, ms, 0, parts{observe.Server: ms}).add(40, ms, ms, 0, slowDB)),
		subject: Subject{Port: dbPort}, minShare: 0.7, fix: "10.7.7.7:3306",
	},
	{
		name: "only the last of two hops", cause: &slowDependency,
		inject: quiet(nginxServed().add(300, ms, ms, 0, waitsForDB), fpmCalled().add(300, ms, ms, 0, waitsForDB),
			fpmServed().add(300, ms, ms, 0, waitsForDB), dbCalled().add(300, ms, ms, 0, slowDB)),
		subject: Subject{PID: fpmMaster, Port: dbPort}, minShare: 0.9, fix: "10.7.7.7:3306",
	},
	{
		name: "a dependency on this host", cause: &slowDependency,
		inject: quiet(nginxServed().add(300, ms, ms, 0, waitsForDB), fpmCalled().add(300, ms, ms, 0, slowDB),
			fpmServed().add(300, ms, ms, 0, slowDB)),
		subject: Subject{PID: nginxMaster, Port: fpmPort}, minShare: 0.9, fix: "php-fpm8.2 (pid 200) answer slowly: it runs on this host", evidence: "at the other end",
	},
	{
		name: "a dependency on this host that computes", cause: &slowDependency,
		inject:  dependencyThat(observe.ServerCPU),
		subject: Subject{PID: nginxMaster, Port: fpmPort}, minShare: 0.9, fix: "It computes for 90 % of its slow requests' time.",
	},
	{
		name: "a dependency on this host that sleeps", cause: &slowDependency,
		inject:  dependencyThat(observe.ServerSleep),
		subject: Subject{PID: nginxMaster, Port: fpmPort}, minShare: 0.9, fix: "slowray wait 201",
	},
	{
		name: "a dependency that sleeps while the CPUs are full", cause: &slowDependency,
		inject: func(o *observe.Observation) {
			dependencyThat(observe.ServerSleep)(o)
			o.Use.CPU = observe.CPUTime{User: 17, System: 2, Idle: 0.1}
		},
		subject: Subject{PID: nginxMaster, Port: fpmPort}, minShare: 0.9, fix: "slowray wait 201",
	},
	{
		name: "everything stands still every second", cause: &requestWaves,
		inject: func(o *observe.Observation) {
			t := nginxServed().add(900, ms, ms, 0, quick).add(100, ms, ms, 0, parts{observe.Server: 900 * ms})
			t.e.Arrivals = waveArrivals(100)
			for i := range t.list {
				t.list[i].StartNS = o.Window.Start.UnixNano() + int64(i%10)*1000*ms
			}
			quiet(t)(o)
		},
		subject: Subject{Port: webPort}, minShare: 0.09, fix: "while no request gets through", evidence: "slow requests in progress",
	},
	{
		name: "clients come all at once", cause: &requestWaves,
		inject: func(o *observe.Observation) {
			t := nginxServed()
			for i := range 100 {
				t.add(10, ms, ms, 0, parts{observe.Server: int64(i+1) * ms})
			}
			t.e.Arrivals = waveArrivals(100)
			quiet(t)(o)
		},
		subject: Subject{Port: webPort}, minShare: 0.4, fix: "spread them",
	},
}
