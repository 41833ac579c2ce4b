package cause

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

const (
	MariaDBConnectionsExhausted   ID = "mariadb-connections-exhausted"
	PostgresConnectionsExhausted  ID = "postgres-connections-exhausted"
	RedisMaxClients               ID = "redis-max-clients"
	MemcachedConnectionsExhausted ID = "memcached-connections-exhausted"
)

// The limits of connections of databases. A connection that is refused is reported
// by the server itself: in its log, in its status, or in what it says to
// whoever connects. The number held is counted from the sockets.
var (
	mariadbConnections = Cause{
		ID:    MariaDBConnectionsExhausted,
		Title: "The database is at its connection limit",
		Layer: LayerApplication,
		Class: ClassDatabase,
		Needs: []observe.Kind{observe.KindDatabases},
		// Who waits for a lock or a slow statement keeps its connection meanwhile.
		ConsequenceOf: []Parent{MariaDBLockWait, MariaDBSlowQuery, FsyncBound},
		Folds:         true,
		Check:         func(v *View) Result { return v.checkConnections("mariadb", "mysql") },
		Try:           tryMoreConnections("mariadb", "mysql"),
	}
	postgresConnections = Cause{
		ID:            PostgresConnectionsExhausted,
		Title:         "The database is at its connection limit",
		Layer:         LayerApplication,
		Class:         ClassDatabase,
		Needs:         []observe.Kind{observe.KindDatabases},
		ConsequenceOf: []Parent{PostgresLockWait, PostgresSlowQuery, FsyncBound},
		Folds:         true,
		Check:         func(v *View) Result { return v.checkConnections("postgresql") },
	}
	redisMaxClients = Cause{
		ID:            RedisMaxClients,
		Title:         "Redis is at maxclients",
		Layer:         LayerApplication,
		Class:         ClassDatabase,
		Needs:         []observe.Kind{observe.KindDatabases},
		ConsequenceOf: []Parent{RedisSlowCommand, FsyncBound},
		Folds:         true,
		Check:         func(v *View) Result { return v.checkConnections("redis", "valkey") },
		Try:           tryMoreConnections("redis", "valkey"),
	}
	memcachedConnections = Cause{
		ID:    MemcachedConnectionsExhausted,
		Title: "memcached is at its connection limit",
		Layer: LayerApplication,
		Class: ClassDatabase,
		Needs: []observe.Kind{observe.KindDatabases},
		Check: func(v *View) Result { return v.checkConnections("memcached") },
	}
)

func (v *View) checkConnections(kinds ...string) Result {
	r := ruledOut("no such server is in use")
	nearest, unknown := -1.0, ""
	for _, d := range v.databasesOf(kinds...) {
		n, evidence := v.refusals(d)
		if n >= fewAffected {
			r.Findings = append(r.Findings, v.connectionsFinding(d, n, evidence))
			continue
		}
		if use := ratio(d.ConnectionsPeak, max(connectionLimit(d), 1)); use > nearest {
			nearest = use
			r.RuledOut = fmt.Sprintf("%s and refused %s", connectionsText(d), count(n))
		}
		if n == 0 && !tellsRefusals(d) {
			unknown = connectionsText(d) + "; whether it refused others it does not tell where that can be read"
			if d.Status != nil && d.Status.Refused != "" {
				unknown += ": " + d.Status.Refused
			}
		}
	}
	if len(r.Findings) == 0 && unknown != "" {
		return Result{NotChecked: unknown}
	}
	return r
}

// tellsRefusals says whether a server that refuses connections would be known
// to: by its log, or by its status.
func tellsRefusals(d *observe.Database) bool {
	if d.Kind == "redis" || d.Kind == "valkey" || d.Kind == "memcached" {
		_, ok := d.Status.Increase("rejected_connections")
		return ok
	}
	return slices.ContainsFunc(d.Logs, func(l observe.LogFile) bool { return l.What == "error" && l.Problem == "" })
}

