package tune

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

func apply() Options {
	return Options{Apply: true, For: 15 * time.Minute, LookTime: 11 * time.Second, StepTime: 24 * time.Second, Service: "port 80", Load: "wrk http://x/"}
}

func mustRun(t *testing.T, ctx context.Context, w World, o Options) *Report {
	t.Helper()
	r, err := Run(ctx, w, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// incidentA is masked as incident A is: a fault is seen, or its fixing felt, only
// when others are gone.
func incidentA() *fakeWorld {
	return newFake(12,
		fakeFault{cause: "conntrack-full", was: "200", good: "262144", gain: 300},
		fakeFault{cause: "children", was: "5", good: "20", gain: 4000, masked: []string{"conntrack-full", "ports"}, shown: []string{"conntrack-full"}},
		fakeFault{cause: "accept-queue", was: "10", good: "4096", gain: 250, shown: []string{"conntrack-full"}},
		fakeFault{cause: "ports", was: "51", good: "55536", gain: 4000, shown: []string{"accept-queue"}},
		fakeFault{cause: "worker-connections", was: "1024", good: "2048", gain: 2000, shown: []string{"ports"}},
	)
}

func TestMaskedFaultsAreMendedInTheRightOrder(t *testing.T) {
	w := incidentA()
	r := mustRun(t, t.Context(), w, apply())
	// The children are found before the ports, do not help then, and do after.
	want := []string{"conntrack-full", "children", "accept-queue", "ports", "worker-connections", "children"}
	if !slices.Equal(w.tries, want) {
		t.Errorf("tried %v, want %v", w.tries, want)
	}
	if r.Ending != Healthy || r.Steps[1].Verdict != NoEffect || r.Steps[1].Kept || r.Steps[5].Again == "" {
		t.Errorf("ending %s, steps %+v", r.Ending, r.Steps)
	}
	for _, s := range r.Steps {
		if s.Kept && s.Verdict != Proved {
			t.Errorf("%s kept with verdict %s", s.Cause, s.Verdict)
		}
	}
	if len(r.Lasting) != len(w.kept) || r.Undo.String() != "slowray undo" {
		t.Errorf("lasting %v, undo %q", r.Lasting, r.Undo)
	}
	if r.First == nil || r.Last == nil || r.Last.Good < 20*r.First.Good {
		t.Errorf("figures %+v → %+v", r.First, r.Last)
	}
}

func count(list []string, x string) int {
	n := 0
	for _, v := range list {
		if v == x {
			n++
		}
	}
	return n
}

func TestSecondChanceComesAfterWhatMasksIsMendedAndIsTold(t *testing.T) {
	w := newFake(100,
		fakeFault{cause: "children", was: "5", good: "20", gain: 500, masked: []string{"ports"}},
		fakeFault{cause: "ports", was: "51", good: "55536", gain: 400})
	r := mustRun(t, t.Context(), w, apply())
	if want := []string{"children", "ports", "children"}; !slices.Equal(w.tries, want) {
		t.Fatalf("tried %v, want %v", w.tries, want)
	}
	if s := r.Steps[2]; !s.Kept || !strings.Contains(s.Again, "no effect") || !strings.Contains(s.Again, "ports") {
		t.Errorf("third step: kept %v, again %q", s.Kept, s.Again)
	}
	if r.Ending != Healthy || len(r.Left) != 0 {
		t.Errorf("ending %s, left %+v", r.Ending, r.Left)
	}
}

func TestAFailedChangeIsNotRepeated(t *testing.T) {
	w := newFake(100, fakeFault{cause: "harmless", was: "1", good: "2"})
	r := mustRun(t, t.Context(), w, apply())
	if len(w.tries) != 1 || r.Ending != Stuck || r.Steps[0].Kept || w.now["harmless"] != "1" {
		t.Errorf("tried %v, ending %s, now %v", w.tries, r.Ending, w.now)
	}
	if len(r.Left) != 1 || !strings.Contains(r.Left[0].Because, "no effect") {
		t.Errorf("left %+v", r.Left)
	}
	if !r.Undo.IsZero() || len(r.Lasting) != 0 {
		t.Errorf("nothing was kept, and undo %q, lasting %v", r.Undo, r.Lasting)
	}
}

func TestTwiceAtMostWhateverIsMended(t *testing.T) {
	w := newFake(100,
		fakeFault{cause: "decoy", was: "1", good: "2"},
		fakeFault{cause: "a", was: "1", good: "2", gain: 100},
		fakeFault{cause: "b", was: "1", good: "2", gain: 200, shown: []string{"a"}},
		fakeFault{cause: "c", was: "1", good: "2", gain: 400, shown: []string{"b"}})
	r := mustRun(t, t.Context(), w, apply())
	if n := count(w.tries, "decoy"); n != 2 || w.now["decoy"] != "1" {
		t.Errorf("decoy tried %d times, now %s", n, w.now["decoy"])
	}
	if !slices.Equal(w.kept, []string{"a", "b", "c"}) {
		t.Errorf("kept %v", w.kept)
	}
	if !strings.Contains(r.Left[0].Because, "twice") {
		t.Errorf("left %+v", r.Left)
	}
}

func TestHarmThatUndoCuresGoesOn(t *testing.T) {
	w := newFake(100,
		fakeFault{cause: "bad-idea", was: "1", good: "2", harm: true},
		fakeFault{cause: "good-idea", was: "1", good: "2", gain: 100})
	r := mustRun(t, t.Context(), w, apply())
	if r.Steps[0].Verdict != Worse || r.Steps[0].Kept || w.now["bad-idea"] != "1" {
		t.Errorf("first step %+v", r.Steps[0])
	}
	if !slices.Equal(w.kept, []string{"good-idea"}) {
		t.Errorf("kept %v", w.kept)
	}
}

func TestHarmThatStaysStops(t *testing.T) {
	w := newFake(100,
		fakeFault{cause: "bad-idea", was: "1", good: "2", harm: true, forever: true},
		fakeFault{cause: "good-idea", was: "1", good: "2", gain: 100})
	r := mustRun(t, t.Context(), w, apply())
	if r.Ending != Harmed || len(w.tries) != 1 || !strings.Contains(r.Text, "bad-idea") {
		t.Errorf("ending %s %q, tried %v", r.Ending, r.Text, w.tries)
	}
}

func TestAChangeThatCannotBeUndoneStops(t *testing.T) {
	w := newFake(100,
		fakeFault{cause: "stubborn", was: "1", good: "2", undoFails: true},
		fakeFault{cause: "good-idea", was: "1", good: "2", gain: 100})
	r := mustRun(t, t.Context(), w, apply())
	if r.Ending != Harmed || len(w.tries) != 1 || !strings.Contains(r.Text, "slowray undo") {
		t.Errorf("ending %s %q, tried %v", r.Ending, r.Text, w.tries)
	}
}

func TestWhatCannotBeMadeIsSkipped(t *testing.T) {
	w := newFake(100,
		fakeFault{cause: "read-only", was: "1", good: "2", unmakeable: true},
		fakeFault{cause: "no-change"},
		fakeFault{cause: "good-idea", was: "1", good: "2", gain: 100})
	r := mustRun(t, t.Context(), w, apply())
	// Once more at the end: nothing was changed, and what was in the way may be gone.
	if r.Steps[0].Verdict != NotMade || !slices.Equal(w.tries, []string{"good-idea"}) || len(r.Steps) != 3 || r.Steps[2].Cause != "read-only" || r.Steps[2].Again == "" {
		t.Errorf("tried %v, steps %+v", w.tries, r.Steps)
	}
	if len(r.Left) != 2 || r.Ending != Stuck {
		t.Errorf("ending %s, left %+v", r.Ending, r.Left)
	}
}

func TestWhatIsSkippedIsOnlyTold(t *testing.T) {
	w := newFake(100, fakeFault{cause: "other-programs", was: "1", good: "2", gain: 100}, fakeFault{cause: "ours", was: "1", good: "2", gain: 100})
	o := apply()
	o.Skip = []string{"other-programs"}
	r := mustRun(t, t.Context(), w, o)
	if !slices.Equal(w.tries, []string{"ours"}) || len(r.Left) != 1 || !strings.Contains(r.Left[0].Because, "--skip") {
		t.Errorf("tried %v, left %+v", w.tries, r.Left)
	}
}

func TestTheTimeIsBounded(t *testing.T) {
	o := apply()
	o.For = 100 * time.Second
	w := newFake(100)
	for _, name := range strings.Fields("a b c d e f g h i j") {
		w.faults = append(w.faults, fakeFault{cause: name, was: "1", good: "2", gain: 100})
		w.now[name] = "1"
	}
	r := mustRun(t, t.Context(), w, o)
	if r.Ending != OutOfTime || r.Seconds > 100 || len(w.kept) == 0 {
		t.Errorf("ending %s after %.0f s, kept %v", r.Ending, r.Seconds, w.kept)
	}
	if len(r.Left) == 0 {
		t.Error("what is left is not told")
	}
}

func TestInterruptUndoesTheExperimentAndKeepsWhatWasProved(t *testing.T) {
	for _, atEnd := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w := newFake(100,
			fakeFault{cause: "a", was: "1", good: "2", gain: 100},
			fakeFault{cause: "b", was: "1", good: "2", gain: 100})
		w.cancel = func() {
			if len(w.tries) == 2 {
				cancel()
			}
		}
		o := apply()
		o.UndoAtEnd = atEnd
		r := mustRun(t, ctx, w, o)
		if r.Ending != Interrupted || len(r.Steps) != 2 || r.Steps[1].Kept || w.now["b"] != "1" {
			t.Errorf("ending %s, steps %+v, now %v", r.Ending, r.Steps, w.now)
		}
		if w.undone != atEnd || r.Undone != atEnd || (r.Undo.IsZero()) != atEnd {
			t.Errorf("--undo-at-end %v: undone %v, report %v, undo %q", atEnd, w.undone, r.Undone, r.Undo)
		}
	}
}

func TestDryRunChangesNothing(t *testing.T) {
	w := incidentA()
	o := apply()
	o.Apply = false
	r := mustRun(t, t.Context(), w, o)
	if len(w.tries) != 0 || w.looks != 1 || r.Ending != DryRun || w.now["conntrack-full"] != "200" {
		t.Errorf("tried %v, %d looks, ending %s", w.tries, w.looks, r.Ending)
	}
	if s := r.Steps[0]; s.Cause != "conntrack-full" || s.Do[0].String() != "sysctl -w net.conntrack-full=262144" || s.Undo[0].String() != "sysctl -w net.conntrack-full=200" {
		t.Errorf("would do %+v", r.Steps[0])
	}
}

func TestHealthyServiceIsLeftAlone(t *testing.T) {
	for _, doIt := range []bool{false, true} {
		w := newFake(100)
		o := apply()
		o.Apply = doIt
		r := mustRun(t, t.Context(), w, o)
		if r.Ending != Healthy || len(r.Steps) != 0 || (r.Last != nil) != doIt {
			t.Errorf("apply %v: ending %s, steps %v, last %v", doIt, r.Ending, r.Steps, r.Last)
		}
	}
}

func TestLookThatFails(t *testing.T) {
	w := newFake(100)
	w.lookErr = errors.New("nothing listens on port 80")
	if _, err := Run(t.Context(), w, apply()); err == nil || !strings.Contains(err.Error(), "port 80") {
		t.Errorf("error %v", err)
	}
}

// Each of two faults hides the other: a longer queue lets clients in for whom there
// are no connections, and more connections are of no use while the queue is short.
func TestFaultsThatHoldEachOtherUpAreMendedTogether(t *testing.T) {
	w := newFake(100,
		fakeFault{cause: "queue", was: "10", good: "4096", gain: 500, masked: []string{"connections"}, pairHarm: "connections"},
		fakeFault{cause: "connections", was: "1024", good: "2048", gain: 500, masked: []string{"queue"}, pairHarm: "queue"},
		fakeFault{cause: "harmless", was: "1", good: "2"})
	r := mustRun(t, t.Context(), w, apply())
	if want := []string{"queue", "connections", "harmless", "queue+connections"}; !slices.Equal(w.tries[:min(4, len(w.tries))], want) {
		t.Fatalf("tried %v, want %v first", w.tries, want)
	}
	s := r.Steps[3]
	if !s.Kept || !slices.Equal(s.Also, []string{"connections"}) || len(s.Changes) != 2 || s.Again == "" {
		t.Errorf("fourth step: %+v", s)
	}
	if w.now["harmless"] != "1" {
		t.Error("what moved nothing was made with the others")
	}
	if n := count(w.tries, "queue+connections"); n != 1 {
		t.Errorf("tried together %d times", n)
	}
}

// One of the two is worse alone, and the other of no use alone.
func TestWhatIsOfNoUseAloneIsTriedWithWhatIsWorseAlone(t *testing.T) {
	w := newFake(100,
		fakeFault{cause: "queue", was: "10", good: "4096", gain: 500, masked: []string{"connections"}, pairHarm: "connections"},
		fakeFault{cause: "harmless", was: "1", good: "2"},
		fakeFault{cause: "connections", was: "1024", good: "2048", gain: 500, masked: []string{"queue"}})
	r := mustRun(t, t.Context(), w, apply())
	if want := []string{"queue", "harmless", "connections", "queue+harmless", "queue+connections"}; !slices.Equal(w.tries[:min(5, len(w.tries))], want) {
		t.Fatalf("tried %v, want %v first", w.tries, want)
	}
	if !r.Steps[4].Kept || w.now["harmless"] != "1" || w.now["queue"] != "4096" || w.now["connections"] != "2048" {
		t.Errorf("fifth step %+v, now %v", r.Steps[4], w.now)
	}
}

// What does not help together either is undone, and not tried so again.
func TestWhatDoesNotHelpTogetherIsUndone(t *testing.T) {
	w := newFake(100,
		fakeFault{cause: "a", was: "1", good: "2", harm: true},
		fakeFault{cause: "b", was: "1", good: "2", harm: true})
	r := mustRun(t, t.Context(), w, apply())
	if n := count(w.tries, "a+b"); n != 1 || w.now["a"] != "1" || w.now["b"] != "1" || r.Ending != Stuck {
		t.Errorf("tried %v, now %v, ending %s", w.tries, w.now, r.Ending)
	}
}
