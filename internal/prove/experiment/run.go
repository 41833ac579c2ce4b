package experiment

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Subject is a change that can be made and taken back, any number of times. An error
// of Undo that has a method Settled() bool which is true says that nothing is left to
// be undone, and yet not all is as it was.
type Subject interface {
	Apply() error
	Undo() error
}

// Meter measures the service.
type Meter interface {
	// Block measures for d, or for as long as its load takes.
	Block(ctx context.Context, d time.Duration) (Block, error)
}

// Glancer is a Meter that tells meanwhile, about twice a second, what happened
// since it told last; not while its load only begins or ends. It does so from
// within Block.
type Glancer interface {
	OnGlance(func(Block))
}

// Fixed is a Meter whose blocks may be of a length that nobody can change: then
// settling is just waiting.
type Fixed interface{ Fixed() bool }

// Closed is a Meter whose load may be a closed loop: each client waits for its
// answer before it asks again. As many as are let in are served, and the median of
// their times tells how many those are, not how well they are served: clients that
// wait to be let in are not in it.
type Closed interface{ Closed() bool }

// Options say how an experiment is made; the zero value is usable.
type Options struct {
	Blocks    int           // in each phase, at least 3 (the default)
	Length    time.Duration // of a block; 0 = 3 s. It grows up to four times where requests are few
	Settle    time.Duration // at least, after each change; 0 = 1 s
	MaxSettle time.Duration // at most, until two readings agree; 0 = 10 s. Twice that for a fault to come back
	Rounds    int           // the change is made at most so often; 0 = 5
	Sure      bool          // go on although nobody asks the service for anything: that may be what is to be proved
	Harmful   []string      // counters of blocks that are judged where there are no requests: less is better
	// TurnedAway are counters of blocks that tell of clients whom the service, or
	// the kernel before it, does not let in: fewer are better. They are in no
	// request's time, and those who are let in wait for each other: their times do
	// not decide, as under a load that is Closed.
	TurnedAway []string

	Progress func(Step)
	// Beat is called twice a second while the change is in force; harm says that
	// the service got much worse and that it has to be undone at once.
	Beat func(harm bool)
}

// Step is how far an experiment is.
type Step struct {
	Phase    string // "before", "with", "after"
	Settling bool   // it waits for the service to settle before the phase
	Round    int    // from 1
	Block    int    // blocks of the phase that are done
	Of       int
	Last     *Block        // the latest of the phase, nil before the first
	Left     time.Duration // until the end of the round, when all goes well; 0 where that is not known
}

const (
	leastBlocks  = 3
	wantRequests = 200 // in a block: with fewer it is made longer
	longer       = 4   // at most so many times
	beatEvery    = 500 * time.Millisecond
)

func (o Options) withDefaults() Options {
	o.Blocks = max(o.Blocks, leastBlocks)
	for d, otherwise := range map[*time.Duration]time.Duration{&o.Length: 3 * time.Second, &o.Settle: time.Second, &o.MaxSettle: 10 * time.Second} {
		if *d <= 0 {
			*d = otherwise
		}
	}
	if o.Rounds <= 0 {
		o.Rounds = 5
	}
	o.MaxSettle = max(o.MaxSettle, o.Settle)
	return o
}

// Shortest is how long an experiment takes when all goes well, with a Meter whose
// blocks take as long as asked.
func (o Options) Shortest() time.Duration {
	o = o.withDefaults()
	return time.Duration(len(phaseNames)) * o.phase()
}

// phase is what settling and the blocks of one phase take when all goes well.
func (o *Options) phase() time.Duration {
	return settleReadings*o.Settle + time.Duration(o.Blocks)*o.Length
}

// Longest is for how long an experiment may take, with a Meter whose blocks take
// as long as they are asked to.
func (o Options) Longest() time.Duration {
	o = o.withDefaults()
	phases := time.Duration(1 + 2*o.Rounds)
	return phases*time.Duration(o.Blocks)*longer*o.Length + phases*2*o.MaxSettle
}

// run is an experiment under way.
type run struct {
	opt     Options
	subject Subject
	meter   Meter
	guard   guard
	phases  []Phase
	applied bool
	left    error // of the last undoing
	rounds  int
	beating sync.Mutex
	resize  bool          // blocks can be of any length
	closed  bool          // the load is a closed loop
	settled time.Duration // before the next phase
}

