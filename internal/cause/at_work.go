package cause

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/slowray/slowray/internal/observe"
)

// atWork is what the processes that answer an endpoint did with the CPUs.
type atWork struct {
	procs      []*observe.Process
	cpu, delay float64      // s in the window, all of them
	threads    []busyThread // busiest first, while the slowest requests were under way
	saturated  int          // threads that could do no more while requests came in
}

// busyThread is a thread with the share of a time it ran, and wanted to.
type busyThread struct {
	process    *observe.Process
	tid        int
	comm       string
	cpu, delay float64 // 0 to 1
}

func (t *busyThread) busy() float64 { return t.cpu + t.delay }

func (t *busyThread) String() string {
	if t.tid == t.process.PID {
		return fmt.Sprintf("the main thread of %s (pid %d)", t.process.Comm, t.process.PID)
	}
	name := t.comm
	if name == "" {
		name = t.process.Comm
	}
	return fmt.Sprintf("thread %d (%s) of %s (pid %d)", t.tid, name, t.process.Comm, t.process.PID)
}

// busiestOf is the busiest thread of a process; nil where none is known.
func (w *atWork) busiestOf(p *observe.Process) *busyThread {
	for i := range w.threads {
		if w.threads[i].process == p {
			return &w.threads[i]
		}
	}
	return nil
}

// computes says that a thread of a process spends most of the time on a CPU.
func (w *atWork) computes(p *observe.Process) bool {
	t := w.busiestOf(p)
	return t != nil && t.cpu >= busyOnCPU
}

// threadParts are what a request waits for a thread of the service, and then
// for what the thread does.
var threadParts = []observe.Part{observe.AcceptWait, observe.RecvWait, observe.Server, observe.Stall}

// workers lists the processes that answer an endpoint.
func (v *View) workers(l *ledger) []*observe.Process {
	var places []int
	if l.pid != 0 {
		places = append(places, v.families[l.pid]...)
	}
	for _, pid := range append([]int{l.PID}, l.PIDs...) {
		places = append(places, v.places[pid]...)
	}
	slices.Sort(places)
	var out []*observe.Process
	for _, i := range slices.Compact(places) {
		if p := &v.Processes[i]; !p.EndedIn && !p.Kernel {
			out = append(out, p)
		}
	}
	return out
}

// atWork looks at the processes that answer an endpoint.
func (v *View) atWork(l *ledger) atWork {
	return v.work.of(l, func() atWork { return v.lookAtWork(l) })
}

func (v *View) lookAtWork(l *ledger) atWork {
	w := atWork{procs: v.workers(l)}
	loaded := v.loadedSeconds(l)
	for _, p := range w.procs {
		w.cpu += p.CPUSeconds()
		w.delay += p.RunDelaySeconds
		for _, t := range threadsOver(p, loaded) {
			if t.busy() >= busyThreadShare {
				w.saturated++
			}
		}
	}
	if w.threads = v.threadsDuring(l); len(w.threads) == 0 {
		for _, p := range w.procs {
			w.threads = append(w.threads, threadsOver(p, loaded)...)
		}
	}
	slices.SortStableFunc(w.threads, func(a, b busyThread) int {
		return cmp.Or(cmp.Compare(b.busy(), a.busy()), cmp.Compare(a.tid, b.tid))
	})
	return w
}

// loadedSeconds is for how long of the window requests came in.
func (v *View) loadedSeconds(l *ledger) float64 {
	first, last := -1, -1
	for i, n := range l.Arrivals {
		if n > 0 {
			if first < 0 {
				first = i
			}
			last = i
		}
	}
	if first < 0 {
		return v.Window.Seconds
	}
	return min(float64(last-first+1)*arrivalSlot, v.Window.Seconds)
}

// busySeconds is for how long of the window a request of an endpoint was under way, as
// far as the longest that came in each slot tells. Those of an isolated slot came at once.
func (v *View) busySeconds(l *ledger) float64 {
	if len(l.LongestUS) != len(l.Arrivals) {
		return v.loadedSeconds(l)
	}
	var busy, until float64
	for i, n := range l.Arrivals {
		if n == 0 {
			continue
		}
		from := float64(i) * arrivalSlot
		end := from + float64(l.LongestUS[i])/1e6
		if i+1 < len(l.Arrivals) && l.Arrivals[i+1] > 0 {
			end = max(end, from+arrivalSlot)
		}
		busy += max(0, end-max(from, until))
		until = max(until, end)
	}
	return min(busy, v.Window.Seconds)
}

