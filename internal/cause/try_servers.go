package cause

import (
	"strconv"

	"github.com/slowray/slowray/internal/observe"
)

func init() {
	nginxWorkerConnections.Try = tryWorkerConnections
	phpFPMChildrenExhausted.Try = tryMoreChildren
}

// nginxFor is the nginx that a target is about.
func (v *View) nginxFor(t Target) *observe.Nginx {
	if t.Finding != nil {
		if n := v.nginxByPID(t.Finding.Subject.PID); n != nil {
			return n
		}
	}
	if s := v.service(t); s != nil {
		return v.nginxOf(s)
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
	m, pool := v.poolOf(s)
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
