package experiment

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/figure"
)

// conclude gives the verdict on what was found, and says whether another round
// could bring more.
func conclude(found []finding, closed bool) (v Verdict, why string, more bool) {
	if closed {
		found = slices.DeleteFunc(slices.Clone(found), func(f finding) bool { return f.Metric == P50 }) // see Closed
	}
	if slices.ContainsFunc(found, func(f finding) bool { return f.turned && f.Outcome == Better }) {
		// Who is no longer turned away waits with the others: that they take longer
		// is what it costs, and no harm.
		found = slices.DeleteFunc(slices.Clone(found), func(f finding) bool { return f.time() && f.e < 0 })
	}
	if len(found) == 0 {
		return TooLittle, "there were too few requests to judge by, with and without the change", false
	}
	better, poorer := pick(found, Better), pick(found, Poorer)
	if other := against(found, better, poorer); other != nil {
		return Undecided, fmt.Sprintf("%s, but %s, which may be noise", cmp.Or(better, poorer).moved(), other.moved()), true
	}
	switch {
	case better != nil && poorer == nil:
		return Proved, better.went() + others(found, better), false
	case poorer != nil && better == nil:
		return Worse, poorer.went() + others(found, poorer), false
	case better != nil:
		return conflict(found, better, poorer)
	}
	for i := range found {
		if f := &found[i]; f.stayed {
			return Undecided, f.stays(), true
		}
	}
	for i := range found {
		f := &found[i]
		if f.suspect && f.P <= doubtful {
			return Undecided, f.unsure(), true
		}
		more = more || f.suspect
	}
	v, why, wide := nothing(found)
	return v, why, more || wide
}

// pick is the finding with this outcome that decides: good responses and errors
// before times, then the largest.
func pick(found []finding, o Outcome) *finding {
	var best *finding
	for i := range found {
		f := &found[i]
		if f.Outcome != o {
			continue
		}
		if best == nil || rank(f.Metric) < rank(best.Metric) || rank(f.Metric) == rank(best.Metric) && math.Abs(f.e) > math.Abs(best.e) {
			best = f
		}
	}
	return best
}

// against is what seems to go the other way than what is sure.
func against(found []finding, better, poorer *finding) *finding {
	if (better == nil) == (poorer == nil) {
		return nil
	}
	for i := range found {
		f := &found[i]
		if f.suspect && f.P <= doubtful && (f.e > 0) == (better == nil) {
			return f
		}
	}
	return nil
}

func rank(m Metric) int {
	switch m {
	case GoodRate:
		return 0
	case ErrorShare:
		return 1
	}
	return 2
}

// conflict is when something got better and something else worse. More good
// responses outweigh what grew less than they did: times are often longer where
// requests do not fail at once. Errors that go outweigh times, for the same reason.
// Between two times the one that changed by far more decides: clients that no longer
// wait for seconds take part of the others' milliseconds.
func conflict(found []finding, better, poorer *finding) (Verdict, string, bool) {
	good := better.Metric == GoodRate && better.e >= -poorer.e || better.Metric == ErrorShare && poorer.time()
	bad := poorer.Metric == GoodRate && -poorer.e >= better.e || poorer.Metric == ErrorShare && better.time()
	if better.time() && poorer.time() {
		good = better.change() >= outweighs*poorer.change()
		bad = poorer.change() >= outweighs*better.change()
	}
	switch {
	case good:
		return Proved, better.went() + others(found, better), false
	case bad:
		return Worse, poorer.went() + others(found, poorer), false
	}
	return Undecided, fmt.Sprintf("%s, but %s: it is a trade, not a repair", better.moved(), poorer.moved()), false
}

// outweighs is by how much more one time has to change than another.
const outweighs = 10

// time says that the metric is one.
func (f *finding) time() bool { return f.Metric == P50 || f.Metric == P99 }

// change is how far the value moved, in its unit.
func (f *finding) change() float64 { return math.Abs(f.With.Median - f.middle()) }

// nothing is when nothing that matters came with the change: no effect, where one
// that matters would have been seen.
func nothing(found []finding) (Verdict, string, bool) {
	var bounds []string
	wide := false
	for i := range found {
		f := &found[i]
		if f.Metric == P99 && len(found) > 1 {
			continue // the tail is always noisy; the table tells it
		}
		bound := max(math.Abs(f.lo), math.Abs(f.hi))
		seen := max(f.kind.least, bound)
		if f.kind.floor > 0 && f.below() {
			bounds = append(bounds, fmt.Sprintf("%s were and stayed next to nothing", f.Metric.Words()))
			continue
		}
		wide = wide || bound > math.Log(bearable)
		bounds = append(bounds, fmt.Sprintf("%s: a change of %s or more would have been seen", f.Metric.Words(), figure.Percent(math.Expm1(seen))))
	}
	if wide {
		return Undecided, "the noise is greater than an effect that matters: " + strings.Join(bounds, "; "), true
	}
	return NoEffect, "nothing came and went with the change (" + strings.Join(bounds, "; ") + ")", false
}

// below says that all values are less than what counts.
func (f *finding) below() bool {
	for _, s := range []Sample{f.Before, f.With, f.After} {
		for _, v := range s.Blocks {
			if v > f.kind.floor {
				return false
			}
		}
	}
	return true
}

// Words is the metric's name in a sentence.
func (m Metric) Words() string {
	switch m {
	case GoodRate:
		return "good responses"
	case ErrorShare:
		return "errors"
	case P50:
		return "p50"
	case P99:
		return "p99"
	case requestRate:
		return "requests"
	case unansweredRate:
		return "unanswered"
	}
	if part, ok := strings.CutPrefix(string(m), partPrefix); ok {
		return "p99 of " + part
	}
	return string(m)
}

// Figure writes a value of the metric for people.
func (e *Effect) Figure(v float64) string {
	switch e.Unit {
	case "1/s":
		if v < 99.5 {
			return fmt.Sprintf("%.3g/s", v)
		}
		return figure.Count(int64(math.Round(v))) + "/s"
	case "share":
		return figure.Percent(v)
	case "ns":
		return figure.Seconds(v / 1e9)
	}
	return fmt.Sprintf("%.3g", v)
}

// moved says from what to what it went.
func (f *finding) moved() string {
	return fmt.Sprintf("%s went from %s to %s", f.Metric.Words(), f.Figure(f.Before.Median), f.Figure(f.With.Median))
}

// went says that it came and went with the change.
func (f *finding) went() string {
	text := fmt.Sprintf("%s with the change, and to %s without it again", f.moved(), f.Figure(f.After.Median))
	if n := len(f.onMed); n > 1 {
		text += fmt.Sprintf(", %d times", n)
	}
	return text
}

// others tells what else came and went.
func others(found []finding, but *finding) string {
	var text strings.Builder
	for i := range found {
		f := &found[i]
		if f.Metric == but.Metric || f.Outcome != Better && f.Outcome != Poorer {
			continue
		}
		fmt.Fprintf(&text, "; %s (%s)", f.moved(), f.Outcome)
	}
	return text.String()
}

func (f *finding) stays() string {
	return fmt.Sprintf("%s with the change and did not come back when it was undone (%s): an effect that stays, or the load changed meanwhile",
		f.moved(), f.Figure(f.After.Median))
}

func (f *finding) unsure() string {
	if spread(f.offMed) > math.Abs(f.e)/2 {
		return fmt.Sprintf("%s with the change, but without it, it moved as much by itself (%s before, %s after): the load drifts", f.moved(), f.Figure(f.Before.Median), f.Figure(f.After.Median))
	}
	return fmt.Sprintf("%s with the change, which is not beyond the noise", f.moved())
}
