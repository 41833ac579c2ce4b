package lab

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/slowray/slowray/lab/incident"
)

// Limits of what counts as a difference.
const (
	gainMin     = 1.10 // a removal that gives this many times the good answers helps
	stormGain   = 2.00 // the same where most answers are errors
	stormShare  = 0.50
	badShare    = 0.01 // errors below this share of all requests do not count
	badDrop     = 0.70 // errors fall to this part of their share, or less
	answersMin  = 0.50 // fewer errors count only with this part of the good answers, or more
	tailMin     = 100 * time.Millisecond
	tailDrop    = 0.50 // p99 falls to this part, or less
	tieMargin   = 0.90 // a removal within this part of the best one is as good
	unsureLow   = 0.95 // a gain between these parts of what it takes is measured again
	unsureHigh  = 1.27
	unsureStorm = 3.00 // the same where most answers are errors
	unsureTie   = 0.6  // so is all that helps more than this part of what the best one does
	repeats     = 2    // measurements in all
)

// Truth is what measuring showed about a set of faults.
type Truth struct {
	Base     Measure   `json:"as_injected"`
	Removals []Removal `json:"removals"`
}

// Removal is the same set with one fault left out.
type Removal struct {
	Fault   string   `json:"fault"`
	Cause   string   `json:"cause"`
	Decoy   bool     `json:"decoy,omitempty"`
	Measure Measure  `json:"measure"`
	Gain    float64  `json:"gain"`          // good answers per second, times those as injected
	Hurts   bool     `json:"hurts"`         // the fault does harm
	Why     []string `json:"why,omitempty"` // what got better beyond noise
	Best    bool     `json:"best"`          // no other removal helps more

	faster bool     // Why has more good answers
	or     []string // Fault.Or
}

// truth measures each removal, and again those that are too close to call. It
// is given what was measured while slowray looked, and while it looked at the
// same without the first fault; each of them may be nil.
func (r *runner) truth(ctx context.Context, faults []incident.Fault, looked, next *Sample) (Truth, error) {
	var t Truth
	if r.LoadWith(faults).None() || r.EndInside && len(faults) == 0 {
		return t, nil
	}
	if looked != nil {
		t.Base.Samples = []Sample{*looked}
	}
	if declared, ok := r.declared(faults); ok && looked != nil {
		t.Removals = declared
		return t, nil
	}
	if r.Control && r.opt.Brief && looked != nil { // more could only be noted
		return t, nil
	}
	if looked == nil || len(faults) > 0 && t.Base.disturbed() {
		if err := r.measureInto(ctx, &t.Base, "as injected", faults); err != nil {
			return t, err
		}
	}
	var without [][]incident.Fault
	for n, f := range faults {
		if f.Decoy && r.Stepped { // alone it is a control of its own
			continue
		}
		rest := slices.Delete(slices.Clone(faults), n, n+1)
		removal := Removal{Fault: f.Name, Cause: f.Cause, Decoy: f.Decoy, or: f.Or}
		if n == 0 && next != nil && next.Others <= othersMax {
			removal.Measure.Samples = []Sample{*next}
		} else if err := r.measureInto(ctx, &removal.Measure, "without "+f.Name, rest); err != nil {
			return t, err
		}
		without = append(without, rest)
		t.Removals = append(t.Removals, removal)
	}
	t.decide()
	if r.Control { // what is measured of a control is only noted
		return t, nil
	}
	return t, r.again(ctx, &t, faults, without)
}

// declared is what an incident with one fault says of itself; false where it has to
// be measured.
func (r *runner) declared(faults []incident.Fault) (list []Removal, ok bool) {
	if !r.opt.Declared || r.Stepped || r.Control {
		return nil, false
	}
	harmful := 0
	for _, f := range faults {
		list = append(list, Removal{Fault: f.Name, Cause: f.Cause, Decoy: f.Decoy, or: f.Or, Hurts: !f.Decoy, Best: !f.Decoy, Why: []string{"as is declared"}})
		if !f.Decoy {
			harmful++
		}
	}
	return list, harmful == 1
}

// again measures once more what is too close to call.
func (r *runner) again(ctx context.Context, t *Truth, faults []incident.Fault, without [][]incident.Fault) error {
	for range repeats - 1 {
		unsure := t.unsure()
		if len(unsure) == 0 {
			break
		}
		if err := r.measureInto(ctx, &t.Base, "as injected, again", faults); err != nil {
			return err
		}
		for _, n := range unsure {
			if err := r.measureInto(ctx, &t.Removals[n].Measure, "without "+t.Removals[n].Fault+", again", without[n]); err != nil {
				return err
			}
		}
		t.decide()
	}
	return nil
}

