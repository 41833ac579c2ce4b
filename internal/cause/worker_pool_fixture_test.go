package cause

import (
	"slices"
	"testing"

	"github.com/slowray/slowray/internal/observe"
)

// late is a request that waits for a worker for 250 ms, which then takes 50 ms.
var late = parts{observe.AcceptWait: 250 * ms, observe.Server: 50 * ms, observe.Network: ms / 10}

// lateInSocket is the same of a server that accepts connections at once.
var lateInSocket = parts{observe.RecvWait: 250 * ms, observe.Server: 50 * ms, observe.Network: ms / 10}

// appServer makes app an application server of that kind with a pool.
func appServer(o *observe.Observation, kind observe.Kind, p observe.WorkerPool) *observe.AppServer {
	app(o, "", 0.5, 0.1)
	p.Listens = []observe.AppListen{{Port: appPort, Backlog: observe.Setting{Value: "128", Default: true}}}
	o.AppServers = append(o.AppServers, observe.AppServer{Kind: kind, PID: appPID, NetNS: serverNS, Config: "/etc/app.conf", Pools: []observe.WorkerPool{p}})
	return &o.AppServers[len(o.AppServers)-1]
}

func listens(o *observe.Observation) *observe.Listener {
	l := o.Namespaces[0].Listeners
	return &l[len(l)-1]
}

// fourTaken is four workers, all taken by 80 requests a second of 50 ms each.
func fourTaken(kind observe.Kind, knob string, each parts) func(*observe.Observation) {
	return func(o *observe.Observation) {
		appServer(o, kind, observe.WorkerPool{Name: "workers", Knob: knob, Limit: 4, Setting: observe.Setting{Value: "4", File: "/etc/app.conf", Line: 7}})
		with(o, appServed().add(800, ms/10, ms/20, 0, each))
		if each[observe.AcceptWait] > 0 {
			listens(o).QueueMean, listens(o).QueuePeak = 20, 20
		}
	}
}

// proxiedApp is HAProxy with one server behind it.
func proxiedApp(o *observe.Observation, maxconn string) *observe.AppServer {
	a := appServer(o, observe.KindHAProxy, observe.WorkerPool{Name: "shop", Knob: "maxconn", Limit: 2000, PerConn: true,
		Setting: observe.Setting{Value: "2000", File: "/etc/haproxy.cfg", Line: 2}})
	a.Backends = []observe.ProxyBackend{{Backend: "engines", Server: "e1", Addr: "10.7.7.9:8080", Frontends: []string{"shop"},
		MaxConn: observe.Setting{Value: maxconn, File: "/etc/haproxy.cfg", Line: 20}}}
	return a
}

func engineCalled() *traffic { return callsTo(8080, "10.7.7.9", appPID, "app") }

// pooled is a service with a number of connections to its database.
func pooled(o *observe.Observation, connections int) {
	app(o, "", 0.5, 0.1)
	o.Namespaces[0].Sockets = append(o.Namespaces[0].Sockets, observe.SocketGroup{Side: "called", Addr: "10.9.8.1", Remote: "10.7.7.7", Port: dbPort,
		States: map[string]int{"ESTABLISHED": connections}, LocalPorts: connections, PIDs: []int{appPID}})
}

func appCallsDB() *traffic { return callsTo(dbPort, "10.7.7.7", appPID, "app") }

// threadPool is a service with so many threads that always have something in hand.
func threadPool(is observe.ThreadPool, each parts) func(*observe.Observation) {
	return func(o *observe.Observation) {
		app(o, "app", 0.5, 0.1)
		with(o, appServed().add(800, ms/10, ms/20, 0, each))
		is.PID, is.Looks = appPID, 100
		o.Waits = &observe.WaitGraph{Looks: 100, Processes: 1, SlowerNS: 25 * ms, Pools: []observe.ThreadPool{is}}
	}
}

var executor = observe.ThreadPool{Name: "pool-1-thread", Busy: 4, Switches: 1700, TIDs: []int{511, 512, 513, 514},
	Does: []observe.PoolCall{{Name: "futex", Share: 0.97}, {Name: "running", Share: 0.03}}}

