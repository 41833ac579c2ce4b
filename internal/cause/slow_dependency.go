package cause

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// SlowDependency: a service is slow because what it calls is. Where that is
// served on this host too, and found to be slow for a reason, this is reported as
// the consequence; where it calls something slow itself, only the last hop is
// told.
const SlowDependency ID = "slow-dependency"

var slowDependency = Cause{
	ID:    SlowDependency,
	Title: "A dependency answers slowly",
	Layer: LayerCall,
	Needs: []observe.Kind{observe.KindRequests},
	ConsequenceOf: []Parent{NetworkLoss, RTOTailLoss, HighRTT, SYNRetransmits, SendBufferLimited, SlowReceiver, NagleDelayedACK,
		AcceptQueueOverflow, AcceptQueueWait, ApplicationSlowToRead, ApplicationStallMidResponse, PHPFPMChildrenExhausted, FDLimit,
		NginxWorkerConnections, ConntrackFull, DNSTimeout, DNSSlow, DNSSearchExpansion, ClassDrop, ClassLate},
	Folds: true,
	Check: checkSlowDependency,
}

func checkSlowDependency(v *View) Result {
	var slow []*ledger
	r := v.judgeLedgers(fewRequests, func(l *ledger) judged {
		because, near := v.quickCall(l)
		if because != "" {
			return judged{because: because, near: near}
		}
		slow = append(slow, l)
		return judged{finding: v.dependencyFinding(l)}
	})
	// The last hop only: a dependency that waits for its own is not to blame.
	r.Findings = slices.DeleteFunc(r.Findings, func(f Finding) bool {
		return slices.ContainsFunc(slow, func(l *ledger) bool {
			return l.NetNS == f.Subject.NetNS && l.Port == f.Subject.Port && l.Addr == f.Subject.Addr && v.passesOn(l, slow)
		})
	})
	if len(r.Findings) == 0 && len(slow) > 0 {
		r.RuledOut = "the services call each other in a circle"
	}
	for _, l := range v.fronts {
		r.Findings = append(r.Findings, v.silentDependencies(l)...)
	}
	return r
}

// silentDependencies finds the last hops that a service waits for which answers nobody:
// its calls have no answer, nor have theirs.
func (v *View) silentDependencies(front *ledger) (found []Finding) {
	way, seen := v.waitsForCalls(front), map[*ledger]bool{}
	for i := 0; i < len(way); i++ {
		l := way[i]
		if seen[l] {
			continue
		}
		seen[l] = true
		if l.here != nil {
			if next := v.waitsForCalls(l.here); len(next) > 0 {
				way = append(way, next...)
				continue
			}
		}
		found = append(found, v.silentFinding(front, l))
	}
	return found
}

func (v *View) silentFinding(front, l *ledger) Finding {
	f := supported(Subject{Kind: "destination", NetNS: l.NetNS, PID: l.pid, Comm: v.commOf(l), Port: l.Port, Addr: l.Addr})
	f.Weight = ratio(front.waiting(), front.Requests+front.waiting())
	lost := v.Window.Seconds * float64(front.waiting())
	f.lost = &lost
	f.MayFollow = v.at(l)
	f.Impact = Impact{Share: round(f.Weight), Of: "requests", OfTime: true,
		Text: fmt.Sprintf("%s have had no answer, nor have %s requests on %s that wait for them", count(l.waiting())+" "+l.name(), count(front.waiting()), front.name())}
	f.Evidence = []Evidence{{Fact: "requests without an answer on " + front.name(), Value: front.waiting(), Unit: "requests; answered in this window: none", Source: recorded}}
	if e := l.Earlier; e != nil {
		f.Evidence = append(f.Evidence, Evidence{Fact: "calls that went out before it", Value: e.Requests, Unit: "calls, the oldest " + nanoseconds(float64(e.OldestNS)) + " ago", Source: "tcp_info"})
	}
	f.Fix.Text = fmt.Sprintf("Find why %s does not answer, there; here, give the calls a time limit.", destinationName(l))
	if here := l.here; here != nil {
		f.Fix.Text = fmt.Sprintf("Find why %s (pid %d) does not answer: it runs on this host.", v.commOf(here), here.pid)
		f.Fix.Commands = []shell.Command{lookAtWaits(here.pid)}
	} else {
		f.Fix.Commands = []shell.Command{v.in(l.ns, shell.Line("ss -tnpio dst %s", l.Addr))}
	}
	return f
}

