package journal

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// askLimit is how long a run that is asked to end may take to put its changes back.
	askLimit = 10 * time.Second
	// lockLimit is how long it may take to let go of the lock then.
	lockLimit = 5 * time.Second
)

// Undo puts back the entries with these IDs, or all of them: also those that
// were kept, the newest first. A run that is going on is asked to end, and its
// watchdog puts its changes back. An outcome tells what became of each change;
// the error is about what could not be done at all.
func (j *Journal) Undo(ids ...string) ([]Outcome, error) {
	list, err := j.List()
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		if !slices.ContainsFunc(list, func(e Entry) bool { return e.ID == id }) {
			return nil, fmt.Errorf("journal: %q: %w", id, ErrUnknown)
		}
	}
	slices.Reverse(list)
	list = slices.DeleteFunc(list, func(e Entry) bool { return len(ids) > 0 && !slices.Contains(ids, e.ID) })
	if len(list) == 0 {
		return nil, nil
	}
	var outcomes []Outcome
	var locks []*os.File
	locks, err = j.lock("slowray undo")
	if errors.Is(err, ErrBusy) {
		var asked bool
		list, outcomes, asked = j.askLive(list)
		if asked && len(list) == 0 {
			return outcomes, nil
		}
		// One that was killed may hold the lock for a moment still: its threads end
		// one by one, each when what it does in the kernel is done.
		wait(lockLimit, func() bool {
			locks, err = j.lock("slowray undo")
			return !errors.Is(err, ErrBusy)
		})
	}
	if err != nil {
		return outcomes, err
	}
	defer release(locks)
	for _, e := range list {
		more, err := j.undoEntry(e.ID)
		outcomes = append(outcomes, more...)
		if err != nil {
			return outcomes, err
		}
	}
	return outcomes, nil
}

// undoEntry puts one entry back. The lock is held. Of a damaged one that is put
// back which is known; it is written anew first.
func (j *Journal) undoEntry(id string) ([]Outcome, error) {
	e, err := j.dir.read(".", id)
	if isGone(err) {
		return nil, nil // its watchdog was quicker
	}
	if err != nil {
		return nil, fmt.Errorf("journal: entry %s: %w", id, err)
	}
	if e.foreign {
		return []Outcome{{ID: id, Change: "entry " + id, Result: ResultFailed, Note: e.Problem + ": " + e.remedy()}}, nil
	}
	if e.unknown() {
		j.dir.keepDamaged(id)
	}
	var outcomes []Outcome
	if e.Open() {
		if e.torn {
			e.note("undo", "%s: it is written anew from what is known", e.Problem)
		}
		k := keeper{j.dir, e, "undo"}
		outcomes = k.undo("slowray undo")
	}
	if e.Open() {
		return outcomes, nil
	}
	return outcomes, j.dir.close(id)
}

// Forget closes entries without putting anything back: what they have changed is
// left to whoever asks for this. A run that is going on is not forgotten.
func (j *Journal) Forget(ids ...string) error {
	locks, err := j.lock("slowray undo --forget")
	if err != nil {
		return err
	}
	defer release(locks)
	for _, id := range ids {
		if number(id) == 0 {
			return fmt.Errorf("journal: %q: %w", id, ErrUnknown)
		}
		e, err := j.dir.read(".", id)
		if isGone(err) {
			err = fmt.Errorf("journal: %q: %w", id, ErrUnknown)
		} else if err != nil || e.State == Damaged {
			if err = j.dir.setAside(id); err == nil {
				continue
			}
			err = fmt.Errorf("journal: entry %s: %w", id, err)
		}
		if err != nil {
			return err
		}
		e.State = Undone
		e.note("undo", "forgotten: nothing was put back")
		if err := errors.Join(j.dir.write(e), j.dir.close(id)); err != nil {
			return err
		}
	}
	return nil
}

// askLive has the watchdogs of runs that are going on put their changes back. It
// gives the entries that are still to be undone, and what became of the others.
func (j *Journal) askLive(list []Entry) (rest []Entry, outcomes []Outcome, asked bool) {
	for _, e := range list {
		if !e.Live() || !terminate(e.Watchdog) {
			rest = append(rest, e)
			continue
		}
		asked = true
		var after *Entry
		wait(askLimit, func() bool {
			if e.Watchdog.Lives() {
				return false
			}
			var err error
			if after, err = j.dir.read(".", e.ID); isGone(err) {
				after, err = j.dir.read(historyDir, e.ID)
			}
			return err == nil && (!after.Open() || after.State == Failed)
		})
		if after == nil || after.Open() {
			rest = append(rest, e)
			continue
		}
		outcomes = append(outcomes, after.Outcomes()...)
	}
	return rest, outcomes, asked
}

// terminate sends SIGTERM to p, and to no other process that has its ID by now.
func terminate(p Process) bool {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return p.Lives() && unix.PidfdSendSignal(fd, syscall.SIGTERM, nil, 0) == nil
}
