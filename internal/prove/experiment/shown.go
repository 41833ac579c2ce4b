package experiment

import (
	"fmt"
	"maps"
	"slices"
)

// Metrics that are only told.
const (
	requestRate    Metric = "requests_per_s"
	unansweredRate Metric = "unanswered_per_s"
	partPrefix            = "p99."
)

// shown is what is reported of the blocks in addition to what is judged.
func shown(r *Result) []Effect {
	var all []Effect
	add := func(m Metric, k kind, read func(*Block) float64) {
		if r.Effect(m) != nil {
			return
		}
		e := effect(m, k, r.Phases, read)
		off := slices.Concat(e.Before.Blocks, e.After.Blocks)
		if len(off) == 0 || slices.Max(slices.Concat(off, e.With.Blocks)) == 0 {
			return
		}
		e.Ratio = ratio(e.With.Median, Median(off))
		all = append(all, e)
	}
	for _, m := range Metrics() {
		add(m, kinds[m], m.value)
	}
	add(requestRate, kind{unit: "1/s", higher: true}, func(b *Block) float64 { return ratio(float64(b.Requests), b.Seconds) })
	add(unansweredRate, kind{unit: "1/s"}, func(b *Block) float64 { return ratio(float64(b.Unanswered), b.Seconds) })
	for _, name := range names(r, func(b *Block) map[string]float64 { return b.Parts }) {
		add(Metric(partPrefix+name), kind{unit: "ns"}, func(b *Block) float64 { return b.Parts[name] })
	}
	for _, name := range names(r, func(b *Block) map[string]float64 { return b.Counters }) {
		add(Metric(name), counterKind, func(b *Block) float64 { return b.Counters[name] })
	}
	return all
}

// names are the keys in any block, sorted.
func names(r *Result, of func(*Block) map[string]float64) []string {
	set := map[string]bool{}
	for i := range r.Phases {
		for j := range r.Phases[i].Blocks {
			for name := range of(&r.Phases[i].Blocks[j]) {
				set[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// harmText says that the change was taken back early, and whether that helped.
func (r *Result) harmText() string {
	good := func(name string) (rate float64, ok bool) {
		for i := len(r.Phases) - 1; i >= 0; i-- {
			if p := &r.Phases[i]; p.Name == name && len(p.Blocks) > 0 {
				s := effect(GoodRate, kinds[GoodRate], []Phase{*p}, GoodRate.value)
				return s.Before.Median + s.With.Median + s.After.Median, true
			}
		}
		return 0, false
	}
	text := "the service got much worse within moments of the change, which was undone at once"
	before, _ := good(phaseBefore)
	after, ok := good(phaseAfter)
	e := Effect{Unit: "1/s"}
	switch {
	case !ok:
		return text
	case after >= harmRate*before:
		return fmt.Sprintf("%s; good responses came back (%s before, %s after)", text, e.Figure(before), e.Figure(after))
	}
	return fmt.Sprintf("%s; good responses have not come back (%s before, %s after): the load may have ended, or the harm lasts", text, e.Figure(before), e.Figure(after))
}
