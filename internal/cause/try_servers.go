package cause

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// nginxFor is the nginx that a target is about.
func (v *View) nginxFor(t Target) *observe.Nginx {
	if t.Finding != nil {
		if n := v.nginxByPID(t.Finding.Subject.PID); n != nil {
			return n
		}
	}
	if s := v.service(t); s != nil {
		return s.nginx
	}
	return nil
}

// tryWorkerConnections raises worker_connections, after the limit of open files
// of the workers where that would bind.
func tryWorkerConnections(v *View, t Target) []Change {
	n := v.nginxFor(t)
	if n == nil {
		return nil
	}
	limit, err := strconv.Atoi(n.WorkerConnections.Value)
	if err != nil || limit <= 0 {
		return nil
	}
	want := wantedConnections(limit)
	var changes []Change
	if v.filesBelow(n, want) > 0 {
		changes = append(changes, configChange("nginx", n.PID, n.Root, n.WorkerRlimitNofile, n.Config, "", "worker_rlimit_nofile", itoa(2*want)))
	}
	return append(changes, configChange("nginx", n.PID, n.Root, n.WorkerConnections, n.Config, "events", "worker_connections", itoa(want)))
}

// tryMoreChildren raises pm.max_children as far as memory allows.
func tryMoreChildren(v *View, t Target) []Change {
	s := v.service(t)
	if s == nil {
		return nil
	}
	m, pool := s.fpm, s.pool
	if pool == nil || pool.MaxChildren.Line == 0 {
		return nil
	}
	e := exhaustionOf(v, pool, s)
	want, fits := proposedChildren(v, pool, e)
	if !fits || e.max <= 0 {
		return nil
	}
	return []Change{configChange("php-fpm", m.PID, m.Root, pool.MaxChildren, m.Config, pool.Name, "pm.max_children", itoa(want))}
}

// tryLimit raises a limit of nginx eightfold: that of the zone that turned
// requests away, or the only one there is.
func tryLimit(v *View, t Target, kind string) []Change {
	n := v.nginxFor(t)
	if n == nil {
		return nil
	}
	zone := ""
	for _, k := range n.Errors {
		if k.Kind == "limit-"+kind && zone == "" {
			zone = k.Upstream
		}
	}
	var limit *observe.NginxLimit
	for i := range n.Limits {
		d := &n.Limits[i]
		if d.Kind != kind || zone != "" && d.Zone != zone {
			continue
		}
		if zone == "" && limit != nil && limit.Zone != d.Zone {
			return nil
		}
		limit = d
	}
	if limit == nil {
		return nil
	}
	return v.limitChange(n, limit)
}

// limitChange raises the rate of a zone of limit_req, or the number of a
// limit_conn.
func (v *View) limitChange(n *observe.Nginx, d *observe.NginxLimit) []Change {
	want := wantedRate(d.Rate)
	if want == "" {
		return nil
	}
	if d.Kind == "conn" {
		was := observe.Setting{Value: d.Zone + " " + d.Rate, File: d.File, Line: d.Line}
		return []Change{configChange("nginx", n.PID, n.Root, was, "", "", "limit_conn", d.Zone+" "+want)}
	}
	file, line, ok := cutLast(d.Zoned)
	if !ok {
		return nil
	}
	return []Change{configChange("nginx", n.PID, n.Root, observe.Setting{Value: d.Rate, File: file, Line: line}, "", "", "limit_req_zone rate=", want)}
}

// cutLast divides "file:line".
func cutLast(place string) (file string, line int, ok bool) {
	i := strings.LastIndexByte(place, ':')
	if i <= 0 {
		return "", 0, false
	}
	line, err := strconv.Atoi(place[i+1:])
	return place[:i], line, err == nil && line > 0
}

// wantedRate is eight times a rate or number of nginx's limits: "10r/s" becomes
// "80r/s". Empty where it cannot be read.
func wantedRate(rate string) string {
	digits := strings.TrimRight(rate, "r/sm")
	n, err := strconv.Atoi(digits)
	if err != nil || n <= 0 || n > 1<<24 {
		return ""
	}
	return itoa(8*n) + rate[len(digits):]
}

