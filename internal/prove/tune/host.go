package tune

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/prove/change"
	_ "github.com/slowray/slowray/internal/prove/config" // its Doers
	"github.com/slowray/slowray/internal/prove/experiment"
	"github.com/slowray/slowray/internal/prove/journal"
	"github.com/slowray/slowray/internal/prove/loadgen"
	"github.com/slowray/slowray/internal/prove/proof"
	"github.com/slowray/slowray/internal/shell"
	"github.com/slowray/slowray/internal/watch"
)

// Host is the World of this host: it looks with internal/watch, changes through
// internal/prove/journal and measures with internal/prove/meter.
type Host struct {
	Watch   watch.Options // For is the length of a look
	Load    *loadgen.Command
	Journal *journal.Journal
	Why     string // the command, for the journal
	Block   time.Duration
	// Progress, when set, is called with how far an experiment is.
	Progress func(experiment.Step)

	kept []string // entries of the journal, in order
}

const (
	blocks    = 3
	rounds    = 5 // a change is made at most so often before there is a verdict
	settle    = time.Second
	maxSettle = 4 * time.Second
	loadWarm  = 1500 * time.Millisecond // load before a look
	// leaseSlack is the part of a lease for making and undoing changes.
	leaseSlack = 3 * time.Minute
	busyLimit  = 20 * time.Second
)

// measureTime is what the blocks of one phase take.
func (h *Host) measureTime() time.Duration { return blocks * (h.Block + time.Second/3) }

// LookTime is what a look takes, and a measurement after it.
func (h *Host) LookTime() time.Duration {
	return loadWarm + h.Watch.For + 2*time.Second + h.measureTime()
}

// StepTime is what an experiment takes when all goes well, and a measurement after it.
func (h *Host) StepTime() time.Duration {
	return 3*(h.measureTime()+2*settle) + 2*time.Second + h.measureTime()
}

// Now is the time of the clock.
func (h *Host) Now() time.Time { return time.Now() }

// Look watches the host while the load runs, and judges.
func (h *Host) Look(ctx context.Context) (Sight, error) {
	end, err := h.underLoad(ctx)
	if err != nil {
		return Sight{}, err
	}
	o, err := watch.Run(ctx, h.Watch)
	failed := end()
	switch {
	case err != nil:
		return Sight{}, err
	case failed != nil && ctx.Err() == nil:
		return Sight{}, failed
	}
	r := diagnose.Diagnose(ctx, o, diagnose.Live)
	if r.CutShort != "" && len(r.Findings) == 0 {
		return Sight{}, errors.New(r.CutShort) // that is not healthy
	}
	if len(r.Findings) == 0 && r.NotPermitted() {
		return Sight{}, fmt.Errorf("nothing was found, and %d of %d causes could not be checked: run it as root", r.Unchecked(), r.Unchecked()+len(r.RuledOut))
	}
	return Sight{Host: r.Host, Findings: r.Findings, Healthy: healthy(&r)}, nil
}

