package experiment

import (
	"maps"
	"slices"
	"testing"
)

func simulate(t *testing.T, w *world) Result {
	t.Helper()
	r, err := Run(t.Context(), w, w, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if w.on {
		t.Fatal("the change is still in force")
	}
	return r
}

// many simulates experiments under every kind of noise and counts verdicts. Where
// the change was undone early for harm, "harm" is counted instead.
func many(t *testing.T, each uint64, change func(*world)) map[string]map[Verdict]int {
	t.Helper()
	got := map[string]map[Verdict]int{}
	for _, noise := range slices.Sorted(maps.Keys(noises)) {
		got[noise] = map[Verdict]int{}
		for seed := range each {
			w := newWorld(seed, noise)
			change(w)
			r := simulate(t, w)
			v := r.Verdict
			if r.Harm {
				v = "harm"
			}
			got[noise][v]++
		}
	}
	return got
}

// TestNoiseIsNotProof simulates 2,400 changes that do nothing, under drifts of the
// load, bursts and heavy tails: at most one in a hundred may be called proved, at
// most one in a hundred worse. Where the service has two states, far apart, and goes
// from one to the other every ten seconds, chance does it more often. (Undoing early for fear of harm, in a burst, is
// another matter: it is meant to be careful.)
func TestNoiseIsNotProof(t *testing.T) {
	const each = 200
	got := many(t, each, func(*world) {})
	for _, v := range []Verdict{Proved, Worse} {
		n := 0
		for noise, verdicts := range got {
			n += verdicts[v]
			least := 40
			if noise == "two states" {
				least = 25
			}
			if verdicts[v]*least > each {
				t.Errorf("%s: %d of %d changes that do nothing are called %q", noise, verdicts[v], each, v)
			}
		}
		if n*100 > each*len(got) {
			t.Errorf("%d of %d changes that do nothing are called %q", n, each*len(got), v)
		}
		t.Logf("%q: %d of %d", v, n, each*len(got))
	}
	// And it is not for lack of courage that nothing is proved.
	for _, noise := range []string{"calm", "drift up", "drift down", "heavy tail", "few", "rough"} {
		if n := got[noise][NoEffect]; n*10 < 9*each {
			t.Errorf("%s: no effect is seen in %d of %d: %v", noise, n, each, got[noise])
		}
	}
}

// TestEffectsAreFound states the power: how many in a hundred of the changes that do
// so much are proved, at least.
func TestEffectsAreFound(t *testing.T) {
	const each = 50
	for _, c := range []struct {
		effect  float64
		verdict Verdict
		power   map[string]int
	}{
		{1.1, Proved, map[string]int{"calm": 85, "heavy tail": 40, "few": 25}},
		{1.3, Proved, map[string]int{"calm": 98, "heavy tail": 95, "few": 90, "drift up": 85, "drift down": 85, "errors": 60, "rough": 90, "wandering": 65, "slow tides": 50, "rare bursts": 50}},
		{2, Proved, map[string]int{"calm": 98, "heavy tail": 98, "few": 95, "drift up": 95, "drift down": 95, "errors": 95, "rough": 95, "wandering": 90, "slow tides": 90, "rare bursts": 75, "bursts": 70, "two states": 50}},
		{3, Proved, map[string]int{"two states": 90, "bursts": 90}},
		{20, Proved, map[string]int{"calm": 100, "heavy tail": 100, "few": 98, "drift up": 100, "drift down": 100, "errors": 100, "rough": 100, "wandering": 100, "slow tides": 100, "rare bursts": 98, "bursts": 90}},
		{0.7, Worse, map[string]int{"calm": 95, "heavy tail": 85}},
	} {
		got := many(t, each, func(w *world) { w.effect = c.effect })
		for noise, least := range c.power {
			if n := got[noise][c.verdict]; n*100 < least*each {
				t.Errorf("%g×, %s: %d of %d are %q, want %d in a hundred: %v", c.effect, noise, n, each, c.verdict, least, got[noise])
			}
		}
		for noise, verdicts := range got {
			wrong := Worse
			if c.verdict == Worse {
				wrong = Proved
			}
			if verdicts[wrong] > 1 {
				t.Errorf("%g×, %s: %d of %d are %q", c.effect, noise, verdicts[wrong], each, wrong)
			}
		}
	}
}

// TestErrorsGo simulates a change that fixes errors without more throughput.
func TestErrorsGo(t *testing.T) {
	got := many(t, 50, func(w *world) { w.errors, w.errorsWith = 0.3, 0.0001 })
	for _, noise := range []string{"calm", "rough", "wandering", "drift up", "few"} {
		if n := got[noise][Proved]; n < 45 {
			t.Errorf("%s: %v", noise, got[noise])
		}
	}
}
