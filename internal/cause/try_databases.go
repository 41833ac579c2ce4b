package cause

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// Settings of databases that they take while they run.

// databaseFor is the database that a target is about.
func (v *View) databaseFor(t Target) *observe.Database {
	if t.Database != nil {
		return t.Database
	}
	s := v.service(t)
	for i := range v.Databases {
		d := &v.Databases[i]
		if t.Finding != nil && (t.Finding.Subject.PID == d.PID || v.Master(t.Finding.Subject.PID) == d.PID) ||
			s != nil && slices.Contains(s.PIDs, d.PID) {
			return d
		}
	}
	return nil
}

func tryMoreConnections(kinds ...string) func(*View, Target) []Change {
	return func(v *View, t Target) []Change {
		d := v.databaseFor(t)
		if d == nil || !slices.Contains(kinds, d.Kind) {
			return nil
		}
		return v.moreConnections(d)
	}
}

// moreConnections raises the limit of connections of a server that takes a new
// one while it runs, after that of its open files where Redis would not.
func (v *View) moreConnections(d *observe.Database) []Change {
	limit := connectionLimit(d)
	if limit == 0 && d.Status != nil && strings.Contains(d.Status.Refused, "max number of clients") {
		limit = d.ConnectionsPeak // it would not even tell: it holds as many as it takes
	}
	if limit == 0 {
		return nil
	}
	want := wantedClients(limit)
	switch d.Kind {
	case "mariadb", "mysql":
		return setting(d, "mariadb", "max_connections", itoa(limit), itoa(want))
	case "redis", "valkey":
		changes := setRedis(d, "maxclients", itoa(limit), itoa(want))
		if p := v.Process(d.PID); len(changes) > 0 && p != nil && p.FDLimit > 0 && want+ownFiles > p.FDLimit {
			changes = slices.Insert(changes, 0, rlimitChange(p, "nofile", itoa(p.FDLimit), itoa(want+2*ownFiles)))
		}
		return changes
	}
	return nil
}

func setRedis(d *observe.Database, name, was, value string) []Change {
	if d == nil || d.Kind != "redis" && d.Kind != "valkey" {
		return nil
	}
	return setting(d, "redis", name, was, value)
}

// setting is a change of a setting of a running database, by its own command.
func setting(d *observe.Database, server, name, was, value string) []Change {
	c := Change{Kind: ChangeSetting, Server: server, PID: d.PID, NetNS: d.NetNS, Name: name, Was: was, Value: value,
		Text: fmt.Sprintf("%s%s in the running %s (pid %d)", name, becomes(was, value), product(d), d.PID)}
	if len(d.Ports) == 0 {
		return nil
	}
	c.Port = d.Ports[0]
	return []Change{c}
}