// inPool tries a change of the limit of an application server: of the finding's,
// or of the one that answers a service.
func inPool(kind observe.Kind, try func(*View, *poolUse) []Change) func(*View, Target) []Change {
	return func(v *View, t Target) []Change {
		s := v.service(t)
		for _, u := range v.poolsOf(kind) {
			if t.Finding != nil && t.Finding.Subject.PID == u.app.PID && (s == nil || slices.Contains(u.services, s)) || t.Finding == nil && s != nil && slices.Contains(u.services, s) {
				return try(v, u)
			}
		}
		return nil
	}
}

// moreApache raises MaxRequestWorkers as far as a reload can: not beyond
// ServerLimit.
func moreApache(v *View, u *poolUse) []Change {
	want, _ := v.workersOfApache(u)
	if most := u.pool.Ceiling; want > most {
		want = most
		if t := u.pool.Threads; t > 1 && u.app.Model != "prefork" {
			want = want / t * t
		}
	}
	if want <= u.pool.Limit || u.pool.Knob != "MaxRequestWorkers" {
		return nil
	}
	return []Change{configChange("apache", u.app.PID, u.app.Root, u.pool.Setting, u.app.Config, "", "MaxRequestWorkers", itoa(want))}
}

// moreUWSGI raises the number of processes, where a file has it.
func moreUWSGI(v *View, u *poolUse) []Change {
	want, _ := v.wantedUWSGI(u)
	if u.pool.Setting.Line == 0 || u.pool.Knob != "processes" || want*max(u.pool.Threads, 1) <= u.pool.Limit {
		return nil
	}
	return []Change{configChange("uwsgi", u.app.PID, u.app.Root, u.pool.Setting, u.app.Config, "uwsgi", "processes", itoa(want))}
}

// moreGunicorn has the running arbiter start further workers.
func moreGunicorn(v *View, u *poolUse) []Change {
	want, _ := v.wantedGunicorn(u)
	have := u.pool.Limit / max(u.pool.Threads, 1)
	if want <= have || have == 0 {
		return nil
	}
	return []Change{{Kind: ChangeSetting, Server: "gunicorn", PID: u.app.PID, Name: "workers", Was: itoa(have), Value: itoa(want),
		Text: fmt.Sprintf("workers%s in the running gunicorn (pid %d)", becomes(itoa(have), itoa(want)), u.app.PID)}}
}

// moreHAProxy raises the maxconn that binds.
func moreHAProxy(v *View, u *poolUse) []Change {
	want, _ := v.wantedHAProxy(u)
	if want <= u.pool.Limit {
		return nil
	}
	return []Change{configChange("haproxy", u.app.PID, u.app.Root, u.pool.Setting, u.app.Config, "global", "maxconn", itoa(want))}
}

// tryServerMaxconn raises maxconn of the servers of HAProxy that have one: of the
// finding's backend, or of those that a service passes to.
func tryServerMaxconn(v *View, t Target) []Change {
	if t.Finding != nil {
		return nil
	}
	for i := range v.AppServers {
		a := &v.AppServers[i]
		if a.Kind != observe.KindHAProxy || t.Service == nil || !slices.Contains(v.servicesOfApp(a), t.Service) {
			continue
		}
		var changes []Change
		for j := range a.Backends {
			b := &a.Backends[j]
			if n, err := strconv.Atoi(b.MaxConn.Value); err == nil {
				changes = append(changes, serverMaxconn(a, b, 4*n)...)
			}
		}
		return changes
	}
	return nil
}

// serverMaxconn raises maxconn of a server of HAProxy.
func serverMaxconn(a *observe.AppServer, b *observe.ProxyBackend, want int) []Change {
	if n, err := strconv.Atoi(b.MaxConn.Value); err != nil || b.MaxConn.Line == 0 || want <= n || n <= 0 {
		return nil
	}
	return []Change{configChange("haproxy", a.PID, a.Root, b.MaxConn, "", "", "server maxconn", itoa(want))}
}
