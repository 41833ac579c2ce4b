package cause

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

const (
	MariaDBSlowQuery  ID = "mariadb-slow-query"
	PostgresSlowQuery ID = "postgres-slow-query"
	RedisSlowCommand  ID = "redis-slow-command"
)

// Statements that take long in the server itself: an entry of its slow log says
// how long, and the ledger of the request that brought it says where. Both are
// needed: what an entry calls slow may have passed on the wire, and what nobody
// waits for is no trouble.
var (
	mariadbSlowQuery = Cause{
		ID:            MariaDBSlowQuery,
		Title:         "Slow queries in the database",
		Layer:         LayerApplication,
		Class:         ClassDatabase | ClassScan,
		Needs:         []observe.Kind{observe.KindDatabases, observe.KindRequests},
		ConsequenceOf: []Parent{MariaDBLockWait, FsyncBound, DiskSaturated, MemoryPressure, CPUQuotaThrottled, CPUSaturated},
		Folds:         true,
		Check:         func(v *View) Result { return v.checkSlowQuery("mariadb", "mysql") },
	}
	postgresSlowQuery = Cause{
		ID:            PostgresSlowQuery,
		Title:         "Slow queries in the database",
		Layer:         LayerApplication,
		Class:         ClassDatabase | ClassScan,
		Needs:         []observe.Kind{observe.KindDatabases, observe.KindRequests},
		ConsequenceOf: []Parent{PostgresLockWait, FsyncBound, DiskSaturated, MemoryPressure, CPUQuotaThrottled, CPUSaturated},
		Folds:         true,
		Check:         func(v *View) Result { return v.checkSlowQuery("postgresql") },
	}
	redisSlowCommand = Cause{
		ID:            RedisSlowCommand,
		Title:         "Redis is blocked by one slow command",
		Layer:         LayerApplication,
		Class:         ClassDatabase | ClassScan,
		Needs:         []observe.Kind{observe.KindDatabases, observe.KindRequests},
		ConsequenceOf: []Parent{CPUQuotaThrottled, CPUSaturated, MemoryPressure},
		Folds:         true,
		Check:         checkRedisSlowCommand,
	}
)

// slowSums is the entries of a slow log that concern the callers of a use.
type slowSums struct {
	joined, onWire               int64
	requestNS, serverNS, totalNS float64
	top                          *observe.SlowStatement // most server time
	topNS                        float64
}

// slowSums adds up the statements that the services which call a database had
// answered, or all where no service of this host calls it.
func (v *View) slowSums(u *databaseUse) (s slowSums) {
	for i := range u.d.Slow.Statements {
		st := &u.d.Slow.Statements[i]
		joined, request, server := st.Joined, float64(st.RequestNS), float64(st.ServerNS)
		if len(u.callers) > 0 {
			joined, request, server = 0, 0, 0
			for _, c := range st.Callers {
				if slices.Contains(u.callers, v.Master(c.PID)) {
					joined += c.Joined
					request += float64(c.RequestNS)
					server += float64(c.ServerNS)
				}
			}
		}
		s.joined += joined
		s.requestNS += request
		s.serverNS += server
		s.totalNS += float64(st.NS)
		s.onWire += int64(float64(st.OnWire) * ratio(joined, st.Joined))
		if server > s.topNS {
			s.top, s.topNS = st, server
		}
	}
	return s
}

// slowLogText tells what a slow log had.
func slowLogText(d *observe.Database) string {
	if d.Slow == nil || d.Slow.Off != "" && d.Slow.Entries == 0 {
		return "no slow log"
	}
	text := fmt.Sprintf("%s entries in the slow log", count(d.Slow.Entries))
	if d.Slow.Entries > 0 {
		text += fmt.Sprintf(", %s of them joined with a request", count(d.Slow.Joined))
	}
	return text
}

func (v *View) checkSlowQuery(kinds ...string) Result {
	r := ruledOut("no such server has requests")
	nearest, unknown := -1.0, ""
	for _, u := range v.databaseUses(kinds...) {
		k, slow, text := v.slowness(&u)
		because := text
		switch {
		case !slow:
			because += "; " + slowLogText(u.d)
		case u.d.Slow == nil || u.d.Slow.Off != "" && u.d.Slow.Entries == 0:
			off := "it has none"
			if u.d.Slow != nil {
				off = u.d.Slow.Off
			}
			f, why := v.slowByCPU(&u, k, off)
			if f != nil {
				r.Findings = append(r.Findings, *f)
				continue
			}
			unknown = fmt.Sprintf("%s, but which statements is not known: there is no slow log to read (%s)%s", text, off, why)
			continue
		default:
			f, why := v.slowQuery(&u, k)
			if f != nil {
				r.Findings = append(r.Findings, *f)
				continue
			}
			because += "; " + why
		}
		if near := k.slowNS; near > nearest {
			r.RuledOut, nearest = because, near
		}
	}
	if len(r.Findings) == 0 && unknown != "" {
		return Result{NotChecked: unknown}
	}
	return r
}