// Run makes the experiment. The change is undone when it returns, unless the
// Result says that it is not; the error is about what ended it early. When ctx ends, it is undone
// too, and the Result tells what was seen until then.
func Run(ctx context.Context, s Subject, m Meter, opt Options) (Result, error) {
	r := &run{opt: opt.withDefaults(), subject: s, meter: m, resize: true}
	if f, ok := m.(Fixed); ok {
		r.resize = !f.Fixed()
	}
	c, ok := m.(Closed)
	r.closed = ok && c.Closed() || len(r.opt.TurnedAway) > 0
	r.guard.closed = r.closed
	if g, ok := m.(Glancer); ok {
		g.OnGlance(r.guard.note)
	}
	err := r.all(ctx)
	stopped := err != nil && ctx.Err() != nil
	// What counts is how it is at the end: what could not be undone before may be now.
	left := r.undo()
	result := r.result()
	result.Undid(left)
	if stopped {
		result.Stopped = true
		result.Verdict, result.Why = Undecided, "it was stopped before it was over"
		if errors.Is(err, ctx.Err()) {
			err = nil
		}
	}
	if errors.Is(err, errLeft) {
		err = nil // the Result says it
	}
	return result, err
}

// errLeft says that the change could not be undone.
var errLeft = errors.New("the change is not undone")

// all goes through the phases until there is a verdict.
func (r *run) all(ctx context.Context) error {
	if err := r.settle(ctx, phaseBefore, nil); err != nil {
		return err
	}
	r.guard.before = nil // until here the load may only have begun
	if err := r.phase(ctx, phaseBefore); err != nil || r.idle() {
		return err
	}
	for r.rounds < r.opt.Rounds {
		r.rounds++
		if err := r.with(ctx); err != nil {
			return err
		}
		if r.guard.harmed.Load() {
			return r.afterHarm(ctx)
		}
		if r.undo() != nil {
			return errLeft
		}
		if err := r.settle(ctx, phaseAfter, r.back); err != nil {
			return err
		}
		if err := r.phase(ctx, phaseAfter); err != nil {
			return err
		}
		if _, _, more := conclude(r.judged(r.phases), r.closed); !more {
			return nil
		}
	}
	return nil
}

// with measures with the change in force, and undoes it on harm.
func (r *run) with(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.guard.arm()
	defer r.guard.disarm()
	r.guard.alarm = func() {
		r.beat()
		cancel()
	}
	r.applied = true // also when it fails: half of it may have been made
	if err := r.subject.Apply(); err != nil {
		return err
	}
	defer r.beats()()
	err := r.settle(ctx, phaseWith, r.moves())
	if err == nil {
		err = r.phase(ctx, phaseWith)
	}
	if r.guard.harmed.Load() {
		return nil // that is why the context ended
	}
	return err
}

// afterHarm undoes the change and sees whether the service comes back.
func (r *run) afterHarm(ctx context.Context) error {
	if r.undo() != nil {
		return errLeft
	}
	if err := r.settle(ctx, phaseAfter, nil); err != nil {
		return err
	}
	return r.phase(ctx, phaseAfter)
}

// undo takes the change back if it is in force; the error says what is not as it
// was. It may be called again.
func (r *run) undo() error {
	if r.applied {
		r.left = r.subject.Undo()
		r.applied = r.left != nil && !settled(r.left)
	}
	return r.left
}

// beats tells Beat that all is well, or not, until the returned function is called.
func (r *run) beats() (end func()) {
	if r.opt.Beat == nil {
		return func() {}
	}
	r.beat()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(beatEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				r.beat()
			case <-stop:
				return
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
	}
}

func (r *run) beat() {
	if r.opt.Beat != nil {
		r.beating.Lock()
		defer r.beating.Unlock()
		r.opt.Beat(r.guard.harmed.Load())
	}
}

// phase measures the blocks of one phase.
func (r *run) phase(ctx context.Context, name string) error {
	r.phases = append(r.phases, Phase{Name: name, Settled: r.settled.Seconds(), Blocks: []Block{}})
	p := &r.phases[len(r.phases)-1]
	var last *Block
	for i := range r.opt.Blocks {
		r.progress(name, i, last)
		b, err := r.meter.Block(ctx, r.opt.Length)
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err // it is not a whole block
		}
		if name == phaseBefore && i == 0 && r.lengthen(&b) {
			b, err = r.meter.Block(ctx, r.opt.Length)
			if err != nil {
				return err
			}
		}
		p.Blocks = append(p.Blocks, b)
		last = &p.Blocks[len(p.Blocks)-1]
	}
	r.progress(name, r.opt.Blocks, last)
	return nil
}

