package experiment

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// TestCarryOver simulates effects that come and go slowly.
func TestCarryOver(t *testing.T) {
	for name, c := range map[string]struct {
		comes, goes float64
		want        Verdict
		why         string
	}{
		"at once":                {0, 0, Proved, "went from"},
		"in seconds":             {3, 3, Proved, "went from"},
		"the fault builds up":    {0.5, 8, Proved, "went from"},
		"the effect stays":       {0.5, 1e6, Undecided, "did not come back"},
		"it takes minutes to go": {0.5, 300, Undecided, "did not come back"},
	} {
		proved := 0
		const each = 20
		for seed := range uint64(each) {
			w := newWorld(seed, "calm")
			w.effect, w.comes, w.goes = 5, c.comes, c.goes
			r := simulate(t, w)
			if r.Verdict == c.want && strings.Contains(r.Why, c.why) {
				proved++
			} else {
				t.Logf("%s, seed %d: %s: %s", name, seed, r.Verdict, r.Why)
			}
		}
		if proved < each-1 {
			t.Errorf("%s: %d of %d are %q", name, proved, each, c.want)
		}
	}
}

// TestProgressSaysHowLong: what is said to be left comes true, and is said before all
// that takes longer than a block.
func TestProgressSaysHowLong(t *testing.T) {
	w := newWorld(1, "calm")
	w.effect = 5
	opt := Options{Blocks: 4, Length: 2 * time.Second}
	begin := w.now
	var steps []Step
	var at []float64
	opt.Progress = func(s Step) { steps, at = append(steps, s), append(at, w.now-begin) }
	r, err := Run(t.Context(), w, w, opt)
	if err != nil || r.Rounds != 1 {
		t.Fatal(r.Rounds, err)
	}
	took := w.now - begin
	if first := steps[0]; !first.Settling || first.Phase != phaseBefore || first.Left != opt.Shortest() || opt.Shortest() != 30*time.Second {
		t.Errorf("first %+v, shortest %s", first, opt.Shortest())
	}
	if last := steps[len(steps)-1]; last.Phase != phaseAfter || last.Block != 4 || last.Left != 0 {
		t.Errorf("last %+v", last)
	}
	for i, s := range steps {
		// Settling may take longer, never shorter than two readings.
		if left := took - at[i]; s.Left.Seconds() > left+0.1 || i > 0 && at[i]-at[i-1] > 10 {
			t.Errorf("at %.1f s %.1f s are left: %+v", at[i], left, s)
		}
	}
}