// goroutines is a service in Go with so many that always have something in hand, for requests
// of so many ms.
func goroutines(busy int, each int64) func(*observe.Observation) {
	return func(o *observe.Observation) {
		threadPool(observe.ThreadPool{Goroutines: true, Root: "orders.(*Desk).handle", Busy: busy, At: "orders.(*Desk).book desk.go:41",
			Does: []observe.PoolCall{{Name: "sleeping", Share: 1}}}, parts{observe.Server: each * ms})(o)
		for i := range o.Processes {
			if o.Processes[i].PID == appPID {
				o.Processes[i].Go = true
			}
		}
	}
}

// streamsOf has the requests be streams of so many connections.
func streamsOf(o *observe.Observation, connections int) {
	listens(o).Clients = connections
	for i := range o.Endpoints {
		if e := &o.Endpoints[i]; e.Side == observe.Served.String() && e.Port == appPort {
			e.Flags = map[string]uint64{"multiplexed": e.Requests}
		}
	}
}

// executorAs is the executor, changed.
func executorAs(change func(*observe.ThreadPool)) observe.ThreadPool {
	p := executor
	change(&p)
	return p
}

// firingOnServers are the causes about web and application servers, see firing.
var firingOnServers = []fires{
	{
		name: "an executor of Java, requests in its queue", cause: &threadPoolExhausted, inject: threadPool(executor, parts{observe.Server: 300 * ms}),
		subject: Subject{Kind: "pool", PID: appPID, Port: appPort}, minShare: 0.8, fix: "Give the pool more threads: 25, where it has 4", evidence: "threads that had something in hand at every look=4",
	},
	{
		name: "a pool of Python, requests in their sockets", cause: &threadPoolExhausted,
		inject: threadPool(executorAs(func(p *observe.ThreadPool) {
			p.Name, p.Root, p.At, p.Stack, p.Idle = "python3", "_worker thread.py", "work booking.py:101", []string{"work booking.py:101", "_worker thread.py:83"}, 8
		}), lateInSocket),
		subject: Subject{Kind: "pool", PID: appPID, Path: "work booking.py:101"}, minShare: 0.8, fix: "50 ms in place of 300 ms", evidence: "where=work booking.py:101 ← _worker",
	},
	{
		name: "the threads of libuv", cause: &threadPoolExhausted,
		inject: func(o *observe.Observation) {
			threadPool(executorAs(func(p *observe.ThreadPool) { p.Name = "node" }), parts{observe.Server: 300 * ms})(o)
			for i := range o.Processes {
				if o.Processes[i].PID == appPID {
					o.Processes[i].Exe = "node"
				}
			}
		},
		subject: Subject{Kind: "pool", PID: appPID, Port: appPort}, minShare: 0.8, fix: "UV_THREADPOOL_SIZE=50",
	},
	{
		name: "goroutines that a semaphore lets through", cause: &threadPoolExhausted,
		inject:  goroutines(4, 300),
		subject: Subject{Kind: "pool", PID: appPID, Port: appPort, Path: "orders.(*Desk).book desk.go:41"}, minShare: 0.8, fix: "Give the pool more goroutines: 25, where it has 4", evidence: "goroutines that had something in hand at every look=4",
	},
	{
		name: "goroutines that a semaphore lets through, for streams of fewer connections", cause: &threadPoolExhausted,
		inject: func(o *observe.Observation) {
			goroutines(4, 300)(o)
			streamsOf(o, 3)
		},
		subject: Subject{Kind: "pool", PID: appPID, Port: appPort, Path: "orders.(*Desk).book desk.go:41"}, minShare: 0.8, fix: "Give the pool more goroutines: 25, where it has 4", evidence: "goroutines that had something in hand at every look=4",
	},
	{
		name: "all four workers, by the requests", cause: &apacheWorkersExhausted, inject: fourTaken(observe.KindApache, "MaxRequestWorkers", late),
		subject: Subject{Kind: "pool", PID: appPID, Port: appPort, Path: "/etc/app.conf:7"}, minShare: 0.8, fix: "MaxRequestWorkers from 4 to", evidence: "workers taken, mean=4",
	},
	{
		name: "keep-alive connections hold the workers", cause: &apacheWorkersExhausted,
		inject: func(o *observe.Observation) {
			fourTaken(observe.KindApache, "MaxRequestWorkers", quick)(o)
			o.AppServers[0].Pools[0].PerConn = true
			listens(o).Clients, listens(o).QueueMean = 34, 30
		},
		subject: Subject{Kind: "pool", Port: appPort}, minShare: 0.8, fix: "KeepAliveTimeout",
	},
	{
		name: "two processes of two threads", cause: &uwsgiWorkersBusy,
		inject: func(o *observe.Observation) {
			fourTaken(observe.KindUWSGI, "processes", late)(o)
			o.AppServers[0].Pools[0].Threads, o.AppServers[0].Pools[0].Setting.Value = 2, "2"
			o.AppServers[0].Log = []observe.LogKind{{Kind: "listen-queue-full", Count: 3, Example: "*** uWSGI listen queue of socket"}}
		},
		subject: Subject{Kind: "pool", Port: appPort, Path: "/etc/app.conf:7"}, minShare: 0.8, fix: "processes = 12", evidence: "log lines that say so=3",
	},
	{
		name: "on a unix socket, by the workers' system calls", cause: &gunicornWorkersBusy,
		inject: func(o *observe.Observation) {
			fourTaken(observe.KindGunicorn, "workers", late)(o)
			o.Endpoints = nil
			*listens(o) = observe.Listener{Proto: "unix", Path: "/run/g.sock", PID: appPID, PIDs: []int{appPID}, Limit: 2048, QueueMean: 20, QueuePeak: 22, Samples: 40}
			p := &o.AppServers[0].Pools[0]
			p.Listens, p.Rounds, p.AllBusyRounds, p.BusyMean = []observe.AppListen{{Path: "/run/g.sock"}}, 100, 98, 3.98
		},
		subject: Subject{Kind: "pool", PID: appPID}, minShare: 0.8, fix: "for i in $(seq 20); do kill -TTIN 500; sleep 0.1; done", evidence: "readings with every worker busy=98",
	},
	{
		name: "five bursts, and idle between them", cause: &gunicornWorkersBusy,
		inject: func(o *observe.Observation) {
			appServer(o, observe.KindGunicorn, observe.WorkerPool{Name: "workers", Knob: "workers", Limit: 4, Setting: observe.Setting{Value: "4", File: "/etc/app.conf", Line: 7}})
			t := appServed().add(110, ms/10, ms/20, 0, late)
			with(o, t)
			e := &o.Endpoints[len(o.Endpoints)-1]
			e.Arrivals, e.LongestUS = make([]uint32, 100), make([]uint32, 100)
			for i := 5; i < 100; i += 20 {
				e.Arrivals[i], e.LongestUS[i] = 22, 300_000
			}
		},
		subject: Subject{Kind: "pool", PID: appPID, Path: "/etc/app.conf:7"}, minShare: 0.8, fix: "workers of gunicorn from 4 to", evidence: "workers taken, mean=3.667",
	},
	{
		name: "requests wait in the socket", cause: &tomcatThreadsExhausted, inject: fourTaken(observe.KindTomcat, "maxThreads", lateInSocket),
		subject: Subject{Kind: "pool", PID: appPID, Path: "/etc/app.conf:7"}, minShare: 0.8, fix: "maxThreads", evidence: "of it waiting to be taken up, mean=250",
	},
	{
		name: "no more is accepted", cause: &haproxyMaxconn,
		inject: func(o *observe.Observation) {
			a := proxiedApp(o, "")
			a.Pools[0].Limit, a.Pools[0].Setting.Value = 10, "10"
			listens(o).Clients, listens(o).QueueMean = 60, 50
			with(o, appServed().add(800, ms/10, ms/20, 0, late))
		},
		subject: Subject{Kind: "pool", Path: "/etc/haproxy.cfg:2"}, minShare: 0.8, fix: "Raise maxconn from 10",
	},
	{
		name: "four at the server, the rest in the queue", cause: &haproxyServerQueue,
		inject: func(o *observe.Observation) {
			proxiedApp(o, "4")
			with(o, appServed().add(2000, ms/10, ms/20, 0, parts{observe.Server: 200 * ms}), engineCalled().add(2000, ms/10, ms/20, 0, parts{observe.Server: 20 * ms}))
		},
		subject: Subject{Kind: "destination", Addr: "10.7.7.9", Port: 8080, Path: "/etc/haproxy.cfg:20"}, minShare: 0.8, fix: "they answer in", evidence: "requests in HAProxy's queue, mean=36",
	},
	{
		name: "every connection to the server fails", cause: &haproxyNoServer,
		inject: func(o *observe.Observation) {
			proxiedApp(o, "")
			o.Connects = append(o.Connects, observe.Connect{PID: appPID, NetNS: serverNS, Family: "inet", Addr: "10.7.7.9", Port: 8080, Calls: 900, Started: 900, Failed: 900})
			t := appServed().add(300, ms/10, ms/20, 0, quick)
			t.e.Statuses = map[string]uint64{"5xx": 300}
			with(o, t)
		},
		subject: Subject{Kind: "destination", Addr: "10.7.7.9", Port: 8080}, minShare: 0.99, fix: "10.7.7.9:8080",
	},
	{
		name: "three connections to the database", cause: &connectionPoolExhausted,
		inject: func(o *observe.Observation) {
			pooled(o, 3)
			with(o, appServed().add(2900, ms/10, ms/20, 0, parts{observe.Server: 80 * ms}), appCallsDB().add(2900, ms/10, ms/20, 0, parts{observe.Server: 10 * ms}))
		},
		subject: Subject{Kind: "destination", Addr: "10.7.7.7", Port: dbPort, PID: appPID}, minShare: 0.8, fix: "from 3 towards", evidence: "calls under way at once, mean=2.9",
	},
	{
		name: "one in twenty stands in the same line", cause: &phpFPMSlowScript, inject: slowScript(100, 1500*ms),
		subject: Subject{Kind: "pool", PID: fpmMaster, Port: fpmPort, Path: "/srv/lib.php:3"}, minShare: 0.8, fix: "/srv/lib.php:3", evidence: "entries in the slow log=100",
	},
	{
		name: "requests of an address are counted as one client's", cause: &nginxLimitReq,
		inject:  limited("req", 2000, 3, 4),
		subject: Subject{Kind: "process", PID: nginxMaster, Port: webPort, Path: "/etc/nginx/nginx.conf:30"}, minShare: 0.4, fix: "allows 10r/s", evidence: "clients that were turned away=3",
	},
	{
		name: "more connections than allowed", cause: &nginxLimitConn,
		inject:  limited("conn", 2000, 1, 1),
		subject: Subject{Kind: "process", PID: nginxMaster, Port: webPort}, minShare: 0.4, fix: "real_ip_header",
	},
	{
		name: "workers killed, requests lost", cause: &uwsgiHarakiri,
		inject: func(o *observe.Observation) {
			cutOff(o, observe.KindUWSGI, "harakiri")
			o.Endpoints[0].Unanswered = 40
		},
		subject: Subject{Kind: "pool", PID: appPID, Path: "/etc/app.conf:9"}, minShare: 0.04, fix: "harakiri", evidence: "requests without an answer=40",
	},
	{
		name: "workers killed, requests lost", cause: &gunicornWorkerTimeout,
		inject: func(o *observe.Observation) {
			cutOff(o, observe.KindGunicorn, "worker-timeout")
			o.Endpoints[0].Unanswered = 40
		},
		subject: Subject{Kind: "pool", PID: appPID, Path: "/etc/app.conf:9"}, minShare: 0.04, fix: "timeout",
	},
}

