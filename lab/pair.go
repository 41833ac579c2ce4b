package lab

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/slowray/slowray/lab/incident"
	"github.com/slowray/slowray/lab/sandbox"
)

// PairResult is one run of two faults at once.
type PairResult struct {
	Name    string   `json:"name"`
	Seed    int64    `json:"seed"`
	Hurts   []string `json:"hurts"`  // causes whose removal, measured, helps next to the other fault
	Found   []string `json:"found"`  // of those, as a cause and not as a consequence
	Missed  []string `json:"missed"` // of those, not found, or only as a consequence
	False   []string `json:"false"`  // causes that are found and are not there
	Reasons []string `json:"reasons,omitempty"`
	Others  float64  `json:"others"` // share of the CPUs that other programs took while slowray looked
	Seconds float64  `json:"seconds"`
}

// OK says that both were measured to hurt, and both were found, and nothing else.
func (p *PairResult) OK() bool { return p.Both() && len(p.False) == 0 }

// Both says that both were measured to hurt and were found.
func (p *PairResult) Both() bool { return len(p.Hurts) == 2 && len(p.Missed) == 0 }

// RunPair injects two faults at once, measures what removing each does next to the
// other, and lets slowray look at the whole host once.
func RunPair(ctx context.Context, p incident.Pair, opt Options) (PairResult, error) {
	started := time.Now()
	result := PairResult{Name: p.Name, Hurts: []string{}, Found: []string{}, Missed: []string{}, False: []string{}}
	run := runSideBySide
	if p.Both != nil {
		run = runInOne
	}
	err := run(ctx, p, opt, &result)
	result.Seconds = time.Since(started).Seconds()
	if err != nil {
		err = fmt.Errorf("lab: %s: %w", p.Name, err)
	}
	return result, err
}

// runInOne is for two faults in one service: the rules are those of any
// incident.
func runInOne(ctx context.Context, p incident.Pair, opt Options, result *PairResult) error {
	r, err := prepare(*p.Both, opt)
	if err != nil {
		return err
	}
	if err := r.acquire(ctx); err != nil {
		return err
	}
	whole, err := r.run(ctx)
	if err != nil {
		return err
	}
	result.Seed = whole.Seed
	for n := range whole.Steps {
		result.take(&whole.Steps[n])
	}
	return nil
}

// take adds what came of one service.
func (p *PairResult) take(s *StepResult) {
	if s.Looked != nil {
		p.Others = max(p.Others, s.Looked.Others)
	}
	for _, r := range s.Truth.Removals {
		if !r.Hurts {
			continue
		}
		p.Hurts = append(p.Hurts, r.Cause)
		if s.Found != nil && s.Found.blames(append([]string{r.Cause}, r.or...)) {
			p.Found = append(p.Found, r.Cause)
		} else {
			p.Missed = append(p.Missed, r.Cause)
		}
	}
	p.False = append(p.False, s.False...)
	p.Reasons = append(p.Reasons, s.Reasons...)
}

// blames says whether a finding of role cause names one of these.
func (r *Report) blames(ids []string) bool {
	for _, f := range r.Findings {
		for _, id := range ids {
			if f.Cause == id && f.Role == "cause" {
				return true
			}
		}
	}
	return false
}

// runSideBySide is for two services on one host, each with one fault.
func runSideBySide(ctx context.Context, p incident.Pair, opt Options, result *PairResult) error {
	opt.WholeHost = true
	var runners [2]*runner
	for n, name := range []string{p.First, p.Second} {
		i, err := incident.Find(name)
		if err != nil {
			return err
		}
		one := opt
		if opt.Seed != 0 {
			one.Seed = opt.Seed + int64(n)
		}
		if runners[n], err = prepare(i, one); err != nil {
			return err
		}
	}
	if err := runners[0].acquire(ctx); err != nil {
		return err
	}
	defer runners[0].lock.Release()
	runners[1].lock = runners[0].lock
	result.Seed = runners[0].opt.Seed
	both := [2][]incident.Fault{runners[0].Faults, runners[1].Faults}
	seen, err := together(ctx, runners, both, true)
	if err != nil {
		return err
	}
	steps := [2]*StepResult{}
	for n, r := range runners {
		steps[n] = &StepResult{Name: r.Name, Looked: seen.of[n].sample, Found: seen.of[n].own}
		steps[n].Truth.Base.Samples = []Sample{*seen.of[n].sample}
		// Without its own fault, next to the other one that stays.
		without := both
		without[n] = nil
		other, err := together(ctx, runners, without, false)
		if err != nil {
			return err
		}
		f := r.Faults[0]
		steps[n].Truth.Removals = []Removal{{Fault: f.Name, Cause: f.Cause, or: f.Or, Measure: Measure{Samples: []Sample{*other.of[n].sample}}}}
		steps[n].Truth.decide()
		judge(steps[n], r.Incident, r.Faults)
		result.take(steps[n])
	}
	for _, f := range seen.machine {
		// That others use the CPUs is no wrong answer where the lab saw it too.
		if !slices.Contains(ofOthers, f.Cause) || seen.of[0].sample.Others <= othersMax {
			result.False = append(result.False, f.Cause)
		}
	}
	return nil
}

// views is what was measured in the two sandboxes, and what slowray found.
type views struct {
	of [2]struct {
		sample *Sample
		own    *Report
	}
	machine []Finding // what slowray found of the machine, and of neither sandbox
}

// together runs the trials of two services at the same time.
func together(ctx context.Context, runners [2]*runner, faults [2][]incident.Fault, look bool) (views, error) {
	var seen views
	var places [2]Report // of which only the namespaces are known
	var trials [2]*trial
	for n, r := range runners {
		t := &trial{runner: r, faults: faults[n], window: quickMeasureWindow, warm: max(measureWarm, runners[0].Lead, runners[1].Lead), after: quickMeasureWarm / 3}
		if look {
			t.window, t.warm, t.after = r.opt.Window, max(watchWarm, t.warm), watchAfter
		}
		t.ready = func(ctx context.Context, box *sandbox.Box) (err error) {
			// Now: the other sandbox may end before slowray is done.
			places[n].netns, places[n].clients, places[n].backend, err = namespaces(ctx, box)
			return err
		}
		if look && n == 0 {
			t.watch = func(ctx context.Context, box *sandbox.Box) error {
				return seen.look(ctx, r, box, places)
			}
		}
		trials[n] = t
	}
	samples, err := sideBySide(ctx, trials[:]...)
	for n := range samples {
		seen.of[n].sample = &samples[n]
	}
	return seen, err
}

// look has slowray look at the host, and gives each sandbox its own part of the
// report: the findings in its namespaces, and those of the machine.
func (v *views) look(ctx context.Context, r *runner, box *sandbox.Box, places [2]Report) error {
	whole, err := r.slowray(ctx, box)
	if err != nil {
		return err
	}
	for _, f := range whole.Findings {
		if f.Subject.NetNS == 0 {
			v.machine = append(v.machine, f)
		}
	}
	for n, place := range places {
		own := *whole
		own.netns, own.clients, own.backend, own.routers = place.netns, place.clients, place.backend, nil
		own.Findings = nil
		for _, f := range whole.Findings {
			switch ns := f.Subject.NetNS; {
			case ns == own.netns, ns == own.clients, ns == own.backend && ns != 0:
				own.Findings = append(own.Findings, f)
			}
		}
		v.of[n].own = &own
	}
	return nil
}
