package tune

import (
	"context"
	"errors"
	"time"

	"github.com/slowray/slowray/internal/prove/experiment"
	"github.com/slowray/slowray/internal/prove/loadgen"
	"github.com/slowray/slowray/internal/prove/meter"
	"github.com/slowray/slowray/internal/prove/proof"
)

// loadGrace is how much longer than asked a load may take before it is taken
// to be stuck.
const loadGrace = 2 * time.Second

// openMeter makes the meter of one experiment; the function ends it. Where pid is
// not 0, counters are read in the network namespace of that process, if it still
// runs: without them it is only not told what they say.
func (h *Host) openMeter(pid int) (experiment.Meter, func() error, error) {
	var traffic *meter.Traffic
	shut := func() {}
	if port := h.Watch.Filter.Port; port != 0 {
		scope := meter.Scope{Port: port}
		if pid != 0 {
			if read, end, err := proof.CountersOf(pid); err == nil {
				scope.Counters, shut = read, end
			}
		}
		var err error
		if traffic, err = meter.Start(scope); err != nil {
			shut()
			return nil, nil, err
		}
	}
	ends := func(end func() error) func() error {
		return func() error {
			defer shut()
			return end()
		}
	}
	switch {
	case h.Load != nil:
		m := &meter.Load{Command: *h.Load, Traffic: traffic}
		return &bounded{m}, ends(m.Close), nil
	case traffic != nil:
		return traffic, ends(traffic.Close), nil
	}
	return nil, nil, errNoMeasure
}

var errNoMeasure = errors.New("nothing to measure by: give --load CMD, or --port N for the service's own traffic")

// CanMeasure says why nothing could be measured, before anything is looked at.
func (h *Host) CanMeasure() error {
	if h.Load == nil && h.Watch.Filter.Port == 0 {
		return errNoMeasure
	}
	return nil
}

// bounded is a load that is ended when it gets stuck: wrk, for one, begins with a
// connection that it waits for as long as the kernel tries, two minutes where
// every SYN is lost.
type bounded struct{ *meter.Load }

// Block is as that of the load. One that was stuck had no good response, and at
// least one that never came.
func (b *bounded) Block(ctx context.Context, d time.Duration) (experiment.Block, error) {
	if b.Fixed() {
		return b.Load.Block(ctx, d)
	}
	limited, cancel := context.WithTimeout(ctx, d+loadGrace)
	defer cancel()
	began := time.Now()
	block, err := b.Load.Block(limited, d)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return experiment.Block{Start: began, Seconds: time.Since(began).Seconds(), Unanswered: 1}, nil
	}
	return block, err
}

// runLoad runs the load again and again until ctx ends; the error is that it cannot
// be run at all.
func runLoad(ctx context.Context, c loadgen.Command) error {
	for {
		began := time.Now()
		_, _, err := c.Run(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !errors.Is(err, loadgen.ErrUnknown):
			return err
		case time.Since(began) < time.Second: // one that ends at once is not to be started a thousand times
			pause(ctx, time.Second)
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
