package lab

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"

	"github.com/slowray/slowray/lab/incident"
	"github.com/slowray/slowray/lab/sandbox"
	"github.com/slowray/slowray/lab/server"
)

// sideBySide runs trials at the same time, each in its sandbox. Loads begin
// when the servers of all serve. What one uses of the CPUs is no disturbance
// to another one's measurement.
func sideBySide(ctx context.Context, trials ...*trial) (samples []Sample, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	samples = make([]Sample, len(trials))
	boxes := make([]*sandbox.Box, len(trials))
	var serving, done sync.WaitGroup
	serving.Add(len(trials))
	errs := make([]error, len(trials))
	for n, t := range trials {
		arrived, first := false, t.ready
		t.ready = func(ctx context.Context, box *sandbox.Box) error {
			if first != nil {
				if err := first(ctx, box); err != nil {
					return err
				}
			}
			boxes[n], arrived = box, true
			serving.Done()
			serving.Wait()
			return ctx.Err()
		}
		t.alongside = func() (inits []int) {
			for _, box := range boxes {
				inits = append(inits, box.PID())
			}
			return inits
		}
		done.Go(func() {
			samples[n], errs[n] = t.run(ctx)
			if !arrived { // the others must not wait for it
				cancel()
				serving.Done()
			}
		})
	}
	done.Wait()
	return samples, errors.Join(errs...)
}

// twinned says whether what the faults do is measured next to them, at the same
// time: an incident that needs hardly any CPU, and has one fault.
func (r *runner) twinned(faults []incident.Fault) bool {
	if _, ok := r.declared(faults); ok {
		return false
	}
	return r.Light && !r.Stepped && !r.Control && !r.opt.WholeHost && len(faults) == 1 && !faults[0].Decoy && !r.LoadWith(faults).None()
}

// withTwin runs a trial, and next to it the same without any fault, at another
// port.
func (t *trial) withTwin(ctx context.Context) (injected, without Sample, err error) {
	twin := *t.runner
	for n := uint64(1); twin.plan.FrontPort == t.plan.FrontPort; n++ {
		twin.plan = server.NewPlan(rand.New(rand.NewPCG(uint64(t.opt.Seed), n)))
	}
	s, err := sideBySide(ctx, t, &trial{runner: &twin, window: t.window, warm: t.warm, after: t.after})
	return s[0], s[1], err
}