func (r *run) progress(phase string, done int, last *Block) {
	r.tell(Step{Phase: phase, Block: done, Last: last}, r.blocksTake(r.opt.Blocks-done, last))
}

// tell says how far the run is; now is what the rest of the phase takes.
func (r *run) tell(s Step, now time.Duration) {
	if r.opt.Progress == nil {
		return
	}
	s.Round, s.Of = max(r.rounds, 1), r.opt.Blocks
	if r.resize || s.Last != nil {
		later := len(phaseNames) - 1 - slices.Index(phaseNames, s.Phase)
		s.Left = now + time.Duration(later)*(r.settleTakes()+r.blocksTake(r.opt.Blocks, s.Last))
	}
	r.opt.Progress(s)
}

// blocksTake is what so many blocks take.
func (r *run) blocksTake(n int, last *Block) time.Duration {
	length := r.opt.Length
	if !r.resize && last != nil {
		length = time.Duration(last.Seconds * float64(time.Second))
	}
	return time.Duration(n) * length
}

// settleTakes is what settling takes when all goes well.
func (r *run) settleTakes() time.Duration {
	if !r.resize {
		return r.opt.Settle
	}
	return settleReadings * r.opt.Settle
}

// lengthen makes blocks longer when the first one has few requests.
func (r *run) lengthen(first *Block) bool {
	n := first.Requests + first.Unanswered
	if !r.resize || n == 0 || n >= wantRequests {
		return false
	}
	factor := min(float64(wantRequests)/float64(n), longer)
	if factor < 1.3 {
		return false
	}
	r.opt.Length = time.Duration(factor * float64(r.opt.Length)).Round(100 * time.Millisecond)
	return true
}

// idle says that nobody wanted anything of the service: then nothing is changed.
func (r *run) idle() bool {
	if r.opt.Sure || len(r.opt.Harmful) > 0 {
		return false
	}
	for _, b := range r.phases[0].Blocks {
		if b.Requests+b.Unanswered+b.Tried > 0 {
			return false
		}
	}
	return true
}

// result judges what was measured.
func (r *run) result() Result {
	out := Result{Phases: r.phases, Rounds: r.rounds, Harm: r.guard.harmed.Load()}
	out.Effects = []Effect{}
	if len(r.phases) == 0 {
		out.Verdict, out.Why = Undecided, "nothing was measured"
		return out
	}
	whole := out.wholePhases()
	switch {
	case r.rounds == 0:
		out.Verdict, out.Why = TooLittle, "nobody asked the service for anything; nothing was changed"
	case out.Harm && out.loadEnded():
		out.Verdict, out.Why = Undecided, "requests stopped while the change was made, and nobody asked again when it was undone: the load has ended, or its clients gave up"
	case out.Harm:
		out.Verdict, out.Why = Worse, out.harmText()
	case len(whole) < 3:
		out.Verdict, out.Why = Undecided, "it was not measured before, with and after the change"
	default:
		found := r.judged(whole)
		out.Verdict, out.Why, _ = conclude(found, r.closed)
		for i := range found {
			out.Effects = append(out.Effects, found[i].Effect)
		}
	}
	out.Effects = append(out.Effects, shown(&out)...)
	return out
}

func (r *run) judged(phases []Phase) []finding {
	found := judged(phases, r.opt.Harmful, r.closed)
	for _, c := range r.opt.TurnedAway {
		if f, ok := judgeCounter(c, phases); ok {
			f.turned = true
			found = append(found, f)
		}
	}
	return found
}

// loadEnded says that nobody asked for anything, or tried to connect, in all of the last
// phase, without the change.
func (out *Result) loadEnded() bool {
	last := &out.Phases[len(out.Phases)-1]
	for i := range last.Blocks {
		if b := &last.Blocks[i]; b.Requests+b.Unanswered+b.Tried > 0 {
			return false
		}
	}
	return last.Name == phaseAfter && len(last.Blocks) > 0
}

// wholePhases leaves out phases that have no blocks at the end.
func (out *Result) wholePhases() []Phase {
	var whole []Phase
	for _, p := range out.Phases {
		if len(p.Blocks) > 0 {
			whole = append(whole, p)
		}
	}
	return whole
}