// passesOn says that a dependency is served here by processes that wait for
// another slow one.
func (v *View) passesOn(l *ledger, slow []*ledger) bool {
	s := l.here
	return s != nil && s.pid != 0 && s.pid != l.pid &&
		slices.ContainsFunc(slow, func(next *ledger) bool { return next.pid == s.pid })
}

// quickCall says why an endpoint is not a slow dependency; empty when it is.
func (v *View) quickCall(l *ledger) (because string, near float64) {
	if !l.called() || l.client {
		return "the services call nothing over TCP", -1
	}
	median, tail := float64(l.Total.Quantile(0.5)), float64(l.Total.Quantile(0.99))
	because = fmt.Sprintf("%s take %s on average (p50 %s, p99 %s), %s of the time in which %s answers requests",
		l.name(), nanoseconds(l.TimeNS()/float64(max(l.Requests, 1))), nanoseconds(median), nanoseconds(tail), percent(l.reach), v.commOf(l))
	near = l.reach
	service := v.slowestService(l.pid)
	if service == nil || l.reach == 0 {
		return because, near
	}
	least := callTime
	if l.here != nil { // nobody looks at its own causes where it takes less
		least = ownFloor
		if v.rests(l.here, maxHops) {
			least = sleepFloor
		}
	}
	always := median >= least && l.reach >= callShare
	// Among quick calls slow ones have to make up the slow requests.
	atTimes := l.records() >= tailRequests && tail >= callTime && tail >= callSlower*median &&
		service.SlowTotalNS() >= slowerThan*float64(service.Total.Quantile(0.5)) &&
		l.SlowTotalNS() >= callShare*service.SlowTotalNS() &&
		service.SlowShare(observe.Server)+service.SlowShare(observe.Stall) >= callShare && l.reach >= fewReach
	here := l.here
	switch _, full := v.cpuFull(l); {
	case !always && !atTimes:
		return because, near
	case v.callsItself(l):
		return because + "; it calls itself, and answers hardly anything else", near
	case l.here != nil && l.here.pid != 0 && l.here.pid == l.pid:
		return because + "; it calls itself: what holds up its answers is looked for where it answers them", near
	case l.SlowShare(observe.Upload) >= dominantShare:
		return because + "; it takes that long itself to send them", near
	case l.Share(observe.RecvWait) >= dominantShare:
		return because + "; the answers lie in its sockets until it reads them", near
	case median > longestCall*float64(service.Total.Max()):
		return because + "; they last longer than any request: they are not made for one", near
	case full && here != nil && !here.spendsIn(observe.ServerSleep, observe.ServerDisk): // more of the CPUs would not shorten those
		return because + "; both run on this host, whose CPUs are full", near
	}
	return "", near
}

// rests says that the requests of an endpoint are mostly asleep, or with other threads
// of which nothing is known, here or at what is called in turn: no sign that anything
// holds them up.
func (v *View) rests(l *ledger, hops int) bool {
	s := l.Split
	if s == nil || s.Requests < fewRequests || hops == 0 {
		return false
	}
	ns := s.ShareNS(observe.ServerSleep, 1) + s.ShareNS(observe.ServerHandoff, 1) + s.ShareNS(observe.ServerOther, 1)
	if call := s.ShareNS(observe.ServerCall, 1); call > 0 && slices.ContainsFunc(v.calledOf[l.pid], func(o *ledger) bool {
		return o.here != nil && o.here != l && o.reach >= callShare && v.rests(o.here, hops-1)
	}) {
		ns += call
	}
	return ns >= dominantShare
}

// spendsIn says that the slow requests of an endpoint spend most of their time in parts
// of the server's.
func (l *ledger) spendsIn(parts ...observe.ServerPart) bool {
	of, ok := l.split()
	return ok && l.SlowShare(observe.Server)*of(parts...) >= dominantShare
}

