package web

import (
	"container/list"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// Bounds of what is read of saved windows. One takes some milliseconds to
// unpack, and up to some MB.
const (
	maxWindows   = 24 // that one answer is made of
	windowsInUse = 32 // that are kept
	// maxJudged is how many are judged together for one report: a minute each, two
	// hours, in some seconds.
	maxJudged = 120
	// judgeTime is how long that may take: one of thousands of endpoints takes a
	// second.
	judgeTime = maxAnswer / 2
)

// windowFacts is what answers are made of, of one saved window. The Observation
// itself is not kept: it may be large.
type windowFacts struct {
	store.Window
	report  diagnose.Report
	drops   diagnose.DropReport
	waits   *observe.WaitGraph
	profile *observe.Profile
	stacks  *observe.Stacks // whole ones of some processes; nil in most windows
	names   map[int]string  // comm by pid
	hasDrop bool
	seconds float64
}

// windowCache keeps the windows that were used last.
type windowCache struct {
	mu    sync.Mutex
	order *list.List // of *windowFacts, the last used first
	at    map[string]*list.Element
}

func newWindowCache() *windowCache {
	return &windowCache{order: list.New(), at: map[string]*list.Element{}}
}

func (c *windowCache) get(path string) *windowFacts {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.at[path]
	if !ok {
		return nil
	}
	c.order.MoveToFront(e)
	return e.Value.(*windowFacts)
}

func (c *windowCache) put(f *windowFacts) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.at[f.Path]; ok {
		return
	}
	c.at[f.Path] = c.order.PushFront(f)
	for c.order.Len() > windowsInUse {
		last := c.order.Back()
		delete(c.at, c.order.Remove(last).(*windowFacts).Path)
	}
}

// facts reads a window, or what was kept of it.
func (s *server) facts(ctx context.Context, w store.Window) (*windowFacts, error) {
	if f := s.windows.get(w.Path); f != nil {
		return f, nil
	}
	o, err := observe.Load(w.Path)
	if err != nil {
		return nil, err
	}
	f := &windowFacts{Window: w, report: diagnose.Diagnose(ctx, o, diagnose.Live), drops: diagnose.Drops(ctx, o, diagnose.Live), waits: o.Waits, profile: o.Profile, stacks: o.Stacks,
		hasDrop: o.Drops != nil, names: map[int]string{}, seconds: o.Window.Seconds}
	for i := range o.Processes {
		f.names[o.Processes[i].PID] = o.Processes[i].Comm
	}
	if err := ctx.Err(); err != nil {
		return nil, err // whoever asks next gets it judged in full
	}
	s.windows.put(f)
	return f, nil
}

// within reads the saved windows of a range, at most so many, spread evenly. What
// was left out or cannot be read is reported as a loss.
func (s *server) within(ctx context.Context, r timeRange, most int, lost *losses) ([]*windowFacts, error) {
	all, err := s.source.Observations(r.from, r.to)
	if err != nil {
		return nil, err
	}
	chosen := spread(all, most)
	lost.add("saved windows of the range were not looked into: ask for a shorter one", int64(len(all)-len(chosen)))
	var facts []*windowFacts
	unreadable := 0
	for _, w := range chosen {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		f, err := s.facts(ctx, w)
		if err != nil { // removed for its age meanwhile, or damaged
			unreadable++
			continue
		}
		facts = append(facts, f)
	}
	lost.add("saved windows could not be read", int64(unreadable))
	return facts, nil
}

// spread picks so many of a list, evenly, the first and the last among them.
func spread[T any](all []T, most int) []T {
	if len(all) <= most || most < 2 {
		return all[:min(len(all), most)]
	}
	picked := make([]T, 0, most)
	for i := range most {
		picked = append(picked, all[i*(len(all)-1)/(most-1)])
	}
	return picked
}

// best is the window that covers a range best; nil when there is none.
func (s *server) best(ctx context.Context, r timeRange) (*windowFacts, error) {
	all, err := s.source.Observations(r.from, r.to)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	most := all[0]
	for _, w := range all[1:] {
		if r.overlap(timeRange{w.Start, w.End}) > r.overlap(timeRange{most.Start, most.End}) {
			most = w
		}
	}
	return s.facts(ctx, most)
}

// report is the judgement of the windows of a range together, as slowray why --at
// --for gives it; of the one that covers it best where there are not several.
func (s *server) report(ctx context.Context, q *query) (answer, error) {
	all, err := s.source.Observations(q.from, q.to)
	if err != nil {
		return answer{}, err
	}
	in := slices.DeleteFunc(slices.Clone(all), func(w store.Window) bool { return !w.In(q.from, q.to) })
	if len(in) < 2 {
		f, err := s.best(ctx, q.timeRange)
		if err != nil {
			return answer{}, err
		}
		if f == nil {
			return answer{}, &notFound{"no window was saved in this range"}
		}
		return jsonAnswer(&f.report)
	}
	chosen := spread(in, maxJudged)
	over, unreadable := diagnose.NewRange(), 0
	deadline := time.Now().Add(judgeTime)
	for i, w := range chosen {
		if err := ctx.Err(); err != nil {
			return answer{}, err
		}
		if i > 0 && time.Now().After(deadline) {
			chosen = chosen[:i]
			break
		}
		o, err := observe.Load(w.Path)
		if err != nil { // removed for its age meanwhile, or damaged
			unreadable++
			continue
		}
		over.Add(ctx, o, diagnose.Live)
	}
	if unreadable == len(chosen) {
		return answer{}, &notFound{"none of the windows of this range can be read"}
	}
	r := over.Report()
	lost := losses(r.Losses)
	lost.add("saved windows of the range were not looked into: ask for a shorter one", int64(len(in)-len(chosen)))
	lost.add("saved windows could not be read", int64(unreadable))
	r.Losses = lost
	return jsonAnswer(&r)
}