// slowScript is a pool of which one in twenty requests is slow, with entries in
// its slow log.
func slowScript(entries, ns int64) func(*observe.Observation) {
	return func(o *observe.Observation) {
		quiet(fpmServed().add(1900, ms/20, ms/50, 0, parts{observe.Server: 2 * ms}).add(100, ms/20, ms/50, 0, parts{observe.Server: ns}))(o)
		pool(o).SlowTimeout = observe.Setting{Value: "1s", File: "/etc/php/8.2/fpm/pool.d/www.conf", Line: 60}
		pool(o).Slow = []observe.SlowScript{{Script: "/srv/index.php", Function: "usleep()", Place: "/srv/lib.php:3", Caller: "price_of_route()", Count: entries}}
	}
}

// limited is nginx that turns half of 4,000 requests away, those of some of its
// clients.
func limited(kind string, lines int64, clients, all int) func(*observe.Observation) {
	return func(o *observe.Observation) {
		t := nginxServed().add(4000, ms/10, ms/20, 0, quick).peers(all, ms/20)
		t.e.Statuses = map[string]uint64{"2xx": 2000, "5xx": 2000}
		quiet(t)(o)
		n := server(o)
		n.Errors = []observe.LogKind{{Kind: "limit-" + kind, Upstream: "one", Count: lines, Clients: clients, Example: "limiting"}}
		n.Limits = []observe.NginxLimit{{Kind: kind, Zone: "one", Key: "$binary_remote_addr", Rate: "10r/s", File: "/etc/nginx/nginx.conf", Line: 30, Zoned: "/etc/nginx/nginx.conf:8"}}
	}
}

