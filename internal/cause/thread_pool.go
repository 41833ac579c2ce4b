package cause

import (
	"fmt"
	"strings"

	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// ThreadPoolExhausted: a program of which no setting is known (an executor of Java, a
// pool of threads in Python or C++, workers that it forked) has so many threads for
// its requests, all of them always have one in hand, and more requests than that are
// under way: the others wait for a thread.
const ThreadPoolExhausted ID = "thread-pool-exhausted"

var threadPoolExhausted = Cause{
	ID:            ThreadPoolExhausted,
	Title:         "All threads of a pool are busy",
	Layer:         LayerApplication,
	Class:         ClassPool,
	Needs:         []observe.Kind{observe.KindRequests, observe.KindWaits},
	ConsequenceOf: []Parent{ConnectionPoolExhausted, CPUHotFunction, GCPauses, GILContention, SingleThreadSaturated, SlowDependency, ClassWait, ClassMachine, ClassDatabase},
	Folds:         true,
	Check:         checkThreadPool,
}

func checkThreadPool(v *View) Result {
	if v.Waits == nil {
		return Result{NotChecked: "what the threads of the services do was not watched"}
	}
	r := ruledOut("no service has threads that always have something in hand")
	near := -1.0
	for _, l := range v.ledgers {
		if l.called() || l.Requests < fewRequests && l.waiting() < fewAffected {
			continue
		}
		pools := v.poolsBehind(l)
		for i, p := range pools {
			f, because := v.threadPoolFinding(l, p)
			if f != nil {
				r.Findings = append(r.Findings, *f)
				break
			}
			if weight := float64(p.Busy) - float64(i); weight > near {
				r.RuledOut, near = because, weight
			}
		}
	}
	return r
}

// poolsBehind is the groups of threads of the processes that answer an endpoint, of
// those of which no other cause knows how many requests they take up.
func (v *View) poolsBehind(l *ledger) []*observe.ThreadPool {
	p := v.Process(l.pid)
	goes := p != nil && p.Go
	if v.isProxy(l.pid) || len(v.databases[l.pid]) > 0 {
		return nil
	}
	for i := range v.AppServers {
		if a := &v.AppServers[i]; v.Master(a.PID) == l.pid && len(a.Pools) > 0 && a.Pools[0].Limit > 0 {
			return nil
		}
	}
	for i := range v.PHPFPM {
		if v.PHPFPM[i].PID == l.pid {
			return nil
		}
	}
	var out []*observe.ThreadPool
	for i := range v.Waits.Pools {
		// Threads of Go's scheduler are not what its work is divided into.
		if p := &v.Waits.Pools[i]; p.PID == l.pid && p.Goroutines == goes && p.Busy > 0 && p.Looks >= poolLooks && p.Looks*p.Busy >= fewReadings {
			out = append(out, p)
		}
	}
	return out
}

// queued is how many requests are in hand or wait for the service, on average while
// they come in: those that were answered, and those that were not.
func (v *View) queued(l *ledger) float64 {
	loaded := v.loadedSeconds(l)
	if l.Requests < fewRequests || loaded == 0 {
		return float64(l.waiting())
	}
	var ns float64
	for _, p := range threadParts {
		ns += l.SumNS(p)
	}
	return ns / 1e9 / loaded
}

// oneEach says that there is a thread for each connection: as many as there are, or more where
// connections have one request at a time. Those of HTTP/2 have several, and their readers are
// no more than they.
func oneEach(l *ledger, p *observe.ThreadPool, connections int) bool {
	threads := p.Busy + p.Partly + p.Idle
	switch {
	case connections == 0 || l.Overlapped > 0:
		return false
	case l.Flags[streamFlag] > 0:
		return threads == connections
	}
	return threads >= connections
}

// streamFlag is on requests that are streams of a connection.
var streamFlag = observe.FlagMultiplexed.Names()[0]

func (v *View) threadPoolFinding(l *ledger, p *observe.ThreadPool) (*Finding, string) {
	inside := v.queued(l)
	busy := float64(p.Busy)
	waiting := inside - busy
	rate := float64(l.Requests) / max(v.loadedSeconds(l), 1)
	text := fmt.Sprintf("%s of %s: %s always busy, %.1f requests in hand or waiting on %s", v.poolText(p), v.commOf(l), figure.Counted(p.Busy, "thread"), inside, l.name())
	k := l.cost(ratio(waiting, inside), threadParts...)
	computing, known := v.computing(l)
	running := 0.0
	for _, d := range p.Does {
		if d.Name == "running" {
			running = d.Share
		}
	}
	_, full := v.cpuFull(l)
	stands := l.Requests < fewRequests
	connections := 0
	if s := v.ServiceAt(l.NetNS, l.Port, ""); s != nil {
		for _, at := range s.Listeners {
			connections += at.Clients
		}
	}
	switch {
	case p.Partly > p.Busy/8:
		return nil, fmt.Sprintf("%s, and %d that sometimes have nothing to do", text, p.Partly)
	case p.Idle > 0 && v.namedPool(p):
		return nil, fmt.Sprintf("%s, and %d that have nothing to do", text, p.Idle)
	case p.Ended >= p.Busy:
		return nil, fmt.Sprintf("%s, and %s ended: it makes threads as it needs them", text, figure.Counted(p.Ended, "thread"))
	case oneEach(l, p, connections):
		return nil, fmt.Sprintf("%s, for at most %s: each has a thread of its own", text, figure.Counted(connections, "connection"))
	case waiting < 1 || waiting < poolQueue*busy:
		return nil, text
	case !p.Goroutines && !stands && float64(p.Switches) < poolTurns*float64(l.Requests) && running < 1-poolTurns:
		return nil, fmt.Sprintf("%s, but they woke only %s times, for %s: they do something else", text, count(p.Switches), l.all())
	case !stands && !l.noticed(k, threadFloor):
		return nil, text + ", and no request is slow for it: " + l.whereTimeGoes()
	case v.inTurn(l) >= inTurnLeast*ratio(waiting, inside):
		return nil, text + "; those wait for the lock of their interpreter"
	case full && (known && computing >= blockedShare || running >= blockedShare):
		return nil, text + "; they compute, and the CPUs are full: more would not answer more"
	case p.Busy == 1 && running >= busyOnCPU:
		return nil, text + "; it computes all the time: single-thread-saturated"
	}
	f := supported(Subject{Kind: "pool", NetNS: l.NetNS, PID: l.pid, Comm: v.commOf(l), Port: l.Port, Path: p.At})
	one := "thread"
	switch {
	case strings.HasPrefix(p.Root, "<module> "):
		one = "worker"
	case p.Goroutines:
		one = "goroutine"
	}
	f.Title = fmt.Sprintf("All %s of %s are busy, %.0f requests wait", figure.Counted(p.Busy, one), v.poolText(p), waiting)
	if p.Busy == 1 {
		f.Title = fmt.Sprintf("The one %s of %s is busy, %.0f requests wait", one, v.poolText(p), waiting)
	}
	heldUp := v.heldUpBy(l)
	waits := func(o *Finding) bool {
		return heldUp(o) && (o.ConsequenceOf == nil || *o.ConsequenceOf != ThreadPoolExhausted)
	}
	f.MayFollow = mayFollow(v.lateBy(l), waits, func(o *Finding) bool {
		if o.Cause == SlowDependency { // a pool that is too small for calls as they always are is the root
			return o.Subject.PID == l.pid && o.Weight > ratio(waiting, inside)
		}
		return v.at(l)(o)
	})
	f.Weight = ratio(waiting, inside)
	each := busy / max(rate, 0.001)
	f.Impact = Impact{Share: round(f.Weight), Of: "the requests' time", OfTime: true,
		Text: fmt.Sprintf("%.0f of %.0f requests wait while all %s have one in hand: %s waits %s of its time", waiting, inside, figure.Counted(p.Busy, one), l.one(), percent(f.Weight))}
	source := taskFiles
	if p.Goroutines {
		source = goMemory
	}
	f.Evidence = []Evidence{
		{Fact: one + "s that had something in hand at every look", Value: p.Busy, Unit: fmt.Sprintf("of %d, in %d looks", p.Busy+p.Partly, p.Looks), Source: source},
		{Fact: "requests in hand or waiting, mean", Value: round(inside), Limit: p.Busy, Unit: "requests; limit: " + one + "s", Source: recorded},
	}
	if does := callsText(p); does != "" {
		f.Evidence = append(f.Evidence, Evidence{Fact: "what they do meanwhile", Value: does, Source: source})
	}
	if p.At != "" {
		f.Evidence = append(f.Evidence, Evidence{Fact: "where", Value: strings.Join(p.Stack, " ← "), Source: "memory of the process"})
	}
	if !stands {
		f.Evidence = append(f.Evidence, Evidence{Fact: "a request takes of a thread, mean", Value: round(each * 1e3), Unit: fmt.Sprintf("ms (%d threads, %.4g requests/s)", p.Busy, rate), Source: recorded})
	}
	want := p.Busy + int(waiting) + 1
	f.crew = &crew{pid: l.pid, unit: one + "s of " + v.commOf(l), busy: busy, waiting: waiting, want: want}
	f.Fix.Text = fmt.Sprintf("Give the pool more %ss: %d, where it has %d, by Little's law take what comes in now", one, want, p.Busy)
	if !stands {
		f.Fix.Text += fmt.Sprintf(" (%s in place of %s, if what they wait for keeps up)", nanoseconds(each*1e9), nanoseconds(inside/rate*1e9))
	}
	f.Fix.Text += "; or have a request take less of a thread: see what they wait for."
	f.Fix.Commands = []shell.Command{lookAtWaits(l.pid)}
	f.Fix.Persist = []shell.Command{shell.Line("# where %s makes the pool: %s %ss", v.commOf(l), want, one)}
	if v.node(l.pid) {
		want *= 2
		f.Fix.Text += fmt.Sprintf(" Calls of files, names and cryptography of Node are done by libuv: UV_THREADPOOL_SIZE=%d in its environment (half of them at most look up names).", want)
		f.Fix.Persist = []shell.Command{shell.Line("# UV_THREADPOOL_SIZE=%s in the environment of %s, as libuv has 4 threads by default", want, v.commOf(l))}
	}
	return &f, ""
}

// namedPool says that the name of its threads is that of one pool.
func (v *View) namedPool(p *observe.ThreadPool) bool {
	return p.Name != "" && p.Name != v.Comm(p.PID) && p.Root == ""
}

// node says that a process executes Node, whose calls of files, names and cryptography
// are done by the threads of libuv.
func (v *View) node(pid int) bool {
	p := v.Process(pid)
	return p != nil && (p.Exe == "node" || p.Exe == "nodejs" || p.Comm == "node")
}

// poolText names a pool.
func (v *View) poolText(p *observe.ThreadPool) string {
	switch {
	case p.Root == "" && v.node(p.PID):
		return "libuv's pool"
	case strings.HasPrefix(p.Root, "_worker thread.py"):
		return "a ThreadPoolExecutor"
	case strings.HasPrefix(p.Root, "<module> "):
		return "the processes of " + strings.TrimPrefix(p.Root, "<module> ")
	case p.Goroutines:
		return p.Root
	case p.Root != "":
		return "the pool that runs " + p.Root
	}
	return fmt.Sprintf("pool %q", p.Name)
}

// callsText says what the threads of a pool were seen doing.
func callsText(p *observe.ThreadPool) string {
	var parts []string
	for _, d := range p.Does {
		parts = append(parts, d.Name+" "+percent(d.Share))
	}
	return strings.Join(parts, ", ")
}
