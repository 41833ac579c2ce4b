package cause

import (
	"slices"

	"github.com/slowray/slowray/internal/observe"
)

// harmsOf lists what the requests of an endpoint lost, by kind; none where it is no
// more than what any busy service loses.
func (v *View) harmsOf(l *ledger) []Harm {
	var out []Harm
	all := l.Requests + l.waiting()
	add := func(kind HarmKind, requests uint64, seconds float64) {
		if requests >= fewAffected && ratio(requests, all) >= noiseShare && seconds > 0 {
			out = append(out, Harm{Kind: kind, Requests: min(requests, all), Seconds: round(seconds)})
		}
	}
	behind := 0.0 // of the time of slow requests, the seconds in handshakes
	if requests, seconds := v.slowerThanUsual(l); seconds >= harmShare*l.TimeNS()/1e9 {
		add(HarmSlow, requests, seconds)
		behind = seconds * l.SlowShare(observe.TLS)
	}
	h := l.handshakes()
	add(HarmHandshake, l.TLS, h.costs(l)/1e9-behind)
	failed := l.Statuses["5xx"]
	if len(l.Statuses) == 0 {
		failed = l.Errors
	}
	if manyFail(failed, all) {
		add(HarmFailed, failed, failedCost*float64(failed))
	}
	if gaveUp := v.gaveUp(l); manyFail(gaveUp, all) {
		add(HarmUnanswered, gaveUp, failedCost*float64(gaveUp))
	}
	var requests uint64
	ns, held := v.heldUp(l)
	if held {
		requests = l.waiting()
	} else {
		ns = 0
	}
	if !slices.ContainsFunc(out, func(h Harm) bool { return h.Kind == HarmSlow }) { // which they are, too
		n, cut := l.cutOff()
		requests, ns = requests+n, ns+cut
	}
	add(HarmUnfinished, requests, ns/1e9)
	return out
}

// manyFail says whether so many of all requests failed that it is harm: of a service with few
// requests it is most of them.
func manyFail(failed, all uint64) bool {
	return failed >= harmedLeast && ratio(failed, all) >= noiseShare || failed >= fewAffected && ratio(failed, all) >= mostFail
}

// gaveUp is how many requests nobody answered in time. Where clients end at one moment the
// latest that failed tell only of those that were in hand then.
func (v *View) gaveUp(l *ledger) uint64 {
	left := float64(l.Unanswered) * (1 - l.harmed())
	if l.leftAtOnce() {
		left = min(left, leftInHand*v.queued(l))
	}
	return l.Unanswered - min(l.Unanswered, uint64(left))
}

// harmed is the share of the unanswered requests that were harmed, 0 to 1, as far as the
// last of them tell: clients that stop their work while others still get their answers
// (a load test ends, a visitor goes on to another page) have lost nothing.
func (l *ledger) harmed() float64 {
	usual := l.Total.Quantile(max(patience-ratio(l.Unanswered, l.Requests), 0.5))
	if l.leftAtOnce() {
		usual = l.Total.Quantile(0.99)
	}
	var seen, harmed float64
	for s := range flagged(l.Failed, observe.FlagUnanswered) {
		seen++
		if !hasFlag(s, observe.FlagHalfClosed) || s.TotalNS > usual {
			harmed++
		}
	}
	if seen == 0 {
		return 1
	}
	return harmed / seen
}

// leftAtOnce says that the last of the unanswered requests were given up at one moment,
// however long they had waited, as a client ends that has many.
func (l *ledger) leftAtOnce() bool {
	var first, last, shortest, longest int64
	for s := range flagged(l.Failed, observe.FlagUnanswered) {
		if !hasFlag(s, observe.FlagHalfClosed) {
			continue
		}
		end := s.StartNS + s.TotalNS
		if first == 0 {
			first, shortest = end, s.TotalNS
		}
		first, last = min(first, end), max(last, end)
		shortest, longest = min(shortest, s.TotalNS), max(longest, s.TotalNS)
	}
	return last > 0 && last-first <= leftWithin && 2*longest >= 3*shortest
}

// slowerThanUsual is the requests that took longer than they should, and the seconds
// that they lost: what is above the median of the endpoint, of those that took far
// longer; or, where most requests are held up, the time in parts in which nobody
// works for them. What clients take to read is theirs, and a server may have its reason
// to pause within an answer. On CPUs without a moment to spare waiting is the price of the load.
func (v *View) slowerThanUsual(l *ledger) (requests uint64, seconds float64) {
	usual := l.Total.Quantile(0.5)
	least := max(int64(slowerThan*float64(usual)), usual+int64(threadFloor.slow))
	var ns float64
	for t, n := range l.Total.Buckets() {
		if t > least {
			requests += n
			ns += float64(t-usual) * float64(n)
		}
	}
	// Of sampled records each stands for several.
	scale := 1.0
	if n := l.Total.Count(); n > 0 {
		scale = max(1, float64(l.Requests)/float64(n))
	}
	requests, ns = uint64(float64(requests)*scale), ns*scale
	if !l.enough(requests) {
		requests, ns = 0, 0
	}
	if l.SlowShare(observe.SendWait) >= dominantShare {
		requests, ns = 0, 0 // some clients read slowly
	}
	if _, late := v.late(l, ratio(ns, l.TimeNS())); late {
		requests, ns = 0, 0
	}
	var held, most float64
	for _, p := range []observe.Part{observe.AcceptWait, observe.RecvWait, observe.Retrans} {
		held += l.SumNS(p)
		hist := l.Parts[p.String()].Hist
		most += float64(hist.Quantile(0.5))
	}
	if l.followed() {
		for _, p := range heldUpIn {
			part := l.Split.Parts[p.String()]
			held += l.Split.ShareNS(p, l.SumNS(observe.Server))
			most += float64(part.Hist.Quantile(0.5))
		}
	}
	if held > ns && held >= dominantShare*l.TimeNS() && most >= threadFloor.mean && !v.lacksCPU(l, ratio(held, l.TimeNS())) {
		return l.Requests, held / 1e9
	}
	if own, long := v.ownDoing(l); long && own > ns {
		return l.Requests, own / 1e9
	}
	return requests, ns / 1e9
}

