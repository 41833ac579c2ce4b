package cause

import (
	"cmp"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// ledger is an endpoint in view as the checks see it.
type ledger struct {
	*observe.Endpoint
	times   times
	words   words
	address netip.Addr     // Addr
	ns      *observe.NetNS // may be nil
	pid     int            // master of the processes that answer, or that call
	client  bool           // called by a client of a service on this host, not by a service
	order   int            // its place among all
	// here is the served endpoint that a called one reaches on this host, or nil;
	// callers are the called ones of which a served one is that.
	here    *ledger
	callers []*ledger
	// reach is the share of the requests that people wait for which passes
	// here: 1 for a service, less for what a service calls.
	reach float64
}

func (v *View) newLedger(e *observe.Endpoint) *ledger {
	e = consistent(e)
	return &ledger{Endpoint: e, times: timesOf(e), address: address(e.Addr), ns: v.namespaces[e.NetNS], pid: v.Master(e.PID), reach: 1}
}

// consistent is an endpoint of which no part exceeds the whole: its counters are read one
// after the other while requests end, and statuses are counted as answers come, requests
// as they end.
func consistent(e *observe.Endpoint) *observe.Endpoint {
	c := *e
	c.Errors -= min(e.Errors, cutAlerts(e))
	c.Unanswered, c.OK = min(e.Unanswered, e.Requests), min(e.OK, e.Requests)
	c.Errors = min(c.Errors, e.Requests-c.Unanswered)
	c.Retrans = min(e.Retrans, e.Segments)
	for class, n := range e.Statuses {
		if n > e.Requests {
			c.Statuses = maps.Clone(c.Statuses)
			c.Statuses[class] = e.Requests
		}
	}
	return &c
}

// cutAlerts is the answers over TLS, among the errors, that all arrived: of what was not
// acknowledged when the client reset the connection only the server's closing alert is
// left, which a client that has its answer does not read.
func cutAlerts(e *observe.Endpoint) uint64 {
	if e.TLS == 0 {
		return 0
	}
	var cut, alerts uint64
	for s := range flagged(e.Failed, observe.FlagTruncated) {
		if cut++; hasFlag(s, observe.FlagReset) && s.Unacked <= longestAlert {
			alerts++
		}
	}
	return uint64(ratio(alerts, cut) * float64(min(e.Flags["truncated"], e.Flags["reset"])))
}

// longestAlert is a record of TLS with nothing but an alert in it, in bytes (internal/bpf/headers/tls.h).
const longestAlert = 85

// called says that the endpoint is called from here, not served.
func (l *ledger) called() bool { return l.Side == observe.Called.String() }

// words are what an endpoint and its requests are called, once somebody asked:
// every check that rules something out names them.
type words struct{ name, all, slowest, where string }

// once makes a text unless that was done.
func once(text *string, make func() string) string {
	if *text == "" {
		*text = make()
	}
	return *text
}

// name is what a person calls the endpoint.
func (l *ledger) name() string {
	return once(&l.words.name, func() string {
		if l.called() {
			return "calls to " + netip.AddrPortFrom(l.address, uint16(l.Port)).String()
		}
		return ":" + itoa(l.Port)
	})
}

// one and all name its requests.
func (l *ledger) one() string {
	if l.called() {
		return "a call to " + destinationName(l)
	}
	return "a request on " + l.name()
}

func (l *ledger) all() string {
	return once(&l.words.all, func() string {
		if l.called() {
			return count(l.Requests) + " " + l.name()
		}
		return count(l.Requests) + " requests on " + l.name()
	})
}

// address is the zero address when text is none.
func address(text string) netip.Addr {
	a, _ := netip.ParseAddr(text)
	return a
}

// answered is the time in which the processes of a master were busy with
// requests: a call they make lies within it.
func (v *View) answered(pid int) (ns float64, requests uint64) {
	a := v.answering[pid]
	return a.busyNS, a.requests
}

// callShare is the share of the callers' busy time that passes in the calls of
// l. Calls that take far longer than all the requests together are made for
// something else, and count as none of it.
func (v *View) callShare(l *ledger) float64 {
	busy, requests := v.answered(l.pid)
	if requests > 0 && l.TimeNS() > 3*busy {
		return 0
	}
	if requests == 0 {
		return 1 // it answers where no request is recorded: on a unix socket
	}
	return ratio(l.TimeNS(), busy)
}

// Ledgers lists the endpoints of the requests in view, most requests first.
func (v *View) Ledgers() []*observe.Endpoint {
	out := make([]*observe.Endpoint, 0, len(v.ledgers))
	for _, l := range v.ledgers {
		if !l.client {
			out = append(out, l.Endpoint)
		}
	}
	return out
}

// compareEndpoints puts what is served first, and of that the one with most
// requests.
func compareEndpoints(a, b *observe.Endpoint) int {
	return cmp.Or(
		strings.Compare(b.Side, a.Side), cmp.Compare(b.Requests, a.Requests),
		cmp.Compare(a.NetNS, b.NetNS), cmp.Compare(a.Port, b.Port), strings.Compare(a.Addr, b.Addr), cmp.Compare(a.PID, b.PID),
	)
}

// cpuFull says that the CPUs had nothing to spare while the requests of an
// endpoint came in: threads are late then, whatever they do.
func (v *View) cpuFull(l *ledger) (idle float64, full bool) {
	all := v.Use.CPU.Total()
	idle = ratio(v.Use.CPU.Idle+v.Use.CPU.IOWait, all)
	if while, ok := v.idleWhile(l); ok {
		idle = while
	}
	return idle, all > 0 && idle < idleCPUShare
}

// late says that the CPUs were full, and that the threads of a service waited for
// them long enough to make good part of this share of its requests' time: while
// one of them waits, all requests in hand may wait for it. Threads that sleep are
// not late on full CPUs.
func (v *View) late(l *ledger, share float64) (idle float64, late bool) {
	idle, full := v.cpuFull(l)
	if !full {
		return idle, false
	}
	var delay float64
	for _, i := range v.families[l.pid] {
		delay += v.Processes[i].RunDelaySeconds
	}
	return idle, delay == 0 || ratio(delay, v.Window.Seconds) >= lateShare*share // 0: this kernel does not tell
}

// lacksCPU says that the CPUs were full, and that who works for the requests needed them
// for good part of this share of their time: threads of the service ran or waited to run,
// or those of what it calls on this host. A service that waits for an answer from
// elsewhere, or sleeps, loses nothing on full CPUs.
func (v *View) lacksCPU(l *ledger, share float64) bool {
	return v.lacksCPUWithin(l, share, lackingHops)
}

func (v *View) lacksCPUWithin(l *ledger, share float64, hops int) bool {
	if _, full := v.cpuFull(l); !full {
		return false
	}
	if computing, known := v.computing(l); known && computing >= blockedShare {
		return true
	}
	var needed float64
	for _, i := range v.families[l.pid] {
		p := &v.Processes[i]
		needed += p.CPUSeconds() + p.RunDelaySeconds
	}
	if hops == 0 || needed == 0 || ratio(needed, v.Window.Seconds) >= lateShare*share {
		return true
	}
	return slices.ContainsFunc(v.calledOf[l.pid], func(call *ledger) bool {
		return call.here != nil && call.reach >= callShare && v.lacksCPUWithin(call.here, share, hops-1)
	})
}

// idleWhile is the idle share of the CPUs, each part of the window counted by the requests
// that were under way in it: a load may last for a part of it only, and so may what holds it up.
func (v *View) idleWhile(l *ledger) (share float64, ok bool) {
	var idle, all float64
	slot, underWay := 0, l.underWay()
	for _, span := range v.Use.Course {
		var requests float64
		for ; slot < len(underWay) && (float64(slot)+0.5)*arrivalSlot < span.Seconds; slot++ {
			requests += underWay[slot]
		}
		idle += requests * ratio(span.Idle, span.Busy+span.Idle)
		all += requests
	}
	return ratio(idle, all), all > 0
}

// underWay is the time of the requests in each slot of the window, in s, if all that came in one took
// as long as the longest of them; where nobody took long, how many came.
func (l *ledger) underWay() []float64 {
	out := make([]float64, len(l.Arrivals))
	more := make([]float64, len(l.Arrivals)+1) // in each slot than in the one before, over all of it
	for i, n := range l.Arrivals {
		requests := float64(n)
		if len(l.LongestUS) != len(l.Arrivals) {
			out[i] = requests
			continue
		}
		whole, rest := math.Modf(float64(l.LongestUS[i]) / 1e6 / arrivalSlot)
		end := min(i+int(whole), len(out))
		more[i] += requests * arrivalSlot
		more[end] -= requests * arrivalSlot
		if end < len(out) {
			out[end] += requests * rest * arrivalSlot
		}
	}
	if len(l.LongestUS) == len(l.Arrivals) {
		sum := 0.0
		for i := range out {
			sum += more[i]
			out[i] += max(sum, 0)
		}
	}
	return out
}

// judged is what a check came to on one endpoint: a finding, or why there is
// none, and how near it was to one.
type judged struct {
	finding *Finding
	because string
	near    float64
}

// judgeLedgers runs a check on every endpoint in view. Where both ends of
// the same connections are on this host, the end that shows it best is reported.
// Endpoints with fewer than least requests are left out; when that is all of
// them, nothing was checked.
func (v *View) judgeLedgers(least uint64, check func(*ledger) judged) Result {
	r := ruledOut("no request was recorded")
	enough := false
	type hit struct {
		l *ledger
		f *Finding
	}
	var hits []hit
	found := map[*ledger]*Finding{}
	nearest := math.Inf(-1)
	for _, l := range v.ledgers {
		v.Step()
		var j judged
		if l.Requests >= least {
			enough = true
			j = check(l)
		} else {
			j = judged{because: "only " + l.all(), near: -1}
		}
		if j.finding != nil {
			hits = append(hits, hit{l, j.finding})
			found[l] = j.finding
		} else if j.because != "" && j.near > nearest {
			r.RuledOut, nearest = j.because, j.near
		}
	}
	for _, h := range hits {
		twin := slices.ContainsFunc(h.l.sameEnds(), func(o *ledger) bool {
			f := found[o]
			return f != nil && cmp.Or(cmp.Compare(f.Weight, h.f.Weight), strings.Compare(o.Side, h.l.Side)) > 0
		})
		if !twin {
			r.Findings = append(r.Findings, *h.f)
		}
	}
	if !enough {
		return Result{NotChecked: r.RuledOut}
	}
	return r
}

// found begins a finding about an endpoint: what it costs, with the figures
// that every such finding shows.
func (v *View) found(l *ledger, k cost, f floor, what string) *Finding {
	s := Subject{Kind: "listener", NetNS: l.NetNS, PID: l.pid, Comm: v.Comm(l.pid), Port: l.Port, Addr: l.Addr}
	if l.called() {
		s.Kind = "destination"
	}
	if v.Process(l.pid) == nil && l.Comm != "" {
		s.Comm = l.Comm
	}
	fd := supported(s)
	fd.Weight = k.share * l.reach
	if l.always(k, f) {
		fd.Impact = Impact{Share: round(k.share), Of: "the requests' time", OfTime: true,
			Text: l.one() + " takes " + nanoseconds(l.TimeNS()/float64(l.Requests)) + " on average, " + nanoseconds(k.ns) + " of it " + what}
	} else {
		fd.Impact = Impact{Share: round(k.slowShare), Of: "slow time", OfTime: true,
			Text: l.slowest() + " take " + nanoseconds(l.SlowTotalNS()) + " on average, " + nanoseconds(k.slowNS) + " of it " + what}
	}
	fd.Evidence = []Evidence{
		{Fact: "request latency, p50 and p99", Value: nanoseconds(float64(l.Total.Quantile(0.5))) + ", " + nanoseconds(float64(l.Total.Quantile(0.99))), Source: recorded},
		{Fact: "of it " + what + ", mean", Value: round(k.ns / 1e6), Unit: "ms", Source: recorded},
		{Fact: "of the slowest requests " + what + ", mean", Value: round(k.slowNS / 1e6), Limit: round(l.SlowTotalNS() / 1e6), Unit: "ms", Source: recorded},
	}
	fd.MayFollow = v.at(l)
	return &fd
}

// at says of a finding whether it is about the machine, or about the endpoint
// l or its other end on this host.
func (v *View) at(l *ledger) func(*Finding) bool {
	spaces := []uint64{l.NetNS}
	for _, o := range l.sameEnds() {
		if !slices.Contains(spaces, o.NetNS) {
			spaces = append(spaces, o.NetNS)
		}
	}
	return mayFollow(anyFinding, v.heldUpBy(l), func(p *Finding) bool {
		s := &p.Subject
		return p.hurts[l] || slices.Contains(spaces, s.NetNS) && (s.Port == 0 || s.Kind == "namespace" || s.Port == l.Port)
	})
}

// arrivalSlot is the length of an element of Endpoint.Arrivals, in seconds.
const arrivalSlot = 0.1

// recorded is where figures of the ledger come from.
const recorded = "request records"

// nanoseconds writes a duration given in ns.
func nanoseconds(ns float64) string { return seconds(ns / 1e9) }
