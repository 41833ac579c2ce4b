package tune

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/shell"
)

// Sight is what one look at the service came to.
type Sight struct {
	Host     diagnose.ReportHost
	Findings []cause.Finding // as diagnose ranks them
	Healthy  string          // where there is none: what was seen instead, for people; may be empty
}

// Outcome is what came of one experiment. Everything is as before it when it is
// over.
type Outcome struct {
	Verdict Verdict
	Text    string // the verdict with effect and interval, for people
	// Better says that a proved effect is one that users want: more good
	// responses, fewer errors, or shorter times.
	Better bool
	Blocks []Block
}

// Trial is a change that is on record and not made, or made and undone again.
type Trial interface {
	// Run measures before, with and after. The change is undone when it returns,
	// also when it is cancelled; if not, the error is a NotUndoneError.
	Run(context.Context) (Outcome, error)
	// Keep makes the change again and leaves it, on record.
	Keep(context.Context) error
	// Close takes back what is not kept.
	Close() error
}

// World is what the loop acts on.
type World interface {
	// Look watches the service under its load, and judges.
	Look(context.Context) (Sight, error)
	// Commands is what a person would type to make changes and to undo them. The
	// error says why they cannot be made.
	Commands([]cause.Change) (do, undo []shell.Command, err error)
	// Begin puts a finding's changes on record. It changes nothing.
	Begin(context.Context, *cause.Finding) (Trial, error)
	// Measure measures the service as it is; the blocks are of the phase After.
	Measure(context.Context) ([]Block, error)
	// UndoAll takes back everything that was kept.
	UndoAll(context.Context) error
	// Lasting says how to make changes permanent.
	Lasting([]cause.Change) []shell.Command
	Now() time.Time
}

// NotUndoneError says that a change could not be taken back.
type NotUndoneError struct{ Err error }

func (e *NotUndoneError) Error() string { return e.Err.Error() }
func (e *NotUndoneError) Unwrap() error { return e.Err }

// Options of a run. Its durations are those of the World's clock.
type Options struct {
	Apply     bool
	For       time.Duration // no look and no experiment begins that would not be over by then
	LookTime  time.Duration // what a look takes, with the measurement at the end
	StepTime  time.Duration // what an experiment takes when all goes well, with that too
	UndoAtEnd bool
	Skip      []string // causes that are not to be tried
	Service   string   // what it is about, for people
	Load      string
	// Say, when set, is called with what goes on: one line without a line break.
	Say func(string)
}

// Looks in a row with nothing to try after which the loop ends: one look may
// miss what comes and goes.
const emptyLooks = 2

// run is one run of the loop.
type run struct {
	Options
	world  World
	report Report
	past   *history
	began  time.Time
}

// Run runs the loop until nothing is left to fix, or nothing helps, or the time
// is up. The error is for what kept it from looking at all; everything else is
// told in the Report, which is complete also when ctx is cancelled.
func Run(ctx context.Context, w World, o Options) (*Report, error) {
	r := &run{Options: o, world: w, past: newHistory(o.Skip), began: w.Now()}
	r.report = Report{
		Schema: SchemaReport, Start: r.began, Service: o.Service, Load: o.Load, Applied: o.Apply,
		Steps: []Step{}, Left: []Left{}, Lasting: []shell.Command{},
	}
	if err := r.loop(ctx); err != nil {
		return nil, err
	}
	r.finish(ctx)
	return &r.report, nil
}

func (r *run) since() float64 { return r.world.Now().Sub(r.began).Seconds() }

func (r *run) say(format string, args ...any) {
	if r.Say != nil {
		r.Say(fmt.Sprintf(format, args...))
	}
}

func (r *run) end(e Ending, format string, args ...any) {
	r.report.Ending, r.report.Text = e, fmt.Sprintf(format, args...)
}

