package experiment

import (
	"math"
	"slices"
)

const (
	// maybe is the chance, under nothing but noise, of what is worth another
	// round; doubtful that of what cannot be called nothing; small what an effect that came and went more than once must stay
	// below.
	maybe    = 0.1
	doubtful = 0.01
	small    = 0.001
	// apart is by what factor all blocks with the change have to be better than all
	// without it, where those without it do not agree with each other.
	apart = 1.5
	// manyRounds is how often a change has to be made before its phases can be
	// compared as a whole; rare is the chance, by noise alone, of what they show
	// then: with four rounds that all with it are better than all without it.
	manyRounds = 4
	rare       = 0.009
	// same bounds what counts as no change, bearable what may be hidden by the
	// noise when the verdict is "no effect": factors.
	same     = 1.25
	bearable = 1.5
)

// finding is what was seen of one metric; all figures are scores (see score).
type finding struct {
	Effect
	kind    kind
	off, on []float64 // blocks
	offMed  []float64 // medians of the phases without the change, in their order
	onMed   []float64
	// offLevel is offMed without a steady drift.
	offLevel []float64
	e        float64 // shift of on above off: positive is better
	lo, hi   float64
	suspect  bool // a change that matters, not shown to be more than noise
	stayed   bool // it came with the change and did not go with it
	turned   bool // counts clients that are turned away
}

// judged tells which metrics the phases say enough about, and what.
func judged(phases []Phase, counters []string, closed bool) []finding {
	var found []finding
	for _, m := range Metrics() {
		k := kinds[m]
		if closed && m == ErrorShare {
			k = closedErrors
		}
		off, on := weights(phases, m.weight)
		much := max(Median(off), Median(on))
		if m == P50 || m == P99 {
			much = min(Median(off), Median(on))
		}
		if uint64(much) < k.enough {
			continue
		}
		found = append(found, judge(m, k, phases, m.value))
	}
	if len(found) > 0 {
		return found
	}
	// Where no requests are seen, what was harmed is all there is to go by.
	for _, c := range counters {
		if f, ok := judgeCounter(c, phases); ok {
			found = append(found, f)
		}
	}
	return found
}

// judgeCounter judges a counter of harm; false where it did not move.
func judgeCounter(name string, phases []Phase) (finding, bool) {
	f := judge(Metric(name), counterKind, phases, func(b *Block) float64 { return b.Counters[name] })
	return f, slices.Max(slices.Concat(f.Before.Blocks, f.With.Blocks, f.After.Blocks)) > 0
}

// weights are a figure of all blocks without and with the change.
func weights(phases []Phase, of func(*Block) uint64) (off, on []float64) {
	for i := range phases {
		for j := range phases[i].Blocks {
			v := float64(of(&phases[i].Blocks[j]))
			if phases[i].Applied() {
				on = append(on, v)
			} else {
				off = append(off, v)
			}
		}
	}
	return off, on
}

// judge compares the blocks with the change to those without.
func judge(m Metric, k kind, phases []Phase, read func(*Block) float64) finding {
	f := finding{kind: k, Effect: effect(m, k, phases, read)}
	var first, later []float64 // blocks before the change, and from then on
	for i := range phases {
		var scores []float64
		for j := range phases[i].Blocks {
			scores = append(scores, k.score(read(&phases[i].Blocks[j])))
		}
		if i == 0 {
			first = scores
		} else {
			later = append(later, scores...)
		}
		if phases[i].Applied() {
			f.on, f.onMed = append(f.on, scores...), append(f.onMed, Median(scores))
		} else {
			f.off, f.offMed = append(f.off, scores...), append(f.offMed, Median(scores))
		}
	}
	f.level(phases)
	f.e, f.lo, f.hi, f.Confidence = shift(f.on, f.off)
	f.ratios()
	f.stayed = f.staysAfter(first, later)
	sign := 1.0
	f.P = RankP(f.on, f.off)
	if f.e < 0 {
		sign, f.P = -1, RankP(f.off, f.on)
	}
	size := math.Abs(f.e)
	matters := size >= k.least && math.Abs(f.With.Median-f.middle()) >= k.floor
	gap := f.gap(sign) >= max(spread(f.on), spread(f.off))/2
	switch {
	case matters && f.comesAndGoes(sign) && f.believed(size, gap):
		f.Outcome = Better
		if sign < 0 {
			f.Outcome = Poorer
		}
	case matters && f.P <= maybe:
		f.Outcome, f.suspect = Unclear, true
	case max(math.Abs(f.lo), math.Abs(f.hi)) <= max(k.least, math.Log(same)) || !matters && f.hi-f.lo <= 2*math.Log(same):
		f.Outcome = Same
	default:
		f.Outcome = Unclear
	}
	return f
}

