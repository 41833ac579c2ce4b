package cause

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// NginxWorkerConnections: a worker has a fixed number of connection slots, for
// clients, upstreams and listening sockets together (ngx_get_connection). With
// none free it closes idle keep-alive connections, then refuses new ones.
const NginxWorkerConnections ID = "nginx-worker-connections"

var nginxWorkerConnections = Cause{
	ID:    NginxWorkerConnections,
	Title: "nginx runs out of worker_connections",
	Layer: LayerApplication,
	Needs: []observe.Kind{observe.KindNginx, observe.KindProcess},
	Check: checkNginxWorkerConnections,
	Try:   tryWorkerConnections,
}

func checkNginxWorkerConnections(v *View) Result {
	r := ruledOut("no nginx with traffic")
	top := -1.0
	for i := range v.Nginx {
		n := &v.Nginx[i]
		if len(v.nginxServes[n]) == 0 {
			continue
		}
		limit, _ := strconv.Atoi(n.WorkerConnections.Value)
		peak := 0
		for _, c := range n.ConnectionsPeak {
			peak = max(peak, c)
		}
		lines, example := logCount(n.Errors, "worker-connections")
		aborts := uint64(0)
		if ns := v.Namespace(n.NetNS); ns != nil && v.alone(n) {
			aborts = ns.Counters["TcpExt.TCPAbortOnData"]
		}
		// Without a log line (logged below the file's level, or nowhere): a
		// worker with every slot taken, that drops data of its clients.
		silent := lines == 0 && limit > 0 && peak >= limit-1 && (aborts > 0 || v.closedUnanswered(n.PID) >= harmedLeast)
		if lines == 0 && !silent {
			if use := ratio(peak, limit); use > top {
				top = use
				r.RuledOut = fmt.Sprintf("the busiest worker of nginx (pid %d) held %s, and no log line says they ran out", n.PID, ofLimit(peak, limit, "connections"))
			}
			continue
		}
		r.Findings = append(r.Findings, workerConnectionsFinding(v, n, limit, peak, lines, aborts, example))
	}
	return r
}

// alone says that what is counted in the namespace of an nginx is its own.
func (v *View) alone(n *observe.Nginx) bool {
	return !slices.ContainsFunc(v.servicesIn[n.NetNS], func(s *Service) bool { return s.nginx != n })
}

func workerConnectionsFinding(v *View, n *observe.Nginx, limit, peak int, lines int64, aborts uint64, example string) Finding {
	f := supported(Subject{Kind: "process", NetNS: n.NetNS, PID: n.PID, Comm: "nginx", Path: n.Root + n.Config})
	setting := fromHost(n.Root, n.WorkerConnections)
	if setting.Line > 0 {
		f.Subject.Path = fmt.Sprintf("%s:%d", setting.File, setting.Line)
	}
	f.Subject.Port = v.nginxServes[n][0].Port()
	_, answered := statuses(n)
	closed := int64(v.closedUnanswered(n.PID)) // idle ones too, on which a request was under way
	refused := max(lines, int64(aborts), closed)
	f.lostAttempts(uint64(max(refused, 0)))
	f.Weight = ratio(refused, refused+answered)
	f.Impact = Impact{Share: round(f.Weight), Of: "requests",
		Text: fmt.Sprintf("%s connections closed or refused, %s answers", count(refused), count(answered))}
	if answered == 0 {
		// No access log: the connections are all there is to compare with.
		var opened uint64
		for _, s := range v.nginxServes[n] {
			for _, l := range s.Listeners {
				opened += l.Opened
			}
		}
		f.Weight = ratio(refused, refused+int64(opened))
		f.Impact = Impact{Share: round(f.Weight), Of: "new connections",
			Text: fmt.Sprintf("%s connections closed or refused, %s opened", count(refused), count(opened))}
	}
	if lines > 0 {
		f.Evidence = append(f.Evidence, Evidence{Fact: "log: worker_connections are not enough", Value: lines, Unit: "lines", Source: "nginx error log"}, firstLine(example))
	}
	f.Evidence = append(f.Evidence,
		Evidence{Fact: "connections of the busiest worker, peak", Value: peak, Limit: limit, Unit: "connections", Source: "/proc/PID/fd; limit: " + settingSource(setting)})
	if aborts > 0 {
		f.Evidence = append(f.Evidence, Evidence{Fact: "connections reset with data unread", Value: aborts, Unit: "connections", Source: "netstat TCPAbortOnData"})
	}
	if closed > 0 {
		f.Evidence = append(f.Evidence, Evidence{Fact: "requests on connections that nginx closed without an answer", Value: closed, Unit: "requests", Source: recorded})
	}
	want := wantedConnections(limit)
	f.Fix.Text = fmt.Sprintf("Raise worker_connections from %d to %d and reload; each request passed on takes two slots.", limit, want)
	f.Fix.Commands = []shell.Command{shell.Line("# in %s: worker_connections %s;", n.Root+n.Config, want), shell.Line("kill -HUP %s   # nginx master: reload", n.PID)}
	if files := v.filesBelow(n, want); files > 0 {
		f.Fix.Text += fmt.Sprintf(" Its workers may open only %d files: raise worker_rlimit_nofile too.", files)
		f.Fix.Commands = append([]shell.Command{shell.Line("# in %s: worker_rlimit_nofile %s;", n.Root+n.Config, 2*want)}, f.Fix.Commands...)
	}
	return f
}

// closedUnanswered is how many requests a service ended the connection of, without an
// answer, as opposed to clients that gave up.
func (v *View) closedUnanswered(pid int) (n uint64) {
	for _, l := range v.servedOf[pid] {
		var seen, here uint64
		for s := range flagged(l.Failed, observe.FlagUnanswered) {
			seen++
			if !hasFlag(s, observe.FlagHalfClosed) {
				here++
			}
		}
		n += uint64(ratio(here, seen) * float64(v.gaveUp(l)))
	}
	return n
}

// wantedConnections is the number of slots that is proposed instead of limit.
func wantedConnections(limit int) int { return max(2048, 2*limit) }

// filesBelow is how many files the workers may open, if that is too few for so
// many connections; else 0.
func (v *View) filesBelow(n *observe.Nginx, connections int) int {
	if w := v.firstWorker(n); w != nil && w.FDLimit > 0 && w.FDLimit < connections+64 {
		return w.FDLimit
	}
	return 0
}

func (v *View) firstWorker(n *observe.Nginx) *observe.Process {
	for _, w := range n.Workers {
		if p := v.Process(w); p != nil {
			return p
		}
	}
	return nil
}