// loop takes steps until there is an ending. The error is that of the first look.
func (r *run) loop(ctx context.Context) error {
	for empty := 0; r.report.Ending == ""; {
		if r.late(r.LookTime, "a look") {
			return nil
		}
		at := r.since()
		r.say("looking")
		sight, err := r.world.Look(ctx)
		switch {
		case ctx.Err() != nil:
			r.end(Interrupted, "Interrupted.")
			return nil
		case err != nil && r.report.Host.Name == "" && len(r.report.Steps) == 0:
			return err
		case err != nil:
			r.end(Failed, "Could not look any more: %v.", err)
			return nil
		}
		r.report.Host = sight.Host
		r.left(sight)
		f, again := r.past.next(sight.Findings)
		if f != nil {
			if r.Apply && r.late(r.StepTime, "an experiment") {
				return nil
			}
			empty = 0
			r.step(ctx, at, f, nil, again)
			continue
		}
		if f, also := r.past.together(); f != nil && len(sight.Findings) > 0 {
			if r.late(r.StepTime, "an experiment") {
				return nil
			}
			empty = 0
			r.step(ctx, at, f, also, "together: none of them helped alone")
			continue
		}
		if empty++; empty >= emptyLooks || !r.Apply {
			r.nothingToTry(sight)
		}
	}
	return nil
}

// late ends the loop when less time is left than something takes. The first look
// and the first experiment are always made.
func (r *run) late(takes time.Duration, what string) bool {
	left := r.For - r.world.Now().Sub(r.began)
	if len(r.report.Steps) == 0 || left >= takes {
		return false
	}
	r.end(OutOfTime, "The time is up: %s left, and %s takes %s.", max(0, left).Round(time.Second), what, takes.Round(time.Second))
	return true
}

// nothingToTry ends the loop after looks that gave nothing to try.
func (r *run) nothingToTry(s Sight) {
	switch {
	case len(s.Findings) > 0 && len(r.report.kept()) == 0:
		r.end(Stuck, "Nothing that slowray can change helps; what was found is listed below.")
	case len(s.Findings) > 0:
		r.end(Stuck, "Nothing more that slowray can change helps; what is left is listed below.")
	default:
		r.end(Healthy, "%s", strings.TrimSpace("No finding is left. "+s.Healthy))
	}
}

// left notes the findings of a look, with why each is not tried.
func (r *run) left(s Sight) {
	r.report.Left = []Left{}
	for i := range s.Findings {
		f := &s.Findings[i]
		again, because := r.past.may(f)
		switch {
		case because != "":
		case again != "":
			because = again
		default:
			because = "not tried yet"
		}
		if f.Role == cause.RoleConsequence && f.ConsequenceOf != nil {
			because += "; follows from " + string(*f.ConsequenceOf)
		}
		r.report.Left = append(r.report.Left, Left{Cause: string(f.Cause), Title: f.Title, Because: because, Fix: f.Fix.Text})
	}
}

// step tries one finding's changes, or those of several together, and keeps them if
// they help.
func (r *run) step(ctx context.Context, at float64, f *cause.Finding, also []string, again string) {
	s := Step{At: at, Cause: string(f.Cause), Also: also, Title: f.Title, Subject: f.Subject, Seen: seen(f), Changes: f.Fix.Changes, Again: again,
		Verdict: Untried, Do: []shell.Command{}, Undo: []shell.Command{}, Blocks: []Block{}}
	do, undo, err := r.world.Commands(f.Fix.Changes)
	if err == nil {
		s.Do, s.Undo = append(s.Do, do...), append(s.Undo, undo...)
	}
	switch {
	case err != nil:
		s.Verdict, s.Text = NotMade, err.Error()
		if !r.Apply {
			r.end(DryRun, "This is a dry run. What would be tried first could not be made.")
		}
	case !r.Apply:
		s.Text = "dry run"
		r.end(DryRun, "This is a dry run: nothing was changed. With --apply this change is made, measured, and kept if it helps; then slowray looks again.")
	default:
		r.say("%s: %s", s.causes(), texts(f.Fix.Changes))
		r.try(ctx, &s, f)
	}
	s.Seconds = r.since() - s.At
	r.past.note(&s)
	r.report.Steps = append(r.report.Steps, s)
	if r.Apply {
		switch {
		case s.Kept:
			r.say("%s: %s, kept", s.causes(), s.Verdict.words())
		case s.Verdict == NotMade:
			r.say("%s: %s: %s", s.causes(), s.Verdict.words(), s.Text)
		default:
			r.say("%s: %s", s.causes(), s.Verdict.words())
		}
	}
}

