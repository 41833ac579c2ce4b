package experiment

import (
	"errors"
	"fmt"
)

// Verdict is what an experiment came to.
type Verdict string

// The verdicts.
const (
	Proved    Verdict = "proved"             // the effect came and went with the change, beyond the noise
	NoEffect  Verdict = "no effect"          // none, or none that could matter; Why says how large one would have been seen
	Worse     Verdict = "made it worse"      // the opposite came and went, or the service had to be saved
	TooLittle Verdict = "too little traffic" // nothing can be said
	Undecided Verdict = "undecided"          // the noise, a drift of the load, or an effect that stayed
)

// Outcome is what an effect on one metric is.
type Outcome string

// The outcomes.
const (
	Better  Outcome = "better"
	Same    Outcome = "same"    // no change that matters; the interval says what is ruled out
	Poorer  Outcome = "worse"   // the opposite of better, as sure
	Unclear Outcome = "unclear" // a change that matters is neither shown nor ruled out
	Shown   Outcome = "shown"   // told, not judged
)

// Sample is one metric in the blocks of one or more phases.
type Sample struct {
	Blocks []float64 `json:"blocks"`
	Median float64   `json:"median"`
}

// Effect is what the change did to one metric.
type Effect struct {
	Metric Metric `json:"metric"`
	Unit   string `json:"unit"`   // "1/s", "share", "ns"
	Better string `json:"better"` // "higher", "lower"

	Before Sample `json:"before"`
	With   Sample `json:"with"`  // of all rounds
	After  Sample `json:"after"` // of all rounds

	// Ratio is with ÷ without (before and after together): the middle of the
	// ratios of all pairs of blocks. Low and High hold it with Confidence. Both
	// are of the value plus a small constant, so that 0 has a ratio too.
	Ratio      float64 `json:"ratio"`
	Low        float64 `json:"low"`
	High       float64 `json:"high"`
	Confidence float64 `json:"confidence"`
	// P is the chance that blocks with the change lie as far to the better side,
	// or to the worse if they lie there, when nothing made them differ.
	P       float64 `json:"p"`
	Outcome Outcome `json:"outcome"`
}

// Phase is a row of blocks in one state.
type Phase struct {
	Name    string  `json:"name"` // "before", "with", "after"
	Settled float64 `json:"settled_s"`
	Blocks  []Block `json:"blocks"`
}

// Applied says whether the change was in force.
func (p *Phase) Applied() bool { return p.Name == phaseWith }

const (
	phaseBefore = "before"
	phaseWith   = "with"
	phaseAfter  = "after"
)

var phaseNames = []string{phaseBefore, phaseWith, phaseAfter}

// Result is what an experiment came to, with all that it was judged by.
type Result struct {
	Verdict Verdict  `json:"verdict"`
	Why     string   `json:"why"` // one or more plain sentences
	Effects []Effect `json:"effects"`
	Phases  []Phase  `json:"phases"`
	Rounds  int      `json:"rounds"` // how often the change was made
	// Harm says that the change was undone early since the service got worse.
	Harm bool `json:"harm,omitempty"`
	// Stopped says that it was ended from outside before it was over.
	Stopped bool `json:"stopped,omitempty"`
	// Undone says that all is as it was before. Otherwise Left says what is not, and
	// InForce whether that is slowray's change, or what somebody else has put there.
	Undone  bool   `json:"undone"`
	Left    string `json:"left,omitempty"`
	InForce bool   `json:"in_force,omitempty"`
}

// Effect is the effect on a metric, nil when it could not be measured.
func (r *Result) Effect(m Metric) *Effect {
	for i := range r.Effects {
		if r.Effects[i].Metric == m {
			return &r.Effects[i]
		}
	}
	return nil
}

// Undid notes how things are, when Undo has said err: nil when all is as it was.
func (r *Result) Undid(err error) {
	r.Undone, r.Left, r.InForce = err == nil, "", false
	if err != nil {
		r.Left, r.InForce = err.Error(), !settled(err)
	}
}

// settled says that an error of Undo leaves nothing to be undone.
func settled(err error) bool {
	var s interface{ Settled() bool }
	return errors.As(err, &s) && s.Settled()
}

// NotUndone is the error for a Result that is not Undone: it says what is not as it
// was.
func (r *Result) NotUndone() error {
	switch {
	case r.Undone:
		return nil
	case r.InForce:
		return fmt.Errorf("the change is not undone: %s", r.Left)
	}
	return fmt.Errorf("not all is as it was: %s", r.Left)
}
