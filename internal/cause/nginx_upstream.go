package cause

import (
	"fmt"
	"slices"

	"github.com/slowray/slowray/internal/observe"
)

// NginxUpstreamErrors: nginx could not get an answer from the server it passes
// requests to, and says so in its error log. Which of the two is at fault it
// does not know; where the reason is found, this is reported as its consequence.
const NginxUpstreamErrors ID = "nginx-upstream-errors"

var nginxUpstreamErrors = Cause{
	ID:    NginxUpstreamErrors,
	Title: "nginx gets errors instead of answers from its upstream",
	Layer: LayerApplication,
	Needs: []observe.Kind{observe.KindNginx, observe.KindProcess},
	Folds: true,
	ConsequenceOf: []Parent{FirewallDrop, FirewallReject, NeighbourUnresolved, NoRoute, ConntrackFull, AcceptQueueOverflow,
		EphemeralPortsExhausted, PHPFPMChildrenExhausted, FDLimit, NginxWorkerConnections, TimeWaitPortSearch, CPUQuotaThrottled,
		CPUSaturated, MemoryPressure, DiskSaturated, UpstreamRefused, ConnectTimeout, ClassLimit, ClassPool, ClassWait},
	Check: checkNginxUpstreamErrors,
}

// upstreamKinds are the log kinds that blame the upstream, with what to say of
// each and which causes can bring it about.
var upstreamKinds = []struct {
	kind, fact, fix string
	parents         []Parent
}{
	{"ephemeral-ports", "cannot assign requested address (99)", "Give nginx more local ports, or keep connections to the upstream open.",
		[]Parent{EphemeralPortsExhausted, TimeWaitPortSearch, ConntrackFull}},
	{"upstream-refused", "connection refused (111)", "Nothing listens at the upstream's address: start it, or correct the address.",
		[]Parent{UpstreamRefused, ClassKill}},
	{"upstream-busy", "resource temporarily unavailable (11)", "The upstream's unix socket has a full accept queue.",
		[]Parent{AcceptQueueOverflow, PHPFPMChildrenExhausted}},
	{"upstream-connect-timeout", "timed out while connecting (110)", "The upstream does not answer SYNs: see its accept queue and what lies between.",
		[]Parent{ConntrackFull, AcceptQueueOverflow, PHPFPMChildrenExhausted, FDLimit, SoftirqSaturated, ConnectTimeout, PIDsLimit}},
	{"upstream-read-timeout", "timed out while reading (110)", "The upstream takes longer than nginx waits: find what it does meanwhile.",
		nil},
	{"upstream-reset", "connection reset or closed by the upstream (104)", "The upstream gave up: see its own log.",
		[]Parent{NginxWorkerConnections, FDLimit, MemoryPressure, AcceptQueueOverflow, PIDsLimit, ClassKill}},
	{"no-live-upstreams", "no live upstreams", "Every server of the upstream has failed lately.",
		nil},
}

func checkNginxUpstreamErrors(v *View) Result {
	r := ruledOut("no nginx with traffic")
	for i := range v.Nginx {
		n := &v.Nginx[i]
		if len(v.nginxServes[n]) == 0 {
			continue
		}
		var lines int64
		worst, worstLines := 0, int64(0)
		for j, k := range upstreamKinds {
			c, _ := logCount(n.Errors, k.kind)
			lines += c
			if c > worstLines {
				worst, worstLines = j, c
			}
		}
		_, answered := statuses(n)
		requests, _, _, _ := v.answersOf(n) // an access log may be off, or elsewhere
		answered = max(answered, int64(requests))
		share := ratio(lines, max(answered, lines))
		if lines < 5 || share < noiseShare {
			r.RuledOut = fmt.Sprintf("%s upstream errors in nginx's log, %s answers", count(lines), count(answered))
			if answered == 0 {
				r.RuledOut = fmt.Sprintf("%s upstream errors in nginx's log; its access log tells of no answer", count(lines))
			}
			continue
		}
		f := supported(Subject{Kind: "process", NetNS: n.NetNS, PID: n.PID, Comm: "nginx", Path: n.Root + n.Config})
		f.Weight = share
		f.Impact = Impact{Share: round(share), Of: "answers", Text: fmt.Sprintf("%s errors from the upstream, %s answers in all", count(lines), count(max(answered, lines)))}
		for _, k := range upstreamKinds {
			c, example := logCount(n.Errors, k.kind)
			if c > 0 {
				f.Evidence = append(f.Evidence, Evidence{Fact: "log: " + k.fact, Value: c, Unit: "lines", Source: "nginx error log"}, firstLine(example))
			}
		}
		if s, all := statuses(n); all > 0 {
			f.Evidence = append(f.Evidence, Evidence{Fact: "answers 5xx", Value: s.S5xx, Limit: all, Unit: "answers", Source: "nginx access log"})
		}
		f.Fix.Text, f.Parents = upstreamKinds[worst].fix, upstreamKinds[worst].parents
		for _, k := range n.Errors {
			if k.Kind == upstreamKinds[worst].kind && k.Upstream != "" {
				f.Subject.Addr = k.Upstream
				break
			}
		}
		r.Findings = append(r.Findings, f)
	}
	return r
}