// refusals is how many connections a server refused for lack of a free one,
// with what says so.
func (v *View) refusals(d *observe.Database) (int64, []Evidence) {
	var out []Evidence
	var n int64
	if lines, example := logCount(d.Log, "too-many-connections", "too-many-clients"); lines > 0 {
		n = lines
		out = append(out, Evidence{Fact: "connections refused, by its log", Value: lines, Unit: "connections", Source: "log of " + product(d)}, firstLine(example))
	}
	for _, name := range []string{"rejected_connections", "listen_disabled_num"} {
		if grew, ok := d.Status.Increase(name); ok && grew > 0 {
			n = max(n, int64(grew))
			out = append(out, Evidence{Fact: name, Value: int64(grew), Unit: "in the window", Source: "status of " + product(d)})
		}
	}
	if d.Status != nil && n == 0 && (strings.Contains(d.Status.Refused, "max number of clients") || strings.Contains(d.Status.Refused, "Too many open connections")) {
		// It is full, and counts nothing that could be asked for: those that
		// came and could not stay.
		if opened := int64(v.openedAt(d)); opened > 0 {
			n = opened
			out = append(out, Evidence{Fact: "what it says to a new connection", Value: d.Status.Refused, Source: "its answer to slowray"},
				Evidence{Fact: "connections opened while it is full", Value: opened, Unit: "connections", Source: "handshakes completed"})
		}
	}
	return n, out
}

// openedAt is the connections that were opened to a database over TCP.
func (v *View) openedAt(d *observe.Database) (n uint64) {
	ns := v.Namespace(d.NetNS)
	if ns == nil {
		return 0
	}
	for i := range ns.Listeners {
		if l := &ns.Listeners[i]; l.Port != 0 && (l.PID == d.PID || v.Master(l.PID) == d.PID) {
			n += l.Opened
		}
	}
	return n
}

func (v *View) connectionsFinding(d *observe.Database, refused int64, evidence []Evidence) Finding {
	setting := fromHost(d.Root, d.MaxConnections)
	f := supported(Subject{Kind: "process", NetNS: d.NetNS, PID: d.PID, Comm: v.Comm(d.PID)})
	if len(d.Ports) > 0 {
		f.Subject.Port = d.Ports[0]
	}
	if setting.Line > 0 {
		f.Subject.Path = fmt.Sprintf("%s:%d", setting.File, setting.Line)
	}
	f.Title = fmt.Sprintf("%s is at its connection limit", product(d))
	opened := max(v.openedAt(d), uint64(refused))
	f.Weight = ratio(refused, opened)
	failed, all := v.callersErrors(d)
	if all > 0 {
		f.Weight = max(ratio(failed, all), min(f.Weight, 0.5))
	}
	f.Impact = Impact{Share: round(ratio(refused, opened)), Of: "new connections",
		Text: fmt.Sprintf("%s of %s new connections were refused", count(refused), count(opened))}
	if failed > 0 {
		f.Impact.Text += fmt.Sprintf("; %s of %s requests of the services that call it failed", count(failed), count(all))
	}
	f.Evidence = append(f.Evidence, evidence...)
	held := Evidence{Fact: "connections held, peak", Value: d.ConnectionsPeak, Unit: "connections", Source: "sockets of the process"}
	if limit := connectionLimit(d); limit > 0 {
		held.Limit, held.Source = limit, held.Source+"; limit: "+settingSource(setting)
	}
	f.Evidence = append(f.Evidence, held)
	if who := v.holders(d); who != "" {
		f.Evidence = append(f.Evidence, Evidence{Fact: "connected from this host", Value: who, Source: "sock_diag"})
	}
	f.Fix = v.connectionsFix(d, setting)
	f.Fix.Changes = v.moreConnections(d)
	return f
}

// forksToRefuse says of a PostgreSQL whose processes come and go that it has
// no connection left: it starts a process to refuse each.
func (v *View) forksToRefuse(pid int) bool {
	for _, d := range v.databasesOf("postgresql") {
		if n, _ := v.refusals(d); n >= fewAffected && (d.PID == pid || v.Master(pid) == d.PID) {
			return true
		}
	}
	return false
}

// callersErrors is the requests of the services of this host that call a database which
// were answered with an error, or not at all.
func (v *View) callersErrors(d *observe.Database) (failed, all uint64) {
	seen := map[int]bool{}
	for _, pid := range v.clientsOf(d) {
		master := v.Master(pid)
		if seen[master] {
			continue
		}
		seen[master] = true
		for _, l := range v.servedOf[master] {
			failed += l.failedRequests()
			all += l.Requests
		}
	}
	return failed, all
}

// clientsOf lists the processes of this host that are connected to a database,
// or try to.
func (v *View) clientsOf(d *observe.Database) (pids []int) {
	for _, s := range v.servicesIn[d.NetNS] {
		for _, l := range s.Listeners {
			if l.PID == d.PID || v.Master(l.PID) == d.PID {
				pids = append(pids, s.callers...)
				break
			}
		}
	}
	return pids
}

