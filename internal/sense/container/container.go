package container

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/slowray/slowray/internal/observe"
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

// Names lists the containers that the engines know, by id and name, without
// what only a closer look tells. Which are in use, ids says: containerd is
// asked for these alone.
func (r Reader) Names(ctx context.Context, procs []Process, ids []string) ([]observe.Container, []error) {
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	var out []observe.Container
	var errs []error
	for _, e := range findEngines(r.Proc, procs) {
		list, err := e.list(ctx)
		out = add(out, list)
		if err != nil {
			errs = append(errs, err)
		}
	}
	out = add(out, readStores(r.Root))
	out = add(out, readDocker(r.Root, missing(out, ids)))
	return add(out, readBundles(r.Root, missing(out, ids))), errs
}

// missing are the ids that no container of the list has.
func missing(list []observe.Container, ids []string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
		return slices.ContainsFunc(list, func(c observe.Container) bool { return same(c.ID, id) })
	})
}

// Look tells of the containers that matter: those with these ids, and those
// that ended since a time, also removed ones that the engine remembers. Times
// count from origin.
func (r Reader) Look(ctx context.Context, procs []Process, ids []string, since, origin time.Time) ([]observe.Container, []error) {
	all, errs := r.Names(ctx, procs, ids)
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	wanted := func(c *observe.Container) bool {
		return slices.ContainsFunc(ids, func(id string) bool { return same(c.ID, id) })
	}
	for _, e := range findEngines(r.Proc, procs) {
		gone, err := e.removed(ctx, since, time.Now(), origin)
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
			if at := slices.IndexFunc(all, func(o observe.Container) bool { return o.ID == c.ID }); e.inspect(ctx, &all[at], origin, r.HostBytes) != nil {
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