// callsItself says that the caller is who answers, and that its own calls are
// nearly all that it answers: a test, or a benchmark, with both ends in one process.
func (v *View) callsItself(l *ledger) bool {
	here := l.here
	if here == nil || here.pid == 0 || here.pid != l.pid {
		return false
	}
	_, requests := v.answered(l.pid)
	return float64(l.Requests) >= (1-fewReach)*float64(requests)
}

// slowestService is the endpoint that the processes of a master answer with
// the most time, or nil.
func (v *View) slowestService(pid int) *ledger {
	return v.answering[pid].slowest
}

// commOf is the name of who serves or calls an endpoint.
func (v *View) commOf(l *ledger) string {
	if v.Process(l.pid) == nil && l.Comm != "" {
		return l.Comm
	}
	return v.Comm(l.pid)
}

func (v *View) dependencyFinding(l *ledger) *Finding {
	service, here := v.slowestService(l.pid), l.here
	f := v.found(l, cost{share: 1, slowShare: 1, ns: l.TimeNS() / float64(l.Requests), slowNS: l.SlowTotalNS()}, threadFloor, "for the answer")
	_, requests := v.answered(l.pid)
	f.held = held{by: map[int]float64{l.pid: v.inFlight(l)}}
	f.Weight = l.reach * (service.Share(observe.Server) + service.Share(observe.Stall))
	f.Impact = Impact{Share: round(l.reach), Of: "the time in which " + f.Subject.Comm + " answers requests", OfTime: true,
		Text: fmt.Sprintf("%s take %s on average (p50 %s, p99 %s)", l.name(),
			nanoseconds(l.TimeNS()/float64(l.Requests)), nanoseconds(float64(l.Total.Quantile(0.5))), nanoseconds(float64(l.Total.Quantile(0.99))))}
	// Estimates of different connections have no ratio that is a fact.
	exact := !v.estimated(l)
	if exact {
		f.Impact.Text += fmt.Sprintf("; %s makes %.3g of them for a request", f.Subject.Comm, float64(l.Requests)/float64(max(requests, 1)))
	}
	f.Evidence = []Evidence{{Fact: "call latency, p50 and p99", Value: nanoseconds(float64(l.Total.Quantile(0.5))) + ", " + nanoseconds(float64(l.Total.Quantile(0.99))), Source: recorded}}
	if exact {
		f.Evidence = append(f.Evidence,
			Evidence{Fact: "time of all calls, several at once counted each", Value: round(l.TimeNS() / 1e9), Unit: "s", Source: recorded},
			Evidence{Fact: "time in which " + f.Subject.Comm + " was busy with requests, likewise", Value: round(busyTime(v, l) / 1e9), Unit: "s", Source: recorded},
			Evidence{Fact: "calls", Value: l.Requests, Unit: "calls for " + count(requests) + " requests", Source: recorded})
	}
	f.Evidence = append(f.Evidence,
		Evidence{Fact: "of the slowest calls", Value: l.whereTimeGoes(), Source: recorded},
		Evidence{Fact: "slowest requests of the service", Value: service.whereTimeGoes(), Source: recorded})
	if answered := answeredBy(l.Slowest); answered != "" {
		f.Evidence = append(f.Evidence, Evidence{Fact: "the slowest calls went to", Value: answered, Source: "connection tracking"})
	}
	if l.Errors > 0 {
		f.Evidence = append(f.Evidence, Evidence{Fact: "calls answered with an error", Value: l.Errors, Limit: l.Requests, Unit: "calls", Source: recorded})
	}
	f.Parents = []Parent{NetworkLoss, RTOTailLoss, HighRTT, SYNRetransmits, SendBufferLimited, SlowReceiver, NagleDelayedACK}
	f.Fix.Text = fmt.Sprintf("Find what makes %s answer slowly, there; here, make fewer calls for a request, or wait for them at the same time.", destinationName(l))
	if here != nil {
		at := f.MayFollow // or about who answers there, whatever it waits for itself
		f.MayFollow = func(p *Finding) bool { return at(p) || here.pid != 0 && v.Master(p.Subject.PID) == here.pid }
		f.Parents = nil
		f.Evidence = append(f.Evidence, Evidence{Fact: "at the other end, on this host", Value: here.whereTimeGoes(), Source: recorded})
		f.Evidence = append(f.Evidence, v.slowLogEvidence(l)...)
		f.Fix.Text = fmt.Sprintf("Find what makes %s (pid %d) answer slowly: it runs on this host.", v.commOf(here), here.pid)
		if told, command := v.atTheOtherEnd(here); !command.IsZero() {
			f.Fix.Text += " " + told
			f.Fix.Commands = []shell.Command{command}
		}
	}
	return f
}