// slowQuery is the finding about the statements of a database that is slow, or
// why they are not to blame.
func (v *View) slowQuery(u *databaseUse, k cost) (*Finding, string) {
	s := v.slowSums(u)
	l := u.served
	if s.joined < fewAffected {
		return nil, slowLogText(u.d) + ", too few of them of what is slow"
	}
	each := func(ns float64) string { return nanoseconds(ns / float64(s.joined)) }
	if 2*s.onWire > s.joined || s.serverNS < dominantShare*s.requestNS {
		return nil, fmt.Sprintf("an entry of the slow log took %s, of which the statement itself took %s: the others passed on the network, or waiting to be read",
			each(s.requestNS), each(s.serverNS))
	}
	// What the callers waited for in the server, in general or at worst.
	e := u.judged
	inServer := e.SumNS(observe.Server) + e.SumNS(observe.Stall)
	atWorst := (e.SlowNS(observe.Server) + e.SlowNS(observe.Stall)) * float64(e.SlowCount)
	explained := ratio(s.serverNS, inServer)
	if explained < dominantShare && !(e.atTimes(k, threadFloor) && s.serverNS >= dominantShare*atWorst) {
		return nil, fmt.Sprintf("the statements of the slow log are %s of the time in the server", percent(explained))
	}
	if locked := ratio(s.top.LockNS, s.top.NS); locked >= lockedShare {
		return nil, fmt.Sprintf("the statements of the slow log waited for locks %s of their time", percent(locked))
	}
	if waits := v.lockedShare(u); waits >= lockedShare {
		return nil, fmt.Sprintf("they waited for locks %s of their time", percent(waits))
	}
	if v.busyElsewhere(l) {
		return nil, "the CPUs are full, and others have them"
	}
	f := v.databaseFinding(u, k, "for the database")
	top := s.top
	scan := top.Sent >= 0 && top.Examined >= scanRows*max(top.Sent, top.Count)
	f.Title = fmt.Sprintf("%s takes %s for a statement", product(u.d), nanoseconds(float64(top.NS)/float64(top.Count)))
	if scan {
		f.Title = fmt.Sprintf("%s examines %s rows per statement without an index", product(u.d), count(top.Examined/max(top.Count, 1)))
	}
	f.Evidence = append(f.Evidence, v.statementEvidence(u, &s)...)
	setting := fromHost(u.d.Root, u.d.Slow.Threshold)
	f.Evidence = append(f.Evidence, Evidence{Fact: "entries of the slow log", Value: u.d.Slow.Entries, Unit: fmt.Sprintf("statements, %s joined with their request", count(u.d.Slow.Joined)),
		Source: u.d.Root + u.d.Slow.Source + ", threshold: " + setting.Value + " " + settingSource(setting)})
	if u.d.Kind == "postgresql" {
		f.Fix = Fix{Text: "Give the statement an index, or have it ask for less: " + statement(top),
			Commands: []shell.Command{v.psql(u.d, shell.Line(`-d DATABASE -c "EXPLAIN (ANALYZE, BUFFERS) …"   # the statement, with values`))}}
	} else {
		f.Fix = Fix{Text: "Give the statement an index, or have it ask for less: " + statement(top),
			Commands: []shell.Command{v.sql(u.d, shell.Line(`DATABASE -e "EXPLAIN …"   # the statement, with values`))}}
	}
	return &f, ""
}

