package cause

import (
	"github.com/slowray/slowray/internal/observe"
)

const dbPID = 600

// shop is a service that asks a database on the same host once for each of n
// requests. The ledgers are those of a call, as both ends have it.
type shop struct {
	d           observe.Database
	n           int
	call        parts
	served      parts
	flags       observe.RequestFlags
	split       map[observe.ServerPart]float64 // of the database's server time
	inside      int64                          // ns that a request waits in the service besides
	conns       int
	opened      uint64
	report      parts // of another program's calls, which no request waits for
	fullCPUs    bool
	nobodyCalls bool // no service of this host calls it
	cpuSeconds  float64
	functions   []string // that it was seen in, each in all samples
}

const shopPID = nginxMaster

func (s shop) inject(o *observe.Observation) {
	idle(o)
	if s.fullCPUs {
		o.Use.CPU = observe.CPUTime{User: 17, System: 2, Idle: 1}
		process(o, hog).UserSeconds = 16
	}
	o.Waits = nil
	s.d.PID, s.d.NetNS, s.d.Ports = dbPID, serverNS, []int{dbPort}
	o.Databases = []observe.Database{s.d}
	comm := map[string]string{"mariadb": "mariadbd", "postgresql": "postgres", "redis": "redis-server", "memcached": "memcached"}[s.d.Kind]
	o.Processes = append(o.Processes, observe.Process{PID: dbPID, PPID: 1, Comm: comm, State: "S", Threads: 40, FDs: 60, FDLimit: 1024, FDHard: 20000, NetNS: serverNS, UserSeconds: max(s.cpuSeconds, 0.5)})
	l := observe.Listener{Proto: "tcp", Addr: "10.9.8.1", Port: dbPort, Inode: 9, PID: dbPID, PIDs: []int{dbPID}, Comm: comm, Limit: 128, Samples: 40, Clients: max(s.conns, 1), Opened: s.opened}
	if !s.nobodyCalls {
		l.ClientPIDs = []int{shopPID}
	}
	ns(o).Listeners = append(ns(o).Listeners, l)
	ns(o).Sockets = append(ns(o).Sockets, observe.SocketGroup{Side: "called", Addr: "10.9.8.1", Remote: "10.9.8.1", Port: dbPort, States: map[string]int{"ESTABLISHED": max(s.conns, 1)}})
	if s.functions != nil {
		p := observe.ProfileProcess{PID: dbPID, Comm: comm, Samples: 900}
		for _, name := range s.functions {
			p.Functions = append(p.Functions, function(observe.FrameNative, name, comm, 400, 800, 1))
		}
		o.Profile.Processes = append(o.Profile.Processes, p)
	}
	if s.n == 0 {
		return
	}
	web := nginxServed()
	callNS := int64(0)
	for p, ns := range s.call {
		if p != observe.AckDelay {
			callNS += ns
		}
	}
	web.add(s.n, ms/10, ms/20, 0, parts{observe.RecvWait: ms / 20, observe.Server: callNS + s.inside + ms/2, observe.Network: ms / 10})
	called := callsTo(dbPort, "10.9.8.1", shopPID, "nginx").add(s.n, ms/10, ms/20, 0, s.call)
	served := servedAt(dbPort, "10.9.8.1", dbPID, comm).add(s.n, ms/10, ms/20, s.flags, s.served)
	o.Endpoints = nil
	if s.report != nil {
		served.add(20, ms/10, ms/20, 0, s.report)
	}
	e := served.endpoint()
	if s.split != nil {
		e.Split = &observe.SplitStats{Requests: e.Requests, Parts: map[string]observe.PartStats{}, SlowParts: map[string]int64{}}
		server := e.Parts[observe.Server.String()].SumNS
		slow := e.SlowParts[observe.Server.String()]
		e.Split.ServerNS, e.Split.SlowServerNS = server, slow
		for p, share := range s.split {
			e.Split.Parts[p.String()] = observe.PartStats{SumNS: int64(share * float64(server))}
			e.Split.SlowParts[p.String()] = int64(share * float64(slow))
		}
	}
	o.Endpoints = append(o.Endpoints, web.endpoint(), e)
	if !s.nobodyCalls {
		o.Endpoints = append(o.Endpoints, called.endpoint())
	}
}

