package cause

import (
	"fmt"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

const (
	MariaDBLockWait  ID = "mariadb-lock-wait"
	PostgresLockWait ID = "postgres-lock-wait"
)

// Locks that transactions hold. PostgreSQL writes into a backend's title that
// it waits for one. MariaDB tells nobody without a password, and its slow log
// leaves such waits out; but what ends a wait there is the thread of another
// connection, which is seen.
var (
	mariadbLockWait = Cause{
		ID:            MariaDBLockWait,
		Title:         "Statements wait for other transactions' locks",
		Layer:         LayerApplication,
		Class:         ClassDatabase,
		Needs:         []observe.Kind{observe.KindDatabases, observe.KindRequests},
		ConsequenceOf: []Parent{FsyncBound, BlockedOnDisk, DiskSaturated, CPUQuotaThrottled},
		Folds:         true,
		Check:         checkMariaDBLocks,
	}
	postgresLockWait = Cause{
		ID:            PostgresLockWait,
		Title:         "Statements wait for other transactions' locks",
		Layer:         LayerApplication,
		Class:         ClassDatabase,
		Needs:         []observe.Kind{observe.KindDatabases, observe.KindRequests},
		ConsequenceOf: []Parent{FsyncBound, BlockedOnDisk, DiskSaturated, CPUQuotaThrottled},
		Folds:         true,
		Check:         checkPostgresLocks,
	}
)

// lockedShare is the part of a database's server time that passed waiting for
// locks, as far as it is known, 0 to 1.
func (v *View) lockedShare(u *databaseUse) float64 {
	l := u.served
	if s := u.d.Sessions; s != nil {
		return ratio(s.WaitingMean*v.Window.Seconds*1e9, l.SumNS(observe.Server)+l.SumNS(observe.Stall))
	}
	if u.d.Kind != "mariadb" && u.d.Kind != "mysql" || !l.followed() {
		return 0
	}
	k := l.serverCost(observe.ServerLock)
	return max(ratio(k.ns, l.MeanNS(observe.Server)), ratio(k.slowNS, l.SlowNS(observe.Server)))
}

func checkMariaDBLocks(v *View) Result {
	r := ruledOut("no such server has requests")
	nearest := -1.0
	for _, u := range v.databaseUses("mariadb", "mysql") {
		l := u.served
		if !l.followed() {
			r.RuledOut = "no request of " + databaseText(u.d) + " was followed from thread to thread"
			continue
		}
		_, slow, text := v.slowness(&u)
		k, n := l.serverCost(observe.ServerLock), l.affected(observe.FlagContended)
		because := fmt.Sprintf("%s; %s of %s waited for another connection, %s of their time", text, count(n), l.all(), percent(k.share))
		idle, late := v.late(l, k.share)
		switch {
		case !slow, !l.noticed(k, threadFloor), !l.enough(n):
		case late:
			because += fmt.Sprintf("; but the CPUs are full (%s idle), which makes every thread late", percent(idle))
		case v.heldByDisk(u.d.PID):
			because += "; what they wait for is the disk"
		default:
			r.Findings = append(r.Findings, v.mariadbLockFinding(&u, k, n))
			continue
		}
		if k.share > nearest {
			r.RuledOut, nearest = because, k.share
		}
	}
	return r
}

// heldByDisk says that threads of a process are held up by a disk: those that
// commit with them wait for the one that writes.
func (v *View) heldByDisk(pid int) bool { return v.held(FsyncBound, BlockedOnDisk)[pid] }

func (v *View) mariadbLockFinding(u *databaseUse, k cost, n uint64) Finding {
	l := u.served
	f := v.databaseFinding(u, k, "waiting for locks of other transactions")
	f.held = v.heldInCalls(l, k.share)
	f.Title = fmt.Sprintf("Statements of %s wait for other transactions' locks", product(u.d))
	f.Evidence = append(f.Evidence,
		Evidence{Fact: "requests that waited until the thread of another connection woke theirs", Value: n, Limit: l.Requests, Unit: "requests", Source: recorded},
		Evidence{Fact: "the rest of its server time", Value: l.splitText(observe.ServerLock), Source: recorded})
	if s := waitingStatement(u.d); s != nil {
		f.Evidence = append(f.Evidence, Evidence{Fact: "a statement that looks at few rows and takes long", Value: s.Statement,
			Unit: fmt.Sprintf("%s times, %s on average", count(s.Count), nanoseconds(float64(s.NS)/float64(s.Count))), Source: u.d.Slow.Source})
	}
	if s := u.d.Settings["innodb_lock_wait_timeout"]; s.Value != "" {
		f.Evidence = append(f.Evidence, Evidence{Fact: "innodb_lock_wait_timeout", Value: s.Value, Unit: "s", Source: settingSource(fromHost(u.d.Root, s))})
	}
	f.Fix.Text = "Find the transaction that holds the locks and end it; make transactions shorter: nothing to wait for inside them, an index for their WHERE, large changes in parts."
	f.Fix.Commands = []shell.Command{
		v.sql(u.d, shell.Line("-e 'SELECT trx_mysql_thread_id, trx_started, trx_rows_locked, trx_query FROM information_schema.innodb_trx ORDER BY trx_started'")),
		v.sql(u.d, shell.Line("-e 'SHOW FULL PROCESSLIST'   # Waiting for table metadata lock: a transaction, or an ALTER, holds the table")),
	}
	return f
}

// waitingStatement is the statement of the slow log that took most time while
// it looked at few rows, or nil.
func waitingStatement(d *observe.Database) *observe.SlowStatement {
	if d.Slow == nil {
		return nil
	}
	for i := range d.Slow.Statements {
		if s := &d.Slow.Statements[i]; s.Examined <= scanRows*s.Count {
			return s
		}
	}
	return nil
}

func checkPostgresLocks(v *View) Result {
	r := ruledOut("no such server has requests")
	nearest := -1.0
	for _, u := range v.databaseUses("postgresql") {
		s := u.d.Sessions
		if s == nil || s.Rounds == 0 {
			r.RuledOut = "the titles of the backends of " + databaseText(u.d) + " could not be read"
			continue
		}
		k, slow, text := v.slowness(&u)
		locked := v.lockedShare(&u)
		because := fmt.Sprintf("%s; %.2g of its backends waited for a lock on average, %s of the time it spent on requests", text, s.WaitingMean, percent(locked))
		if slow && locked >= dominantShare && s.WaitingRounds >= fewAffected {
			r.Findings = append(r.Findings, v.postgresLockFinding(&u, k, locked))
			continue
		}
		if locked > nearest {
			r.RuledOut, nearest = because, locked
		}
	}
	return r
}

func (v *View) postgresLockFinding(u *databaseUse, k cost, locked float64) Finding {
	s := u.d.Sessions
	f := v.databaseFinding(u, k, "for the database")
	f.Weight *= locked
	f.held = v.heldInCalls(u.served, locked)
	f.Title = "PostgreSQL statements wait for other transactions' locks"
	f.Evidence = append(f.Evidence,
		Evidence{Fact: "backends that wait for a lock, mean and peak", Value: fmt.Sprintf("%.1f, %d", s.WaitingMean, s.WaitingPeak), Limit: round(s.BackendsMean), Unit: "backends", Source: "titles of the backends"},
		Evidence{Fact: "of the time the database spends on requests, waiting for locks", Value: round(locked), Unit: "share", Source: "titles of the backends, " + recorded})
	if n, example := logCount(u.d.Log, "still-waiting"); n > 0 {
		f.Evidence = append(f.Evidence, Evidence{Fact: "log: still waiting for a lock", Value: n, Unit: "lines", Source: "log of PostgreSQL"}, firstLine(example))
	}
	if len(s.Waiters) > 0 {
		f.Evidence = append(f.Evidence, Evidence{Fact: "who waited most", Value: sessionText(&s.Waiters[0]), Unit: fmt.Sprintf("in %d of %d looks", s.Waiters[0].Rounds, s.Rounds), Source: "title of the backend"})
	}
	f.Fix.Commands = []shell.Command{v.psql(u.d, shell.Line(`-c "SELECT pid, pg_blocking_pids(pid), wait_event_type, query FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0"`))}
	f.Fix.Text = "Find who holds the locks and end it; make transactions shorter: nothing to wait for inside them, changes of tables with a lock_timeout."
	// Who was idle in a transaction in most of the looks in which others waited.
	if len(s.Holders) > 0 && 2*s.Holders[0].Rounds >= s.WaitingRounds {
		h := &s.Holders[0]
		f.Evidence = append(f.Evidence, Evidence{Fact: "idle in a transaction meanwhile", Value: sessionText(h), Unit: fmt.Sprintf("in %d of the %d looks in which others waited", h.Rounds, s.WaitingRounds), Source: "title of the backend"})
		f.Fix.Text = fmt.Sprintf("Backend %d (%s) keeps a transaction open while its client does something else, and others wait meanwhile: see whether they wait for it, and end it. idle_in_transaction_session_timeout ends such by itself.", h.PID, h.Client)
		if s.WaitingRounds-h.Rounds >= fewAffected { // others waited while it had none: it ends them by itself
			f.Fix.Text = fmt.Sprintf("Backend %d (%s) keeps transactions open again and again while its client does something else, and others wait meanwhile: have the client end them sooner. Ending the session helps until the client connects again.", h.PID, h.Client)
		} else {
			f.Fix.Commands = append(f.Fix.Commands, v.psql(u.d, shell.Line(`-c "SELECT pg_terminate_backend(%s)"`, h.PID)))
		}
	}
	return f
}

func sessionText(s *observe.Session) string {
	return fmt.Sprintf("backend %d of user %s, from %s: %s", s.PID, s.User, s.Client, s.Doing)
}

// poolExhausted says that the requests of a service wait for a connection of
// its pool.
func (v *View) poolExhausted(pid int) bool { return v.poolless()[pid] }

// findPoolless finds the processes with an exhausted pool of connections.
func (v *View) findPoolless() map[int]bool {
	out := map[int]bool{}
	for _, f := range checkConnectionPool(v).Findings {
		out[f.Subject.PID] = true
	}
	return out
}
