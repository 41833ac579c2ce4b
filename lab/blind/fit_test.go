package blind

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/slowray/slowray/internal/diagnose"
)

// steps makes steps of pairs of X and Y.
func steps(of ...float64) (list []diagnose.Step) {
	for i := 0; i < len(of); i += 2 {
		list = append(list, diagnose.Step{X: of[i], Y: of[i+1]})
	}
	return list
}

func TestIsotonic(t *testing.T) {
	for _, c := range []struct {
		name string
		of   []Sample
		want []diagnose.Step
	}{
		{"none", nil, nil},
		{"rising", []Sample{{1, false}, {2, true}}, steps(1, 0, 2, 1)},
		{"falling becomes one step", []Sample{{1, true}, {2, false}}, steps(1, 0.5)},
		{"equal scores are one", []Sample{{1, true}, {1, false}, {2, true}}, steps(1, 0.5, 2, 1)},
		{"a violation is pooled with what is before it", []Sample{{1, false}, {2, true}, {3, false}, {4, true}}, steps(1, 0, 2, 0.5, 4, 1)},
	} {
		if got := Isotonic(c.of); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestIsotonicIsMonotoneAndKeepsTheMean, whatever the samples and their order.
func TestIsotonicIsMonotoneAndKeepsTheMean(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var list []Sample
		right := 0.0
		for range 1 + rng.IntN(40) {
			s := Sample{math.Round(rng.Float64() * 10), rng.IntN(2) == 0}
			list = append(list, s)
			if s.Right {
				right++
			}
		}
		fit := Isotonic(list)
		rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		if again := Isotonic(list); !slices.Equal(fit, again) {
			t.Fatalf("%v in another order gives %v, not %v", list, again, fit)
		}
		for i := 1; i < len(fit); i++ {
			if fit[i].Y <= fit[i-1].Y || fit[i].X <= fit[i-1].X {
				t.Fatalf("%v is not monotone", fit)
			}
		}
		sum := 0.0
		for _, s := range list {
			m := diagnose.Model{Weights: []float64{1, 0}, Steps: fit}
			sum += m.Confidence([]float64{s.X})
		}
		if math.Abs(sum-right) > 1e-9 {
			t.Fatalf("%v: fitted to %v in all, were %v", fit, sum, right)
		}
	}
}

// TestFit: what is fitted to findings of which more are right the higher a feature is
// says so, and is calibrated on draws it has not seen.
func TestFit(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var list []Labelled
	for n := range 400 {
		x, noise := rng.Float64(), rng.Float64()
		list = append(list, Labelled{Features: []float64{x, noise}, Right: rng.Float64() < x, Group: n})
	}
	m := Fit(list)
	low, high := m.Confidence([]float64{0.05, 0.5}), m.Confidence([]float64{0.95, 0.5})
	if low > 0.25 || high < 0.75 {
		t.Errorf("confidence %.2f and %.2f, want about 0.05 and 0.95: %+v", low, high, m)
	}
	if e := CalibrationError(HeldOut(list)); e > 0.09 {
		t.Errorf("calibration error %.3f on what was held out", e)
	}
	if e := CalibrationError([]Sample{{0.9, false}, {0.9, false}}); math.Abs(e-0.9) > 1e-9 {
		t.Errorf("calibration error %v of what is always wrong, want 0.9", e)
	}
}

func TestRank(t *testing.T) {
	f := func(ids ...string) (list []Finding) {
		for _, id := range ids {
			list = append(list, Finding{Cause: id, Role: "cause"})
		}
		return list
	}
	withConsequence := append([]Finding{{Cause: "slow-dependency", Role: "consequence"}}, f("deadlock")...)
	for _, c := range []struct {
		found []Finding
		want  Verdict
	}{
		{nil, Nothing}, {f("deadlock"), First}, {f("a", "deadlock"), InThree}, {f("a", "b", "c", "deadlock"), Later}, {f("a"), Wrong}, {withConsequence, First},
	} {
		if got := Rank(c.found, []string{"deadlock"}); got != c.want {
			t.Errorf("%v: %s, want %s", c.found, got, c.want)
		}
	}
}
