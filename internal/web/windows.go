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
	judged  judgement
	report  diagnose.Report     // empty where unjudged
	drops   diagnose.DropReport // likewise
	cpus    int                 // of the host
	waits   *observe.WaitGraph
	profile *observe.Profile
	stacks  *observe.Stacks // whole ones of some processes; nil in most windows
	names   map[int]string  // comm by pid
	hasDrop bool
	seconds float64
}

// judgement is whether a window is judged: what was watched is read in some milliseconds,
// while of thousands of endpoints judging takes a second.
type judgement bool

const (
	unjudged judgement = false
	judged   judgement = true
)

// windowCache keeps the windows that were used last.
type windowCache struct {
	mu    sync.Mutex
	order *list.List // of *windowFacts, the last used first
	at    map[string]*list.Element
}

func newWindowCache() *windowCache {
	return &windowCache{order: list.New(), at: map[string]*list.Element{}}
}

// get gives the facts of a window, which are judged where that is asked for; nil where they
// are not kept.
func (c *windowCache) get(path string, j judgement) *windowFacts {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.at[path]
	if !ok || j == judged && e.Value.(*windowFacts).judged == unjudged {
		return nil
	}
	c.order.MoveToFront(e)
	return e.Value.(*windowFacts)
}

func (c *windowCache) put(f *windowFacts) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.at[f.Path]; ok {
		if f.judged == judged {
			e.Value = f
		}
		return
	}
	c.at[f.Path] = c.order.PushFront(f)
	for c.order.Len() > windowsInUse {
		last := c.order.Back()
		delete(c.at, c.order.Remove(last).(*windowFacts).Path)
	}
}

// facts reads a window, or what was kept of it.
func (s *server) facts(ctx context.Context, w store.Window, j judgement) (*windowFacts, error) {
	if f := s.windows.get(w.Path, j); f != nil {
		return f, nil
	}
	o, err := observe.Load(w.Path)
	if err != nil {
		return nil, err
	}
	f := &windowFacts{Window: w, judged: j, cpus: o.Host.CPUs, waits: o.Waits, profile: o.Profile, stacks: o.Stacks,
		hasDrop: o.Drops != nil, names: map[int]string{}, seconds: o.Window.Seconds}
	if j == judged {
		f.report, f.drops = diagnose.Diagnose(ctx, o, diagnose.Live), diagnose.Drops(ctx, o, diagnose.Live)
	}
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
func (s *server) within(ctx context.Context, r timeRange, most int, j judgement, lost *losses) ([]*windowFacts, error) {
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
		f, err := s.facts(ctx, w, j)
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
func (s *server) best(ctx context.Context, r timeRange, j judgement) (*windowFacts, error) {
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
	return s.facts(ctx, most, j)
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
		f, err := s.best(ctx, q.timeRange, judged)
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