// holders names the processes of this host that are connected to a database.
func (v *View) holders(d *observe.Database) string {
	var names []string
	seen := map[int]bool{}
	for _, pid := range v.clientsOf(d) {
		if master := v.Master(pid); !seen[master] && v.Process(master) != nil && len(names) < 4 {
			seen[master] = true
			names = append(names, fmt.Sprintf("%s (pid %d)", v.Comm(master), master))
		}
	}
	return strings.Join(names, ", ")
}

// wantedClients is the limit of connections that is proposed instead of limit.
func wantedClients(limit int) int { return max(2*limit, limit+50) }

// ownFiles is how many descriptors Redis keeps for itself
// (CONFIG_MIN_RESERVED_FDS).
const ownFiles = 32

func (v *View) connectionsFix(d *observe.Database, setting observe.Setting) Fix {
	limit := connectionLimit(d)
	want := wantedClients(limit)
	ns := v.Namespace(d.NetNS)
	where := "the configuration of " + product(d)
	if setting.Line > 0 {
		where = fmt.Sprintf("%s:%d", setting.File, setting.Line)
	} else if setting.File != "" {
		where = "the " + setting.File + " of " + product(d)
	} else if d.Config != "" {
		where = d.Root + d.Config
	}
	port := portOfDatabase(d)
	switch d.Kind {
	case "postgresql":
		return Fix{
			Text: fmt.Sprintf("Hold fewer connections: pools of the services that add up to less than max_connections (%d, %d of them reserved), or PgBouncer in between. "+
				"Or raise max_connections to %d, which needs a restart.", limit, d.Reserved, want),
			Commands: []shell.Command{v.psql(d, shell.Line(`-c "SELECT usename, application_name, client_addr, state, count(*) FROM pg_stat_activity GROUP BY 1,2,3,4 ORDER BY 5 DESC"`))},
			Persist:  []shell.Command{shell.Line("# in %s: max_connections = %s", shell.Text(where), want)},
		}
	case "redis", "valkey":
		fix := Fix{
			Text: fmt.Sprintf("Hold fewer connections: a pool for each process of the services. Or raise maxclients to %d, which needs as many open files.", want),
			// It refuses redis-cli as it refuses the others.
			Commands: []shell.Command{v.in(ns, shell.Line("ss -tn state established '( sport = :%s )'", port)),
				shell.Line("until").Then(v.redisCLI(d, shell.Line("CONFIG SET maxclients %s | grep -q OK; do sleep 0.1; done   # it is refused too, until a connection is closed", want)))},
			Persist: []shell.Command{shell.Line("# in %s: maxclients %s", shell.Text(where), want)},
		}
		if p := v.Process(d.PID); p != nil && p.FDLimit > 0 && want+ownFiles > p.FDLimit {
			fix.Commands = append(fix.Commands[:1], shell.Line("prlimit --pid %s --nofile=%s", d.PID, nofile(p, want+2*ownFiles)), fix.Commands[1])
		}
		if limit == 0 { // it told nobody
			fix.Text = "Hold fewer connections: a pool for each process of the services. Or raise maxclients, which needs as many open files."
			fix.Commands, fix.Persist = fix.Commands[:1], nil
		}
		return fix
	case "memcached":
		return Fix{
			Text:     fmt.Sprintf("Hold fewer connections: a pool for each process of the services. Or start memcached with -c %d, and as many open files.", want),
			Commands: []shell.Command{v.in(ns, shell.Line("ss -tn state established '( sport = :%s )'", port))},
			Persist:  []shell.Command{shell.Line("memcached -c %s   # its command line, on Debian in /etc/memcached.conf", want)},
		}
	}
	return Fix{
		Text: fmt.Sprintf("Hold fewer connections: pools of the services that add up to less than max_connections (%d). Or raise it to %d, which holds at once and needs some memory for each.",
			limit, want),
		Commands: []shell.Command{v.sql(d, shell.Line("-e 'SHOW FULL PROCESSLIST'")), v.sql(d, shell.Line("-e 'SET GLOBAL max_connections = %s'", want))},
		Persist:  []shell.Command{shell.Line("# in %s: max_connections = %s", shell.Text(where), want)},
	}
}
