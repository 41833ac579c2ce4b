package cause

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// ErrorAnswers: requests are answered with an error of the server, or are slow because
// the service tries again and again. Whoever answers with an error that none of its own
// calls got is where it begins: a limit of its own (429, 503), or a fault.
const ErrorAnswers ID = "error-answers"

var errorAnswers = Cause{
	ID:    ErrorAnswers,
	Title: "The application answers requests with errors",
	Layer: LayerApplication,
	Needs: []observe.Kind{observe.KindRequests},
	ConsequenceOf: []Parent{ClassLimit, ClassKill, ClassPool, ClassDatabase, ClassDrop, ProcessStopped, Deadlock, LockConvoy, BlockedOnRemote, UpstreamRefused, ConnectTimeout,
		HAProxyNoServer, HAProxyServerQueue, NginxLimitReq, NginxLimitConn, NginxUpstreamErrors, NginxWorkerConnections, PHPFPMChildrenExhausted, GunicornWorkerTimeout,
		UWSGIHarakiri, EphemeralPortsExhausted, TimeWaitPortSearch, FDLimit, AcceptQueueOverflow, ConntrackFull, SlowDependency, NetworkLoss, DNSTimeout, DNSSlow, KeepaliveRace,
		ClassHost, DiskFull, InodesExhausted, ShmFull, FilesystemReadOnly, DiskQuotaExceeded, DiskIOErrors, MaxMapCount, CommitLimit, FileMax, InotifyLimit,
		AIOLimit, SysVIPCLimit, FileSizeLimit, NFSStaleHandle, SecurityDenials},
	Folds: true,
	Check: checkErrorAnswers,
}

// errorsAt is the errors that the requests of an endpoint, or its calls, were
// answered with: codes of the server, and for who calls it also 429, by which a limit
// refuses. code is what most of those were whose code is known; 0 where none is.
func (l *ledger) errorsAt(caller bool) (n uint64, code int) {
	known := map[int]int{}
	var refused, client int
	for _, list := range [][]observe.RequestSample{l.Failed, l.Slowest} {
		for i := range list {
			switch h := list[i].HTTP; {
			case h >= 500 || h == tooManyRequests && caller:
				known[h]++
				if h < 500 {
					refused++
				}
			case h >= 400:
				client++
			}
		}
	}
	if len(l.Statuses) == 0 {
		if l.called() {
			n = l.Errors
		}
		return n, 0
	}
	// The statuses are counted as answers come, the requests as they end.
	n = min(l.Statuses["5xx"]+uint64(float64(l.Statuses["4xx"])*ratio(refused, refused+client)), l.Requests)
	for c, times := range known {
		if times > known[code] || times == known[code] && c < code {
			code = c
		}
	}
	return n, code
}

// Statuses of HTTP (RFC 9110, 15; RFC 6585).
const (
	tooManyRequests = 429
	unavailable     = 503
)

var statusTexts = map[int]string{
	tooManyRequests: "Too Many Requests", 500: "Internal Server Error", 501: "Not Implemented", 502: "Bad Gateway", unavailable: "Service Unavailable",
	504: "Gateway Timeout", 505: "HTTP Version Not Supported", 507: "Insufficient Storage", 508: "Loop Detected",
}