// underLoad starts the load, if there is one of its own, and lets it run until the
// returned function is called, which gives what kept it from running.
func (h *Host) underLoad(ctx context.Context) (end func() error, err error) {
	if h.Load == nil {
		return func() error { return nil }, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	c := h.Load.For(loadWarm + h.Watch.For + 2*time.Second)
	go func() { done <- runLoad(ctx, c) }()
	select {
	case <-time.After(loadWarm):
	case err := <-done:
		cancel()
		return func() error { return nil }, err
	case <-ctx.Done():
	}
	return func() error {
		cancel()
		return <-done
	}, nil
}

// healthy tells what a look saw of the service that it was to look at.
func healthy(r *diagnose.Report) string {
	for _, e := range r.Endpoints {
		if e.Side == "served" && e.GoodRPS != nil && *e.GoodRPS > 0 {
			return fmt.Sprintf("Port %d gave %s good responses/s in the last look.", e.Port, rate(*e.GoodRPS))
		}
	}
	return ""
}

// Commands asks the Doers of the changes.
func (h *Host) Commands(changes []cause.Change) (do, undo []shell.Command, err error) {
	for i := range changes {
		c := &changes[i]
		d, err := change.For(c.Kind)
		if err != nil {
			return nil, nil, err
		}
		was, err := d.Prepare(c)
		if i > 0 && errors.Is(err, change.ErrFirst) { // by an earlier one of them
			do = append(do, shell.Line("# then: %s", shell.Text(c.Text)))
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", c.Text, err)
		}
		forth, back := d.Commands(c, was)
		do, undo = append(do, forth...), append(back, undo...)
	}
	return do, undo, nil
}

// Begin puts changes on record under a lease. It waits for somebody else who is
// changing something, but not for long.
func (h *Host) Begin(ctx context.Context, f *cause.Finding) (Trial, error) {
	o := journal.Options{Cause: string(f.Cause), Why: h.Why, For: min(journal.MaxFor, leaseSlack+rounds*h.StepTime())}
	lease, err := h.Journal.Begin(f.Fix.Changes, o)
	for end := time.Now().Add(busyLimit); errors.Is(err, journal.ErrBusy) && time.Now().Before(end) && ctx.Err() == nil; {
		pause(ctx, time.Second)
		lease, err = h.Journal.Begin(f.Fix.Changes, o)
	}
	if err != nil {
		return nil, err
	}
	return &leased{Leased: proof.Leased{Lease: lease}, host: h, pid: f.Subject.PID, cause: string(f.Cause)}, nil
}

// leased is a Trial under a lease.
type leased struct {
	proof.Leased
	host  *Host
	pid   int    // of the finding: its network namespace has the counters
	cause string // of the finding
}

// Run runs the experiment.
func (l *leased) Run(ctx context.Context) (Outcome, error) {
	h := l.host
	began := time.Now()
	m, end, err := h.openMeter(l.pid)
	if err != nil {
		return Outcome{}, err
	}
	defer end()
	result, err := experiment.Run(ctx, &l.Leased, m, experiment.Options{
		Blocks: blocks, Length: h.Block, Settle: settle, MaxSettle: maxSettle, Rounds: rounds, TurnedAway: proof.TurnedAway(l.cause),
		Beat: func(harm bool) {
			l.Lease.Beat(journal.Health{Worse: harm, Why: "far fewer good responses, or far more errors, than before"})
		},
		Progress: h.Progress,
	})
	o := outcome(&result, began, proof.TurnedAway(l.cause))
	if left := result.NotUndone(); left != nil {
		if err != nil {
			left = fmt.Errorf("%w; %w", err, left)
		}
		if result.InForce {
			left = &NotUndoneError{left}
		}
		return o, left
	}
	if l.Over != "" && !result.Harm {
		o.Text = strings.TrimSpace(o.Text + "; the lease ended: " + l.Over)
	}
	if err == nil && result.Stopped {
		err = context.Canceled
	}
	return o, err
}

// Keep makes the changes again and leaves them, in the journal.
func (l *leased) Keep(context.Context) error {
	err := l.Lease.Apply()
	if err == nil {
		err = l.Lease.Keep()
	}
	if err != nil {
		if left := l.Undo(); left != nil {
			err = fmt.Errorf("%w; %w", err, left)
		}
		return err
	}
	l.host.kept = append(l.host.kept, l.Lease.ID())
	return nil
}

// Close ends the lease. What somebody else has set meanwhile is no change of ours
// that was not taken back.
func (l *leased) Close() error {
	err := l.Leased.Close()
	if left := (*journal.LeftError)(nil); errors.As(err, &left) && left.Settled() {
		return nil
	}
	return err
}

// Measure measures the service as it is.
func (h *Host) Measure(ctx context.Context) ([]Block, error) {
	m, end, err := h.openMeter(0)
	if err != nil {
		return nil, err
	}
	defer end()
	var list []Block
	began := time.Now()
	for range blocks {
		b, err := m.Block(ctx, h.Block)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return list, err
		}
		list = append(list, block(&b, After, began))
	}
	return list, nil
}

// UndoAll takes back what this run has kept, the last first.
func (h *Host) UndoAll(context.Context) error {
	if len(h.kept) == 0 {
		return nil
	}
	outcomes, err := h.Journal.Undo(h.kept...)
	for i := range outcomes {
		err = errors.Join(err, outcomes[i].Error())
	}
	return err
}

// outcome is an experiment's result as the loop knows it. Better is what users want:
// more good responses, fewer errors, shorter times, or that fewer of them are turned
// away, by these counters.
func outcome(r *experiment.Result, began time.Time, turnedAway []string) Outcome {
	o := Outcome{Text: r.Why}
	switch r.Verdict {
	case experiment.Proved:
		o.Verdict = Proved
	case experiment.NoEffect:
		o.Verdict = NoEffect
	case experiment.Worse:
		o.Verdict = Worse
	default:
		o.Verdict = Unclear
	}
	metrics := experiment.Metrics()
	for _, counter := range turnedAway {
		metrics = append(metrics, experiment.Metric(counter))
	}
	for _, m := range metrics {
		if e := r.Effect(m); e != nil && e.Outcome == experiment.Better {
			o.Better = true
		}
	}
	for _, p := range r.Phases {
		for i := range p.Blocks {
			o.Blocks = append(o.Blocks, block(&p.Blocks[i], Phase(p.Name), began))
		}
	}
	return o
}

// block is an experiment's block as it is reported.
func block(b *experiment.Block, p Phase, began time.Time) Block {
	out := Block{Phase: p, Seconds: b.Seconds}
	if !b.Start.IsZero() {
		out.At = max(0, b.Start.Sub(began).Seconds())
	}
	if b.Seconds > 0 {
		out.Good = float64(b.Good) / b.Seconds
		failed := float64(b.Errors+b.Unanswered) / b.Seconds
		out.Errors = &failed
	}
	if b.Timed > 0 {
		p50, p99 := b.P50/1e6, b.P99/1e6
		out.P50, out.P99 = &p50, &p99
	}
	return out
}

// Filter names the service that a run is about, for people.
func Filter(f observe.Filter) string {
	switch {
	case f.Container != "":
		return "container " + f.Container
	case f.Unit != "":
		return "unit " + f.Unit
	case f.PID != 0:
		return fmt.Sprintf("process %d", f.PID)
	case f.Port != 0:
		return fmt.Sprintf("port %d", f.Port)
	}
	return "this host"
}
