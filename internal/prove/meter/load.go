package meter

import (
	"context"
	"errors"
	"time"

	"github.com/slowray/slowray/internal/prove/experiment"
	"github.com/slowray/slowray/internal/prove/loadgen"
)

// Load measures under a load generator, which is run anew for each block: each is
// the same little experiment, connections are opened in each, and what stuck in
// the clients of one (a SYN that waits ever longer) does not last into the next.
//
// What its output says counts first, since clients see what the server never
// does: refused connections, timeouts. What it does not say, and all of it when it
// is not understood, is taken from what was recorded meanwhile.
type Load struct {
	Command loadgen.Command
	Traffic *Traffic // nil: only what the output says
	glance  func(experiment.Block)
}

// OnGlance sets what is called with how things are, while the load is at full height.
func (l *Load) OnGlance(f func(experiment.Block)) { l.glance = f }

// Fixed says that the load takes as long as it takes.
func (l *Load) Fixed() bool { return !l.Command.Adjustable() }

// Closed says that the load is a closed loop.
func (l *Load) Closed() bool { return l.Command.Closed() }

// Close closes the recording.
func (l *Load) Close() error {
	if l.Traffic == nil {
		return nil
	}
	return l.Traffic.Close()
}

// Block runs the load once, for d where it can be asked to.
func (l *Load) Block(ctx context.Context, d time.Duration) (experiment.Block, error) {
	if l.Traffic == nil {
		began := time.Now()
		r, out, err := l.run(ctx, d)
		if err != nil {
			return experiment.Block{}, err
		}
		return merge(experiment.Block{Start: began, Seconds: out.Elapsed.Seconds()}, &r), nil
	}
	if err := l.Traffic.open(); err != nil {
		return experiment.Block{}, err
	}
	type ran struct {
		result loadgen.Result
		out    loadgen.Output
		err    error
	}
	done := make(chan ran, 1)
	began := time.Now()
	go func() {
		r, out, err := l.run(ctx, d)
		done <- ran{r, out, err}
	}()
	ticker := time.NewTicker(glanceEvery)
	defer ticker.Stop()
	for {
		select {
		case r := <-done:
			b, err := l.Traffic.shut()
			if r.err != nil && !errors.Is(r.err, loadgen.ErrUnknown) {
				return experiment.Block{}, r.err
			}
			if err != nil {
				return experiment.Block{}, err
			}
			if r.err != nil { // not understood: the recording is all there is
				return b, nil
			}
			return merge(b, &r.result), nil
		case <-ticker.C:
			seen := l.Traffic.look()
			if elapsed := time.Since(began); l.glance != nil && elapsed > quiet+glanceEvery && (l.Fixed() || elapsed < d) {
				l.glance(seen)
			}
		}
	}
}

func (l *Load) run(ctx context.Context, d time.Duration) (loadgen.Result, loadgen.Output, error) {
	c := l.Command.For(d)
	return c.Run(ctx)
}

// merge puts what the load says in the place of what was recorded.
func merge(b experiment.Block, r *loadgen.Result) experiment.Block {
	if r.Duration > 0 {
		b.Seconds = r.Duration.Seconds()
	}
	recorded := b.Timed
	b.Requests, b.Good, b.Errors, b.Unanswered = r.Requests, r.Good(), min(r.Bad, r.Requests), r.Unanswered
	p50, ok50 := r.Times[0.5]
	p99, ok99 := r.Times[0.99]
	// The same source for all blocks, whatever their figures: by the generator.
	if ok50 && ok99 && (recorded == 0 || !coarse[r.Tool]) {
		b.P50, b.P99, b.Timed = float64(p50), float64(p99), r.Good()
	}
	return b
}

// coarse are generators that print times in whole or tenths of a millisecond:
// what was recorded is better, where there is such.
var coarse = map[string]bool{"ab": true, "hey": true}