// try runs the experiment of a step. What is not kept is undone when it returns.
func (r *run) try(ctx context.Context, s *Step, f *cause.Finding) {
	trial, err := r.world.Begin(ctx, f)
	if err != nil {
		s.Verdict, s.Text = NotMade, err.Error()
		return
	}
	defer func() {
		if err := trial.Close(); err != nil {
			r.end(Harmed, "A change could not be taken back: %v. \"slowray undo\" tries again.", err)
		}
	}()
	o, err := trial.Run(ctx)
	var notUndone *NotUndoneError
	s.Blocks = append(s.Blocks, o.Blocks...)
	s.Before, s.With, s.After = sum(s.Blocks, Before), sum(s.Blocks, With), sum(s.Blocks, After)
	switch {
	case errors.As(err, &notUndone):
		s.Verdict, s.Text = NotMade, err.Error()
		r.end(Harmed, "A change could not be taken back: %v. \"slowray undo\" tries again.", err)
		return
	case ctx.Err() != nil:
		s.Text = "interrupted, and undone"
		r.end(Interrupted, "Interrupted; the experiment in hand was undone.")
		return
	case err != nil:
		s.Verdict, s.Text = NotMade, err.Error()
	default:
		s.Verdict, s.Text = o.Verdict, o.Text
	}
	if s.Verdict == Proved && o.Better {
		if err := trial.Keep(ctx); err != nil {
			s.Text += "; it could not be kept: " + err.Error()
			return
		}
		s.Kept = true
		return
	}
	if harmed(s.Blocks, s.Blocks) {
		r.recheck(ctx, s)
	}
}

// recheck measures again where the service is worse after a change was undone
// than it was before, and ends the loop if it stays so.
func (r *run) recheck(ctx context.Context, s *Step) {
	r.say("worse than before after undoing: measuring again")
	now, err := r.world.Measure(ctx)
	if err != nil || !harmed(s.Blocks, now) {
		return
	}
	is := sum(now, After)
	r.end(Harmed, "Stopped: good responses were %s/s before %s was tried and are %s/s although it was undone.", rate(s.Before.Good), s.Cause, rate(is.Good))
}

// finish measures once more with what was kept, or takes it back.
func (r *run) finish(ctx context.Context) {
	r.figures(ctx)
	var changes []cause.Change
	for _, s := range r.report.kept() {
		changes = append(changes, s.Changes...)
	}
	if len(changes) > 0 {
		r.report.Lasting = append(r.report.Lasting, r.world.Lasting(changes)...)
		r.report.Undo = shell.Line("slowray undo")
	}
	if len(changes) > 0 && r.UndoAtEnd {
		// A Ctrl-C that ended the loop must not keep this from being done.
		if err := r.world.UndoAll(context.WithoutCancel(ctx)); err != nil {
			r.report.Text += fmt.Sprintf(" Not everything could be taken back: %v.", err)
		} else {
			r.report.Undone, r.report.Undo = true, shell.Command{}
		}
	}
	r.report.Seconds = r.since()
}

// figures fills in the first and last figures.
func (r *run) figures(ctx context.Context) {
	for i := range r.report.Steps {
		if b := r.report.Steps[i].Before; b.Blocks > 0 {
			r.report.First = &b
			break
		}
	}
	if !r.Apply || r.report.Ending == Interrupted {
		return
	}
	r.say("measuring")
	blocks, err := r.world.Measure(ctx)
	if last := sum(blocks, After); err == nil && last.Blocks > 0 {
		r.report.Last = &last
		if r.report.First == nil {
			r.report.First = &last
		}
	}
}

// seen is what a look saw of a cause, in a few words.
func seen(f *cause.Finding) string {
	if f.Impact.Text != "" {
		return f.Impact.Text
	}
	return f.Title
}

// texts are changes in words.
func texts(changes []cause.Change) string {
	var list []string
	for i := range changes {
		list = append(list, changes[i].Text)
	}
	return strings.Join(list, "; ")
}
