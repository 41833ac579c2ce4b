package flame

import "github.com/slowray/slowray/internal/observe"

// Pair is two windows to compare. Each is taken as a share of its own total, so
// that a longer or busier one does not look like a change.
type Pair struct {
	Before, After         *observe.Stacks
	BeforeName, AfterName string // as they are called in a graph
	oneWindow             bool   // both are of one: losses are of both
}

// Diff compares two windows: a deployment, a load, a change of configuration
// lies between them.
func Diff(before, after *observe.Stacks) Pair {
	return Pair{Before: before, After: after, BeforeName: "before", AfterName: "after"}
}

// SlowAgainstNormal compares, within one window, the time inside slow requests
// (After) with all other time (Before).
func SlowAgainstNormal(s *observe.Stacks) Pair {
	p := Pair{Before: &observe.Stacks{}, After: &observe.Stacks{}, BeforeName: "normal", AfterName: "slow", oneWindow: true}
	if s == nil {
		return p
	}
	*p.Before, *p.After = *s, *s
	p.Before.Samples, p.After.Samples = nil, nil
	p.Before.Losses, p.Before.Notes = nil, nil // told once
	for _, sample := range s.Samples {
		side := p.Before
		if sample.Slow {
			side = p.After
		}
		sample.Slow = false // which side it is on says it
		side.Samples = append(side.Samples, sample)
	}
	return p
}

func (p Pair) model() *model {
	names := [2]string{clean(p.BeforeName), clean(p.AfterName)}
	if !p.oneWindow {
		return newComparison(byFunction, names, p.Before, p.After)
	}
	m := newModel(byFunction, p.Before, p.After)
	m.names = names
	return m
}
