package cause

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// judgeRoots runs what a wait cause has to say of each of its roots.
func (v *View) judgeRoots(id ID, none string, describe func(*root, *Finding)) Result {
	if v.Waits == nil {
		return Result{NotChecked: "what the threads of the services wait for was not watched"}
	}
	r := Result{RuledOut: none}
	best := -1.0
	for _, o := range v.roots {
		if o.cause != id {
			continue
		}
		because := v.harmless(o)
		if because == "" {
			r.Findings = append(r.Findings, v.rootFinding(o, describe))
			continue
		}
		if o.lost > best {
			r.RuledOut, best = v.rootText(o)+": "+because, o.lost
		}
	}
	return r
}

// rootText says who was held up, how long.
func (v *View) rootText(r *root) string {
	s := r.shares[0]
	return fmt.Sprintf("threads of %s waited %s in all, the longest %s, %s", v.serviceText(s.PID), nanoseconds(float64(r.threadNS())),
		nanoseconds(float64(r.longest())), shortChain(r.example()))
}

// shortChain tells a chain in a clause.
func shortChain(c *observe.WaitChain) string {
	h := &c.Hops[0]
	what := strings.TrimSpace(doingWhat(h) + " " + objectOf(h))
	if last := &c.Hops[len(c.Hops)-1]; len(c.Hops) > 1 {
		return fmt.Sprintf("in %s, for %s (pid %d)", what, last.Process.Comm, last.Process.PID)
	}
	return "in " + what
}

func doingWhat(h *observe.WaitHop) string {
	switch {
	case h.Kind == observe.WaitStopped:
		return "a stop"
	case h.Syscall != "":
		return h.Syscall
	}
	return "the kernel"
}

// harmless says why what threads wait for is not to blame for slow requests;
// empty when it is.
func (v *View) harmless(r *root) string {
	var all uint64
	for _, s := range r.slow {
		all += v.requestsOf(s.PID)
	}
	n, open := r.slowCount()
	slow, unfinished := uint64(n), uint64(open)
	share := r.share()
	switch {
	case slow == 0:
		return fmt.Sprintf("but no request there took longer than %s", nanoseconds(float64(v.Waits.SlowerNS)))
	case r.lost == 0:
		return fmt.Sprintf("but not while one of its %s slow requests was in progress", count(slow))
	case share < dominantShare:
		return fmt.Sprintf("%s of the time of its %s slow requests", percent(share), count(slow))
	case r.own() && r.lost >= stoppedLeast:
		return "" // however many others of the pool had none of it
	case r.hit < fewAffected-0.5:
		return fmt.Sprintf("that is the time of %.3g requests", r.hit)
	case ratio(slow, max(all+unfinished, slow)) < noiseShare && (r.slowNS()/float64(slow) < waitMean || v.slowWeight(r) < waitWeight):
		return fmt.Sprintf("%s of %s requests were slow, %s of the time of all", count(slow), count(all), percent(v.slowWeight(r)))
	case r.lost/float64(slow) < waitLost:
		return fmt.Sprintf("that is %s of a slow request", nanoseconds(r.lost/float64(slow)))
	case r.cause == ApplicationSleep && r.lost/r.hit < sleepFloor:
		return fmt.Sprintf("that is %s of a request", nanoseconds(r.lost/r.hit))
	case r.cause == BlockedOnRemote && r.longest() < waitAnswer:
		return fmt.Sprintf("but it answers, after %s at most", nanoseconds(float64(r.longest())))
	case r.samples() < waitSamples && r.longest() < waitLongest:
		return fmt.Sprintf("seen %d times only", r.samples())
	}
	if in := v.calling(r); r.cause == LockConvoy && r.blamed().Kind == observe.WaitChannel && in >= callIsIt*share {
		return fmt.Sprintf("%s of the requests' time they wait for what other services answer, which another goroutine reads", percent(in))
	}
	if r.cause == LockConvoy && r.example().End == observe.EndRunning {
		for _, l := range v.servedOf[r.shares[0].PID] {
			if idle, full := v.cpuFull(l); full {
				return fmt.Sprintf("but who holds the lock runs, and the CPUs are full (%s idle), which makes every thread late", percent(idle))
			}
		}
	}
	return ""
}

// calling is the share of the time of the services that a root holds up in which followed
// requests of theirs waited for what another service answers.
func (v *View) calling(r *root) float64 {
	var in, of float64
	for _, s := range r.slow {
		for _, l := range v.servedOf[s.PID] {
			if l.followed() {
				in += l.serverCost(observe.ServerCall).ns * float64(l.Requests)
				of += l.TimeNS()
			}
		}
	}
	return ratio(in, of)
}

// requestsOf is the requests that a process and its family answered.
func (v *View) requestsOf(pid int) uint64 {
	var n uint64
	for _, l := range v.servedOf[pid] {
		n += l.Requests
	}
	return n
}

// serviceText names a service by process and port.
func (v *View) serviceText(pid int) string {
	s := fmt.Sprintf("%s (pid %d)", v.Comm(pid), pid)
	if port := v.portOf(pid); port != 0 {
		s += fmt.Sprintf(" on :%d", port)
	}
	return s
}

// portOf is the port whose requests keep a process busy for longest, 0 when none
// is known.
func (v *View) portOf(pid int) int {
	if most := v.slowestService(pid); most != nil {
		return most.Port
	}
	for _, s := range v.servicesOf[pid] {
		if s.Port() != 0 {
			return s.Port()
		}
	}
	return 0
}

