package blind

import (
	"cmp"
	"math"
	"slices"

	"github.com/slowray/slowray/internal/diagnose"
)

// Sample is a score and whether what it was given to is true.
type Sample struct {
	X     float64
	Right bool
}

// Isotonic fits the function that never falls and is nearest to the samples, in the
// sum of squares: pool adjacent violators (Barlow, Bartholomew, Bremner and Brunk,
// Statistical Inference under Order Restrictions, 1972).
func Isotonic(samples []Sample) []diagnose.Step {
	samples = slices.Clone(samples)
	slices.SortStableFunc(samples, func(a, b Sample) int { return cmp.Compare(a.X, b.X) })
	type block struct{ x, sum, n float64 }
	var blocks []block
	for i, s := range samples {
		y := 0.0
		if s.Right {
			y = 1
		}
		if i > 0 && s.X == samples[i-1].X {
			last := &blocks[len(blocks)-1]
			last.sum, last.n = last.sum+y, last.n+1
		} else {
			blocks = append(blocks, block{s.X, y, 1})
		}
		if i+1 < len(samples) && samples[i+1].X == s.X {
			continue // equal ones are one block, whatever order they came in
		}
		for len(blocks) > 1 {
			a, b := &blocks[len(blocks)-2], blocks[len(blocks)-1]
			if a.sum/a.n < b.sum/b.n {
				break
			}
			a.sum, a.n = a.sum+b.sum, a.n+b.n
			blocks = blocks[:len(blocks)-1]
		}
	}
	var steps []diagnose.Step
	for _, b := range blocks {
		steps = append(steps, diagnose.Step{X: b.x, Y: b.sum / b.n})
	}
	return steps
}

// Labelled is a finding's features, and whether it is true.
type Labelled struct {
	Features []float64
	Right    bool
	Group    int // draw it is of: what is held out is held out whole
}

// prior is how many samples of the mean each step is worth more: after few draws most of
// what is known is how often findings are true at all.
const prior = 6

// Fit fits weights (logistic regression with a ridge, by Newton's method in the form of
// gradient steps) and then the steps.
func Fit(list []Labelled) diagnose.Model {
	if len(list) == 0 {
		return diagnose.Model{}
	}
	n := len(list[0].Features)
	m := diagnose.Model{Weights: make([]float64, n+1)}
	const ridge, rate, rounds = 0.02, 0.5, 4000
	for range rounds {
		gradient := make([]float64, n+1)
		for _, l := range list {
			miss := logistic(m.Sum(l.Features))
			if l.Right {
				miss--
			}
			for i, f := range l.Features {
				gradient[i] += miss * f
			}
			gradient[n] += miss
		}
		for i := range m.Weights {
			g := gradient[i] / float64(len(list))
			if i < n {
				g += ridge * m.Weights[i]
			}
			m.Weights[i] -= rate * g
		}
	}
	for i, w := range m.Weights {
		m.Weights[i] = math.Round(w*1000) / 1000
	}
	var samples []Sample
	right := 0.0
	for _, l := range list {
		samples = append(samples, Sample{m.Sum(l.Features), l.Right})
		if l.Right {
			right++
		}
	}
	mean := right / float64(len(list))
	for i, s := range Isotonic(samples) {
		if i > 0 && s.Y-m.Steps[len(m.Steps)-1].Y < 0.005 {
			continue
		}
		m.Steps = append(m.Steps, s)
	}
	for i, s := range m.Steps {
		weight := 0.0
		for _, x := range samples {
			if x.X >= s.X && (i+1 == len(m.Steps) || x.X < m.Steps[i+1].X) {
				weight++
			}
		}
		m.Steps[i] = diagnose.Step{X: math.Floor(s.X*1000) / 1000, Y: math.Round(1000*(s.Y*weight+prior*mean)/(weight+prior)) / 1000}
	}
	for i := 1; i < len(m.Steps); i++ { // what the prior did to small steps
		m.Steps[i].Y = max(m.Steps[i].Y, m.Steps[i-1].Y)
	}
	return m
}

func logistic(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// folds is how many parts the draws are cut into for HeldOut.
const folds = 5

// HeldOut gives each finding the confidence of a model that was fitted without its draw.
func HeldOut(list []Labelled) []Sample {
	out := make([]Sample, len(list))
	for fold := range folds {
		var rest []Labelled
		for _, l := range list {
			if l.Group%folds != fold {
				rest = append(rest, l)
			}
		}
		m := Fit(rest)
		for i, l := range list {
			if l.Group%folds == fold && len(rest) > 0 {
				out[i] = Sample{m.Confidence(l.Features), l.Right}
			}
		}
	}
	return out
}

// Bin is a part of a reliability diagram.
type Bin struct {
	Low, High float64
	Said      float64 // mean confidence
	Right     float64 // share that is true
	N         int
}

// Bins cuts confidence into parts of a tenth.
func Bins(samples []Sample) []Bin {
	const n = 10
	bins := make([]Bin, n)
	for i := range bins {
		bins[i].Low, bins[i].High = float64(i)/n, float64(i+1)/n
	}
	for _, s := range samples {
		b := &bins[min(n-1, max(0, int(s.X*n)))]
		b.Said += s.X
		if s.Right {
			b.Right++
		}
		b.N++
	}
	for i := range bins {
		if b := &bins[i]; b.N > 0 {
			b.Said, b.Right = b.Said/float64(b.N), b.Right/float64(b.N)
		}
	}
	return slices.DeleteFunc(bins, func(b Bin) bool { return b.N == 0 })
}

// CalibrationError is the expected calibration error: how far what is said is from how
// often it is true, over the bins, each by its weight.
func CalibrationError(samples []Sample) float64 {
	if len(samples) == 0 {
		return 0
	}
	sum := 0.0
	for _, b := range Bins(samples) {
		sum += float64(b.N) * math.Abs(b.Said-b.Right)
	}
	return sum / float64(len(samples))
}
