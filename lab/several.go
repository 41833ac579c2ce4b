package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slowray/slowray/lab/incident"
)

// eachStarts is how much longer the load goes on for each further slowray that
// begins at the same moment: it takes half a second of one of the CPUs to begin.
const eachStarts = 250 * time.Millisecond

// RunSeveral injects incidents at the same time, each in a sandbox of its own, and
// has a slowray look at each of them; it judges as [Run] does. It is for incidents
// that need hardly any CPU and change nothing of the host ([Info.Calm]), all of them
// as [Info.Quick] as the first. One that does not agree among others is to be run
// alone.
func RunSeveral(ctx context.Context, names []string, opt Options) (results []Result, err error) {
	if len(names) == 0 {
		return nil, nil
	}
	started := time.Now()
	runners := make([]*runner, len(names))
	said := make([]bytes.Buffer, len(names))
	for n, name := range names {
		i, err := incident.Find(name)
		if err != nil {
			return nil, fmt.Errorf("lab: %w", err)
		}
		if !i.Calm() || n > 0 && i.Quick != runners[0].Quick {
			return nil, fmt.Errorf("lab: %s: it cannot be run next to the others", name)
		}
		one := opt
		one.Out = &said[n]
		if runners[n], err = apart(i, one, runners[:n]); err != nil {
			return nil, err
		}
	}
	if err := runners[0].acquire(ctx); err != nil {
		return nil, err
	}
	defer runners[0].lock.Release()
	seen, err := lookAtSeveral(ctx, runners)
	if err != nil {
		return nil, err
	}
	for n, r := range runners {
		r.print.heading(r.Incident, r.opt.Seed)
		set := injectedSet{name: r.Name, faults: r.Faults}
		step, err := r.step(ctx, set, seen[n], nil)
		if err != nil {
			return nil, fmt.Errorf("lab: %s: %w", r.Name, err)
		}
		result, err := r.finish(Result{Incident: r.Name, Seed: r.opt.Seed, OK: step.OK, Steps: []StepResult{step}}, started)
		if err != nil {
			return nil, err
		}
		results = append(results, result)
		if opt.Out != nil {
			if _, err := said[n].WriteTo(opt.Out); err != nil {
				return nil, err
			}
		}
	}
	return results, nil
}

// apart prepares an incident with addresses and ports that none of the others has.
func apart(i incident.Incident, opt Options, others []*runner) (*runner, error) {
	for range 100 {
		r, err := prepare(i, opt)
		if err != nil {
			return nil, err
		}
		taken := func(o *runner) bool {
			mine, its := r.plan, o.plan
			return mine.ServerAddr == its.ServerAddr || mine.BackAddr == its.BackAddr ||
				slices.Contains([]int{its.FrontPort, its.BackPort}, mine.FrontPort) || slices.Contains([]int{its.FrontPort, its.BackPort}, mine.BackPort)
		}
		if !slices.ContainsFunc(others, taken) {
			return r, nil
		}
		opt.Seed = r.opt.Seed + 1
	}
	return nil, errors.New("lab: no addresses and ports of its own for each incident")
}

// lookAtSeveral has a slowray look at each of them at the same time.
func lookAtSeveral(ctx context.Context, runners []*runner) ([]view, error) {
	trials := make([]*trial, len(runners))
	reports := make([][]*Report, len(runners))
	for n, r := range runners {
		r.lock = runners[0].lock
		trials[n] = r.watched(r.Faults, &reports[n])
		trials[n].after += time.Duration(len(runners)-1) * eachStarts
	}
	samples, err := sideBySide(ctx, trials...)
	seen := make([]view, len(runners))
	for n := range runners {
		seen[n] = view{sample: &samples[n], reports: reports[n]}
	}
	return seen, err
}
