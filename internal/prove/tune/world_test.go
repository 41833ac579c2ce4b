package tune

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/shell"
)

// fakeFault is a setting of the fake service that is wrong.
type fakeFault struct {
	cause string
	was   string
	good  string // the value that fixes it
	// masked are other faults that hide this one's effect while they last, and
	// shown those that keep it from being seen.
	masked []string
	shown  []string
	gain   float64 // good responses/s that fixing it gives
	// harm: changing it breaks the service; forever: also after undoing.
	harm, forever bool
	unmakeable    bool
	// pairHarm is the fault without whose fixing this one's does harm.
	pairHarm  string
	undoFails bool
}

// fakeWorld is a service with masked faults, on a clock of its own.
type fakeWorld struct {
	faults  []fakeFault
	now     map[string]string // cause → value
	base    float64
	clock   time.Time
	broken  bool
	tries   []string // causes in the order in which they were tried
	kept    []string
	looks   int
	lookErr error
	cancel  func() // called in the middle of the first experiment
	undone  bool
}

func newFake(base float64, faults ...fakeFault) *fakeWorld {
	w := &fakeWorld{faults: faults, now: map[string]string{}, base: base, clock: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	for _, f := range faults {
		w.now[f.cause] = f.was
	}
	return w
}

func (w *fakeWorld) fault(id string) *fakeFault {
	for i := range w.faults {
		if w.faults[i].cause == id {
			return &w.faults[i]
		}
	}
	return nil
}

func (w *fakeWorld) present(id string) bool {
	f := w.fault(id)
	return w.now[id] != f.good || f.good == f.was
}

// goodRate is what the service gives as it is now.
func (w *fakeWorld) goodRate() float64 {
	if w.broken {
		return 1
	}
	rate := w.base
	for _, f := range w.faults {
		if f.harm && w.now[f.cause] != f.was {
			return 1
		}
		if f.pairHarm != "" && w.now[f.cause] != f.was && w.present(f.pairHarm) {
			rate /= 2
		}
		if !w.present(f.cause) && !slices.ContainsFunc(f.masked, w.present) {
			rate += f.gain
		}
	}
	return rate
}

func (w *fakeWorld) Now() time.Time { return w.clock }

func (w *fakeWorld) Look(ctx context.Context) (Sight, error) {
	w.looks++
	w.clock = w.clock.Add(5 * time.Second)
	if w.lookErr != nil {
		return Sight{}, w.lookErr
	}
	s := Sight{Host: diagnose.ReportHost{Name: "test", Kernel: "6.1", CPUs: 2, BootID: "b"}}
	for _, f := range w.faults {
		if !w.present(f.cause) || slices.ContainsFunc(f.shown, w.present) {
			continue
		}
		found := cause.Finding{Cause: cause.ID(f.cause), Title: f.cause + " is wrong", Role: cause.RoleCause, Verdict: cause.Supported,
			Impact: cause.Impact{Share: 0.5, Of: "requests", Text: "half of the requests"},
			Fix:    cause.Fix{Text: "Set it to " + f.good + ".", Commands: []shell.Command{}}}
		if f.good != "" {
			found.Fix.Changes = []cause.Change{{Kind: cause.ChangeSysctl, Name: "net." + f.cause, Was: f.was, Value: f.good,
				Text: fmt.Sprintf("net.%s %s → %s", f.cause, f.was, f.good)}}
		}
		s.Findings = append(s.Findings, found)
	}
	return s, ctx.Err()
}

func (w *fakeWorld) Commands(c []cause.Change) (do, undo []shell.Command, err error) {
	for _, one := range c {
		do = append(do, shell.Line("sysctl -w %s=%s", one.Name, one.Value))
		undo = append(undo, shell.Line("sysctl -w %s=%s", one.Name, one.Was))
	}
	return do, undo, nil
}

func (w *fakeWorld) blocks(phase Phase) []Block {
	var list []Block
	for n := range 3 {
		w.clock = w.clock.Add(2 * time.Second)
		noise := []float64{0.97, 1, 1.03}[n]
		none, p50, p99 := 0.0, 10.0, 50.0
		list = append(list, Block{Phase: phase, Seconds: 2, Good: w.goodRate() * noise, Errors: &none, P50: &p50, P99: &p99})
	}
	return list
}

func (w *fakeWorld) Measure(ctx context.Context) ([]Block, error) { return w.blocks(After), ctx.Err() }

func (w *fakeWorld) UndoAll(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for _, f := range w.faults {
		w.now[f.cause] = f.was
	}
	w.undone = true
	return nil
}

func (w *fakeWorld) Lasting(changes []cause.Change) []shell.Command {
	var list []shell.Command
	for _, c := range changes {
		list = append(list, shell.Line("# %s = %s", c.Name, c.Value))
	}
	return list
}

func (w *fakeWorld) Begin(_ context.Context, f *cause.Finding) (Trial, error) {
	t := &fakeTrial{w: w}
	for _, c := range f.Fix.Changes {
		one := w.fault(strings.TrimPrefix(c.Name, "net."))
		if one.unmakeable {
			return nil, errors.New("read-only")
		}
		t.faults = append(t.faults, one)
	}
	return t, nil
}

type fakeTrial struct {
	w      *fakeWorld
	faults []*fakeFault // whose values are changed together
	kept   bool
}

func (t *fakeTrial) name() string {
	var names []string
	for _, f := range t.faults {
		names = append(names, f.cause)
	}
	return strings.Join(names, "+")
}

func (t *fakeTrial) set(fixed bool) {
	for _, f := range t.faults {
		t.w.now[f.cause] = f.was
		if fixed {
			t.w.now[f.cause] = f.good
		}
	}
}

func (t *fakeTrial) any(is func(*fakeFault) bool) bool { return slices.ContainsFunc(t.faults, is) }

func (t *fakeTrial) Run(ctx context.Context) (Outcome, error) {
	w := t.w
	w.tries = append(w.tries, t.name())
	o := Outcome{Blocks: w.blocks(Before)}
	before := w.goodRate()
	t.set(true)
	if w.cancel != nil {
		w.cancel()
	}
	o.Blocks = append(o.Blocks, w.blocks(With)...)
	with := w.goodRate()
	if t.any(func(f *fakeFault) bool { return f.undoFails }) {
		return o, &NotUndoneError{errors.New("the server does not start with its old file")}
	}
	if t.set(false); t.any(func(f *fakeFault) bool { return f.forever }) {
		w.broken = true
	}
	if ctx.Err() != nil {
		return o, ctx.Err()
	}
	o.Blocks = append(o.Blocks, w.blocks(After)...)
	switch {
	case with > before*1.2:
		o.Verdict, o.Better = Proved, true
	case with < before*0.8:
		o.Verdict = Worse
	default:
		o.Verdict = NoEffect
	}
	o.Text = fmt.Sprintf("good responses/s %.0f → %.0f", before, with)
	return o, nil
}

func (t *fakeTrial) Keep(context.Context) error {
	t.set(true)
	t.kept = true
	for _, f := range t.faults {
		t.w.kept = append(t.w.kept, f.cause)
	}
	return nil
}

func (t *fakeTrial) Close() error { return nil }
