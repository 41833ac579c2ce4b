package cause

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// HarmKind is how requests suffered.
type HarmKind string

// The kinds of harm.
const (
	HarmSlow       HarmKind = "slow"       // longer than most at the same endpoint, or held up by what is no work
	HarmFailed     HarmKind = "failed"     // answered with an error of the server
	HarmUnanswered HarmKind = "unanswered" // the connection ended before the first byte of an answer
	// HarmUnfinished: no answer, or not all of it, when the window or the connection ended,
	// and something holds up who should give it, or the network what was sent.
	HarmUnfinished HarmKind = "unfinished"
	// HarmNotConnected counts connections of clients, for which nobody answers requests:
	// those of a service are among its own.
	HarmNotConnected HarmKind = "not_connected"
)

// Harm is what the requests of one endpoint lost in one way.
type Harm struct {
	Kind     HarmKind `json:"kind"`
	Requests uint64   `json:"requests"`
	Seconds  float64  `json:"lost_s"`
}

// Victim is an endpoint whose requests were harmed, or one that clients cannot connect
// to.
type Victim struct {
	Side      string  `json:"side"`
	NetNS     uint64  `json:"netns"`
	Addr      string  `json:"addr"`
	Port      int     `json:"port"`
	PID       int     `json:"pid,omitempty"`
	Comm      string  `json:"comm,omitempty"`
	Harms     []Harm  `json:"harms"`
	Lost      float64 `json:"lost_s"`
	Explained float64 `json:"explained_s"` // as much as findings account for

	l *ledger   // nil where no connection came about
	o *outcomes // of connections, for HarmNotConnected
}

// Account is who was harmed in the window, and by how much.
type Account struct {
	Lost      float64  `json:"lost_s"`
	Explained float64  `json:"explained_s"`
	Victims   []Victim `json:"victims"` // most harmed first
}

// Account adds up, for each endpoint that no other service of this host calls (the
// time of the others lies within theirs), the seconds that its requests lost. It asks
// no cause.
func (v *View) Account() Account {
	a := Account{Victims: []Victim{}}
	for _, l := range v.fronts {
		v.Step()
		harms := v.harmsOf(l)
		if len(harms) == 0 {
			continue
		}
		x := Victim{Side: l.Side, NetNS: l.NetNS, Addr: l.Addr, Port: l.Port, PID: l.pid, Comm: v.commOf(l), Harms: harms, l: l}
		for _, h := range harms {
			x.Lost += h.Seconds
		}
		a.Victims = append(a.Victims, x)
	}
	for _, o := range v.outcomes().all {
		bad := o.vain()
		if h, ok := v.harmedBy(o, bad); !o.client || !ok || h.share < noiseShare {
			continue
		}
		lost := round(failedCost * float64(bad))
		a.Victims = append(a.Victims, Victim{Side: observe.Called.String(), NetNS: o.netns, Addr: o.addr, Port: o.port, PID: o.pid, Comm: o.comm,
			Harms: []Harm{{HarmNotConnected, bad, lost}}, Lost: lost, o: o})
	}
	a.sort()
	return a
}

// Add takes in the account of another window.
func (a *Account) Add(b *Account) {
	for _, x := range b.Victims {
		at := slices.IndexFunc(a.Victims, func(y Victim) bool {
			return y.Side == x.Side && y.NetNS == x.NetNS && y.Addr == x.Addr && y.Port == x.Port
		})
		if at < 0 {
			x.Harms = slices.Clone(x.Harms)
			a.Victims = append(a.Victims, x)
			continue
		}
		y := &a.Victims[at]
		y.Lost, y.Explained = round(y.Lost+x.Lost), round(y.Explained+x.Explained)
		for _, h := range x.Harms {
			if same := slices.IndexFunc(y.Harms, func(g Harm) bool { return g.Kind == h.Kind }); same < 0 {
				y.Harms = append(y.Harms, h)
			} else {
				y.Harms[same].Requests += h.Requests
				y.Harms[same].Seconds = round(y.Harms[same].Seconds + h.Seconds)
			}
		}
	}
	a.Lost, a.Explained = round(a.Lost+b.Lost), round(a.Explained+b.Explained)
	a.sort()
}

