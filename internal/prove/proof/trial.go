package proof

import (
	"context"
	"errors"
	"fmt"
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

// harmful is what the guardian is told.
const harmful = "far fewer good responses, or far more errors or time, than before the change"

// Try makes the changes under a lease, runs the experiment, and undoes them, but
// for a proved one that is to be kept: its entry in the journal is given then.
func (t *Trial) Try(ctx context.Context, changes []cause.Change) (result experiment.Result, kept string, err error) {
	lease, err := t.Journal.Begin(changes, journal.Options{Cause: t.Cause, Why: t.Why, For: t.lasting()})
	if err != nil {
		return result, "", err
	}
	l := &leased{journal: t.Journal, lease: lease}
	defer func() { err = errors.Join(err, l.close()) }()
	opt := t.Options
	opt.Beat = func(harm bool) { lease.Beat(journal.Health{Worse: harm, Why: harmful}) }
	result, err = experiment.Run(ctx, l, t.Meter, opt)
	if l.over != "" && !result.Harm {
		return result, "", errors.Join(err, fmt.Errorf("the lease ended early: %s", l.over))
	}
	if err != nil || !t.Keep || result.Verdict != experiment.Proved || ctx.Err() != nil {
		return result, "", err
	}
	if err := lease.Apply(); err != nil {
		return result, "", err
	}
	if err := lease.Keep(); err != nil {
		return result, "", errors.Join(err, l.Undo())
	}
	return result, lease.ID(), nil
}

// lasting is how long the lease may take at most, if all goes slowly.
func (t *Trial) lasting() time.Duration {
	if f, ok := t.Meter.(experiment.Fixed); ok && f.Fixed() {
		return journal.MaxFor
	}
	long := t.Options.Longest() + time.Minute
	return min(max(long, journal.DefaultFor), journal.MaxFor)
}

// leased is a lease as the Subject of an experiment.
type leased struct {
	journal *journal.Journal
	lease   *journal.Lease
	over    string // why it ended by itself
}

// Apply makes the changes.
func (l *leased) Apply() error { return l.lease.Apply() }

// Undo puts them back. A lease that has ended by itself has done so already.
func (l *leased) Undo() error {
	err := l.lease.Undo()
	if err == nil {
		return nil
	}
	select {
	case l.over = <-l.lease.Ended():
	default:
	}
	if l.over != "" && !l.open() {
		return nil
	}
	return err
}

// open says that something is still to be put back.
func (l *leased) open() bool {
	list, err := l.journal.List()
	if err != nil {
		return true
	}
	for i := range list {
		if list[i].ID == l.lease.ID() {
			return list[i].Open()
		}
	}
	return false
}

// close ends the lease.
func (l *leased) close() error {
	err := l.lease.Close()
	if err != nil && l.over != "" && !l.open() {
		return nil // it only says why it ended
	}
	return err
}