// rootFinding makes a finding: which service is held up, how much of its slow
// time that explains, and the chain.
func (v *View) rootFinding(r *root, describe func(*root, *Finding)) Finding {
	service := r.shares[0].PID
	f := supported(Subject{Kind: "process", PID: service, Comm: v.Comm(service), Port: v.portOf(service), NetNS: r.example().Hops[0].Process.NetNS})
	slow, unfinished := r.slowCount()
	f.Weight = r.share() * v.slowWeight(r)
	lost := r.lost / 1e9
	f.lost, f.held = &lost, v.heldIn(r)
	for _, s := range r.shares {
		if f.firstNS == 0 || s.FirstNS < f.firstNS {
			f.firstNS = s.FirstNS
		}
	}
	f.Impact = Impact{Share: round(r.share()), Of: "slow time", OfTime: true,
		Text: fmt.Sprintf("%s slow requests of %s took %s in all, %s of it held up by this", count(slow), v.servicesText(r), nanoseconds(r.slowNS()), nanoseconds(r.lost))}
	if unfinished > 0 {
		f.Impact.Text += fmt.Sprintf("; %s of them had no answer when the window ended", count(unfinished))
	}
	threads, atOnce := r.threads()
	one, source := "threads", taskFiles
	if r.example().Hops[0].Goroutine != 0 {
		one, source = "goroutines", goMemory
	}
	f.Chain, f.ChainEnd = r.example().Hops, chainEnd(r.example())
	f.Evidence = []Evidence{
		{Fact: "slow requests, each by the part of its time that it lost to this", Value: round(r.hit), Limit: slow, Unit: "requests of over " + nanoseconds(float64(v.Waits.SlowerNS)), Source: "request records, and looks at the threads"},
		{Fact: one + " that waited like this, at once at most", Value: atOnce, Limit: threads, Unit: one, Source: source},
		{Fact: "of all " + one + " together, in " + seconds(v.Window.Seconds), Value: round(float64(r.threadNS()) / 1e9), Unit: "s", Source: fmt.Sprintf("%s, every %s", source, nanoseconds(float64(v.Waits.EveryNS)))},
	}
	if n := r.sampled(); n > 0 {
		f.Evidence = slices.Insert(f.Evidence, 1, Evidence{Fact: "of them looked at, a fair sample that stands for all", Value: n, Limit: slow, Unit: "requests", Source: "request records"})
	}
	if longest := r.longest(); longest > 0 {
		f.Evidence = slices.Insert(f.Evidence, len(f.Evidence)-1, Evidence{Fact: "the longest", Value: round(float64(longest) / 1e9), Unit: "s without running, at least", Source: source})
	}
	if all := v.Use.CPU.Total(); all > 0 {
		f.Evidence = append(f.Evidence, Evidence{Fact: "CPU idle meanwhile", Value: round(ratio(v.Use.CPU.Idle+v.Use.CPU.IOWait, all)), Unit: "share", Source: "/proc/stat"})
	}
	for _, s := range r.shares {
		if !slices.Contains(f.Holds, s.PID) {
			f.Holds = append(f.Holds, s.PID)
		}
		for i := range s.Chain.Hops {
			if pid := v.Master(s.Chain.Hops[i].Process.PID); !slices.Contains(f.Via, pid) {
				f.Via = append(f.Via, pid)
			}
		}
	}
	describe(r, &f)
	if slices.Contains(onVolumes, r.cause) {
		v.aboutVolume(r, &f)
	}
	if len(f.Fix.Commands) == 0 {
		f.Fix.Commands = []shell.Command{lookAtWaits(service)}
	}
	return f
}

// chainEnd says why a chain goes no further. Who is ready for work and yet does
// not do what others wait for is not at rest.
func chainEnd(c *observe.WaitChain) string {
	if c.End == observe.EndIdle && len(c.Hops) > 1 {
		return c.Text + ", which does not come round to what it is waited for"
	}
	return c.Text
}

const taskFiles = "/proc/PID/task/TID"

// slowWeight is the part of the services' time that is slow requests'.
func (v *View) slowWeight(r *root) float64 {
	var all float64
	for _, s := range r.slow {
		var time float64
		for _, l := range v.servedOf[s.PID] {
			time += l.TimeNS()
		}
		all += max(time, float64(s.NS))
	}
	return ratio(r.slowNS(), all)
}

// servicesText names the services that a root holds up.
func (v *View) servicesText(r *root) string {
	var names []string
	for _, s := range r.slow {
		name := v.serviceText(s.PID)
		if s.Lent {
			name = "those that call " + name + " over a unix socket"
		}
		names = append(names, name)
	}
	const most = 3
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}

// heldUpBy says of findings about waits whether they are about what holds the
// endpoint l up: its processes, or those that answer its calls on this host.
func (v *View) heldUpBy(l *ledger) func(*Finding) bool {
	return func(p *Finding) bool {
		if !l.called() {
			return slices.Contains(p.Holds, l.pid)
		}
		there := l.here
		return there != nil && (slices.Contains(p.Holds, there.pid) || slices.Contains(p.Holds, l.pid) && slices.Contains(p.Via, there.pid))
	}
}

// holdsUp says of findings about waits whether they are about what holds up one
// of these processes.
func holdsUp(pids []int) func(*Finding) bool {
	return func(p *Finding) bool {
		return p.is(ClassWait) && slices.ContainsFunc(p.Holds, func(pid int) bool { return slices.Contains(pids, pid) })
	}
}

// who is a process of a hop as it is named in a sentence.
func who(h *observe.WaitHop) string { return fmt.Sprintf("%s (pid %d)", h.Process.Comm, h.Process.PID) }