// heldUpIn is what threads that have a request in hand do where nobody works for it.
// Sockets and calls are not among them: there somebody may.
var heldUpIn = []observe.ServerPart{observe.ServerThrottled, observe.ServerLock, observe.ServerDisk, observe.ServerPipe}

// ownDoing is the time, in ns, that the requests of an endpoint spend computing, or
// asleep by the service's own choice, with CPUs to spare; and whether that is nearly all
// of their time, and long.
func (v *View) ownDoing(l *ledger) (ns float64, long bool) {
	s := l.Split
	if s == nil || s.Requests < fewRequests || l.Requests < fewRequests {
		return 0, false
	}
	if _, full := v.cpuFull(l); full {
		return 0, false
	}
	ns = s.ShareNS(observe.ServerCPU, l.MeanNS(observe.Server))
	if asleep := s.ShareNS(observe.ServerSleep, l.MeanNS(observe.Server)); asleep >= sleepFloor {
		ns += asleep
	}
	ns *= float64(l.Requests)
	return ns, ns >= ownFloor*float64(l.Requests) && ns >= ownShare*l.TimeNS()
}

// waiting is how many requests had no answer when the window ended, and had waited for
// over a second.
func (l *ledger) waiting() uint64 {
	if l.Earlier == nil {
		return l.Unfinished
	}
	return l.Unfinished + l.Earlier.Requests
}

// heldUp says whether requests without an answer at the end of the window are held up,
// as opposed to those of a server that is ready for work and has nothing to say yet
// (long polls, streams), and for how long all of them together had waited in the window,
// in ns.
func (v *View) heldUp(l *ledger) (ns float64, held bool) {
	ns, stuck := l.unread()
	if e := l.Earlier; e != nil {
		ns += v.Window.Seconds * 1e9 * float64(e.Requests)
	}
	if ns == 0 {
		return 0, false
	}
	return ns, v.blocked(l, stuck, maxHops) || len(v.waitsForCalls(l)) > 0
}

// blocked says that most of the requests of an endpoint without an answer are stuck, that
// its threads are held up, or what it calls is.
func (v *View) blocked(l *ledger, stuck float64, hops int) bool {
	return stuck > float64(l.waiting())/2 || v.stopped(l) || v.threadsWait(l) || v.heldBehind(l, hops)
}

// unread is how many requests without an answer are unread, or were retransmitted in vain;
// and the time, in ns, that those which began in the window have waited together.
func (l *ledger) unread() (ns, n float64) {
	var seen float64
	for s := range flagged(l.Slowest, observe.FlagUnfinished) {
		seen++
		ns += float64(s.TotalNS)
		if greatest(s, observe.RecvWait) || greatest(s, observe.Retrans) {
			n++
		}
	}
	ns, n = ns/max(seen, 1)*float64(l.Unfinished), ratio(n, seen)*float64(l.Unfinished)
	if e := l.Earlier; e != nil {
		n += float64(e.Unread)
	}
	return ns, n
}

// maxHops bounds how far calls without an answer are followed.
const maxHops = 8

// heldBehind says that most of the requests of an endpoint without an answer wait for
// calls to another one of this host where as many are stuck, while others are answered.
func (v *View) heldBehind(l *ledger, hops int) bool {
	if l.called() || hops == 0 {
		return false
	}
	return slices.ContainsFunc(v.calledOf[l.pid], func(o *ledger) bool {
		next := o.here
		if next == nil || next == l || 2*o.waiting() < l.waiting() || 2*next.waiting() < l.waiting() {
			return false
		}
		_, stuck := next.unread()
		return v.blocked(next, stuck, hops-1)
	})
}

// stopped says that a process that serves an endpoint is stopped, or sleeps in the kernel
// where no signal reaches it.
func (v *View) stopped(l *ledger) bool {
	return slices.ContainsFunc(append([]int{l.pid}, l.PIDs...), func(pid int) bool {
		p := v.Process(pid)
		return p != nil && (p.State == "T" || p.State == "t" || p.State == "D")
	})
}

// threadsWait says that threads of who serves an endpoint waited for what holds them up
// while its slow requests were in progress; where it answered nobody, for anything but work.
func (v *View) threadsWait(l *ledger) bool {
	if v.Waits == nil {
		return false
	}
	for i := range v.Waits.Shares {
		if s := &v.Waits.Shares[i]; s.PID == l.pid && s.SlowNS > 0 && len(s.Chain.Hops) > 0 {
			if id, _ := blameOf(s); id != "" || l.Requests == 0 {
				return true
			}
		}
	}
	return false
}

// waitsForCalls is the calls without an answer of a service that answers nobody, while
// clients ask: what it should answer with may be in them.
func (v *View) waitsForCalls(l *ledger) []*ledger {
	if l.called() || l.Requests > 0 || l.Earlier == nil || l.Unfinished+l.Unanswered+l.Connections+l.Earlier.Unread == 0 {
		return nil
	}
	var calls []*ledger
	for _, o := range v.calledOf[l.pid] {
		if o.Requests == 0 && o.waiting() > 0 && o.here != l {
			calls = append(calls, o)
		}
	}
	return calls
}
