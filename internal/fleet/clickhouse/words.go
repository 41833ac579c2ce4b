package clickhouse

import (
	"cmp"
	"strings"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

const maxWords = 1 << 16 // then they are forgotten

// words keeps texts that are made again and again: of addresses, flags and services.
type words struct {
	store.Words
	services map[serviceKey]string
}

// serviceKey is what fleet.Service looks at.
type serviceKey struct {
	side             observe.Side
	unit, name, comm string
	namespace        string // of a workload, with its name
	port             int
}

// service is fleet.Service, kept.
func (w *words) service(side observe.Side, p *observe.Identity, port int) string {
	if side == observe.Called {
		port = 0 // it is not in the name
	}
	key := serviceKey{side: side, port: port}
	switch {
	case p.Workload != (observe.Workload{}):
		key.namespace, key.name = p.Workload.Namespace, cmp.Or(p.Workload.Name, p.Workload.Pod)
	case p.Unit != "":
		key.unit = p.Unit
	case p.ContainerName != "":
		key.name = p.ContainerName
	default:
		key.comm = p.Comm
	}
	s, ok := w.services[key]
	if !ok {
		if w.services == nil || len(w.services) >= maxWords {
			w.services = map[serviceKey]string{}
		}
		s = fleet.Service(side, p, port)
		// The texts may be the memory of a batch: keep copies.
		s = strings.Clone(s)
		key.unit, key.name, key.comm, key.namespace = strings.Clone(key.unit), strings.Clone(key.name), strings.Clone(key.comm), strings.Clone(key.namespace)
		w.services[key] = s
	}
	return s
}
