package cause

import (
	"fmt"
	"slices"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// inBursts is the source of what is taken while any request is under way.
const inBursts = recorded + ", while any request was under way"

// poolUse is how much of a pool is taken, and what waits for it.
type poolUse struct {
	app      *observe.AppServer
	pool     *observe.WorkerPool
	services []*Service
	ledgers  []*ledger
	main     *ledger // with most requests, nil where none is recorded

	working float64 // requests in hand at once, mean; 0 when not recorded
	bursts  float64 // the same while there are any
	held    float64 // connections taken up, mean
	taken   float64 // of the limit
	source  string
	queue   float64 // connections waiting in the accept queues, mean
	wait    cost    // of main
	because string  // why the pool is not exhausted; empty when it is
}

// poolsOf lists the pools of one kind of server that answer services in view.
func (v *View) poolsOf(kind observe.Kind) []*poolUse {
	return v.pools.of(kind, func() []*poolUse { return v.findPools(kind) })
}

func (v *View) findPools(kind observe.Kind) []*poolUse {
	var out []*poolUse
	for i := range v.AppServers {
		a := &v.AppServers[i]
		if a.Kind != kind {
			continue
		}
		for j := range a.Pools {
			u := &poolUse{app: a, pool: &a.Pools[j]}
			for _, s := range v.servicesOfApp(a) {
				if poolListens(&a.Pools[j], s, len(a.Pools) == 1) {
					u.services = append(u.services, s)
				}
			}
			if len(u.services) > 0 {
				v.measure(u)
				out = append(out, u)
			}
		}
	}
	return out
}

// servicesOfApp lists the services that the processes of an application server
// answer, in their order.
func (v *View) servicesOfApp(a *observe.AppServer) []*Service {
	var out []*Service
	for _, pid := range append([]int{a.PID}, a.Workers...) {
		out = append(out, v.servicesOf[pid]...)
	}
	slices.SortFunc(out, func(a, b *Service) int { return a.order - b.order })
	return slices.Compact(out)
}

// poolListens says whether a pool answers at a service. The only pool of a
// server answers wherever it listens.
func poolListens(p *observe.WorkerPool, s *Service, only bool) bool {
	return only || slices.ContainsFunc(p.Listens, func(l observe.AppListen) bool {
		return l.Port != 0 && l.Port == s.Port() || l.Path != "" && l.Path == s.Path()
	})
}

// measure adds up what the requests and the sockets of a pool's services tell.
func (v *View) measure(u *poolUse) {
	for _, s := range u.services {
		for _, l := range s.Listeners {
			u.queue += l.QueueMean
			u.held += max(0, float64(l.Clients)-l.QueueMean)
		}
		for _, l := range v.ledgersAt(s.NS.Inode, s.Port()) {
			if l.called() || l.Requests == 0 {
				continue
			}
			u.ledgers = append(u.ledgers, l)
			u.working += v.workingAt(l)
			u.bursts += v.workedOn(l, v.busySeconds(l))
			if u.main == nil || l.Requests > u.main.Requests {
				u.main = l
			}
		}
	}
	if u.main != nil {
		u.wait = u.main.cost(1, observe.AcceptWait, observe.RecvWait)
	}
	v.judgePool(u)
}

// workingAt is how many requests of an endpoint are worked on at once, on
// average while they come in.
func (v *View) workingAt(l *ledger) float64 { return v.workedOn(l, v.loadedSeconds(l)) }

// workedOn is how many requests of an endpoint are worked on at once, on average over
// so many seconds.
func (v *View) workedOn(l *ledger, seconds float64) float64 {
	if seconds == 0 {
		return 0
	}
	return (l.SumNS(observe.Server) + l.SumNS(observe.Stall) + l.SumNS(observe.SendWait)) / 1e9 / seconds
}

// judgePool says how much of a pool is taken, by the best witness there is, and
// why it is not exhausted, if it is not.
func (v *View) judgePool(u *poolUse) {
	p, limit := u.pool, float64(u.pool.Limit)
	name := fmt.Sprintf("%s of %s (pid %d)", p.Name, u.app.Kind, u.app.PID)
	if p.Limit <= 0 {
		u.because = fmt.Sprintf("%s: takes up requests without a limit, or it is not known", name)
		return
	}
	type witness struct {
		taken  float64
		enough float64
		source string
	}
	witnesses := []witness{{u.working, takenShare * limit, recorded}, {u.bursts, takenShare * limit, inBursts}}
	if p.Rounds >= fewReadings {
		// A worker that polls is taken for free: only what is busy counts.
		taken := p.BusyMean
		if ratio(p.AllBusyRounds, p.Rounds) < allBusyShare {
			taken = min(taken, takenShare*limit-0.001)
		}
		witnesses = append(witnesses, witness{taken, takenShare * limit, "system call of each worker"})
	}
	if p.PerConn && len(u.services) > 0 {
		witnesses = append(witnesses, witness{u.held, 0.9 * limit, "sock_diag, connections beyond the accept queue"})
	}
	if s := p.Status; s != nil && s.Samples > 0 {
		witnesses = append(witnesses, witness{float64(s.CurrentPeak), 0.95 * limit, "HAProxy's statistics, scur"})
	}
	full := false
	for _, w := range witnesses {
		if !full && w.taken > u.taken {
			u.taken, u.source = w.taken, w.source
		}
		if w.taken >= w.enough && w.taken <= takenMost*limit+1 && !full {
			u.taken, u.source, full = w.taken, w.source, true
		}
	}
	noticed := u.main != nil && u.main.noticed(u.wait, threadFloor)
	computing, known := 0.0, false
	if u.main != nil {
		computing, known = v.computing(u.main)
	}
	idle := ratio(v.Use.CPU.Idle+v.Use.CPU.IOWait, v.Use.CPU.Total())
	if u.main != nil {
		idle, _ = v.cpuFull(u.main)
	}
	switch {
	case !full:
		u.because = fmt.Sprintf("%s: %.1f of %d taken on average", name, u.taken, p.Limit)
	case u.queue < queueLeast && !noticed:
		u.because = fmt.Sprintf("%s: all %d taken, but no request waited for one", name, p.Limit)
	case idle < idleCPUShare && known && 1-computing < blockedShare:
		u.because = fmt.Sprintf("%s: all %d taken, but the CPUs are full (%s idle) and what is taken computes: more would not answer more", name, p.Limit, percent(idle))
	}
}

// exhaustedWorkers returns the pool of an application server behind s when it
// has nothing free, and the cause by which that is reported.
func (v *View) exhaustedWorkers(s *Service) ID { return v.workerless()[s] }

func (v *View) findWorkerless() map[*Service]ID {
	out := map[*Service]ID{}
	for _, pool := range workerPools {
		for _, u := range v.poolsOf(pool.kind) {
			for _, s := range u.services {
				if u.because == "" && out[s] == "" {
					out[s] = pool.id
				}
			}
		}
	}
	return out
}

// checkPools judges all pools of one kind of server.
func checkPools(v *View, w *workerPool) Result {
	r := ruledOut("no " + w.name + " with traffic")
	near := -1.0
	for _, u := range v.poolsOf(w.kind) {
		if u.because != "" {
			if use := u.taken / float64(max(u.pool.Limit, 1)); use > near {
				r.RuledOut, near = u.because, use
			}
			continue
		}
		r.Findings = append(r.Findings, v.poolFinding(w, u))
	}
	return r
}

func (v *View) poolFinding(w *workerPool, u *poolUse) Finding {
	p, s := u.pool, u.services[0]
	if u.main != nil {
		if at := v.ServiceAt(u.main.NetNS, u.main.Port, ""); at != nil {
			s = at
		}
	}
	setting := fromHost(u.app.Root, p.Setting)
	f := supported(Subject{Kind: "pool", NetNS: s.NS.Inode, PID: u.app.PID, Comm: v.Comm(u.app.PID), Port: s.Port(), Path: s.Path()})
	if setting.File != "" && setting.Line > 0 {
		f.Subject.Path = fmt.Sprintf("%s:%d", setting.File, setting.Line)
	}
	pids := append([]int{u.app.PID, v.Master(u.app.PID)}, u.app.Workers...)
	about, master := aboutAny(pids), v.Master(u.app.PID)
	busy := u.taken
	if u.source == inBursts {
		busy = u.working // as what holds workers up is reported: on average
	}
	f.MayFollow = func(*Finding) bool { return false } // what is taken waits for its clients
	if !idleHolders(u) {
		f.MayFollow = mayFollow(v.lateBy(u.main), holdsUp(slices.Concat(pids, s.PIDs)), func(p *Finding) bool { return about(p) || v.takes(p, master, busy) })
	}
	// By Little's law the time a request waits is to the time it is served as
	// what waits is to what is served.
	f.Weight = u.queue / max(u.queue+u.taken, 1)
	what := fmt.Sprintf("%.0f connections wait while %.0f of %d %s are taken", u.queue, u.taken, p.Limit, w.unit(p))
	if u.main != nil {
		if share := u.wait.share * u.main.reach; share > f.Weight {
			f.Weight = share
			what = fmt.Sprintf("%s waits %s of its %s for one of %d %s", u.main.one(), nanoseconds(u.wait.ns), nanoseconds(u.main.TimeNS()/float64(u.main.Requests)), p.Limit, w.unit(p))
		}
	}
	f.Impact = Impact{Share: round(f.Weight), Of: "the requests' time", OfTime: true, Text: what}
	f.Evidence = v.poolEvidence(w, u, setting)
	if lost := u.queue * v.Window.Seconds; u.main != nil && lost > f.Weight*u.main.TimeNS()/1e9 {
		f.lost = &lost // by connections that were not taken up in this window, too
	}
	waiting := u.queue
	if u.main != nil {
		waiting = max(waiting, v.inFlight(u.main)-busy)
	}
	want, _ := v.proposedWorkers(u, v.workerRSS(u.app)/uint64(max(p.Threads, 1)))
	f.crew = &crew{pid: master, unit: fmt.Sprintf("%s of %s", w.unit(p), w.name), busy: busy, waiting: waiting, want: want}
	w.fix(v, u, setting, &f)
	if len(f.Fix.Commands) == 0 {
		f.Fix.Commands = []shell.Command{lookAtWaits(u.app.PID)}
	}
	return f
}

// lateBy says of causes of the machine whether they may be why a service's
// requests take as long as they do.
func (v *View) lateBy(l *ledger) func(*Finding) bool {
	return func(p *Finding) bool {
		if l == nil || !p.is(ClassCPU) {
			return true
		}
		if computing, known := v.computing(l); known {
			return computing >= computeShare
		}
		// All that its threads ran, or wanted to, is the most that it can be.
		w := v.atWork(l)
		return (w.cpu+w.delay)*1e9 >= computeShare*l.SumNS(observe.Server)
	}
}

func (v *View) poolEvidence(w *workerPool, u *poolUse, setting observe.Setting) []Evidence {
	p := u.pool
	e := []Evidence{{Fact: w.unit(p) + " taken, mean", Value: round(u.taken), Limit: p.Limit, Unit: w.unit(p), Source: u.source + "; limit: " + limitSource(p, setting)}}
	if p.Rounds > 0 {
		e = append(e, Evidence{Fact: "readings with every worker busy", Value: p.AllBusyRounds, Limit: p.Rounds, Unit: "readings", Source: "system call of each worker"})
	}
	e = append(e, Evidence{Fact: "connections waiting in the accept queue, mean", Value: round(u.queue), Unit: "connections", Source: "sock_diag, Recv-Q"})
	if l := u.main; l != nil {
		e = append(e,
			Evidence{Fact: "request latency, p50 and p99", Value: nanoseconds(float64(l.Total.Quantile(0.5))) + ", " + nanoseconds(float64(l.Total.Quantile(0.99))), Source: recorded},
			Evidence{Fact: "of it waiting to be taken up, mean", Value: round(u.wait.ns / 1e6), Unit: "ms", Source: recorded},
			Evidence{Fact: "of it worked on, mean", Value: round((l.MeanNS(observe.Server) + l.MeanNS(observe.Stall) + l.MeanNS(observe.SendWait)) / 1e6), Unit: "ms", Source: recorded})
		if computing, ok := v.computing(l); ok {
			e = append(e, Evidence{Fact: "of the slow requests' working time, computing", Value: round(computing), Unit: "share", Source: recorded})
		}
	}
	if p.PerConn {
		e = append(e, Evidence{Fact: "open connections without those in the queue", Value: round(u.held), Unit: "connections", Source: "sock_diag"})
	}
	if n, example := logCount(u.app.Log, w.logs...); n > 0 {
		e = append(e, Evidence{Fact: "log lines that say so", Value: n, Unit: "lines", Source: string(u.app.Kind) + " log"}, firstLine(example))
	}
	return e
}

// limitSource is where a limit was set.
func limitSource(p *observe.WorkerPool, s observe.Setting) string {
	text := p.Knob + " " + s.Value
	if p.Threads > 1 {
		text += fmt.Sprintf(", %d threads each", p.Threads)
	}
	switch {
	case s.File != "" && s.Line > 0:
		return fmt.Sprintf("%s in %s:%d", text, s.File, s.Line)
	case s.File != "":
		return text + ", " + s.File
	case s.Default:
		return text + ", the program's default"
	}
	return text
}

// proposedWorkers is enough for what waits, twice as many at least, and no more
// than a quarter of the free memory holds.
func (v *View) proposedWorkers(u *poolUse, each uint64) (want int, memory string) {
	limit := u.pool.Limit
	waiting := u.queue
	if u.main != nil {
		waiting = max(waiting, u.main.TimeNS()/1e9/max(v.busySeconds(u.main), arrivalSlot/10)-u.taken)
	}
	want = max(2*limit, min(limit+int(waiting), 4*limit+64))
	if each == 0 {
		return want, ""
	}
	if fit := limit + int(v.Use.Memory.AvailableBytes/4/each); fit < want {
		want = max(fit, limit+1)
	}
	return want, fmt.Sprintf(" (%d MB each; %d MB of memory are free)", max(each>>20, 1), v.Use.Memory.AvailableBytes>>20)
}

// workerRSS is the memory of the largest worker process.
func (v *View) workerRSS(a *observe.AppServer) uint64 {
	var most uint64
	for _, pid := range a.Workers {
		if p := v.Process(pid); p != nil {
			most = max(most, p.RSSBytes)
		}
	}
	return most
}
