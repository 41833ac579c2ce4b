package cause

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// Where a server keeps no slow log, what it does for a statement is known by what it
// computes: functions that go from row to row of a table are its execution without an
// index (PostgreSQL: src/backend/executor/nodeSeqscan.c, access/heap/heapam.c; MariaDB:
// sql/records.cc, sql/handler.cc). Of MariaDB's often only the loop over all rows has a
// name (sub_select in sql/sql_select.cc), which for few rows takes no time.
var (
	scansOfPostgres = []string{"ExecSeqScan", "SeqNext", "heap_getnextslot", "heapgettup_pagemode", "heapgettup", "heap_getnext", "heap_prepare_pagescan"}
	scansOfMariaDB  = []string{"sub_select", "rr_sequential", "handler::ha_rnd_next", "ha_innobase::rnd_next", "ha_maria::rnd_next", "ha_innobase::general_fetch"}
)

// scanning is the share of what a database computes in which it goes from row to row.
func (e *executed) scanning(kind string) float64 {
	names := scansOfMariaDB
	if kind == "postgresql" {
		names = scansOfPostgres
	}
	var most uint64
	for i := range e.functions {
		name, _, _ := strings.Cut(e.functions[i].Name, "(")
		if name, _, _ = strings.Cut(name, ".constprop"); slices.Contains(names, name) {
			most = max(most, e.functions[i].Total)
		}
	}
	return ratio(most, e.samples)
}

// ownWorkersCPU is the CPU time, in s, of the workers of a server that came and went
// within the window.
func (v *View) ownWorkersCPU(master int) (cpu float64) {
	if v.Profile == nil || v.Profile.Hz <= 0 {
		return 0
	}
	for i := range v.Profile.ShortLived {
		if s := &v.Profile.ShortLived[i]; v.Master(s.Parent) == master && v.ownWorker(s.Parent, s.ParentComm, s.Comm) {
			cpu += float64(s.Samples) / float64(v.Profile.Hz)
		}
	}
	return cpu
}

// slowByCPU is the finding about a database that computes for long for each statement,
// without a log that names them; nil and why where it waits for something else.
func (v *View) slowByCPU(u *databaseUse, k cost, off string) (*Finding, string) {
	l := u.served
	w := v.atWork(l)
	if len(w.procs) == 0 || l.Requests == 0 {
		return nil, ""
	}
	workers := v.ownWorkersCPU(l.pid)
	own := l.ownCPU(&w) + workers*1e9/float64(l.Requests)
	each := (l.SumNS(observe.Server) + l.SumNS(observe.Stall)) / float64(l.Requests)
	e := v.executedBy(w.procs, 0)
	switch {
	case own < dominantShare*each:
		return nil, fmt.Sprintf("; it computes %s for a request, which takes %s there", nanoseconds(own), nanoseconds(each))
	case 5*v.openedAt(u.d) > l.Requests:
		return nil, "; it makes a connection for each few statements, which costs CPU, too"
	case own < statementCPU:
		return nil, fmt.Sprintf("; it computes %s for a request", nanoseconds(own))
	case v.busyElsewhere(l):
		return nil, "; the CPUs are full, and others have them"
	case v.lockedShare(u) >= lockedShare:
		return nil, fmt.Sprintf("; its statements waited for locks %s of their time", percent(v.lockedShare(u)))
	}
	f := v.databaseFinding(u, k, "for the database")
	scan := e.scanning(u.d.Kind)
	f.Title = fmt.Sprintf("%s computes %s for a statement", product(u.d), nanoseconds(own))
	f.Fix.Text = "Find the statement, and have it do less: an index for its WHERE, JOIN and ORDER BY, fewer rows, fewer functions of the server."
	if answer := ratio(l.BytesOut, l.Requests); e.enough() && scan >= scanCPU && answer <= fewRows {
		f.Title = fmt.Sprintf("%s scans row by row without index, %s per statement", product(u.d), nanoseconds(own))
		f.Fix.Text = "Find the statement, and give the columns of its WHERE or JOIN an index: it reads whole tables."
		f.Evidence = append(f.Evidence, Evidence{Fact: "CPU time in functions that read tables from end to end", Value: round(scan), Limit: 1, Unit: fmt.Sprintf("share of %s CPU samples", count(e.samples)), Source: "CPU samples"},
			Evidence{Fact: "what it gives for that, mean", Value: round(answer), Unit: "bytes", Source: recorded})
	}
	f.Evidence = append(f.Evidence, Evidence{Fact: "CPU time for a statement, mean", Value: round(own / 1e6), Limit: round(each / 1e6), Unit: "ms that it takes there", Source: "/proc/PID/stat, " + recorded})
	if told := e.told(3); told != "" {
		f.Evidence = append(f.Evidence, Evidence{Fact: "functions that do most of it", Value: told, Source: "CPU samples"})
	}
	for _, pid := range u.callers[:min(len(u.callers), 1)] {
		f.Evidence = append(f.Evidence, Evidence{Fact: "asked by", Value: fmt.Sprintf("%s (pid %d)", v.Comm(pid), pid), Source: recorded})
	}
	if s := u.d.Sessions; s != nil && len(s.Statements) > 0 {
		top := &s.Statements[0]
		said := cmp.Or(top.Statement, "(its text was not kept)")
		f.Evidence = append(f.Evidence, Evidence{Fact: "statement that its backends were seen executing most", Value: said, Unit: fmt.Sprintf("%d times in %d looks", top.Rounds, s.Rounds), Source: "memory of the backends, debug_query_string"})
		f.Fix.Text += " It is most of all: " + said
	} else {
		f.Evidence = append(f.Evidence, Evidence{Fact: "which statement it is", Value: "not known: there is no slow log (" + off + ")", Source: u.d.Root + u.d.Config})
	}
	if u.d.Kind == "postgresql" {
		f.Fix.Commands = []shell.Command{
			v.psql(u.d, shell.Line(`-c "SELECT now() - query_start AS takes, datname, query FROM pg_stat_activity WHERE state = 'active' AND backend_type = 'client backend' ORDER BY 1 DESC LIMIT 5"   # which statement`)),
			v.psql(u.d, shell.Line(`-c "ALTER SYSTEM SET log_min_duration_statement = '100ms'" -c "SELECT pg_reload_conf()"   # from now on the log names it`)),
		}
	} else {
		f.Fix.Commands = []shell.Command{
			v.sql(u.d, shell.Line(`-e "SELECT time_ms, db, info FROM information_schema.processlist WHERE command = 'Query' ORDER BY 1 DESC LIMIT 5"   # which statement`)),
			v.sql(u.d, shell.Line(`-e "SET GLOBAL long_query_time = 0.1, slow_query_log = 1"   # from now on the slow log names it, of new connections`)),
		}
	}
	return &f, ""
}
