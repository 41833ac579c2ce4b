package web

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/slowray/slowray/internal/flame"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// Bounds of a tree that is drawn.
const (
	leastFrame = 0.0005 // of all: what is less is reported as its caller's own
	maxDepth   = 500
)

// profileStacks is the functions of a CPU profile as stacks of one frame: what
// is known where stacks were not recorded.
func profileStacks(p *observe.Profile, start time.Time, seconds float64) *observe.Stacks {
	s := flame.FromProfile(p, observe.Window{Start: start, Seconds: seconds})
	if s == nil {
		return nil
	}
	cpu := valueOf(s, "cpu") // the only one that is shown here
	s.Types = s.Types[cpu : cpu+1]
	for i := range s.Samples {
		s.Samples[i].Values = s.Samples[i].Values[cpu : cpu+1]
	}
	s.Notes = []string{"Whole stacks were not recorded: these are the functions in which processes were found computing."}
	return s
}

// computed is what processes computed in the window: whole stacks of those of
// which they were recorded, which for a part of the window stand for all of it,
// and the functions of the others.
func (f *windowFacts) computed() *observe.Stacks {
	functions := profileStacks(f.profile, f.Start, f.seconds)
	if f.stacks == nil || functions == nil {
		return functions
	}
	c := valueOf(f.stacks, "cpu")
	if c < 0 {
		return functions
	}
	have, want := map[int]int64{}, map[int]int64{}
	for i := range f.stacks.Samples {
		if x := &f.stacks.Samples[i]; c < len(x.Values) {
			have[x.PID] += max(x.Values[c], 0)
		}
	}
	for i := range functions.Samples {
		want[functions.Samples[i].PID] += functions.Samples[i].Values[0]
	}
	others := *functions
	others.Notes = []string{"Processes of which whole stacks were not recorded are shown by the functions in which they were found."}
	others.Samples = slices.DeleteFunc(slices.Clone(functions.Samples), func(x observe.StackSample) bool { return have[x.PID] > 0 })
	mine := *f.stacks
	mine.Types = []observe.StackValue{f.stacks.Types[c]}
	mine.WindowNS = 0 // is a part of the window
	mine.Samples = make([]observe.StackSample, 0, len(f.stacks.Samples))
	for _, x := range f.stacks.Samples {
		if c >= len(x.Values) || x.Values[c] <= 0 {
			continue
		}
		ns := x.Values[c]
		if all := want[x.PID]; all > 0 {
			ns = int64(float64(ns) / float64(have[x.PID]) * float64(all))
		}
		x.Values = []int64{ns}
		mine.Samples = append(mine.Samples, x)
	}
	return join([]*observe.Stacks{&mine, &others}, nil)
}

// stacksIn is what was recorded of stacks in a range, and why not when nothing
// was.
func (s *server) stacksIn(ctx context.Context, r timeRange, off bool, lost *losses) (list []*observe.Stacks, because string, err error) {
	if src, ok := s.source.(StackSource); ok {
		if list, err = src.Stacks(r.from, r.to, off); err != nil || len(list) > 0 {
			for _, x := range list {
				*lost = append(*lost, x.Losses...)
			}
			return list, "", err
		}
	}
	facts, err := s.within(ctx, r, maxWindows, unjudged, lost)
	if err != nil {
		return nil, "", err
	}
	if off {
		for _, f := range facts {
			if x := flame.FromWaits(f.waits, observe.Window{Start: f.Start, Seconds: f.seconds}); x != nil {
				list = append(list, x)
			}
		}
		switch {
		case len(facts) == 0:
			because = "no window was saved in this range"
		case len(list) == 0:
			because = "stacks off the CPU were not recorded in this range, and no thread was seen waiting"
		}
		return list, because, nil
	}
	whole := 0
	for _, f := range facts {
		if f.stacks != nil {
			whole++
		}
	}
	for _, f := range facts {
		if whole > 0 && f.stacks == nil {
			continue
		}
		if x := f.computed(); x != nil {
			if whole > 0 && whole < len(facts) {
				x.Notes = append(x.Notes, fmt.Sprintf("Whole stacks were recorded in %d of the %d windows of this range: it is these that are shown.", whole, len(facts)))
			}
			list = append(list, x)
		}
	}
	switch {
	case len(facts) == 0:
		because = "no window was saved in this range"
	case len(list) == 0:
		because = "no CPU profile was recorded in this range"
	}
	return list, because, nil
}