// cutOff is an application server that killed workers for their time.
func cutOff(o *observe.Observation, kind observe.Kind, line string) {
	a := appServer(o, kind, observe.WorkerPool{Name: "workers", Limit: 40, Timeout: observe.Setting{Value: "2", File: "/etc/app.conf", Line: 9}})
	a.Log = []observe.LogKind{{Kind: line, Count: 40, Example: line}}
	with(o, appServed().add(800, ms/10, ms/20, 0, quick))
}

// nearMissesOnServers, see nearMisses.
var nearMissesOnServers = []miss{
	{"as many requests as threads", &threadPoolExhausted, threadPool(executor, parts{observe.Server: 50 * ms}), "4.0 requests in hand"},
	{"threads of the pool that are free at times", &threadPoolExhausted,
		threadPool(executorAs(func(p *observe.ThreadPool) { p.Partly = 2 }), parts{observe.Server: 300 * ms}), "and 2 that sometimes have nothing to do"},
	{"threads of the pool that are free", &threadPoolExhausted,
		threadPool(executorAs(func(p *observe.ThreadPool) { p.Idle = 2 }), parts{observe.Server: 300 * ms}), "and 2 that have nothing to do"},
	{"a thread for each request, that ends with it", &threadPoolExhausted,
		threadPool(executorAs(func(p *observe.ThreadPool) { p.Ended = 40 }), parts{observe.Server: 300 * ms}), "40 threads ended: it makes threads as it needs them"},
	{"a thread for each connection", &threadPoolExhausted, func(o *observe.Observation) {
		threadPool(executorAs(func(p *observe.ThreadPool) { p.Busy, p.Partly = 18, 2 }), parts{observe.Server: 300 * ms})(o)
		listens(o).Clients = 20
	}, "for at most 20 connections: each has a thread of its own"},
	{"a goroutine for each connection of HTTP/2", &threadPoolExhausted, func(o *observe.Observation) {
		goroutines(3, 300)(o)
		streamsOf(o, 3)
	}, "for at most 3 connections: each has a thread of its own"},
	{"a thread that does something else", &threadPoolExhausted,
		threadPool(executorAs(func(p *observe.ThreadPool) {
			p.Busy, p.Switches, p.Does = 1, 10, []observe.PoolCall{{Name: "clock_nanosleep", Share: 1}}
		}), parts{observe.Server: 300 * ms}),
		"they woke only 10 times"},
	{"the log says so, and workers are free", &apacheWorkersExhausted, func(o *observe.Observation) {
		fourTaken(observe.KindApache, "MaxRequestWorkers", quick)(o)
		o.AppServers[0].Log = []observe.LogKind{{Kind: "max-workers", Count: 1, Example: "AH00161"}}
	}, "0.2 of 4 taken"},
	{"all taken, nobody waits", &uwsgiWorkersBusy, fourTaken(observe.KindUWSGI, "processes", parts{observe.Server: 50 * ms}), "no request waited"},
	{"all busy by their system calls, nobody waits", &gunicornWorkersBusy, func(o *observe.Observation) {
		fourTaken(observe.KindGunicorn, "workers", quick)(o)
		p := &o.AppServers[0].Pools[0]
		p.Rounds, p.AllBusyRounds, p.BusyMean = 100, 98, 4
	}, "no request waited"},
	{"without a limit", &gunicornWorkersBusy, func(o *observe.Observation) {
		fourTaken(observe.KindGunicorn, "workers", late)(o)
		o.AppServers[0].Pools[0].Limit = 0
	}, "without a limit"},
	{"requests wait, and threads are free", &tomcatThreadsExhausted, func(o *observe.Observation) {
		fourTaken(observe.KindTomcat, "maxThreads", lateInSocket)(o)
		o.AppServers[0].Pools[0].Limit = 200
	}, "4.0 of 200 taken"},
	{"threads that compute on full CPUs", &tomcatThreadsExhausted, func(o *observe.Observation) {
		fourTaken(observe.KindTomcat, "maxThreads", lateInSocket)(o)
		o.Use.CPU = observe.CPUTime{User: 19.5, Idle: 0.5}
		e := &o.Endpoints[0]
		all := int64(50*ms) * 800
		e.Split = &observe.SplitStats{Requests: 800, ServerNS: all, Parts: map[string]observe.PartStats{"server.cpu": {SumNS: all}}}
	}, "would not answer more"},
	{"many connections below the limit", &haproxyMaxconn, func(o *observe.Observation) {
		proxiedApp(o, "")
		listens(o).Clients = 1500
		with(o, appServed().add(800, ms/10, ms/20, 0, quick))
	}, "of 2000 taken"},
	{"a limit for the server that is not reached", &haproxyServerQueue, func(o *observe.Observation) {
		proxiedApp(o, "100")
		with(o, appServed().add(2000, ms/10, ms/20, 0, parts{observe.Server: 22 * ms}), engineCalled().add(2000, ms/10, ms/20, 0, parts{observe.Server: 20 * ms}))
	}, "of 100 allowed"},
	{"at its limit, with little in the queue", &haproxyServerQueue, func(o *observe.Observation) {
		proxiedApp(o, "4")
		with(o, appServed().add(2000, ms/10, ms/20, 0, parts{observe.Server: 22 * ms}), engineCalled().add(2000, ms/10, ms/20, 0, parts{observe.Server: 20 * ms}))
	}, "in the queue"},
	{"one of two servers cannot be reached", &haproxyNoServer, func(o *observe.Observation) {
		a := proxiedApp(o, "")
		a.Backends = append(a.Backends, observe.ProxyBackend{Backend: "engines", Server: "e2", Addr: "10.7.7.10:8080", Frontends: []string{"shop"}})
		o.Connects = append(o.Connects, observe.Connect{PID: appPID, NetNS: serverNS, Family: "inet", Addr: "10.7.7.9", Port: 8080, Calls: 5, Started: 5, Failed: 5})
		with(o, appServed().add(300, ms/10, ms/20, 0, quick))
	}, "1 of 2 servers cannot be reached"},
	{"connections to spare", &connectionPoolExhausted, func(o *observe.Observation) {
		pooled(o, 30)
		with(o, appServed().add(2900, ms/10, ms/20, 0, parts{observe.Server: 12 * ms}), appCallsDB().add(2900, ms/10, ms/20, 0, parts{observe.Server: 10 * ms}))
	}, "on 30 connections"},
	{"all connections busy, and nobody waits for one", &connectionPoolExhausted, func(o *observe.Observation) {
		pooled(o, 3)
		with(o, appServed().add(2900, ms/10, ms/20, 0, parts{observe.Server: 11 * ms}), appCallsDB().add(2900, ms/10, ms/20, 0, parts{observe.Server: 10 * ms}))
	}, "on 3 connections"},
	{"two slow requests among many", &phpFPMSlowScript, slowScript(2, 1500*ms), "2 entries in the slow log"},
	{"entries of a log, and no request of the window is slow", &phpFPMSlowScript, slowScript(100, 3*ms), "server"},
	{"only a crawler is turned away", &nginxLimitReq, limited("req", 2000, 1, 8), "what a limit is for"},
	{"a few requests are turned away", &nginxLimitReq, limited("req", 6, 1, 1), "6 requests turned away"},
	{"only one client of many is turned away", &nginxLimitConn, limited("conn", 2000, 1, 8), "what a limit is for"},
	{"workers killed, and no request was lost", &uwsgiHarakiri, func(o *observe.Observation) { cutOff(o, observe.KindUWSGI, "harakiri") }, "0 of 800 requests"},
	{"workers killed, and no request was lost", &gunicornWorkerTimeout, func(o *observe.Observation) { cutOff(o, observe.KindGunicorn, "worker-timeout") }, "0 of 800 requests"},
	{"a new connection for each call", &connectionPoolExhausted, func(o *observe.Observation) {
		pooled(o, 3)
		calls := appCallsDB().add(2900, ms/10, ms/20, 0, parts{observe.Server: 10 * ms})
		calls.e.Connections = 2900
		with(o, appServed().add(2900, ms/10, ms/20, 0, parts{observe.Server: 80 * ms}), calls)
	}, "it opens new ones"},
}

