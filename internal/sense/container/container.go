package container

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail/rootfs"
)

// Process is a process that may be an engine.
type Process struct {
	PID  int
	Comm string
}

// Lately is how far back a container that ended still matters.
const Lately = 15 * time.Minute

// maxTime bounds all that is asked of all engines together.
const maxTime = 900 * time.Millisecond

// A Reader asks the engines of a host.
type Reader struct {
	Proc      string // usually /proc
	Root      string // of the host's files, usually /
	HostBytes uint64 // memory of the host
}

// Limits is what asking the engines and reading their stores may take, each time.
var Limits = budget.Limits{Bytes: 32 << 20, Files: 4096, Nodes: 256 << 10, Wall: maxTime}

// Names lists the containers that the engines know, by id and name, without
// what only a closer look tells. Which are in use, ids says: containerd is
// asked for these alone.
func (r Reader) Names(b *budget.Budget, procs []Process, ids []string) ([]observe.Container, []error) {
	var out []observe.Container
	var errs []error
	engines := findEngines(b, r.Proc, procs)
	for i, e := range engines {
		list, err := e.list(b.Share(len(engines) + 1 - i)) // one for the stores
		out = add(out, list)
		if err != nil {
			errs = append(errs, err)
		}
	}
	root := rootfs.At(r.Root, b)
	out = add(out, readStores(b, root))
	out = add(out, readDocker(b, root, missing(out, ids)))
	out = add(out, readBundles(b, root, missing(out, ids)))
	if err := b.Err(); err != nil {
		errs = append(errs, fmt.Errorf("the containers of this host: %w", err))
	}
	return out, errs
}

// missing are the ids that no container of the list has.
func missing(list []observe.Container, ids []string) []string {
	known := newIDSet()
	for i := range list {
		known.add(list[i].ID)
	}
	return slices.DeleteFunc(slices.Clone(ids), known.has)
}

// Look tells of the containers that matter: those with these ids, and those
// that ended since a time, also removed ones that the engine remembers. Times
// count from origin.
func (r Reader) Look(ctx context.Context, procs []Process, ids []string, since, origin time.Time) ([]observe.Container, []error) {
	all, errs := r.Names(budget.New(ctx, Limits), procs, ids)
	b := budget.New(ctx, Limits)
	asked := newIDSet()
	for _, id := range ids {
		asked.add(id)
	}
	wanted := func(c *observe.Container) bool { return asked.has(c.ID) }
	engines := findEngines(b, r.Proc, procs)
	for i, e := range engines {
		b := b.Share(len(engines) - i)
		gone, err := e.removed(b, since, time.Now(), origin)
		all = add(all, gone)
		if err != nil && e.name == "docker" {
			errs = append(errs, err)
		}
		looked := 0
		// Those that ended first: of the others the control groups tell.
		order := slices.Clone(all)
		slices.SortStableFunc(order, func(a, b observe.Container) int {
			return cmp.Compare(boolInt(b.Down() || wanted(&b)), boolInt(a.Down() || wanted(&a)))
		})
		for i := range order {
			c := &order[i]
			if c.Engine != e.name || c.State == "removed" || !c.Down() && !wanted(c) || looked >= maxInspect {
				continue
			}
			looked++
			if at := slices.IndexFunc(all, func(o observe.Container) bool { return o.ID == c.ID }); e.inspect(b, &all[at], origin, r.HostBytes) != nil {
				break
			}
		}
	}
	return slices.DeleteFunc(all, func(c observe.Container) bool {
		ended := c.EndedAt != 0 && origin.Add(time.Duration(c.EndedAt*float64(time.Second))).After(since)
		return !wanted(&c) && !(c.Down() && ended)
	}), errs
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Find is the id of the container of this name or id among them; of several of
// one name the one that runs, else the one that ended last. The word itself when
// there is none.
func Find(list []observe.Container, word string) string {
	var best *observe.Container
	for i := range list {
		switch c := &list[i]; {
		case same(c.ID, word) && len(word) >= 4:
			return word
		case named(c, word) && (best == nil || best.Down() && (!c.Down() || c.EndedAt > best.EndedAt)):
			best = c
		}
	}
	if best == nil {
		return word
	}
	return best.ID
}