// statementEvidence tells the statement with most time, and where it passed.
func (v *View) statementEvidence(u *databaseUse, s *slowSums) []Evidence {
	top := s.top
	out := []Evidence{
		{Fact: "statement", Value: statement(top), Source: u.d.Slow.Source},
		{Fact: "it took, by the server's own clock, mean and longest", Value: nanoseconds(float64(top.NS)/float64(top.Count)) + ", " + nanoseconds(float64(top.LongestNS)) + fmt.Sprintf("; %s times", count(top.Count)),
			Source: u.d.Slow.Source},
	}
	if n := float64(top.Joined); n > 0 {
		out = append(out, Evidence{Fact: "its requests: in all, in the server, on the network, waiting to be read",
			Value: fmt.Sprintf("%s, %s, %s, %s", nanoseconds(float64(top.RequestNS)/n), nanoseconds(float64(top.ServerNS)/n), nanoseconds(float64(top.NetworkNS)/n), nanoseconds(float64(top.QueueNS)/n)),
			Unit:  "mean", Source: recorded})
	}
	if top.Examined > 0 {
		out = append(out, Evidence{Fact: "rows looked at, and given", Value: fmt.Sprintf("%s, %s", count(top.Examined), count(top.Sent)), Unit: "rows", Source: u.d.Slow.Source})
	}
	for _, c := range top.Callers[:min(len(top.Callers), 1)] {
		master := v.Master(c.PID)
		out = append(out, Evidence{Fact: "asked by", Value: fmt.Sprintf("%s (pid %d)", v.Comm(master), master), Source: recorded})
	}
	return out
}

func checkRedisSlowCommand(v *View) Result {
	r := ruledOut("no Redis has requests")
	nearest, unknown := -1.0, ""
	for _, u := range v.databaseUses("redis", "valkey") {
		k, slow, text := v.slowness(&u)
		because := text
		s := u.d.Slow
		blocked := 0.0
		if s != nil {
			blocked = ratio(float64(s.NS)/1e9, v.Window.Seconds)
			because += fmt.Sprintf("; %s slow commands took %s of the window", count(s.Entries), percent(blocked))
		}
		switch {
		case !slow:
		case s == nil || s.Off != "" && s.Entries == 0:
			unknown = fmt.Sprintf("%s, but which commands is not known", text)
			if s != nil {
				unknown += ": " + s.Off
			}
			continue
		case v.busyElsewhere(u.served):
			because += "; the CPUs are full, and others have them"
		case blocked >= slowCommandShare && s.Entries > 0:
			r.Findings = append(r.Findings, v.slowCommandFinding(&u, k, blocked))
			continue
		}
		if blocked > nearest {
			r.RuledOut, nearest = because, blocked
		}
	}
	if len(r.Findings) == 0 && unknown != "" {
		return Result{NotChecked: unknown}
	}
	return r
}

func (v *View) slowCommandFinding(u *databaseUse, k cost, blocked float64) Finding {
	f := v.databaseFinding(u, k, "for Redis")
	top := &u.d.Slow.Statements[0]
	f.Title = fmt.Sprintf("%s is blocked by one slow command: %s", product(u.d), statement(top))
	f.Evidence = append(f.Evidence,
		Evidence{Fact: "command", Value: statement(top), Source: "SLOWLOG"},
		Evidence{Fact: "it took, mean and longest", Value: nanoseconds(float64(top.NS)/float64(top.Count)) + ", " + nanoseconds(float64(top.LongestNS)) + fmt.Sprintf("; %s times", count(top.Count)), Source: "SLOWLOG"},
		Evidence{Fact: "the window, in slow commands", Value: round(blocked), Unit: "share", Source: "SLOWLOG, over " + u.d.Slow.Threshold.Value + " µs"},
		Evidence{Fact: "of a request's time, waiting to be read and in Redis, mean", Value: nanoseconds(u.served.MeanNS(observe.RecvWait)) + ", " + nanoseconds(u.served.MeanNS(observe.Server)), Source: recorded})
	if u.d.Slow.Lost > 0 {
		f.Evidence = append(f.Evidence, Evidence{Fact: "slow commands that were overwritten in SLOWLOG", Value: u.d.Slow.Lost, Unit: "commands", Source: "SLOWLOG"})
	}
	who := "Find who sends " + statement(top) + ", and have it"
	for _, c := range top.Callers[:min(len(top.Callers), 1)] {
		master := v.Master(c.PID)
		f.Evidence = append(f.Evidence, Evidence{Fact: "asked by", Value: fmt.Sprintf("%s (pid %d)", v.Comm(master), master), Source: recorded})
		who = fmt.Sprintf("Have %s (pid %d), which sends %s,", v.Comm(master), master, statement(top))
	}
	f.Fix.Text = who + " ask for less at a time: SCAN for KEYS, parts of large collections, shorter scripts, UNLINK for DEL."
	f.Fix.Commands = []shell.Command{v.redisCLI(u.d, shell.Line("SLOWLOG GET 10"))}
	return f
}

// statement is the text of a statement or command; a redacted observation has none.
func statement(s *observe.SlowStatement) string {
	return cmp.Or(s.Statement, "(its text was not kept)")
}