// TestSlowDependencyHoldsWorkers: workers that wait for a slow service are not
// too few.
func TestSlowDependencyHoldsWorkers(t *testing.T) {
	o := healthy()
	fourTaken(observe.KindGunicorn, "workers", late)(o)
	with(o, appServed().add(800, ms/10, ms/20, 0, late), appCallsDB().add(800, ms/10, ms/20, 0, parts{observe.Server: 48 * ms}))
	v := NewView(o)
	slow, busy := slowDependency.Judge(v).Findings, gunicornWorkersBusy.Judge(v).Findings
	if len(slow) != 1 || len(busy) != 1 {
		t.Fatalf("%d slow dependencies, %d pools", len(slow), len(busy))
	}
	if !busy[0].MayFollow(&slow[0]) || slow[0].MayFollow(&busy[0]) {
		t.Error("the workers are not told as a consequence of what they wait for")
	}
}

func init() {
	firing = append(firing, firingOnServers...)
	nearMisses = append(nearMisses, nearMissesOnServers...)
}

// TestSleepingWorkersWantNoCPU: a lack of CPUs is why workers are taken only
// where what they do wants a CPU.
func TestSleepingWorkersWantNoCPU(t *testing.T) {
	for part, want := range map[string]bool{"server.blocked.sleep": false, "server.runq": true} {
		o := healthy()
		fourTaken(observe.KindApache, "MaxRequestWorkers", late)(o)
		all := 50 * ms * 800
		o.Endpoints[0].Split = &observe.SplitStats{Requests: 800, ServerNS: all, Parts: map[string]observe.PartStats{part: {SumNS: all}}}
		found := apacheWorkersExhausted.Judge(NewView(o)).Findings
		if len(found) != 1 {
			t.Fatalf("%s: %d findings", part, len(found))
		}
		full := Finding{Cause: CPUSaturated, class: cpuSaturated.Class, Subject: Subject{Kind: "process"}}
		if got := found[0].MayFollow(&full); got != want {
			t.Errorf("%s: may follow from full CPUs: %v", part, got)
		}
	}
}