// slowLog is a log of one statement whose requests had this ledger.
func slowLog(statement string, n int64, took, server, network int64, caller int) *observe.SlowLog {
	s := observe.SlowStatement{Statement: statement, Count: n, NS: n * took, LongestNS: took, Examined: n * 20_000, Sent: n,
		Joined: n, RequestNS: n * (server + network), ServerNS: n * server, NetworkNS: n * network}
	if network > server {
		s.OnWire = n
	}
	if caller != 0 {
		s.Callers = []observe.SlowCaller{{PID: caller, Joined: n, RequestNS: n * (server + network), ServerNS: n * server}}
	}
	return &observe.SlowLog{Source: "/var/log/mysql/slow.log", Threshold: observe.Setting{Value: "0.01", File: "/etc/mysql/my.cnf", Line: 7},
		Entries: n, NS: n * took, Joined: n, Statements: []observe.SlowStatement{s}}
}

func mariadb(limit string, log ...observe.LogKind) observe.Database {
	return observe.Database{Kind: "mariadb", Config: "/etc/mysql/my.cnf", MaxConnections: observe.Setting{Value: limit, File: "/etc/mysql/my.cnf", Line: 12},
		Samples: 40, ConnectionsPeak: 20, Log: log, Logs: []observe.LogFile{{Path: "/var/log/mysql/error.log", What: "error"}},
		Settings: map[string]observe.Setting{"innodb_lock_wait_timeout": {Value: "50", Default: true}}}
}

func but(d observe.Database, change func(*observe.Database)) observe.Database {
	change(&d)
	return d
}

func redisServer(begin, end map[string]float64) observe.Database {
	return observe.Database{Kind: "redis", MaxConnections: observe.Setting{Value: "50", File: "/etc/redis/redis.conf", Line: 9}, Samples: 40, ConnectionsPeak: 50,
		Status: &observe.DatabaseStatus{Begin: begin, End: end}}
}

var (
	quickCall   = parts{observe.Server: ms, observe.Network: ms / 10}
	quickServed = parts{observe.RecvWait: ms / 50, observe.Server: ms, observe.Network: ms / 10}
	slowCall    = parts{observe.Server: 60 * ms, observe.Network: ms / 10}
	slowServed  = parts{observe.RecvWait: ms / 50, observe.Server: 60 * ms, observe.Network: ms / 10}
)

func postgres(change func(*observe.Database)) observe.Database {
	d := observe.Database{Kind: "postgresql", Config: "/etc/postgresql/15/main/postgresql.conf", Reserved: 3, Samples: 40, ConnectionsPeak: 20,
		MaxConnections: observe.Setting{Value: "100", Default: true}, Logs: []observe.LogFile{{Path: "/var/log/postgresql/15.log", What: "error"}},
		Settings: map[string]observe.Setting{"max_wal_size": {Value: "64MB", File: "/etc/postgresql/15/main/postgresql.conf", Line: 240}},
		Slow:     &observe.SlowLog{Off: "log_min_duration_statement is -1"}}
	change(&d)
	return d
}

func waitingBackends(mean float64, holder bool) *observe.Sessions {
	s := &observe.Sessions{Rounds: 40, BackendsMean: 20, WaitingMean: mean, WaitingPeak: 18, WaitingRounds: 38,
		Waiters: []observe.Session{{PID: 700, User: "app", Name: "shop", Client: "10.9.8.1(4000)", Doing: "UPDATE", Rounds: 30}}}
	if holder {
		s.Holders = []observe.Session{{PID: 701, User: "app", Name: "shop", Client: "10.9.8.1(4001)", Doing: "idle in transaction", Rounds: 36}}
	}
	return s
}