// ClientAborts: nginx writes status 499 when the client closed the connection
// before the answer (NGX_HTTP_CLIENT_CLOSED_REQUEST). A load generator that
// ends closes all its connections at once, which is nobody's fault: only 499s
// that keep coming while others are answered count.
const ClientAborts ID = "client-aborts"

var clientAborts = Cause{
	ID:    ClientAborts,
	Title: "Clients give up before the response (HTTP 499)",
	Layer: LayerApplication,
	Needs: []observe.Kind{observe.KindNginx, observe.KindProcess},
	Folds: true,
	ConsequenceOf: []Parent{FirewallDrop, FirewallReject, NeighbourUnresolved, NoRoute, ConntrackFull, AcceptQueueOverflow,
		PHPFPMChildrenExhausted, EphemeralPortsExhausted, FDLimit, NginxWorkerConnections, TimeWaitPortSearch, CPUQuotaThrottled,
		CPUSaturated, MemoryPressure, DiskSaturated, SoftirqSaturated, NginxUpstreamErrors, ClassLimit, ClassPool, ClassWait},
	Check: checkClientAborts,
}

func checkClientAborts(v *View) Result {
	r := ruledOut("no nginx with traffic")
	for i := range v.Nginx {
		n := &v.Nginx[i]
		if len(v.nginxServes[n]) == 0 {
			continue
		}
		aborts, spread := sustainedAborts(n.Statuses)
		sum, all := statuses(n)
		share := ratio(aborts, all)
		if share < noiseShare || spread < abortSeconds {
			r.RuledOut = fmt.Sprintf("%s answers were aborted by the client (499) of %s", count(sum.S499), count(all))
			if all == 0 {
				r = Result{NotChecked: "nginx's access log tells of no answer in the window"}
			} else if sum.S499 > 0 {
				r.RuledOut += ", none or few while the load lasted"
			}
			continue
		}
		if v.visitorsLeft(n, aborts) {
			r.RuledOut = fmt.Sprintf("%s answers were aborted by the client (499) of %s, sooner than such answers take: visitors go on to other pages", count(sum.S499), count(all))
			continue
		}
		f := supported(Subject{Kind: "process", NetNS: n.NetNS, PID: n.PID, Comm: "nginx", Path: n.Root + n.Config})
		f.Weight = share
		f.Impact = Impact{Share: round(share), Of: "answers", Text: fmt.Sprintf("%s of %s requests were given up by the client", count(aborts), count(all))}
		f.Evidence = []Evidence{
			{Fact: "status 499", Value: aborts, Limit: all, Unit: "requests", Source: "nginx access log"},
			{Fact: "seconds in which they came", Value: spread, Limit: len(n.Statuses), Unit: "s", Source: "nginx access log"},
		}
		f.Fix.Text = "Find what makes the answers slow; the clients' patience is not the fault."
		r.Findings = append(r.Findings, f)
	}
	return r
}

// visitorsLeft says that those who did not wait for an answer of a server had not waited for
// long: of any public site some go on to another page meanwhile. Where most of the aborts are
// not among the recorded requests, as of streams that are not told apart, they tell nothing.
func (v *View) visitorsLeft(n *observe.Nginx, aborts int64) bool {
	var requests, unanswered, gaveUp uint64
	for _, s := range v.nginxServes[n] {
		for _, l := range v.ledgersAt(s.NS.Inode, s.Port()) {
			if !l.called() {
				requests += l.Requests
				unanswered += l.Unanswered
				gaveUp += v.gaveUp(l)
			}
		}
	}
	return float64(unanswered) >= 0.5*float64(aborts) && (gaveUp < harmedLeast || ratio(gaveUp, requests) < noiseShare)
}

// sustainedAborts counts the 499s outside the last second with traffic and
// outside a single burst, and the seconds in which they came.
func sustainedAborts(by []observe.StatusSecond) (aborts int64, spread int) {
	sorted := slices.Clone(by)
	slices.SortFunc(sorted, func(a, b observe.StatusSecond) int { return a.Offset - b.Offset })
	last := -1
	for i, s := range sorted {
		if s.S2xx+s.S3xx+s.S4xx+s.S5xx+s.S499 > 0 {
			last = i
		}
	}
	for i, s := range sorted {
		// The burst of a load that ends may straddle two seconds.
		if s.S499 > 0 && i < last-1 {
			aborts += s.S499
			spread++
		}
	}
	return aborts, spread
}
