package lab

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/slowray/slowray/lab/incident"
	"github.com/slowray/slowray/lab/load"
)

const (
	// A trial during which other programs of the machine used more than this
	// share of its CPU time is taken again, if there is patience left.
	othersMax = 0.15
	patience  = 6 // such repetitions in one run
)

// Sample is what one trial showed.
type Sample struct {
	Rates   []float64     `json:"good_per_second"` // one for each second of the window
	Outcome *load.Outcome `json:"outcome"`         // of the whole load; nil if there was none
	Others  float64       `json:"others"`          // share of the machine's CPU time that was used outside the sandbox
	Wires   wires         `json:"wires,omitempty"` // what the emulated links and the droppers did in the window
}

// Measure is one or several trials of the same.
type Measure struct {
	Samples []Sample `json:"samples"`
}

// measure takes one measurement of the faults, without slowray. It tries again
// while other programs disturb it.
func (r *runner) measure(ctx context.Context, faults []incident.Fault) (Sample, error) {
	var calmest Sample
	for n := 0; ; n++ {
		t := trial{runner: r, faults: faults, window: measureWindow, warm: measureWarm, after: measureWarm / 3}
		switch {
		case r.Quick:
			t.window, t.warm, t.after = quickMeasureWindow, quickMeasureWarm, quickMeasureWarm/3
		case r.opt.Brief:
			t.window = briefWindow
		}
		t.warm = max(t.warm, r.Lead)
		s, err := t.run(ctx)
		if err != nil {
			return s, err
		}
		if n == 0 || s.Others < calmest.Others {
			calmest = s
		}
		if calmest.Others <= othersMax || r.patience <= 0 {
			return calmest, nil
		}
		r.patience--
		r.print.progress(fmt.Sprintf("other programs used %.0f %% of the CPUs; measuring again", 100*s.Others))
	}
}

// calm is the samples that count: the undisturbed ones, or the least disturbed.
func (m Measure) calm() []Sample {
	var list []Sample
	for _, s := range m.Samples {
		if s.Others <= othersMax {
			list = append(list, s)
		}
	}
	if len(list) > 0 || len(m.Samples) == 0 {
		return list
	}
	return []Sample{slices.MinFunc(m.Samples, func(a, b Sample) int {
		if a.Others < b.Others {
			return -1
		}
		return 1
	})}
}

// rates is good answers per second, one value for each second.
func (m Measure) rates() []float64 {
	var all []float64
	for _, s := range m.calm() {
		all = append(all, s.Rates...)
	}
	return all
}

// Median is the median of good answers per second.
func (m Measure) Median() float64 { return median(m.rates()) }

func (m Measure) low() float64  { return slices.Min(append(m.rates(), m.Median())) }
func (m Measure) high() float64 { return slices.Max(append(m.rates(), m.Median())) }

// BadShare is errors and timeouts over all requests; of several trials the median.
func (m Measure) BadShare() float64 { return median(m.each(Sample.badShare)) }

// P99 is the 99th percentile of latency; of several trials the median.
func (m Measure) P99() time.Duration { return time.Duration(median(m.each(Sample.p99))) }

// P50 is the median of latency; of several trials the median.
func (m Measure) P50() time.Duration { return time.Duration(median(m.each(Sample.p50))) }

func (m Measure) each(of func(Sample) float64) []float64 {
	var all []float64
	for _, s := range m.calm() {
		all = append(all, of(s))
	}
	return all
}

// spread is the lowest and the highest value of all trials.
func (m Measure) spread(of func(Sample) float64) (low, high float64) {
	all := m.each(of)
	if len(all) == 0 {
		return 0, 0
	}
	return slices.Min(all), slices.Max(all)
}

func (s Sample) median() float64 { return median(s.Rates) }

// undisturbed is the rate there would have been, at most, had other programs
// left their CPU time to the servers.
func (s Sample) undisturbed() float64 { return s.median() / (1 - min(s.Others, 0.9)) }

func (s Sample) badShare() float64 {
	switch {
	case s.Outcome == nil:
		return 0
	case s.Outcome.Attempts() == 0: // not one answer to any client
		return 1
	}
	return min(1, float64(s.Outcome.Bad())/float64(s.Outcome.Attempts()))
}

func (s Sample) p50() float64 {
	if s.Outcome == nil {
		return 0
	}
	return float64(s.Outcome.P50)
}

func (s Sample) p99() float64 {
	if s.Outcome == nil {
		return 0
	}
	return float64(s.Outcome.P99)
}

func (m Measure) disturbed() bool {
	return slices.ContainsFunc(m.calm(), func(s Sample) bool { return s.Others > othersMax })
}

// median of a list; 0 if it is empty.
func median(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(list))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}
