package wait

import (
	"cmp"
	"slices"

	"github.com/slowray/slowray/internal/sense/goroutine"
)

// goStep is a goroutine of a chain, and how it came in.
type goStep struct {
	g   *goroutine.Goroutine
	why string
}

// chainOf follows a goroutine that waits for a lock to who seems to hold it, and
// so on. back is the index of the step that the last one waits for, or -1.
func (l *goListing) chainOf(g *goroutine.Goroutine) (steps []goStep, back int) {
	steps = []goStep{{g: g}}
	for len(steps) < maxGoHops {
		last := steps[len(steps)-1].g
		holder, why := l.holderOf(last)
		if holder == nil {
			return steps, -1
		}
		if i := slices.IndexFunc(steps, func(s goStep) bool { return s.g == holder }); i >= 0 {
			return steps, i
		}
		steps = append(steps, goStep{holder, why})
	}
	return steps, -1
}

// holderOf is who seems to hold the lock that a goroutine waits for. Go writes
// that down nowhere. Who holds a lock has been where the others wait for it and
// is further on in the same function, or in what that calls; and what the lock
// is a part of is named on its stack. Nil when several fit equally well, or none.
func (l *goListing) holderOf(waiter *goroutine.Goroutine) (holder *goroutine.Goroutine, why string) {
	waiting := l.waiters[waiter.Object]
	if waiter.Object == 0 || len(waiting) == 0 {
		return nil, ""
	}
	// Where it is asked for, and by what the functions that ask know it.
	places := map[string]*goroutine.Frame{} // the first line of each function
	var distances []uint64
	for i, w := range waiting {
		if l.budget.Node() != nil {
			return nil, ""
		}
		if place := l.program.Place(w); place != nil {
			if first := places[place.Function]; first == nil || place.Line < first.Line {
				places[place.Function] = place
			}
		}
		if i < 8 {
			for _, d := range l.program.Distances(w, waiter.Object, lockWithin) {
				if !slices.Contains(distances, d) {
					distances = append(distances, d)
				}
			}
		}
	}
	type candidate struct {
		g            *goroutine.Goroutine
		after, names bool
		line         int
	}
	var best []candidate
	order := func(a, b candidate) int {
		score := func(c candidate) int {
			n := 0
			if c.after {
				n += 2
			}
			if c.names {
				n++
			}
			return n
		}
		return cmp.Or(cmp.Compare(score(b), score(a)), cmp.Compare(b.line, a.line))
	}
	for i := range l.list {
		if l.budget.Nodes(int64(len(l.list[i].Stack))) != nil {
			return nil, ""
		}
		c := candidate{g: &l.list[i]}
		if c.g.Object == waiter.Object || len(c.g.Stack) == 0 {
			continue
		}
		for j := range c.g.Stack {
			f := &c.g.Stack[j]
			if place := places[f.Function]; place != nil {
				c.line = f.Line
				c.after = f.Line > place.Line && f.File == place.File
				break
			}
		}
		c.names = slices.ContainsFunc(l.program.Distances(c.g, waiter.Object, lockWithin), func(d uint64) bool { return slices.Contains(distances, d) })
		if c.after || c.names {
			best = append(best, c)
		}
	}
	if len(best) == 0 {
		return nil, ""
	}
	slices.SortStableFunc(best, order)
	c := best[0]
	if len(best) > 1 && order(c, best[1]) == 0 && since(c.g) == since(best[1].g) && (!c.after || !c.names) {
		return nil, ""
	}
	switch {
	case c.after && c.names:
		why = "is in the same function, behind the line where it is locked, and has it on its stack"
	case c.after:
		why = "is in the same function, behind the line where it is locked"
	default:
		why = "has what the lock belongs to on its stack"
	}
	return c.g, "seems to hold it: it " + why
}