var firingOnDatabases = []fires{
	{
		name: "max_connections of MariaDB", cause: &mariadbConnections,
		inject:  shop{d: mariadb("20", observe.LogKind{Kind: "too-many-connections", Count: 400, Example: "(Too many connections)"}), n: 2000, call: quickCall, served: quickServed, opened: 450}.inject,
		subject: Subject{Kind: "process", PID: dbPID, Port: dbPort, Path: "/etc/mysql/my.cnf:12"}, minShare: 0.8,
		fix: "SET GLOBAL max_connections = 70", evidence: "connections held, peak=20",
	},
	{
		name: "clients of PostgreSQL", cause: &postgresConnections,
		inject: shop{d: postgres(func(d *observe.Database) {
			d.Log = []observe.LogKind{{Kind: "too-many-clients", Count: 30, Example: "FATAL:  sorry, too many clients already"}}
		}), opened: 60}.inject,
		subject: Subject{PID: dbPID}, minShare: 0.4, fix: "PgBouncer",
	},
	{
		name: "maxclients, by rejected_connections", cause: &redisMaxClients,
		inject:  shop{d: redisServer(map[string]float64{"rejected_connections": 5}, map[string]float64{"rejected_connections": 905}), opened: 1000}.inject,
		subject: Subject{PID: dbPID, Path: "/etc/redis/redis.conf:9"}, minShare: 0.8, fix: "CONFIG SET maxclients 100",
	},
	{
		name: "maxclients, by its answer to slowray", cause: &redisMaxClients,
		inject: shop{d: but(redisServer(nil, nil), func(d *observe.Database) {
			d.MaxConnections = observe.Setting{}
			d.Status = &observe.DatabaseStatus{Refused: "ERR max number of clients reached"}
		}), opened: 300}.inject,
		subject: Subject{PID: dbPID}, minShare: 0.9, fix: "a pool for each process", evidence: "connections opened while it is full=300",
	},
	{
		name: "memcached -c", cause: &memcachedConnections,
		inject: shop{d: observe.Database{Kind: "memcached", MaxConnections: observe.Setting{Value: "100", File: "command line"}, ConnectionsPeak: 100,
			Status: &observe.DatabaseStatus{Begin: map[string]float64{"rejected_connections": 0}, End: map[string]float64{"rejected_connections": 90}}}, opened: 100}.inject,
		subject: Subject{PID: dbPID}, minShare: 0.8, fix: "-c 200", evidence: "rejected_connections=90",
	},
	{
		name: "rows that others have locked", cause: &mariadbLockWait,
		inject: shop{d: but(mariadb("200"), func(d *observe.Database) {
			d.Slow = slowLog("UPDATE seats SET taken=? WHERE id=?", 100, 60*ms, 60*ms, 0, shopPID)
			d.Slow.Statements[0].Examined = 100
		}), n: 500, call: slowCall, served: slowServed, flags: observe.FlagContended, split: map[observe.ServerPart]float64{observe.ServerLock: 0.95, observe.ServerCPU: 0.05}}.inject,
		subject: Subject{Kind: "listener", PID: dbPID, Port: dbPort}, minShare: 0.9, fix: "innodb_trx", evidence: "UPDATE seats",
	},
	{
		name: "rows that others have locked, while others have the CPUs and its threads do without", cause: &mariadbLockWait,
		inject: func(o *observe.Observation) {
			shop{d: mariadb("200"), n: 500, call: slowCall, served: slowServed, flags: observe.FlagContended, fullCPUs: true,
				split: map[observe.ServerPart]float64{observe.ServerLock: 0.95, observe.ServerCPU: 0.05}}.inject(o)
			process(o, dbPID).RunDelaySeconds = 0.4
		},
		subject: Subject{Kind: "listener", PID: dbPID, Port: dbPort}, minShare: 0.9, fix: "innodb_trx",
	},
	{
		name: "a transaction that its client forgot", cause: &postgresLockWait,
		inject:  shop{d: postgres(func(d *observe.Database) { d.Sessions = waitingBackends(2.8, true) }), n: 500, call: slowCall, served: slowServed}.inject,
		subject: Subject{PID: dbPID, Port: dbPort}, minShare: 0.9, fix: "pg_terminate_backend(701)", evidence: "idle in a transaction meanwhile=backend 701",
	},
	{
		name: "a scan of all rows", cause: &mariadbSlowQuery,
		inject: shop{d: but(mariadb("200"), func(d *observe.Database) {
			d.Slow = slowLog("SELECT * FROM booking WHERE guest LIKE ?", 500, 60*ms, 60*ms, ms, shopPID)
		}), n: 500, call: slowCall, served: slowServed}.inject,
		subject: Subject{PID: dbPID, Port: dbPort}, minShare: 0.9, fix: "index", evidence: "rows looked at, and given=10,000,000, 500",
	},
	{
		name: "a scan that fills the CPUs itself", cause: &mariadbSlowQuery,
		inject: func(o *observe.Observation) {
			shop{d: but(mariadb("200"), func(d *observe.Database) {
				d.Slow = slowLog("SELECT ?", 500, 60*ms, 60*ms, ms, shopPID)
			}), n: 500, call: slowCall, served: slowServed, fullCPUs: true}.inject(o)
			process(o, dbPID).UserSeconds, process(o, hog).UserSeconds = 15, 0
		},
		subject: Subject{PID: dbPID}, minShare: 0.9, fix: "index",
	},
	{
		name: "statements of PostgreSQL, asked from elsewhere", cause: &postgresSlowQuery,
		inject: shop{d: postgres(func(d *observe.Database) {
			d.Slow = slowLog("SELECT count(*) FROM booking", 400, 60*ms, 60*ms, ms, 0)
		}), n: 500, call: slowCall, served: slowServed, nobodyCalls: true}.inject,
		subject: Subject{PID: dbPID}, minShare: 0.9, fix: "EXPLAIN (ANALYZE", evidence: "statement=SELECT count(*) FROM booking",
	},
	{
		name: "a scan of a table, without a log that names the statement", cause: &postgresSlowQuery,
		inject: shop{d: postgres(func(d *observe.Database) {
			d.Slow = &observe.SlowLog{Off: "log_min_duration_statement is -1"}
			d.Sockets, d.User = []string{"/run/pg/.s.PGSQL.5433"}, "postgres"
			d.Sessions = &observe.Sessions{Rounds: 40, BackendsMean: 4, Statements: []observe.RunningStatement{{Statement: "SELECT guest FROM booking WHERE guest = ?", Rounds: 31}}}
		}), n: 500, call: slowCall, served: slowServed, cpuSeconds: 24, functions: []string{"ExecScan", "heap_getnextslot", "ExecInterpExpr"}}.inject,
		subject: Subject{PID: dbPID, Port: dbPort}, minShare: 0.9, fix: `runuser -u postgres -- psql -h /run/pg -p 5433 -c "SELECT now() - query_start`, evidence: "CPU time in functions that read tables from end to end=",
	},
	{
		name: "a MariaDB that computes, without a slow log", cause: &mariadbSlowQuery,
		inject: shop{d: but(mariadb("200"), func(d *observe.Database) {
			d.Slow, d.Sockets = &observe.SlowLog{Off: "slow_query_log is off"}, []string{"/srv/db/mysqld.sock"}
		}), n: 500, call: slowCall, served: slowServed, cpuSeconds: 24, functions: []string{"Item_func_sha2::val_str"}}.inject,
		subject: Subject{PID: dbPID, Port: dbPort}, minShare: 0.9, fix: "mariadb -S /srv/db/mysqld.sock -e", evidence: "CPU time for a statement, mean=",
	},
	{
		name: "KEYS on a large Redis", cause: &redisSlowCommand,
		inject: shop{d: but(redisServer(nil, nil), func(d *observe.Database) { d.Slow = slowLog("KEYS booking:*", 100, 50*ms, 50*ms, 0, shopPID) }),
			n: 5000, call: parts{observe.Server: 30 * ms}, served: parts{observe.RecvWait: 29 * ms, observe.Server: ms}}.inject,
		subject: Subject{PID: dbPID, Port: dbPort}, minShare: 0.9, fix: "Have nginx (pid 100), which sends KEYS booking:*", evidence: "the window, in slow commands=0.5",
	},
	{
		name: "a fork of 400 ms", cause: &redisForkStall,
		inject: shop{d: redisServer(map[string]float64{"total_forks": 3}, map[string]float64{"total_forks": 4, "latest_fork_usec": 400_000}),
			n: 20, call: parts{observe.Server: 390 * ms}, served: parts{observe.RecvWait: 380 * ms, observe.Server: 10 * ms}}.inject,
		subject: Subject{PID: dbPID}, minShare: 0.9, fix: "on a replica", evidence: "the latest took=400",
	},
	{
		name: "append-only file behind", cause: &redisAOFFsync,
		inject: shop{d: redisServer(map[string]float64{"aof_delayed_fsync": 0}, map[string]float64{"aof_delayed_fsync": 4}),
			n: 20, call: slowCall, served: slowServed}.inject,
		subject: Subject{PID: dbPID}, minShare: 0.9, fix: "faster disk",
	},
	{
		name: "checkpoints", cause: &postgresCheckpoints,
		inject: shop{d: postgres(func(d *observe.Database) {
			d.Log = []observe.LogKind{{Kind: "checkpoints-frequent", Count: 2, Example: "checkpoints are occurring too frequently (3 seconds apart)"}}
		}), n: 200, call: slowCall, served: slowServed, split: map[observe.ServerPart]float64{observe.ServerDisk: 0.6, observe.ServerCPU: 0.4}}.inject,
		subject: Subject{PID: dbPID}, minShare: 0.9, fix: "max_wal_size", evidence: "max_wal_size=64MB",
	},
}

