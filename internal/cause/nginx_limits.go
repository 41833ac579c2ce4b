package cause

import (
	"fmt"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// NginxLimitReq: limit_req answers requests above a rate with an error.
const NginxLimitReq ID = "nginx-limit-req"

var nginxLimitReq = turnsAway(NginxLimitReq, "req", "nginx rejects requests (limit_req)")

// NginxLimitConn: limit_conn answers requests of further connections with an
// error.
const NginxLimitConn ID = "nginx-limit-conn"

var nginxLimitConn = turnsAway(NginxLimitConn, "conn", "nginx rejects requests (limit_conn)")

// turnsAway declares a limit of nginx, by the name of its directive.
func turnsAway(id ID, kind, title string) Cause {
	return Cause{ID: id, Title: title, Layer: LayerApplication,
		Needs: []observe.Kind{observe.KindNginx, observe.KindRequests},
		Check: func(v *View) Result { return checkLimits(v, kind) },
		Try:   func(v *View, t Target) []Change { return tryLimit(v, t, kind) },
	}
}

func checkLimits(v *View, kind string) Result {
	r := ruledOut("no nginx with traffic turns requests away")
	for i := range v.Nginx {
		n := &v.Nginx[i]
		if len(v.nginxServes[n]) == 0 {
			continue
		}
		for _, k := range n.Errors {
			if k.Kind != "limit-"+kind {
				continue
			}
			requests, failed, clients, l := v.answersOf(n)
			if l == nil {
				r.NotChecked = "requests were turned away by nginx's log, and none was recorded"
				continue
			}
			share := ratio(min(uint64(k.Count), failed), requests)
			told := fmt.Sprintf("nginx logged %s requests turned away by limit_%s (zone %s); %s of %s answers were errors", count(k.Count), kind, k.Upstream, count(failed), count(requests))
			if clients > 1 && k.Clients > 0 && float64(k.Clients) <= fewClients*float64(clients) {
				r.RuledOut = fmt.Sprintf("%s: those of %d of at least %d clients, which is what a limit is for", told, k.Clients, clients)
				continue
			}
			if k.Count < limitedLeast || failed < limitedLeast || share < limitedShare {
				r.RuledOut = told
				continue
			}
			r.Findings = append(r.Findings, limitFinding(v, n, k, l, requests, failed, clients, share))
		}
	}
	return r
}

// answersOf adds up the requests that an nginx answered, those that failed, and
// the clients seen; l is the endpoint with most.
func (v *View) answersOf(n *observe.Nginx) (requests, failed uint64, clients int, l *ledger) {
	seen := map[string]bool{}
	var served []*ledger
	for _, s := range v.nginxServes[n] {
		served = append(served, v.ledgersAt(s.NS.Inode, s.Port())...)
	}
	for _, e := range inOrder(served) {
		if e.called() || e.Requests == 0 {
			continue
		}
		requests += e.Requests
		failed += e.Statuses["4xx"] + e.Statuses["5xx"]
		for _, p := range e.Peers {
			seen[p.Addr] = true
		}
		if l == nil || e.Requests > l.Requests {
			l = e
		}
	}
	return requests, failed, len(seen), l
}

func limitFinding(v *View, n *observe.Nginx, k observe.LogKind, l *ledger, requests, failed uint64, clients int, share float64) Finding {
	f := supported(Subject{Kind: "process", NetNS: n.NetNS, PID: n.PID, Comm: "nginx", Port: l.Port, Addr: l.Addr, Path: n.Root + n.Config})
	f.Weight = share
	f.Impact = Impact{Share: round(share), Of: "requests", Text: fmt.Sprintf("%s of %s requests on %s were turned away", count(min(uint64(k.Count), failed)), count(requests), l.name())}
	f.Evidence = []Evidence{
		{Fact: "log: requests turned away", Value: k.Count, Unit: "lines", Source: "nginx error log"}, firstLine(k.Example),
		{Fact: "answers 4xx and 5xx", Value: failed, Limit: requests, Unit: "answers", Source: recorded},
	}
	if k.Clients > 0 {
		f.Evidence = append(f.Evidence, Evidence{Fact: "clients that were turned away", Value: k.Clients, Limit: max(clients, k.Clients), Unit: "clients", Source: "nginx error log; all: request records"})
	}
	kind := strings.TrimPrefix(k.Kind, "limit-")
	for _, d := range n.Limits {
		if d.Kind != kind || d.Zone != k.Upstream {
			continue
		}
		f.Subject.Path = fmt.Sprintf("%s%s:%d", n.Root, d.File, d.Line)
		burst := ""
		if d.Burst != "" {
			burst = "burst " + d.Burst
		}
		f.Evidence = append(f.Evidence, Evidence{Fact: "limit for each " + d.Key, Value: d.Rate, Unit: burst, Source: n.Root + d.Zoned})
		f.Fix.Text = fmt.Sprintf("limit_%s counts by %s and allows %s", kind, d.Key, d.Rate)
		if d.Burst != "" {
			f.Fix.Text += " with a burst of " + d.Burst
		}
		where := d.Zoned
		if kind == "conn" {
			where = fmt.Sprintf("%s:%d", d.File, d.Line)
		}
		f.Fix.Changes = v.limitChange(n, &d)
		f.Fix.Commands = append(f.Fix.Commands, shell.Line("# in %s: raise it from %s", n.Root+where, d.Rate))
		break
	}
	if f.Fix.Text == "" {
		f.Fix.Text = fmt.Sprintf("limit_%s turns requests away", kind)
	}
	f.Fix.Text += ": if these are real users, raise it, or count by what tells them apart (behind a load balancer, the address that its header names: set_real_ip_from, real_ip_header)."
	f.Fix.Commands = append(f.Fix.Commands, shell.Line("kill -HUP %s   # nginx master: reload", n.PID))
	return f
}
