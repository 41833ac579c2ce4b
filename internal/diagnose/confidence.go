package diagnose

import (
	"math"

	"github.com/slowray/slowray/internal/cause"
)

// Model gives a confidence for features: their weighted sum, made monotone to how often
// findings with such a sum were true. Package lab/blind fits it.
type Model struct {
	Weights []float64 // one for each feature, and the constant
	Steps   []Step    // by rising X
}

// Step is a part of a function: from X on it is Y.
type Step struct{ X, Y float64 }

// Sum is the weighted sum.
func (m *Model) Sum(features []float64) float64 {
	sum := m.Weights[len(m.Weights)-1]
	for i, f := range features {
		sum += m.Weights[i] * f
	}
	return sum
}

// Confidence is 0 to 1. Below the first step it is that step's.
func (m *Model) Confidence(features []float64) float64 {
	x, y := m.Sum(features), m.Steps[0].Y
	for _, s := range m.Steps {
		if s.X <= x {
			y = s.Y
		}
	}
	return y
}

// confide fills in how likely each finding is to be true.
func confide(r *Report) {
	for i := range r.Findings {
		r.Findings[i].Confidence = fitted.Confidence(Features(r, i))
	}
}

// FeatureNames says what the parts of Features are.
var FeatureNames = []string{"share", "of what was lost", "explained", "first", "rival", "alone", "witnesses", "chain", "change", "wait", "drop", "limit or pool", "machine", "unexplained"}

// Features is what the confidence in a finding of r is made of, each part 0 to 1, in the
// order of FeatureNames. It goes by what stands in the report alone: what a report says
// of a finding is as good as what it says next to it.
func Features(r *Report, at int) []float64 {
	f := &r.Findings[at]
	causes, rival := 0, 0.0
	for i := range r.Findings {
		other := &r.Findings[i]
		if other.Role != cause.RoleCause {
			continue
		}
		causes++
		if i != at {
			rival = max(rival, costOf(other))
		}
	}
	sources := map[string]bool{}
	for i := range f.Evidence {
		sources[f.Evidence[i].Source] = true
	}
	const manySources = 5
	explained, part := 0.5, 0.5 // nobody recorded what was lost
	if r.Account.Lost > 0 {
		explained, part = r.Account.Explained/r.Account.Lost, min(1, costOf(f)/r.Account.Lost)
	}
	class := classes[f.Cause]
	is := func(k cause.Class) float64 { return truth(class&k != 0) }
	return []float64{
		within(f.Impact.Share),
		within(part),
		within(explained),
		truth(at == 0),
		within(rival / max(costOf(f), rival, 1e-9)),
		1 / float64(max(causes, 1)),
		float64(min(len(sources), manySources)) / manySources,
		truth(len(f.Chain) > 0),
		truth(len(f.Fix.Changes) > 0),
		is(cause.ClassWait),
		is(cause.ClassDrop | cause.ClassSegment),
		is(cause.ClassLimit | cause.ClassPool | cause.ClassKill),
		is(cause.ClassMachine | cause.ClassCPU | cause.ClassRunQueue | cause.ClassCompute | cause.ClassHost),
		truth(f.Cause == cause.Unexplained),
	}
}

// classes are those of the causes.
var classes = func() map[cause.ID]cause.Class {
	all := map[cause.ID]cause.Class{}
	for _, c := range cause.Catalogue() {
		all[c.ID] = c.Class
	}
	return all
}()

func costOf(f *cause.Finding) float64 {
	if f.Impact.Cost == nil {
		return 0
	}
	return *f.Impact.Cost
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

func within(x float64) float64 {
	if math.IsNaN(x) {
		return 0
	}
	return min(1, max(0, x))
}