var nearMissesOnDatabases = []miss{
	{"many idle connections, under the limit", &mariadbConnections, shop{d: but(mariadb("200"), func(d *observe.Database) { d.ConnectionsPeak = 180 }), n: 500, call: quickCall, served: quickServed}.inject,
		"at most 180 of 200 connections and refused 0"},
	{"one connection refused", &mariadbConnections, shop{d: mariadb("20", observe.LogKind{Kind: "too-many-connections", Count: 1}), opened: 10}.inject, "refused 1"},
	{"clients that hang up", &mariadbConnections, shop{d: mariadb("20", observe.LogKind{Kind: "aborted-connection", Count: 500}), opened: 500}.inject, "refused 0"},
	{"a hundred backends, nobody refused", &postgresConnections, shop{d: postgres(func(d *observe.Database) { d.ConnectionsPeak = 97 })}.inject, "97 of 100"},
	{"rejected long ago", &redisMaxClients, shop{d: redisServer(map[string]float64{"rejected_connections": 905}, map[string]float64{"rejected_connections": 905}), opened: 10}.inject, "refused 0"},
	{"full, and nobody comes", &memcachedConnections, shop{d: observe.Database{Kind: "memcached", MaxConnections: observe.Setting{Value: "100"}, ConnectionsPeak: 100, Status: &observe.DatabaseStatus{
		Begin: map[string]float64{"rejected_connections": 7}, End: map[string]float64{"rejected_connections": 7}}}}.inject, "100 of 100"},
	{"threads that wait, and no other connection ends it", &mariadbLockWait, shop{d: mariadb("200"), n: 500, call: slowCall, served: slowServed,
		split: map[observe.ServerPart]float64{observe.ServerLock: 0.95}}.inject, "0 of 500 requests"},
	{"locks for a moment", &mariadbLockWait, shop{d: mariadb("200"), n: 500, call: quickCall, served: quickServed, flags: observe.FlagContended,
		split: map[observe.ServerPart]float64{observe.ServerLock: 0.9}}.inject, "p99 1.1 ms"},
	{"locks on full CPUs, for which its threads wait", &mariadbLockWait, func(o *observe.Observation) {
		shop{d: mariadb("200"), n: 500, call: slowCall, served: slowServed, flags: observe.FlagContended, fullCPUs: true,
			split: map[observe.ServerPart]float64{observe.ServerLock: 0.9}}.inject(o)
		process(o, dbPID).RunDelaySeconds = 8
	}, "the CPUs are full"},
	{"locks on full CPUs", &mariadbLockWait, shop{d: mariadb("200"), n: 500, call: slowCall, served: slowServed, flags: observe.FlagContended, fullCPUs: true,
		split: map[observe.ServerPart]float64{observe.ServerLock: 0.9}}.inject, "the CPUs are full"},
	{"a backend waits, the requests do not", &postgresLockWait, shop{d: postgres(func(d *observe.Database) { d.Sessions = waitingBackends(1, false) }), n: 5000, call: quickCall, served: quickServed}.inject,
		"1 of its backends waited"},
	{"slow for another reason", &postgresLockWait, shop{d: postgres(func(d *observe.Database) { d.Sessions = waitingBackends(0.2, true) }), n: 500, call: slowCall, served: slowServed}.inject, "of the time it spent on requests"},
	{"incident E, case 7: slow entries, lost segments", &mariadbSlowQuery, shop{d: but(mariadb("200"), func(d *observe.Database) {
		d.Slow = slowLog("SELECT name FROM guests", 100, 213*ms, 3*ms, 210*ms, shopPID)
	}), n: 500, call: slowCall, served: slowServed}.inject, "took 213 ms, of which the statement itself took 3 ms"},
	{"a report's statements fill the slow log", &mariadbSlowQuery, shop{d: but(mariadb("200"), func(d *observe.Database) {
		d.Slow = slowLog("SELECT sum(price) FROM booking", 20, 900*ms, 900*ms, ms, hog)
	}), n: 5000, call: quickCall, served: quickServed, report: parts{observe.Server: 900 * ms}}.inject, "20 entries in the slow log"},
	{"slow calls, and only a report's statements in the slow log", &mariadbSlowQuery, shop{d: but(mariadb("200"), func(d *observe.Database) {
		d.Slow = slowLog("SELECT sum(price) FROM booking", 20, 900*ms, 900*ms, ms, hog)
	}), n: 500, call: slowCall, served: slowServed}.inject, "too few of them"},
	{"the log has the statements that waited for locks", &mariadbSlowQuery, shop{d: but(mariadb("200"), func(d *observe.Database) {
		d.Slow = slowLog("UPDATE seats SET taken=?", 500, 60*ms, 60*ms, 0, shopPID)
	}), n: 500, call: slowCall, served: slowServed, split: map[observe.ServerPart]float64{observe.ServerLock: 0.9}}.inject, "waited for locks 90 %"},
	{"slow for what it waits for, without a log", &postgresSlowQuery, shop{d: postgres(func(d *observe.Database) {
		d.Slow = &observe.SlowLog{Off: "log_min_duration_statement is -1"}
	}), n: 500, call: slowCall, served: slowServed, cpuSeconds: 1, functions: []string{"heap_getnextslot"}}.inject, "it computes 2 ms for a request"},
	{"others have the CPUs", &postgresSlowQuery, shop{d: postgres(func(d *observe.Database) {
		d.Slow = slowLog("SELECT ?", 500, 60*ms, 60*ms, ms, shopPID)
	}), n: 500, call: slowCall, served: slowServed, fullCPUs: true}.inject, "the CPUs are full, and others have them"},
	{"slow commands that nobody waits behind", &redisSlowCommand, shop{d: but(redisServer(nil, nil), func(d *observe.Database) { d.Slow = slowLog("KEYS *", 20, 30*ms, 30*ms, 0, hog) }),
		n: 5000, call: quickCall, served: quickServed}.inject, "20 slow commands took 6.0 % of the window"},
	{"a fork that nobody notices", &redisForkStall, shop{d: redisServer(map[string]float64{"total_forks": 3}, map[string]float64{"total_forks": 4, "latest_fork_usec": 400_000}),
		n: 500, call: quickCall, served: quickServed}.inject, "forked 1 times"},
	{"slow, and no fork in the window", &redisForkStall, shop{d: redisServer(map[string]float64{"total_forks": 4}, map[string]float64{"total_forks": 4, "latest_fork_usec": 400_000}),
		n: 500, call: slowCall, served: slowServed}.inject, "did not fork in the window"},
	{"a disk that was late, answers that were not", &redisAOFFsync, shop{d: redisServer(map[string]float64{"aof_delayed_fsync": 0}, map[string]float64{"aof_delayed_fsync": 2}),
		n: 500, call: quickCall, served: quickServed}.inject, "waited 2 times for its append-only file, but"},
	{"checkpoints while nobody waits for a disk", &postgresCheckpoints, shop{d: postgres(func(d *observe.Database) {
		d.Log = []observe.LogKind{{Kind: "checkpoints-frequent", Count: 2}}
	}), n: 200, call: slowCall, served: slowServed, split: map[observe.ServerPart]float64{observe.ServerCPU: 1}}.inject, "waited for disks"},
}
