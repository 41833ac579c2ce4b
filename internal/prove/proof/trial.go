package proof

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/prove/experiment"
	"github.com/slowray/slowray/internal/prove/journal"
)

// Trial is what Try needs.
type Trial struct {
	Journal *journal.Journal
	Cause   string // ID
	Why     string // the command, for the journal
	Keep    bool   // leave a change that is proved
	Meter   experiment.Meter
	Options experiment.Options
}

// harmful is what the watchdog gets.
const harmful = "far fewer good responses, or far more errors or time, than before the change"

// Try makes the changes under a lease, runs the experiment, and undoes them, but
// for a proved one that is to be kept: its entry in the journal is given then.
func (t *Trial) Try(ctx context.Context, changes []cause.Change) (result experiment.Result, kept string, err error) {
	lease, err := t.Journal.Begin(changes, journal.Options{Cause: t.Cause, Why: t.Why, For: t.lasting()})
	if err != nil {
		return result, "", err
	}
	l := &Leased{Lease: lease}
	result, kept, err = t.try(ctx, l)
	closed := l.Close()
	if kept == "" && result.InForce {
		result.Undid(closed) // which has tried again
	}
	return result, kept, oneLine(err, result.NotUndone(), closed)
}

// oneLine is what went wrong, first of all the reason; what the ones before say
// already is left out.
func oneLine(list ...error) (all error) {
	for _, err := range list {
		switch {
		case err == nil:
		case all == nil:
			all = err
		case !strings.Contains(all.Error(), err.Error()):
			all = fmt.Errorf("%w; %w", all, err)
		}
	}
	return all
}

// try runs the experiment, and keeps the change if it is to be kept.
func (t *Trial) try(ctx context.Context, l *Leased) (result experiment.Result, kept string, err error) {
	opt := t.Options
	opt.Beat = func(harm bool) { l.Lease.Beat(journal.Health{Worse: harm, Why: harmful}) }
	result, err = experiment.Run(ctx, l, t.Meter, opt)
	if l.Over != "" && !result.Harm {
		return result, "", oneLine(fmt.Errorf("the lease ended early: %s", l.Over), err)
	}
	if err != nil || !result.Undone || !t.Keep || result.Verdict != experiment.Proved || ctx.Err() != nil {
		return result, "", err
	}
	if err = l.Lease.Apply(); err == nil {
		err = l.Lease.Keep()
	}
	if err != nil {
		result.Undid(l.Undo())
		return result, "", fmt.Errorf("keep the change: %w", err)
	}
	return result, l.Lease.ID(), nil
}

// lasting is how long the lease may take at most, if all goes slowly.
func (t *Trial) lasting() time.Duration {
	if f, ok := t.Meter.(experiment.Fixed); ok && f.Fixed() {
		return journal.MaxFor
	}
	long := t.Options.Longest() + time.Minute
	return min(max(long, journal.DefaultFor), journal.MaxFor)
}

// Leased is a lease as the Subject of an experiment.
type Leased struct {
	Lease *journal.Lease
	Over  string // why it ended by itself, once Undo or Close has seen that
}

// Apply makes the changes.
func (l *Leased) Apply() error { return l.Lease.Apply() }

// Undo puts them back. A lease that has ended by itself has done so already, and its
// error tells what it could not.
func (l *Leased) Undo() error { return l.ended(l.Lease.Undo()) }

// Close ends the lease.
func (l *Leased) Close() error { return l.ended(l.Lease.Close()) }

// ended is what was not put back, where an error only says that the lease is over.
func (l *Leased) ended(err error) error {
	var over *journal.EndedError
	if !errors.As(err, &over) {
		return err
	}
	select {
	case <-l.Lease.Ended(): // nobody else needs to know
	default:
	}
	l.Over = over.Why
	return over.Left
}