// threadsOver is the busiest threads of a process with their shares of a time.
func threadsOver(p *observe.Process, seconds float64) []busyThread {
	if len(p.Busiest) == 0 {
		if p.Threads > 1 || p.CPUSeconds() == 0 {
			return nil
		}
		cpu := ratio(p.CPUSeconds(), seconds)
		return []busyThread{{process: p, tid: p.PID, cpu: cpu, delay: min(ratio(p.RunDelaySeconds, seconds), 1-cpu)}}
	}
	out := make([]busyThread, 0, len(p.Busiest))
	for _, t := range p.Busiest {
		cpu := ratio(t.CPUSeconds, seconds)
		out = append(out, busyThread{process: p, tid: t.TID, comm: t.Comm, cpu: cpu, delay: min(ratio(t.RunDelaySeconds, seconds), 1-cpu)})
	}
	return out
}

// threadsDuring is what the busiest threads of the processes that answer did
// while the slowest requests of an endpoint were under way; nil where that was
// not followed.
func (v *View) threadsDuring(l *ledger) []busyThread {
	type key struct{ pid, tid int }
	sums := map[key]*busyThread{}
	var order []key
	watched := map[int]float64{} // s of the slow requests, by process
	for i := range l.Slowest {
		s := &l.Slowest[i]
		pid := s.PID
		if pid == 0 {
			pid = l.PID
		}
		p := v.procs[pid]
		if p == nil {
			continue
		}
		from := float64(s.StartNS-v.Window.Start.UnixNano()) / 1e9
		to := from + float64(s.TotalNS)/1e9
		begin := 0.0
		for _, span := range p.Course {
			long := span.Seconds - begin
			both := min(to, span.Seconds) - max(from, begin)
			begin = span.Seconds
			if both <= 0 || long <= 0 {
				continue
			}
			watched[pid] += both
			k := key{pid, span.TopTID}
			if sums[k] == nil {
				sums[k] = &busyThread{process: p, tid: span.TopTID}
				order = append(order, k)
			}
			sums[k].cpu += span.TopCPU * both / long
			sums[k].delay += span.TopDelay * both / long
		}
	}
	var out []busyThread
	for _, k := range order {
		t := sums[k]
		t.cpu, t.delay = ratio(t.cpu, watched[k.pid]), ratio(t.delay, watched[k.pid])
		t.delay = min(t.delay, 1-t.cpu)
		for _, b := range t.process.Busiest {
			if b.TID == t.tid {
				t.comm = b.Comm
			}
		}
		out = append(out, *t)
	}
	return out
}

// split is how the Server time of the slowest requests is split, or of all
// where the slowest were not followed: shares of what is known of it. It is
// false where too little is.
func (l *ledger) split() (of func(...observe.ServerPart) float64, ok bool) {
	s := l.Split
	if s == nil || s.Requests < fewRequests {
		return nil, false
	}
	sum := func(p observe.ServerPart) float64 { return float64(s.Parts[p.String()].SumNS) }
	all := float64(s.ServerNS)
	if s.SlowServerNS > 0 {
		sum = func(p observe.ServerPart) float64 { return float64(s.SlowParts[p.String()]) }
		all = float64(s.SlowServerNS)
	}
	known := all - sum(observe.ServerHandoff)
	if all <= 0 || known < splitLeast*all {
		return nil, false
	}
	return func(parts ...observe.ServerPart) float64 {
		var ns float64
		for _, p := range parts {
			ns += sum(p)
		}
		return ratio(ns, known)
	}, true
}

// computing is the share of the slow requests' time in which the thread that
// answered ran or was ready to; false where it was not watched.
func (v *View) computing(l *ledger) (float64, bool) {
	if of, ok := l.split(); ok {
		return of(observe.ServerCPU, observe.ServerRunq, observe.ServerThrottled), true
	}
	if v.Waits == nil {
		return 0, false
	}
	for _, s := range v.slowOf[l.pid] {
		if s.NS > 0 && s.Requests >= fewRequests {
			return ratio(s.ComputeNS, s.NS), true
		}
	}
	return 0, false
}

// ownCPU is what a request computes on average, ns: as its threads were
// followed, else all that the processes used for all requests.
func (l *ledger) ownCPU(w *atWork) float64 {
	if s := l.Split; s != nil && s.Requests >= fewRequests {
		handoff := s.ShareNS(observe.ServerHandoff, 1)
		if handoff < splitLeast {
			return s.ShareNS(observe.ServerCPU, l.MeanNS(observe.Server)) / (1 - handoff)
		}
	}
	return w.cpu * 1e9 / float64(l.Requests)
}