// TestHarm breaks the service with the change: it is undone within two seconds.
func TestHarm(t *testing.T) {
	for _, after := range []float64{0.4, 5} {
		w := newWorld(1, "calm")
		w.failsAfter = after
		var harm, calm int
		r, err := Run(t.Context(), w, w, Options{Beat: func(bad bool) {
			if bad {
				harm++
			} else {
				calm++
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		if r.Verdict != Worse || !r.Harm || w.on || w.applies != 1 || harm == 0 || calm == 0 {
			t.Errorf("%s: %s (harm %v, on %v, applied %d, beats %d bad, %d good)", r.Verdict, r.Why, r.Harm, w.on, w.applies, harm, calm)
		}
		if took := w.undone - w.since - after; took > 2 {
			t.Errorf("undone %g s after it broke", took)
		}
		if !strings.Contains(r.Why, "undone at once; good responses came back") {
			t.Error(r.Why)
		}
	}
}

// TestLoadEnds with the change in force: nobody asks any more afterwards either, which
// is no doing of the change.
func TestLoadEnds(t *testing.T) {
	w := newWorld(1, "calm")
	w.leaves = 3
	r := simulate(t, w)
	if r.Verdict != Undecided || w.on || !strings.Contains(r.Why, "the load has ended") {
		t.Errorf("%s: %s, on %v", r.Verdict, r.Why, w.on)
	}
}

func TestIdle(t *testing.T) {
	w := newWorld(1, "calm")
	w.rate = 0
	if r := simulate(t, w); r.Verdict != TooLittle || w.applies != 0 || r.Rounds != 0 {
		t.Errorf("%s: %s, applied %d", r.Verdict, r.Why, w.applies)
	}
	w.rate = 1
	if r := simulate(t, w); r.Verdict != TooLittle {
		t.Errorf("%s: %s", r.Verdict, r.Why)
	}
}

// TestFromNothing is a service that answers only with the change.
func TestFromNothing(t *testing.T) {
	w := &world{rnd: rand.New(rand.NewPCG(1, 1)), rate: 2, users: 1, effect: 2000}
	w.noise = 0.1
	r := simulate(t, w)
	if r.Verdict != Proved || r.Effect(GoodRate).Outcome != Better {
		t.Errorf("%s: %s", r.Verdict, r.Why)
	}
}

// TestFromStandstill is a service that answers nothing at all without the change,
// and whose clients take a while to notice it.
func TestFromStandstill(t *testing.T) {
	for _, backOff := range []float64{0, 3.2, 7.5} {
		w := newWorld(1, "calm")
		w.stopped, w.backOff = true, backOff
		r, err := Run(t.Context(), w, w, Options{Sure: true})
		if err != nil || r.Verdict != Proved || r.Effect(GoodRate).Before.Median != 0 {
			t.Errorf("clients come back after %g s: %s: %s, %v", backOff, r.Verdict, r.Why, err)
		}
	}
}

// broken fails where it is asked to.
type broken struct {
	*world
	apply, block error
	undo         []error // one after the other, the last one from then on
	stop         context.CancelFunc
}

// theirs is the error for what somebody else has set.
type theirs struct{}

func (theirs) Error() string { return "somebody has set it to 7" }
func (theirs) Settled() bool { return true }

func (b *broken) Apply() error {
	if b.apply != nil {
		b.world.on = true // half made
		return b.apply
	}
	return b.world.Apply()
}

func (b *broken) Undo() error {
	if len(b.undo) == 0 {
		return b.world.Undo()
	}
	err := b.undo[0]
	if len(b.undo) > 1 {
		b.undo = b.undo[1:]
	}
	return err
}

func (b *broken) Block(ctx context.Context, d time.Duration) (Block, error) {
	if b.on && b.stop != nil {
		b.stop()
	}
	if b.on && b.block != nil {
		return Block{}, b.block
	}
	return b.world.Block(ctx, d)
}

// TestFailures ends experiments in the middle: the change is undone, or the error
// says that it is not.
func TestFailures(t *testing.T) {
	bad := errors.New("no such knob")
	for name, b := range map[string]*broken{
		"apply": {apply: bad},
		"block": {block: bad},
	} {
		b.world = newWorld(1, "calm")
		r, err := Run(t.Context(), b, b, Options{})
		if !errors.Is(err, bad) || b.on || !r.Undone {
			t.Errorf("%s: %v, on %v", name, err, b.on)
		}
	}
	for _, c := range []struct {
		undo    []error
		undone  bool
		inForce bool
		says    string
	}{
		{[]error{bad}, false, true, "the change is not undone: no such knob"},
		{[]error{theirs{}}, false, false, "not all is as it was: somebody has set it to 7"},
		{[]error{bad, nil}, true, false, ""},
		{[]error{bad, theirs{}}, false, false, "not all is as it was: somebody has set it to 7"},
		{[]error{theirs{}, nil}, false, false, "not all is as it was: somebody has set it to 7"}, // nothing is undone twice
	} {
		b := &broken{world: newWorld(1, "calm"), undo: c.undo}
		r, err := Run(t.Context(), b, b, Options{})
		if err != nil || r.Undone != c.undone || r.InForce != c.inForce || (r.Left == "") != c.undone || r.Verdict != Undecided {
			t.Errorf("undo %v: %+v, %v", c.undo, r, err)
		}
		if err := r.NotUndone(); (err == nil) != c.undone || err != nil && err.Error() != c.says {
			t.Errorf("undo %v: %v, want %q", c.undo, err, c.says)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	b := &broken{world: newWorld(1, "calm"), stop: cancel}
	r, err := Run(ctx, b, b, Options{})
	if err != nil || !r.Stopped || r.Verdict != Undecided || b.on || len(r.Phases) == 0 {
		t.Errorf("stopped: %+v, %v, on %v", r, err, b.on)
	}
}

// TestLonger has few requests: the blocks grow.
func TestLonger(t *testing.T) {
	w := newWorld(1, "few")
	r := simulate(t, w)
	if s := r.Phases[0].Blocks[0].Seconds; s < 8 || s > 12 {
		t.Errorf("a block of 15 requests per second takes %g s", s)
	}
}

// threeRounds are the blocks of three rounds; of each pair the first is without the
// change.
func threeRounds(good, p50, p99 [2]float64, unanswered [2]uint64) []Phase {
	var all []Phase
	for i, name := range []string{phaseBefore, phaseWith, phaseAfter, phaseWith, phaseAfter, phaseWith, phaseAfter} {
		p := Phase{Name: name}
		for j := range 3 {
			n := uint64(good[i%2] * (1 + 0.01*float64(j)))
			p.Blocks = append(p.Blocks, Block{Seconds: 1, Good: n, Requests: n, Unanswered: unanswered[i%2], Timed: n, P50: p50[i%2] * (1 + 0.01*float64(j)), P99: p99[i%2]})
		}
		all = append(all, p)
	}
	return all
}

// TestClosedLoop lets more clients in, of whom each waits longer: no harm where all
// of them wait for their answers before they ask again.
func TestClosedLoop(t *testing.T) {
	slower := [2]float64{2e6, 58e6}
	for name, c := range map[string]struct {
		good, p99    [2]float64
		unanswered   [2]uint64
		open, closed Verdict
	}{
		"as many good responses":         {[2]float64{9400, 9450}, [2]float64{464e6, 464e6}, [2]uint64{}, Worse, NoEffect},
		"and nobody is given up":         {[2]float64{9400, 9450}, [2]float64{464e6, 464e6}, [2]uint64{40, 0}, Worse, Proved},
		"and the slowest are far faster": {[2]float64{9400, 9450}, [2]float64{2.1e9, 120e6}, [2]uint64{}, Proved, Proved},
		"a third more good responses":    {[2]float64{2700, 3600}, [2]float64{464e6, 464e6}, [2]uint64{}, Undecided, Proved},
		"and a tenth is given up":        {[2]float64{9400, 9450}, [2]float64{464e6, 464e6}, [2]uint64{0, 1000}, Worse, Worse},
	} {
		phases := threeRounds(c.good, slower, c.p99, c.unanswered)
		if v, why, _ := conclude(judged(phases, nil, false), false); v != c.open {
			t.Errorf("%s: open: %s, want %s: %s", name, v, c.open, why)
		}
		if v, why, _ := conclude(judged(phases, nil, true), true); v != c.closed {
			t.Errorf("%s: closed: %s, want %s: %s", name, v, c.closed, why)
		}
	}
}

// TestTurnedAway lets in clients whom nobody saw before, so that all the others
// wait longer: only the counter of those who were turned away tells what it is good
// for.
func TestTurnedAway(t *testing.T) {
	for name, c := range map[string]struct {
		inject func(*world)
		told   bool // of the counter
		want   Verdict
	}{
		"all are let in":              {func(w *world) { w.refused, w.crowded = 40, 8 }, true, Proved},
		"and nobody looked":           {func(w *world) { w.refused, w.crowded = 40, 8 }, false, Worse},
		"and half as much is served":  {func(w *world) { w.refused, w.effect = 40, 0.4 }, true, Worse},
		"nobody is turned away":       {func(w *world) { w.effect = 1 }, true, NoEffect},
		"and everything takes longer": {func(w *world) { w.effect = 0.7 }, true, Worse},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(11, "calm")
			c.inject(w)
			opt := Options{}
			if c.told {
				opt.TurnedAway = []string{refusedClients}
			}
			r, err := Run(t.Context(), w, w, opt)
			if err != nil || r.Verdict != c.want {
				t.Errorf("%s, want %s: %s (%v)", r.Verdict, c.want, r.Why, err)
			}
		})
	}
}

// TestBrokenMoreOrLess is a service that is broken differently each time, and well
// each time with the change; a load that wanders as much is not.
func TestBrokenMoreOrLess(t *testing.T) {
	phases := func(good ...uint64) []Phase {
		var all []Phase
		for i, n := range good {
			p := Phase{Name: []string{phaseAfter, phaseWith}[i%2]}
			if i == 0 {
				p.Name = phaseBefore
			}
			for j := range uint64(3) {
				p.Blocks = append(p.Blocks, Block{Seconds: 1, Good: n + j, Requests: n + j})
			}
			all = append(all, p)
		}
		return all
	}
	if v, why, _ := conclude(judged(phases(147, 9281, 362, 9569, 1896, 9050, 388), nil, true), true); v != Proved {
		t.Errorf("far better each time: %s: %s", v, why)
	}
	if v, why, _ := conclude(judged(phases(147, 9281, 362, 2100, 1896, 9050, 388), nil, true), true); v == Proved {
		t.Errorf("once as bad as without: %s: %s", v, why)
	}
}

// TestGuardOfAClosedLoop does not take longer times for harm while as much is served.
func TestGuardOfAClosedLoop(t *testing.T) {
	glance := func(good uint64, p99 float64) Block {
		return Block{Seconds: 0.5, Good: good, Requests: good, Timed: good, P50: p99 / 2, P99: p99}
	}
	for _, c := range []struct {
		closed bool
		good   uint64
		harm   bool
	}{{false, 490, true}, {true, 490, false}, {true, 300, true}} {
		g := guard{closed: c.closed}
		for range 6 {
			g.note(glance(500, 10e6))
		}
		g.arm()
		for range 8 {
			g.note(glance(c.good, 200e6))
		}
		if g.harmed.Load() != c.harm {
			t.Errorf("closed %v, %d good responses: harm %v, want %v", c.closed, c.good, g.harmed.Load(), c.harm)
		}
	}
}

// TestTrade gets more good responses at the price of time, or the opposite.
func TestTrade(t *testing.T) {
	for name, c := range map[string]struct {
		good, p50, p99 [2]float64
		want           Verdict
		why            string
	}{
		"many more, slower":  {[2]float64{100, 5000}, [2]float64{1e6, 3e6}, [2]float64{1e9, 1e9}, Proved, "p50 went from 1.01 ms to 3.03 ms (worse)"},
		"a few more, slower": {[2]float64{4000, 5000}, [2]float64{1e6, 5e6}, [2]float64{1e9, 1e9}, Undecided, "it is a trade"},
		"fewer, faster":      {[2]float64{5000, 500}, [2]float64{3e6, 1e6}, [2]float64{1e9, 1e9}, Worse, "good responses went from"},
		// As measured on an accept queue of 5 under 60 clients.
		"no more seconds":     {[2]float64{2035, 2094}, [2]float64{2.1e6, 26.8e6}, [2]float64{1.05e9, 58.5e6}, Proved, "p99 went from 1.05 s to 58.5 ms"},
		"as much lost as won": {[2]float64{2035, 2094}, [2]float64{2.1e6, 26.8e6}, [2]float64{105e6, 20e6}, Undecided, "it is a trade"},
	} {
		v, why, _ := conclude(judged(threeRounds(c.good, c.p50, c.p99, [2]uint64{}), nil, false), false)
		if v != c.want || !strings.Contains(why, c.why) {
			t.Errorf("%s: %s: %s", name, v, why)
		}
	}
}
