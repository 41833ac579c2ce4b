package cause

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// product is a database's name as people write it.
func product(d *observe.Database) string {
	switch d.Kind {
	case "mariadb":
		return "MariaDB"
	case "mysql":
		return "MySQL"
	case "postgresql":
		return "PostgreSQL"
	case "redis":
		return "Redis"
	case "valkey":
		return "Valkey"
	}
	return d.Kind
}

// databaseText names one with its process.
func databaseText(d *observe.Database) string { return fmt.Sprintf("%s (pid %d)", product(d), d.PID) }

// isDatabase says whether a process is a server of one of these kinds.
func (v *View) isDatabase(pid int, kinds ...string) bool {
	return slices.ContainsFunc(v.databases[pid], func(d *observe.Database) bool { return slices.Contains(kinds, d.Kind) })
}

// databasesOf lists the servers of these kinds that a service in view is
// served by.
func (v *View) databasesOf(kinds ...string) []*observe.Database {
	var out []*observe.Database
	for i := range v.Databases {
		d := &v.Databases[i]
		if slices.Contains(kinds, d.Kind) && (v.ServiceOf(d.PID) != nil || len(v.endpointsOf(d)) > 0) {
			out = append(out, d)
		}
	}
	return out
}

// endpointsOf lists the endpoints that a database answers.
func (v *View) endpointsOf(d *observe.Database) []*ledger {
	var out []*ledger
	for _, l := range v.answeredBy(d.PID) {
		if l.NetNS == d.NetNS && slices.Contains(d.Ports, l.Port) {
			out = append(out, l)
		}
	}
	return out
}

// databaseUse is an endpoint of a database with the end by which its slowness
// is judged.
type databaseUse struct {
	d      *observe.Database
	served *ledger
	// judged is the calls of a service on this host where services call it
	// here: what a report waits for meanwhile concerns nobody. Else it is served.
	judged *ledger
	// callers are the masters of the services that call it here.
	callers []int
}

// databaseUses lists the endpoints of databases of these kinds. Of the services
// that call one here, the one that spends most time on it judges.
func (v *View) databaseUses(kinds ...string) []databaseUse {
	var out []databaseUse
	for _, d := range v.databasesOf(kinds...) {
		for _, l := range v.endpointsOf(d) {
			u := databaseUse{d: d, served: l, judged: l}
			for _, c := range l.callers {
				if c.client || v.slowestService(c.pid) == nil {
					continue
				}
				if u.judged == l || c.reach*c.TimeNS() > u.judged.reach*u.judged.TimeNS() {
					u.judged = c
				}
				u.callers = append(u.callers, c.pid)
			}
			out = append(out, u)
		}
	}
	return out
}

// weight is the share of the requests that people wait for which a part of a
// database's time spoils.
func (v *View) weight(u *databaseUse, k cost) float64 {
	w := max(k.share, k.slowShare) * u.judged.reach
	if u.judged != u.served {
		if s := v.slowestService(u.judged.pid); s != nil {
			w *= s.Share(observe.Server) + s.Share(observe.Stall)
		}
	}
	return w
}

// waitParts are what a request of a database waits for, but the network.
var waitParts = []observe.Part{observe.AcceptWait, observe.RecvWait, observe.Server, observe.Stall}

// slowness judges a database by the time its requests, or the calls of a
// service, wait for it.
func (v *View) slowness(u *databaseUse) (k cost, slow bool, text string) {
	l := u.judged
	k = l.cost(1, waitParts...)
	if l.Requests < fewRequests {
		return k, false, "only " + l.all()
	}
	text = fmt.Sprintf("%s take %s (p99 %s)", l.all(), nanoseconds(float64(l.Total.Quantile(0.5))), nanoseconds(float64(l.Total.Quantile(0.99))))
	if u.judged != u.served {
		text += fmt.Sprintf(", %s of the time in which %s answers requests", percent(l.reach), v.commOf(l))
	}
	return k, l.noticed(k, threadFloor) && l.reach >= fewReach, text
}

// databaseFinding begins a finding about an endpoint of a database.
func (v *View) databaseFinding(u *databaseUse, k cost, what string) Finding {
	f := *v.found(u.judged, k, threadFloor, what)
	l := u.served
	f.Subject = Subject{Kind: "listener", NetNS: l.NetNS, PID: u.d.PID, Comm: v.Comm(u.d.PID), Port: l.Port, Addr: l.Addr}
	f.Weight = v.weight(u, k)
	here := v.at(l)
	f.MayFollow = func(p *Finding) bool { return here(p) || p.Subject.NetNS == u.judged.NetNS && p.Subject.Port == l.Port }
	return f
}

// busyElsewhere says that the CPUs are full and the database has little of
// them: then it is late as everything is.
func (v *View) busyElsewhere(l *ledger) bool {
	w := v.atWork(l)
	_, full := v.spareCPUs(l, &w) // what gives way by itself is in nobody's way
	return full && w.cpu < dominantShare*v.Use.CPU.Total()
}

// connectionsText tells what a database holds, against its limit.
func connectionsText(d *observe.Database) string {
	return fmt.Sprintf("%s held at most %s", databaseText(d), ofLimit(d.ConnectionsPeak, d.MaxConnections.Value, "connections"))
}

// connectionLimit is a database's limit of connections, 0 where it is not known.
func connectionLimit(d *observe.Database) int {
	n, err := strconv.Atoi(strings.TrimSpace(d.MaxConnections.Value))
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// databaseAt is the database on this host that an endpoint is, or that its
// calls reach; nil when there is none.
func (v *View) databaseAt(l *ledger) *observe.Database {
	if l.called() {
		if l = l.here; l == nil {
			return nil
		}
	}
	return v.databaseEnds()[l]
}

// findDatabaseEnds finds the database behind each endpoint that one answers.
func (v *View) findDatabaseEnds() map[*ledger]*observe.Database {
	out := map[*ledger]*observe.Database{}
	for i := range v.Databases {
		for _, l := range v.endpointsOf(&v.Databases[i]) {
			if out[l] == nil {
				out[l] = &v.Databases[i]
			}
		}
	}
	return out
}

// slowLogEvidence is what a database's own slow log says of the time that its
// requests take: slow SQL, or a slow network.
func (v *View) slowLogEvidence(l *ledger) []Evidence {
	d := v.databaseAt(l)
	if d == nil || d.Slow == nil || d.Slow.Off != "" || d.Slow.ThresholdNS < 0 {
		return nil
	}
	s := d.Slow
	e := Evidence{Fact: "what the slow log of " + product(d) + " says", Source: d.Root + s.Source}
	var request, server float64
	for i := range s.Statements {
		request += float64(s.Statements[i].RequestNS)
		server += float64(s.Statements[i].ServerNS)
	}
	switch {
	case s.Entries == 0:
		e.Value = "nothing: no statement took longer than " + nanoseconds(float64(s.ThresholdNS)) + " in the server"
	case s.Joined == 0:
		e.Value = slowLogText(d)
	default:
		n := float64(s.Joined)
		e.Value = fmt.Sprintf("%s; of the %s that such a request took, the statement itself took %s", slowLogText(d), nanoseconds(request/n), nanoseconds(server/n))
	}
	return []Evidence{e}
}