// waitingForCPU is what of an endpoint's time passes with its threads ready,
// and without a CPU. Of the Server time it is known where requests were
// followed; of the time until they are read it is taken to be as much as of
// the threads' time.
func (v *View) waitingForCPU(l *ledger, w *atWork, most float64) cost {
	// A thread that sleeps meanwhile, or is blocked, waits for no CPU: it is
	// late for that only as much as it was ready at all.
	could := min(ratio(w.delay, w.delay+w.cpu), most)
	k := l.cost(1, threadParts...)
	switch s := l.Split; {
	case v.takesTurns(l):
		ready := v.readyCost(l)
		k.ns, k.slowNS = ready.ns, ready.slowNS
	case l.followed() && s.ShareNS(observe.ServerHandoff, 1) < splitLeast:
		ready, server, slow := v.readyCost(l), l.MeanNS(observe.Server), l.SlowNS(observe.Server)
		k.ns = ready.ns + (k.ns-server)*could
		k.slowNS = ready.slowNS + (k.slowNS-slow)*most
	default:
		k.ns, k.slowNS = k.ns*could, k.slowNS*most
	}
	k.share = ratio(k.ns*float64(l.Requests), l.TimeNS())
	k.slowShare = ratio(k.slowNS, l.SlowTotalNS())
	k.usual *= could
	return k
}

// readyCost is what followed requests of an endpoint lose with their threads ready, and no
// CPU; nothing where too few were followed to tell. Where threads take turns at an interpreter, who waits for its lock, or has not read
// what came, waits for what another one does who has it: that computes, or is ready
// itself.
func (v *View) readyCost(l *ledger) cost {
	if !l.followed() {
		return cost{}
	}
	ready := l.serverCost(observe.ServerRunq)
	if !v.takesTurns(l) {
		return ready
	}
	turn, cpu := l.forInterpreter(), l.serverCost(observe.ServerCPU)
	mean := ratio(ready.ns, ready.ns+cpu.ns)
	ready.ns += turn.ns * mean
	ready.slowNS += turn.slowNS * max(mean, ratio(ready.slowNS, ready.slowNS+cpu.slowNS))
	ready.share = ratio(ready.ns*float64(l.Requests), l.TimeNS())
	ready.slowShare = ratio(ready.slowNS, l.SlowTotalNS())
	return ready
}

// heaviest keeps, of findings about one thing of the machine on several
// endpoints, the one that weighs most; it is about no port then.
func heaviest(r Result) Result {
	if len(r.Findings) == 0 {
		return r
	}
	f := slices.MaxFunc(r.Findings, func(a, b Finding) int { return cmp.Compare(a.Weight, b.Weight) })
	f.Subject.Port, f.Subject.Addr, f.MayFollow = 0, "", nil
	r.Findings = []Finding{f}
	return r
}

// inFlight is how many requests of an endpoint are under way at once, on
// average while they come in.
func (v *View) inFlight(l *ledger) float64 {
	loaded := v.loadedSeconds(l)
	if loaded == 0 {
		return 0
	}
	return l.TimeNS() / 1e9 / loaded
}

// outside is the share of the CPUs that processes use which take no part in
// the requests.
func (v *View) sumOutside() float64 {
	var used float64
	for i := range v.Processes {
		p := &v.Processes[i]
		if v.outsider(p) && !yields(p) {
			used += p.CPUSeconds()
		}
	}
	return ratio(used, v.Use.CPU.Total())
}

// ownSeconds is the CPU time in the window of slowray itself: it is there only while
// somebody looks.
func (v *View) ownSeconds() float64 {
	if p := v.Process(v.Self); p != nil {
		return p.CPUSeconds()
	}
	return 0
}

// spareCPUs says how many CPUs the processes that answer an endpoint could have
// had besides their own, while its requests came in: those that were idle, those of
// slowray itself, and those of processes with a nice value, which give way by
// themselves. With hardly any, the CPUs are full.
func (v *View) spareCPUs(l *ledger, w *atWork) (cpus float64, full bool) {
	spare, _ := v.cpuFull(l)
	spare = min(spare+ratio(v.ownSeconds(), v.Use.CPU.Total()), 1)
	if niceOf(w.procs) <= 0 {
		spare = min(spare+ratio(v.Use.CPU.Nice, v.Use.CPU.Total()), 1)
	}
	return spare * float64(max(v.Host.CPUs, len(v.Use.PerCPU))), spare < idleCPUShare
}