func (a *Account) sort() {
	slices.SortStableFunc(a.Victims, func(x, y Victim) int { return cmp.Compare(y.Lost, x.Lost) })
}

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
	if requests, seconds := v.slowerThanUsual(l); seconds >= harmShare*l.TimeNS()/1e9 {
		add(HarmSlow, requests, seconds)
	}
	failed := l.Statuses["5xx"]
	if len(l.Statuses) == 0 {
		failed = l.Errors - min(l.Errors, l.Unanswered)
	}
	if failed >= harmedLeast {
		add(HarmFailed, failed, failedCost*float64(failed))
	}
	if gaveUp := uint64(float64(l.Unanswered) * l.harmed()); gaveUp >= harmedLeast {
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
	if l.Split != nil && l.Split.Requests >= fewRequests {
		for _, p := range heldUpIn {
			part := l.Split.Parts[p.String()]
			held += l.Split.ShareNS(p, l.SumNS(observe.Server))
			most += float64(part.Hist.Quantile(0.5))
		}
	}
	if _, full := v.cpuFull(l); !full && held > ns && held >= dominantShare*l.TimeNS() && most >= threadFloor.mean {
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
	var stuck, seen float64 // unread, or sent again in vain
	for s := range flagged(l.Slowest, observe.FlagUnfinished) {
		seen++
		ns += float64(s.TotalNS)
		if greatest(s, observe.RecvWait) || greatest(s, observe.Retrans) {
			stuck++
		}
	}
	ns, stuck = ns/max(seen, 1)*float64(l.Unfinished), ratio(stuck, seen)*float64(l.Unfinished)
	if e := l.Earlier; e != nil {
		ns += v.Window.Seconds * 1e9 * float64(e.Requests)
		stuck += float64(e.Unread)
	}
	if ns == 0 {
		return 0, false
	}
	return ns, stuck > float64(l.waiting())/2 || v.stopped(l) || v.threadsWait(l) || len(v.waitsForCalls(l)) > 0
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

// Explain lets the findings, in the order in which they are reported, account for
// what was lost, each for its share of it, and no second twice.
func (v *View) Explain(a *Account, findings []Finding) {
	a.Lost, a.Explained = 0, 0
	for i := range a.Victims {
		x := &a.Victims[i]
		var behind []*ledger
		if x.l != nil {
			behind = v.behind(x.l)
		}
		share := 0.0
		for j := range findings {
			v.Step()
			if x.l == nil {
				share += v.keptOff(&findings[j], x.o)
			} else {
				share += v.claim(&findings[j], x, behind)
			}
		}
		x.Explained = round(x.Lost * min(share, 1))
		a.Lost += x.Lost
		a.Explained += x.Explained
	}
	a.Lost, a.Explained = round(a.Lost), round(a.Explained)
}

// claim is the share of what a victim lost that a finding accounts for, 0 to 1: the
// finding is about the endpoint, or about one that its requests may wait for, and costs
// so much of the time that its slow requests lost, or of its attempts that failed.
// Clients that give up are part of the same event: what explains the slow requests of
// an endpoint explains those that were never answered in proportion, and the other way
// round.
func (v *View) claim(f *Finding, x *Victim, behind []*ledger) float64 {
	stake := v.stake(f)
	at := slices.DeleteFunc(slices.Clone(behind), func(l *ledger) bool {
		return !slices.Contains(stake, l) && !slices.Contains(f.Holds, l.pid) &&
			!slices.ContainsFunc(l.sameEnds(), func(o *ledger) bool { return slices.Contains(stake, o) })
	})
	if len(at) == 0 && !f.hurts[x.l] {
		return 0
	}
	var slow, failed float64
	for _, h := range x.Harms {
		if h.Kind == HarmSlow || h.Kind == HarmUnfinished {
			slow += h.Seconds
		} else {
			failed += float64(h.Requests)
		}
	}
	share := f.Weight
	if f.Impact.Cost != nil && slow > 0 {
		share = max(share, ratio(*f.Impact.Cost, slow))
	}
	if f.is(ClassWait) {
		// Threads are looked at now and then: what the looks tell stands for the rest.
		for _, l := range at {
			if seen := v.seenWaiting(l.pid); seen >= seenLeast {
				share = max(share, ratio(share, seen))
			}
		}
	}
	if failed > 0 && !f.Impact.OfTime {
		share = max(share, ratio(f.Weight*float64(x.l.Requests+x.l.waiting()), failed))
	}
	return share
}

// keptOff is the share of the connections in vain to one destination that a finding
// accounts for, 0 to 1.
func (v *View) keptOff(f *Finding, o *outcomes) float64 {
	if f.keepsOff != nil && !f.keepsOff[o.destination] || f.keepsOff == nil && !v.follows(o.destination)(f) {
		return 0
	}
	share := f.Weight
	if f.Impact.Of == "new connections" {
		share = max(share, f.Impact.Share)
	}
	return ratio(share*float64(o.all()), float64(o.vain()))
}

// seenWaiting is the share of the slow requests' time of a master in which looks at
// its threads tell what they waited for, 0 to 1.
func (v *View) seenWaiting(pid int) float64 {
	if v.Waits == nil {
		return 0
	}
	var slow, seen float64
	for _, s := range v.slowOf[pid] {
		slow += float64(s.NS)
	}
	for i := range v.Waits.Shares {
		if s := &v.Waits.Shares[i]; s.PID == pid {
			seen += float64(s.SlowNS)
		}
	}
	return ratio(seen, slow)
}

// Unexplained makes a finding of what no other accounts for at a victim; false where
// that is the smaller part.
func (v *View) Unexplained(x *Victim) (Finding, bool) {
	left := x.Lost - x.Explained
	if left <= unexplainedShare*x.Lost {
		return Finding{}, false
	}
	l := x.l
	if l == nil {
		return v.unexplainedConnections(x, left), true
	}
	f := supported(Subject{Kind: "listener", NetNS: x.NetNS, PID: x.PID, Comm: x.Comm, Port: x.Port, Addr: x.Addr})
	f.Cause, f.layer = Unexplained, LayerApplication
	f.Title = unexplained.Title
	f.Weight = ratio(left, l.TimeNS()/1e9+failedCost*float64(l.Errors+l.Unanswered))
	f.lost = &left
	f.Impact = Impact{Share: round(ratio(left, x.Lost)), Of: "the harm", Text: l.harmText(x.Harms)}
	for _, h := range x.Harms {
		f.Evidence = append(f.Evidence, Evidence{Fact: "requests " + string(h.Kind), Value: h.Requests, Limit: l.Requests + l.waiting(), Unit: "requests, which lost " + seconds(h.Seconds), Source: recorded})
	}
	f.Evidence = append(f.Evidence, Evidence{Fact: "where their time goes", Value: l.whereTimeGoes(), Source: recorded})
	f.Fix.Text = fmt.Sprintf("No cause that slowray knows accounts for this. Look at where %s stands in these requests, and at its own log.", x.Comm)
	if x.PID > 0 {
		f.Fix.Commands = append(f.Fix.Commands, shell.Line("slowray wait %s", x.PID), shell.Line("slowray flame --pid %s --off-cpu -o flame.html", x.PID))
	}
	f.Fix.Commands = append(f.Fix.Commands, shell.Line("slowray requests --port %s --labels", x.Port))
	return f, true
}

// unexplainedConnections is Unexplained for connections that did not come about.
func (v *View) unexplainedConnections(x *Victim, left float64) Finding {
	o := x.o
	f := supported(Subject{Kind: "destination", NetNS: o.netns, PID: o.pid, Comm: o.comm, Port: o.port, Addr: o.addr})
	f.Cause, f.layer, f.Title = Unexplained, LayerCall, unexplained.Title
	f.Weight = ratio(o.vain(), o.all())
	f.lost = &left
	f.Impact = Impact{Share: round(ratio(left, x.Lost)), Of: "the harm",
		Text: fmt.Sprintf("%s of %s connections of %s to %s did not come about", count(o.vain()), count(o.all()), o.comm, o.name())}
	f.Evidence = []Evidence{
		{Fact: "connections refused", Value: o.refused, Limit: o.all(), Unit: "connections", Source: "TCP sockets"},
		{Fact: "connections never answered", Value: o.unanswered, Limit: o.all(), Unit: "connections", Source: "TCP sockets"},
	}
	f.Fix.Text = fmt.Sprintf("No cause that slowray knows accounts for this. Look at what listens at %s, and at the way there.", o.name())
	ns := v.Namespace(o.netns)
	f.Fix.Commands = []shell.Command{v.in(ns, shell.Line("ip route get %s", o.addr)), v.in(ns, shell.Line("ss -tn state syn-sent dport = :%s", o.port)), shell.Line("slowray drops --for 10s")}
	return f
}

func (l *ledger) harmText(harms []Harm) string {
	text := ""
	for i, h := range harms {
		if i > 0 {
			text += "; "
		}
		text += fmt.Sprintf("%s of %s requests on %s %s, %s lost", count(h.Requests), count(l.Requests+l.waiting()), l.name(), harmWords[h.Kind], seconds(h.Seconds))
	}
	return text
}

var harmWords = map[HarmKind]string{
	HarmSlow: "slow", HarmFailed: "failed", HarmUnanswered: "never answered", HarmUnfinished: "without an answer, or all of it, at the end",
}