// believed says whether an effect is beyond the noise, after so many rounds as
// there were. A large one may come and go once, when all blocks are far apart;
// the smaller it is the more often it has to.
func (f *finding) believed(size float64, gap bool) bool {
	switch rounds := len(f.onMed); {
	case rounds == 1:
		return size >= f.kind.sure && gap && f.P <= 1.0/80
	case rounds == 2:
		return size >= f.kind.sure/2 && f.P <= small
	default:
		return f.P <= small
	}
}

// comesAndGoes says whether each phase with the change stands out from the ones
// before and after it, and those without agree with each other.
func (f *finding) comesAndGoes(sign float64) bool {
	// A broken service may be broken more or less from one time to the next: when
	// it is far better each time, in every block, that does not matter.
	if n := len(f.onMed); n > 1 && n < len(f.offMed) && f.gap(sign) >= math.Log(apart) {
		return true
	}
	if f.standsOut(sign) {
		return true
	}
	half := sign * f.e / 2
	for i, on := range f.onMed {
		if i+1 >= len(f.offMed) {
			return false // it was not undone yet
		}
		if sign*(on-f.offMed[i]) < half || sign*(on-f.offMed[i+1]) < half {
			return false
		}
	}
	return spread(f.offLevel) <= half
}

// standsOut says whether the phases with the change are so often above those
// without it that it cannot be chance, in a service that goes from one state to
// another by itself and is never the same twice. Phases are compared, and not
// blocks, for the blocks of a phase may all be in the same state.
func (f *finding) standsOut(sign float64) bool {
	if len(f.onMed) < manyRounds || len(f.onMed) >= len(f.offMed) || f.stayed {
		return false
	}
	if sign < 0 {
		return RankP(f.offMed, f.onMed) <= rare
	}
	return RankP(f.onMed, f.offMed) <= rare
}

// level takes a steady drift of the load out of the blocks: the median slope
// between any two blocks without the change (Theil and Sen). The medians of the
// phases stay as they are: what comes and goes must do so in plain sight.
func (f *finding) level(phases []Phase) {
	at := func(applied bool) (index []float64) {
		n := 0
		for i := range phases {
			for range phases[i].Blocks {
				if phases[i].Applied() == applied {
					index = append(index, float64(n))
				}
				n++
			}
		}
		return index
	}
	offAt, onAt := at(false), at(true)
	var slopes []float64
	for i := range offAt {
		for j := range i {
			slopes = append(slopes, (f.off[i]-f.off[j])/(offAt[i]-offAt[j]))
		}
	}
	slope := Median(slopes)
	for i := range f.off {
		f.off[i] -= slope * offAt[i]
	}
	for i := range f.on {
		f.on[i] -= slope * onAt[i]
	}
	n := 0
	for i := range phases {
		if k := len(phases[i].Blocks); !phases[i].Applied() {
			f.offLevel = append(f.offLevel, Median(f.off[n:n+k]))
			n += k
		}
	}
}

// gap is by how much the nearest blocks with and without the change are apart.
func (f *finding) gap(sign float64) float64 {
	if sign > 0 {
		return slices.Min(f.on) - slices.Max(f.off)
	}
	return slices.Min(f.off) - slices.Max(f.on)
}

// staysAfter says that all blocks from the change on are apart from those before
// it, and that more than half of the effect was still there at the end.
func (f *finding) staysAfter(first, later []float64) bool {
	if len(f.onMed) == 0 || len(f.offMed) < 2 || len(first) == 0 || len(later) == 0 {
		return false
	}
	came := f.onMed[0] - f.offMed[0]
	gap := max(slices.Min(later)-slices.Max(first), slices.Min(first)-slices.Max(later))
	return gap > (spread(first)+spread(later))/4 && math.Abs(came) >= max(f.kind.least, math.Log(same)) &&
		(f.offMed[len(f.offMed)-1]-f.offMed[0])/came > 0.5
}

// middle is the median of the value without the change.
func (f *finding) middle() float64 {
	return Median(slices.Concat(f.Before.Blocks, f.After.Blocks))
}

// ratios turns the shift into factors of the value.
func (f *finding) ratios() {
	f.Ratio, f.Low, f.High = math.Exp(f.e), math.Exp(f.lo), math.Exp(f.hi)
	if !f.kind.higher {
		f.Ratio, f.Low, f.High = math.Exp(-f.e), math.Exp(-f.hi), math.Exp(-f.lo)
	}
}

// effect gathers the values of a metric.
func effect(m Metric, k kind, phases []Phase, read func(*Block) float64) Effect {
	e := Effect{Metric: m, Unit: k.unit, Better: "lower", Outcome: Shown}
	if k.higher {
		e.Better = "higher"
	}
	for i := range phases {
		s := map[string]*Sample{phaseBefore: &e.Before, phaseWith: &e.With, phaseAfter: &e.After}[phases[i].Name]
		for j := range phases[i].Blocks {
			s.Blocks = append(s.Blocks, read(&phases[i].Blocks[j]))
		}
	}
	for _, s := range []*Sample{&e.Before, &e.With, &e.After} {
		s.Median = Median(s.Blocks)
	}
	return e
}