func (q *query) valueNames() []string {
	if q.off {
		return []string{cmp.Or(q.value, "off-cpu"), "off-cpu", "runnable"}
	}
	return []string{cmp.Or(q.value, "cpu"), "cpu", "samples"}
}

// ofEndpoints lets through the samples of the processes that were chosen; nil is
// all.
func (q *query) ofEndpoints() func(*observe.StackSample) bool {
	if len(q.keys) == 0 {
		return nil
	}
	return func(x *observe.StackSample) bool {
		return slices.ContainsFunc(q.keys, func(k endpointKey) bool { return k.comm == x.Comm })
	}
}

type stacksJSON struct {
	Kind     string     `json:"kind"`
	Unit     string     `json:"unit"`
	Window   figure     `json:"window_s"`
	Hz       int        `json:"hz"`
	Compares bool       `json:"compares"`
	Frames   *frameJSON `json:"frames"`
	Because  *string    `json:"because"`
	Notes    []string   `json:"notes"`
	Losses   losses     `json:"losses"`
}

// stacks is a tree of call stacks.
func (s *server) stacks(ctx context.Context, q *query) (answer, error) {
	out := stacksJSON{Kind: "cpu", Unit: "nanoseconds", Compares: !q.against.zero(), Notes: []string{}, Losses: losses{}}
	if q.off {
		out.Kind = "off"
	}
	list, because, err := s.stacksIn(ctx, q.timeRange, q.off, &out.Losses)
	if err != nil {
		return answer{}, err
	}
	root := &frameJSON{Name: "all"}
	for _, x := range list {
		c := valueOf(x, q.valueNames()...)
		if c >= 0 {
			out.Unit = x.Types[c].Unit
		}
		root.grow(x, c, false, q.ofEndpoints())
		out.Window += figure(float64(x.WindowNS) / 1e9)
		out.Hz = max(out.Hz, x.Hz)
		for _, n := range x.Notes {
			if !slices.Contains(out.Notes, n) {
				out.Notes = append(out.Notes, n)
			}
		}
	}
	if out.Compares {
		var lost losses
		before, _, err := s.stacksIn(ctx, q.against, q.off, &lost)
		if err != nil {
			return answer{}, err
		}
		for _, x := range before {
			root.grow(x, valueOf(x, q.valueNames()...), true, q.ofEndpoints())
		}
		for _, l := range lost {
			out.Losses.add("of what it is compared with: "+l.What, l.Count)
		}
	}
	if root.Value > 0 || root.Before != nil {
		whole := root.Value
		if root.Before != nil {
			whole = min(max(whole, 1), max(*root.Before, 1))
		}
		out.Losses.add("frames that are too narrow are reported as their callers' own time", root.trim(int64(float64(whole)*leastFrame)))
		out.Frames = root
	} else if because == "" {
		because = "no stack has such a value in this range"
	}
	out.Because = orNull(because)
	return jsonAnswer(&out)
}

// stacksOf is the stacks of the process that had a request in hand, in the time of
// the request where stacks were kept, else in its window.
func (s *server) stacksOf(f *windowFacts, r *store.Request, moment timeRange) (tree *frameJSON, unit, because string, err error) {
	var list []*observe.Stacks
	if src, ok := s.source.(StackSource); ok {
		if list, err = src.Stacks(moment.from, moment.to, false); err != nil {
			return nil, "", "", err
		}
	}
	if len(list) == 0 {
		if x := f.computed(); x != nil {
			list = append(list, x)
		}
	}
	root := &frameJSON{Name: "all"}
	for _, x := range list {
		if c := valueOf(x, "cpu", "samples"); c >= 0 {
			unit = x.Types[c].Unit
			root.grow(x, c, false, func(x *observe.StackSample) bool {
				return r.PID != 0 && (x.PID == r.PID || x.PID != r.PID && x.Comm != "" && x.Comm == r.Process.Comm)
			})
		}
	}
	if root.Value == 0 {
		return nil, "", fmt.Sprintf("its process (%s) was not found computing in its window", cmp.Or(r.Process.Comm, "not known")), nil
	}
	root.trim(int64(float64(root.Value) * leastFrame))
	return root, unit, "", nil
}