// codeText is a status as people know it.
func codeText(code int) string {
	if code == 0 {
		return "errors"
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s", code, statusTexts[code]))
}

// errorWay follows the errors of an endpoint to where they begin, through the calls
// that are answered with errors as often: the last is who answers so by itself, or what
// is called elsewhere. least is how many each hop has at the least.
func (v *View) errorWay(front *ledger, least float64) []*ledger {
	way := []*ledger{front}
	for cur := front; cur != nil && len(way) < maxErrorHops; {
		v.Step()
		var worst *ledger
		var most uint64
		for _, o := range v.calledOf[cur.pid] {
			if n, _ := o.errorsAt(true); cur.pid != 0 && !o.client && n > most && !slices.Contains(way, o) {
				worst, most = o, n
			}
		}
		if worst == nil || float64(most) < least {
			break
		}
		way = append(way, worst)
		cur = worst.here
		if cur != nil && slices.ContainsFunc(way, func(l *ledger) bool { return !l.called() && l.pid == cur.pid }) {
			break // it calls itself, or in a circle
		}
		if cur != nil {
			way = append(way, cur)
		}
	}
	return way
}

const maxErrorHops = 32

// retries is the sleep that a service chooses itself while its requests wait, as one that
// tries again does; nil where it does not.
func (v *View) retries(l *ledger) *root {
	for _, r := range v.roots {
		if r.cause == ApplicationSleep && slices.ContainsFunc(r.shares, func(s *observe.WaitShare) bool { return s.PID == l.pid }) && v.harmless(r) == "" {
			return r
		}
	}
	return nil
}

func checkErrorAnswers(v *View) Result {
	r := ruledOut("no request is answered with an error of the server")
	taken := map[*ledger]bool{} // ends that are reported
	type front struct {
		l      *ledger
		failed uint64
		sleep  *root
	}
	var fronts []front
	nearest := uint64(0)
	for _, l := range v.ledgers {
		if l.called() || l.Requests < fewRequests {
			continue
		}
		failed, code := l.errorsAt(false)
		sleep := v.retries(l)
		if !manyFail(failed, l.Requests) {
			if failed > nearest {
				r.RuledOut, nearest = fmt.Sprintf("%s of %s were answered with %s", count(failed), l.all(), codeText(code)), failed
			}
			failed = 0
		}
		if failed > 0 || sleep != nil {
			fronts = append(fronts, front{l, failed, sleep})
		}
	}
	// Those that people wait for first: what they call is on their way.
	slices.SortStableFunc(fronts, func(a, b front) int { return cmp.Compare(order(v, a.l), order(v, b.l)) })
	for _, f := range fronts {
		least := errorsPassed * float64(f.failed)
		if f.sleep != nil {
			least = max(harmedLeast, least, errorsPassed*f.sleep.hit)
		}
		way := v.errorWay(f.l, least)
		end := way[len(way)-1]
		if taken[end] || f.failed == 0 && len(way) == 1 {
			continue
		}
		for _, l := range way {
			taken[l] = true
		}
		r.Findings = append(r.Findings, *v.errorFinding(way, f.failed, f.sleep))
	}
	return r
}

// order is 0 for an endpoint that no service of this host calls, and 1 for others.
func order(v *View, l *ledger) int {
	if slices.Contains(v.fronts, l) {
		return 0
	}
	return 1
}

func (v *View) errorFinding(way []*ledger, failed uint64, sleep *root) *Finding {
	front, end := way[0], way[len(way)-1]
	n, code := end.errorsAt(end != front)
	_, shown := front.errorsAt(false)
	s := Subject{Kind: "listener", NetNS: end.NetNS, PID: end.pid, Comm: v.commOf(end), Port: end.Port, Addr: end.Addr}
	if end.called() {
		s.Kind = "destination"
	}
	f := supported(s)
	f.Weight = ratio(failed, front.Requests) * front.reach
	f.Impact = Impact{Share: round(ratio(failed, front.Requests)), Of: "requests",
		Text: fmt.Sprintf("%s of %s were answered with %s", count(failed), front.all(), codeText(shown))}
	if sleep != nil {
		if w := sleep.share() * v.slowWeight(sleep); w > f.Weight || failed == 0 {
			f.Weight = w
			f.Impact = Impact{Share: round(sleep.share()), Of: "slow time", OfTime: true,
				Text: fmt.Sprintf("%s sleeps between its tries, %s in each slow request", v.serviceText(front.pid), nanoseconds(sleep.lost/max(sleep.hit, 1)))}
			lost := sleep.lost / 1e9
			f.lost = &lost
		}
	}
	for i, l := range way {
		if l.called() && l.here != nil && i < len(way)-1 {
			continue // its other end tells
		}
		m, c := l.errorsAt(i > 0)
		fact := fmt.Sprintf("%s (pid %d) on %s answered with %s", v.commOf(l), l.pid, l.name(), codeText(c))
		if l.called() {
			fact = fmt.Sprintf("%s that %s (pid %d) makes were answered with %s", l.name(), v.commOf(l), l.pid, codeText(c))
		}
		f.Evidence = append(f.Evidence, Evidence{Fact: fact, Value: m, Limit: l.Requests, Unit: "requests", Source: recorded})
	}
	if by := labelsOf(end.Failed); by != "" {
		f.Evidence = append(f.Evidence, Evidence{Fact: "the last of them asked for", Value: by, Source: recorded})
	}
	if sleep != nil && len(sleep.blamed().Stack) > 0 {
		f.Evidence = append(f.Evidence, Evidence{Fact: v.Comm(front.pid) + " sleeps between its tries in", Value: strings.Join(sleep.blamed().Stack, " ← "), Source: languageOf(sleep.blamed()).source})
	}
	v.errorAdvice(&f, way, n, code, shown, sleep)
	f.hurts = map[*ledger]bool{}
	var pids []int
	for _, l := range way {
		f.hurts[l] = true
		pids = append(pids, l.pid)
	}
	behind := v.behind(front)
	f.MayFollow = func(p *Finding) bool {
		// What is slow makes errors only of who gives up waiting for it.
		if p.Cause == SlowDependency && (end.called() || v.Master(p.Subject.PID) != end.pid || end.failsAtOnce()) {
			return false
		}
		// A refusal is no answer, so what is called and refuses is on no way of errors.
		if slices.ContainsFunc(v.stake(p), func(l *ledger) bool { return slices.Contains(behind, l) }) {
			return true
		}
		return slices.Contains(pids, p.Subject.PID) || slices.ContainsFunc(way, func(l *ledger) bool { return v.at(l)(p) })
	}
	return &f
}

// failsAtOnce says that most of the requests of an endpoint which failed took no longer
// than others, and less than anybody sets as a time limit: they waited for nothing in
// vain. It is false where that is not known.
func (l *ledger) failsAtOnce() bool {
	var took []int64
	for i := range l.Failed {
		if l.Failed[i].HTTP >= 500 && l.Failed[i].TotalNS > 0 {
			took = append(took, l.Failed[i].TotalNS)
		}
	}
	if len(took) == 0 {
		return false
	}
	slices.Sort(took)
	median := float64(took[len(took)/2])
	return median < leastTimeout && median < slowerThan*float64(l.Total.Quantile(0.5))
}

// leastTimeout is the shortest time limit of a call that is to be expected, in ns.
const leastTimeout = 100e6

// errorAdvice says where the errors begin, and what to do about it.
func (v *View) errorAdvice(f *Finding, way []*ledger, n uint64, code, shown int, sleep *root) {
	front, end := way[0], way[len(way)-1]
	who := fmt.Sprintf("%s (pid %d)", v.commOf(end), end.pid)
	if end.called() {
		who = destinationName(end)
	}
	f.Title = fmt.Sprintf("%s answers %s to %s", who, codeText(code), percent(ratio(n, end.Requests)))
	if end != front {
		caller := v.commOf(front)
		f.Title = fmt.Sprintf("%s answers %s, which %s passes on", who, codeText(code), caller)
		switch {
		case sleep != nil:
			f.Title = fmt.Sprintf("%s answers %s, and %s keeps retrying", who, codeText(code), caller)
		case shown != code && shown != 0:
			f.Title += fmt.Sprintf(" as %d", shown)
		}
	}
	f.Fix.Text = fmt.Sprintf("None of the calls of %s failed so: the error is its own. Its log says why.", who)
	if unread := v.unreadCalls(end); len(unread) > 0 {
		f.Fix.Text = fmt.Sprintf("It is not known whether calls of %s failed so: the answers to its %s cannot be read. Its log says, or that of who answers there.", who, strings.Join(unread, ", "))
	}
	switch {
	case code == tooManyRequests || code == unavailable:
		f.Fix.Text = fmt.Sprintf("%s refuses by a limit of its own (%s): raise that limit, or ask it less often.", who, codeText(code))
		if code == unavailable {
			f.Fix.Text = fmt.Sprintf("%s refuses (%s): it is over a limit of its own, or not ready. Its log says which: raise that limit, or ask it less often.", who, codeText(code))
		}
	case end.called():
		f.Fix.Text = fmt.Sprintf("%s answers so, on another host: see its log there.", who)
	}
	if sleep != nil {
		f.Fix.Text += fmt.Sprintf(" %s: bound its retries by time and number, and give up at once when the answer cannot change.", v.serviceText(front.pid))
	}
	f.Fix.Commands = []shell.Command{shell.Line("slowray requests --port %s --labels   # which requests get it", end.Port)}
}

// unreadCalls names those calls of who answers an endpoint of which no status, and no
// error, was read (a protocol that is not known, or TLS that is not read), most time
// first. A few of them are no sign of what the errors come from.
func (v *View) unreadCalls(l *ledger) []string {
	if l.called() || l.pid == 0 {
		return nil
	}
	var list []*ledger
	for _, o := range v.calledOf[l.pid] {
		if !o.client && o.here != l && o.Requests+o.waiting() >= fewAffected && len(o.Statuses) == 0 && o.OK+o.Errors == 0 {
			list = append(list, o)
		}
	}
	slices.SortStableFunc(list, func(a, b *ledger) int { return cmp.Compare(b.TimeNS(), a.TimeNS()) })
	var names []string
	for _, o := range list[:min(len(list), mostUnread)] {
		names = append(names, o.name())
	}
	return names
}

const mostUnread = 3

// labelsOf tells what requests asked for, the most frequent first; empty where labels
// were not kept.
func labelsOf(list []observe.RequestSample) string {
	times := map[string]int{}
	var labels []string
	for i := range list {
		if s := list[i].Label; s != "" {
			if times[s]++; times[s] == 1 {
				labels = append(labels, s)
			}
		}
	}
	slices.SortStableFunc(labels, func(a, b string) int { return cmp.Compare(times[b], times[a]) })
	for i, s := range labels[:min(len(labels), 3)] {
		labels[i] = fmt.Sprintf("%s (%d)", s, times[s])
	}
	return strings.Join(labels[:min(len(labels), 3)], ", ")
}