// TestGoroutinesWaitForTheirPool: goroutines that wait for a channel follow from
// the connections that are all in use, and from nothing where some are free.
func TestGoroutinesWaitForTheirPool(t *testing.T) {
	for connections, want := range map[int]bool{3: true, 30: false} {
		o := healthy()
		pooled(o, connections)
		with(o, appServed().add(2900, ms/10, ms/20, 0, parts{observe.Server: 80 * ms}), appCallsDB().add(2900, ms/10, ms/20, 0, parts{observe.Server: 10 * ms}))
		waits := goChannelChain
		waits.Hops = slices.Clone(waits.Hops)
		waits.Hops[0].Process.PID, waits.Hops[0].Process.Comm = appPID, "app"
		o.Waits = waitGraph(observe.SlowTime{PID: appPID, Requests: 500, NS: 500 * 80 * ms, LongestNS: 90 * ms})
		o.Waits.Shares = []observe.WaitShare{waitShare(appPID, 30_000*ms, 400, waits)}
		convoys := lockConvoy.Judge(NewView(o)).Findings
		if len(convoys) != 1 {
			t.Fatalf("%d connections: %d findings, want 1", connections, len(convoys))
		}
		if f := convoys[0]; (f.ConsequenceOf != nil) != want || want && *f.ConsequenceOf != connectionPoolExhausted.ID {
			t.Errorf("%d connections: follows from %v, want from the pool: %v", connections, f.ConsequenceOf, want)
		}
	}
}
