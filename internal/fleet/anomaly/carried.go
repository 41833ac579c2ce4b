package anomaly

import (
	"slices"

	"github.com/slowray/slowray/internal/observe"
)

// carry adds to the units that a component explains those that carry its effect on
// though no abnormal endpoint lies between: a service that fails or waits a little for
// many calls can be abnormal where each single call has too few requests to be.
func (g *graph) carry(s *Shared, in map[int]bool) map[int]bool {
	for {
		var more []int
		for i := range g.units {
			if u := &g.units[i]; u.a != nil && !u.gone && !in[i] && g.carried(s, i, in) {
				more = append(more, i)
			}
		}
		if len(more) == 0 {
			return in
		}
		for i := range in {
			more = append(more, i)
		}
		in = g.after(more)
	}
}

// carried says whether a unit that follows from nothing abnormal follows from the
// component, by what lies between: it does not spend the time itself, some of what it
// waits for has the component, and nothing else there is abnormal.
func (g *graph) carried(s *Shared, i int, in map[int]bool) bool {
	u := &g.units[i]
	for _, f := range u.follows {
		if !g.units[f].gone && !in[f] {
			return false
		}
	}
	failing := u.a.Signal == Errors
	if u.a.Signal == Rate || s.Signal == Rate || failing != (s.Signal == Errors) {
		return false
	}
	var between []int
	switch {
	case u.key.Side == observe.Called:
		if u.a.Network {
			return false
		}
		for _, to := range g.answering(i) {
			between = append(between, to)
			if g.units[to].a == nil {
				between = append(between, g.callsOf(to)...)
			}
		}
	case failing || !u.a.Network && u.a.waits():
		between = g.callsOf(i)
	case s.Network && u.a.way():
		between = g.callers[i]
	}
	found := false
	for _, c := range between {
		o := &g.units[c]
		if o.a != nil && !o.gone && !in[c] && !o.faint && o.a.Signal != Rate {
			return false
		}
		found = found || in[c] || g.has(c, s)
		for _, to := range g.answering(c) {
			found = found || in[to] || g.has(to, s)
		}
	}
	return found
}

// has says whether a unit has a component, or both.
func (g *graph) has(i int, s *Shared) bool {
	list := g.components(i)
	return slices.Contains(list, s.Component) && (s.And == nil || slices.Contains(list, *s.And))
}

// way says whether the time that is added is spent on the way between the ends: most of
// it, or so much that it would hardly be unusual without.
func (a *Anomaly) way() bool {
	return a.Network || a.wayUS >= a.mattersUS && a.rest < 2*unusualFrom
}

// waits says whether the time that is added is spent in calls: what the endpoint takes
// longer by itself is the lesser part, or would not matter.
func (a *Anomaly) waits() bool { return a.OwnUS < max(a.AddedUS/2, a.mattersUS) }
