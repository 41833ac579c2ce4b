package cause

import (
	"fmt"
	"slices"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// ConnectionPoolExhausted: a service keeps a fixed number of connections to what
// it calls. With a call under way on each, further requests wait inside the
// service for one to come free: few and quick calls, and slow requests.
const ConnectionPoolExhausted ID = "connection-pool-exhausted"

var connectionPoolExhausted = Cause{
	ID:            ConnectionPoolExhausted,
	Title:         "Connection pool exhausted",
	Layer:         LayerCall,
	Class:         ClassPool,
	Needs:         []observe.Kind{observe.KindRequests, observe.KindSockets},
	ConsequenceOf: []Parent{SlowDependency, ClassMachine, ClassWait, ClassDatabase},
	Folds:         true,
	Check:         checkConnectionPool,
}

func checkConnectionPool(v *View) Result {
	return v.judgeLedgers(fewRequests, func(l *ledger) judged {
		service := v.slowestService(l.pid)
		if !l.called() || l.client || service == nil || v.isProxy(l.pid) {
			return judged{because: "the services call nothing over TCP connections that they keep", near: -1}
		}
		size := v.connectionsTo(l)
		busy, inside := v.inFlight(l), v.workingAt(service)
		because := fmt.Sprintf("%s has %.1f calls to %s under way at a time, on %s connections, and %.1f requests in hand", v.commOf(l), busy, destinationName(l), count(size), inside)
		if size == 0 {
			because = fmt.Sprintf("%s has %.1f calls to %s under way at a time, and %.1f requests in hand; how many connections it keeps was not seen", v.commOf(l), busy, destinationName(l), inside)
		}
		waiting := inside - busy
		near := ratio(busy, float64(size)) * ratio(waiting, max(inside, 1))
		wait := ratio(waiting, max(inside, 0.001)) * service.MeanNS(observe.Server)
		computing, known := v.computing(service)
		_, full := v.cpuFull(service)
		switch {
		case size == 0 || size > poolMost || busy < takenShare*float64(size) || busy > takenMost*float64(size):
			return judged{because: because, near: near}
		case waiting < 1 || waiting < poolWaiting*inside || wait < threadFloor.mean:
			return judged{because: because, near: near}
		case l.Connections > uint64(size)+l.Requests/10:
			return judged{because: because + "; it opens new ones as it needs them", near: near}
		case ratio(l.Overlapped, l.Requests) > poolOverlap:
			return judged{because: because + "; several calls share one", near: near}
		case known && computing > computeShare, !known && full:
			return judged{because: because + "; meanwhile it computes", near: near}
		}
		f := v.found(l, cost{share: 1, slowShare: 1, ns: wait, slowNS: wait}, threadFloor, "for a connection")
		share := ratio(waiting, inside) * service.Share(observe.Server)
		f.Weight = share
		f.Impact = Impact{Share: round(share), Of: "the requests' time", OfTime: true,
			Text: fmt.Sprintf("%.0f requests of %s wait while calls to %s are under way on all of its %s connections; %s waits about %s", waiting, f.Subject.Comm, destinationName(l), count(size), service.one(), nanoseconds(wait))}
		f.Evidence = []Evidence{
			{Fact: "calls under way at once, mean", Value: round(busy), Limit: size, Unit: "connections", Source: recorded + "; limit: sock_diag, established connections"},
			{Fact: "requests that the service has in hand, mean", Value: round(inside), Unit: "requests", Source: recorded},
			{Fact: "call latency, p50 and p99", Value: nanoseconds(float64(l.Total.Quantile(0.5))) + ", " + nanoseconds(float64(l.Total.Quantile(0.99))), Source: recorded},
			{Fact: "request latency, p50 and p99", Value: nanoseconds(float64(service.Total.Quantile(0.5))) + ", " + nanoseconds(float64(service.Total.Quantile(0.99))), Source: recorded},
			{Fact: "connections opened in the window", Value: l.Connections, Unit: "connections", Source: recorded},
		}
		for i := range v.AppServers {
			if n, example := logCount(v.AppServers[i].Log, "db-pool-empty"); n > 0 && v.AppServers[i].PID == l.pid {
				f.Evidence = append(f.Evidence, Evidence{Fact: "log: no connection of the pool within its timeout", Value: n, Unit: "lines", Source: "its log"}, firstLine(example))
			}
		}
		f.Fix.Text = fmt.Sprintf("Raise the size of the pool of connections that %s keeps to %s from %s towards %d, as far as what is called can take them (its own limit on connections, its CPUs).",
			f.Subject.Comm, destinationName(l), count(size), size+int(waiting)+1)
		f.Fix.Commands = []shell.Command{shell.Line("# in the configuration of %s: size of the pool to %s, %s", f.Subject.Comm, destinationName(l), size+int(waiting)+1)}
		v.bouncerFix(f, l, size, int(waiting))
		f.MayFollow = mayFollow(v.lateBy(service), v.heldUpBy(l), func(p *Finding) bool {
			if p.is(ClassDatabase) {
				return v.at(l)(p)
			}
			return p.Subject.PID == l.pid && p.Subject.Port == l.Port && p.Subject.Addr == l.Addr
		})
		return judged{finding: f}
	})
}

// bouncerFix names, where the service that keeps the connections is a PgBouncer, the
// setting that says how many.
func (v *View) bouncerFix(f *Finding, l *ledger, size, waiting int) {
	i := slices.IndexFunc(v.AppServers, func(a observe.AppServer) bool { return a.Kind == observe.KindPgBouncer && v.Master(a.PID) == l.pid })
	if i < 0 || len(v.AppServers[i].Pools) == 0 {
		return
	}
	a := &v.AppServers[i]
	// Each pair of a database and a user has a pool of its own.
	pool := &a.Pools[0]
	for j := range a.Pools {
		if a.Pools[j].Limit == size {
			pool = &a.Pools[j]
			break
		}
	}
	setting := fromHost(a.Root, pool.Setting)
	where := a.Root + a.Config
	if setting.File != "" {
		where = fmt.Sprintf("%s:%d", setting.File, setting.Line)
	}
	want := pool.Limit + waiting + 1
	knob := pool.Knob
	if pool.Name != "" {
		knob += " of " + pool.Name
	}
	f.Subject.Path = where
	f.Title = fmt.Sprintf("PgBouncer pool exhausted (%s %d)", knob, pool.Limit)
	f.Evidence = append(f.Evidence, Evidence{Fact: knob + " of PgBouncer", Value: pool.Limit, Unit: "connections for each database and user", Source: settingSource(setting)},
		Evidence{Fact: "pool_mode", Value: a.Model, Source: where})
	f.Fix.Text = fmt.Sprintf("Raise %s from %d towards %d, as far as max_connections of the database leaves room and its CPUs do.", knob, pool.Limit, want)
	if a.Model == "session" {
		f.Fix.Text += " With pool_mode session each client keeps its connection for as long as it is connected: transaction needs far fewer, where clients use nothing that lives in a session."
	}
	f.Fix.Commands = []shell.Command{shell.Line("# in %s: %s = %s", where, shell.Text(pool.Knob), want),
		v.signal(a, "reload", shell.Line("kill -HUP %s   # PgBouncer reads its configuration again", a.PID))}
}

// isProxy says whether a process is one whose own queue is judged by itself.
func (v *View) isProxy(pid int) bool {
	return v.proxies[pid]
}

// connectionsTo is how many connections the processes of a caller hold to where
// the calls of l go.
func (v *View) connectionsTo(l *ledger) int {
	if l.ns == nil {
		return 0
	}
	n := 0
	for _, g := range v.calledSockets(l.ns, l.Addr, l.Port) {
		if slices.ContainsFunc(g.PIDs, func(pid int) bool { return v.Master(pid) == l.pid }) {
			n += g.States["ESTABLISHED"]
		}
	}
	return n
}