func (r *runner) measureInto(ctx context.Context, m *Measure, what string, faults []incident.Fault) error {
	r.print.progress("measuring " + what)
	s, err := r.measure(ctx, faults)
	m.Samples = append(m.Samples, s)
	return err
}

// decide says of each removal whether it helps, and which one helps most.
//
// A removal helps if good answers per second rise by a tenth and the two
// measurements do not overlap (each second is a sample; the median of one lies
// outside the range of the other), or if they double where most answers are
// errors (the few good ones are what a storm of errors leaves, and vary by half
// from trial to trial), or if errors that were at least 1 % fall by
// three tenths, or if p99 halves (these two only while good answers do not halve
// as well). Of several trials, the worst without the
// fault has to beat the best with it: what comes only now and then is noise. And
// it has to beat what there might have been without other programs on the CPUs.
//
// Best is the removal with the highest median of good answers among those that
// raise them, and every other such removal within a tenth of it, or whose
// range and that of the best one reach each other's median. If none raises good
// answers, all that help are best.
func (t *Truth) decide() {
	faster := -1
	for n := range t.Removals {
		r := &t.Removals[n]
		r.compare(t.Base)
		if r.faster && (faster < 0 || r.Measure.Median() > t.Removals[faster].Measure.Median()) {
			faster = n
		}
	}
	for n := range t.Removals {
		r := &t.Removals[n]
		r.Best = r.Hurts
		if faster >= 0 {
			r.Best = r.faster && r.Measure.ties(t.Removals[faster].Measure)
		}
	}
}

func (r *Removal) compare(base Measure) {
	m := r.Measure
	r.Why, r.faster = nil, false
	r.Gain = m.Median() / max(base.Median(), 1)
	worst, _ := m.spread(Sample.median)
	_, before := base.spread(Sample.undisturbed)
	if worst >= gainNeeded(base)*max(before, 1) && (worst > base.high() || before < m.low()) {
		r.faster = true
		r.Why = append(r.Why, fmt.Sprintf("good answers %s", times(r.Gain)))
	}
	_, bad := m.spread(Sample.badShare)
	badBefore, _ := base.spread(Sample.badShare)
	// Fewer errors, or quicker answers, are no gain where there are hardly any
	// answers left: a load generator does not count what it still waits for.
	answered := worst > 0 && worst >= answersMin*before
	if answered && badBefore >= badShare && bad <= badDrop*badBefore {
		r.Why = append(r.Why, fmt.Sprintf("errors %.1f %% → %.1f %%", 100*base.BadShare(), 100*m.BadShare()))
	}
	_, tail := m.spread(Sample.p99)
	tailBefore, _ := base.spread(Sample.p99)
	// Where most answers are errors, p99 is the latency of errors.
	if answered && badBefore < stormShare && bad < stormShare && time.Duration(tailBefore) >= tailMin && tail <= tailDrop*tailBefore {
		r.Why = append(r.Why, fmt.Sprintf("p99 %s → %s", short(base.P99()), short(m.P99())))
	}
	r.Hurts = len(r.Why) > 0
}

// storm says that most answers are errors.
func (m Measure) storm() bool { return m.BadShare() >= stormShare }

// gainNeeded is how many times the good answers a removal has to give.
func gainNeeded(base Measure) float64 {
	if base.storm() {
		return stormGain
	}
	return gainMin
}

// unsure gives the removals that another measurement could put elsewhere:
// those near a limit, and those that may be the best one, where they are of
// more than one cause.
func (t *Truth) unsure() []int {
	best, rivals := 0.0, 0
	for _, r := range t.Removals {
		if r.Best {
			best = max(best, r.Measure.Median())
		}
	}
	var may []string // be the best
	for _, r := range t.Removals {
		if r.mayBeBest(best) && !slices.Contains(may, r.Cause) {
			may = append(may, r.Cause)
			rivals = len(may) - 1
		}
	}
	var list []int
	for n, r := range t.Removals {
		part, high := r.Gain/gainNeeded(t.Base), unsureHigh
		if t.Base.storm() {
			high = unsureStorm
		}
		closeToNone := len(r.Why) <= 1 && part > unsureLow && part < high
		if closeToNone || rivals > 0 && r.mayBeBest(best) {
			list = append(list, n)
		}
	}
	return list
}

// mayBeBest says whether a removal helps so much that another measurement could
// find it to help as much as the best one, or no longer as much.
func (r *Removal) mayBeBest(best float64) bool {
	return r.faster && r.Measure.Median() > unsureTie*best
}

// ties reports whether m is as good as the best measurement within noise.
func (m Measure) ties(best Measure) bool {
	return m.Median() >= tieMargin*best.Median() || m.high() >= best.Median() && best.low() <= m.Median()
}