// estimated says that the sums of calls, or of the requests that they are made for, are
// those of some connections only.
func (v *View) estimated(l *ledger) bool {
	return l.SampleError > 0 || slices.ContainsFunc(v.ledgers, func(o *ledger) bool { return !o.called() && o.pid == l.pid && o.SampleError > 0 })
}

// answeredBy says who answered calls whose address leads to several, the most frequent
// first; empty where it leads to nobody else, as far as is known.
func answeredBy(calls []observe.RequestSample) string {
	times := map[string]int{}
	for i := range calls {
		switch c := &calls[i]; {
		case c.Workload != nil:
			times[c.Workload.String()]++
		case c.Destination != "":
			times[c.Destination]++
		}
	}
	names := slices.SortedFunc(maps.Keys(times), func(a, b string) int { return cmp.Or(times[b]-times[a], cmp.Compare(a, b)) })
	for i, name := range names {
		names[i] = fmt.Sprintf("%s (%d of %d)", name, times[name], len(calls))
	}
	return strings.Join(names[:min(len(names), mostPodsShown)], ", ")
}

// atTheOtherEnd says what a dependency on this host does, or waits for, in most
// of its slow requests' time, and the command that tells more; empty where
// nothing has a good part of it.
func (v *View) atTheOtherEnd(here *ledger) (told string, command shell.Command) {
	pid := here.pid
	if w := v.atWork(here); len(w.procs) > 0 {
		pid = v.busiestOf(&w)
	}
	if here.SlowShare(observe.AcceptWait)+here.SlowShare(observe.RecvWait) >= dominantShare {
		return fmt.Sprintf("Its slow requests wait until they are read, %s of their time: its threads do something else meanwhile.",
			percent(here.SlowShare(observe.AcceptWait)+here.SlowShare(observe.RecvWait))), lookAtWaits(pid)
	}
	of, ok := here.split()
	if !ok || pid == 0 {
		return "", shell.Command{}
	}
	most := observe.ServerCPU
	for p := range observe.NumServerParts {
		if p != observe.ServerHandoff && of(p) > of(most) {
			most = p
		}
	}
	share := here.SlowShare(observe.Server) * of(most)
	if share < dominantShare {
		return "", shell.Command{}
	}
	part := fmt.Sprintf("%s of its slow requests' time", percent(share))
	switch most {
	case observe.ServerCPU:
		return "It computes for " + part + ".", shell.Line("slowray flame --pid %s -o flame.html   # what it computes", pid)
	case observe.ServerRunq, observe.ServerThrottled:
		return "Its threads are ready and wait for a CPU for " + part + ".", shell.Line("slowray why --port %s   # what takes the CPUs", here.Port)
	case observe.ServerCall:
		return "It waits for what it calls itself for " + part + ".", shell.Line("slowray why --port %s   # what it calls, and how long that takes", here.Port)
	case observe.ServerLock:
		return "Its threads wait for a lock for " + part + ".", lookAtWaits(pid)
	case observe.ServerDisk:
		return "It waits for a disk for " + part + ".", lookAtWaits(pid)
	case observe.ServerSleep:
		return "It sleeps for a time that it chose itself, for " + part + ".", lookAtWaits(pid)
	}
	return "It waits, for " + part + ".", lookAtWaits(pid)
}

func destinationName(l *ledger) string {
	return l.name()[len("calls to "):]
}

func busyTime(v *View, l *ledger) float64 {
	ns, _ := v.answered(l.pid)
	return ns
}
