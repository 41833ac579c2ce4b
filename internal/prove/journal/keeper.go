package journal

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/prove/change"
)

// doerLimit is how long one call of a Doer may take. A server's test of its
// configuration and its reload are in it.
const doerLimit = time.Minute

// Outcome is what became of one change when it was to be put back.
type Outcome struct {
	ID     string `json:"id"` // of the entry
	Cause  string `json:"cause"`
	Change string `json:"change"`
	Was    string `json:"was"`
	Result Result `json:"result"`
	Note   string `json:"note,omitempty"`
}

// Error tells about an outcome that is not as it should be; nil for the others.
func (o *Outcome) Error() error {
	switch o.Result {
	case ResultGone:
		return fmt.Errorf("%s: gone: %s", o.Change, o.Note)
	case ResultChanged:
		return fmt.Errorf("%s: somebody else has changed it meanwhile, it is left as it is: %s", o.Change, o.Note)
	case ResultFailed:
		return fmt.Errorf("%s: not put back: %s", o.Change, o.Note)
	}
	return nil
}

// LeftError is about changes that were to be put back, and are not as they were.
type LeftError struct{ Outcomes []Outcome }

func (e *LeftError) Error() string {
	var texts []string
	for i := range e.Outcomes {
		texts = append(texts, e.Outcomes[i].Error().Error())
	}
	return strings.Join(texts, "; ")
}

// Settled says that nothing of slowray's is in force any more: what is there now is
// somebody else's, or nothing is. Otherwise slowray undo can try again.
func (e *LeftError) Settled() bool {
	return !slices.ContainsFunc(e.Outcomes, func(o Outcome) bool { return o.Result == ResultFailed })
}

// joined is a *LeftError about those outcomes that are not as they should be; nil
// where all are.
func joined(list []Outcome) error {
	left := slices.DeleteFunc(slices.Clone(list), func(o Outcome) bool { return o.Error() == nil })
	if len(left) == 0 {
		return nil
	}
	return &LeftError{left}
}

// keeper makes and undoes the changes of one entry, and writes each step down
// before it is done. One process at a time is the keeper of an entry.
type keeper struct {
	dir *directory
	e   *Entry
	by  string // who it is, in the entry's events
}

// apply makes the changes. When it fails, those that were made are undone, and the
// outcomes say what became of them.
func (k *keeper) apply() error {
	if k.e.State != Prepared && k.e.State != Undone {
		return fmt.Errorf("journal: entry %s is %s: it cannot be applied", k.e.ID, k.e.State)
	}
	// What is put back is what is there right before, not what was there when the
	// lease began: sockets come and go, and others may set things between blocks.
	for i := range k.e.Changes {
		it := &k.e.Changes[i]
		if it.Result != "" && it.Result != ResultUndone {
			return fmt.Errorf("journal: %s: not made again: the last time it was %s: %s", it.Change.Text, it.Result, it.Note)
		}
		was, err := prepare(&it.Change)
		if err != nil && (i == 0 || !errors.Is(err, change.ErrFirst)) {
			return err
		}
		if was.Was != it.Was.Was {
			k.e.note(k.by, "%s: was %s before, is %s now", it.Change.Text, it.Was.Was, was.Was)
		}
		it.Was = was
	}
	before := k.e.State
	for i := range k.e.Changes {
		it := &k.e.Changes[i]
		if i > 0 { // what it finds may depend on those that are made by now
			was, err := prepare(&it.Change)
			if err != nil {
				return k.giveUp(err)
			}
			it.Was = was
		}
		k.e.State, it.Made, it.Result, it.Note = Applying, MadeMaybe, "", ""
		if err := k.dir.write(k.e); err != nil {
			it.Made = MadeNo
			if i == 0 {
				k.e.State = before
				return err
			}
			return k.giveUp(err)
		}
		step("apply")
		if err := do(it.Change.Kind, func(d change.Doer) error { return d.Apply(&it.Change, it.Was) }); err != nil {
			return k.giveUp(fmt.Errorf("%s: %w", it.Change.Text, err))
		}
		step("made")
		it.Made = MadeYes
	}
	k.e.State = Applied
	k.e.note(k.by, "applied")
	if err := k.dir.write(k.e); err != nil {
		return k.giveUp(err)
	}
	return nil
}

// giveUp undoes what is made so far, because of err.
func (k *keeper) giveUp(err error) error {
	k.undo("not applied: " + err.Error())
	return err
}

// undo puts back what is made, the last change first. It does not stop for
// anything: what fails is tried again by the next call. Where the journal cannot
// be written the changes are undone all the same.
func (k *keeper) undo(why string) []Outcome {
	k.e.State = Undoing
	k.e.note(k.by, "undo: %s", why)
	var list []Outcome
	failed := false
	for i := range slices.Backward(k.e.Changes) {
		it := &k.e.Changes[i]
		if it.Made == MadeNo {
			continue
		}
		it.Result, it.Note = k.undoOne(it)
		if it.Result == ResultFailed {
			failed = true
		} else {
			it.Made = MadeNo
		}
		list = append(list, k.e.outcome(it))
	}
	k.e.State = Undone
	if failed {
		k.e.State = Failed
	}
	for _, o := range list {
		k.e.note(k.by, "%s: %s %s", o.Change, o.Result, o.Note)
	}
	step("undone")
	if err := k.dir.write(k.e); err != nil {
		k.e.note(k.by, "%v", err)
	}
	return list
}

// undoOne puts one change back, and says what became of it.
func (k *keeper) undoOne(it *Item) (Result, string) {
	if it.Change.Kind == "" {
		return ResultFailed, "look for it by hand, then: slowray undo --forget " + k.e.ID
	}
	if boot, err := bootID(); err == nil && k.e.BootID != "" && boot != k.e.BootID && !survivesReboot(it.Change.Kind) {
		return ResultGone, "with the reboot"
	}
	h, err := holds(it)
	foreign := !h.holds && h.now != it.Was.Was
	switch {
	case err != nil:
		return ResultFailed, err.Error()
	case h.gone:
		return ResultGone, cmp.Or(h.now, "it is not there any more")
	case foreign && !undoLooks(it.Change.Kind):
		return ResultChanged, "now " + h.now
	case !h.holds && !foreign && it.Made == MadeYes:
		return ResultUndone, "it was as before already"
	}
	// What was not surely made is undone also where all seems as before: a file may
	// be back, and its server not have read it.
	sure := it.Made == MadeYes
	it.Made = MadeMaybe
	if err := k.dir.write(k.e); err != nil {
		k.e.note(k.by, "%v", err)
	}
	step("undo")
	err = do(it.Change.Kind, func(d change.Doer) error { return d.Undo(&it.Change, it.Was) })
	step("taken")
	switch {
	case err != nil && foreign && sure:
		return ResultChanged, err.Error()
	case err != nil:
		return ResultFailed, err.Error()
	}
	return ResultUndone, ""
}

// undoLooks says that Undo of a kind itself leaves alone what somebody else has
// set, and is to be called also where Holds says no: of a file that is in place
// while its server has not read it yet.
func undoLooks(kind cause.ChangeKind) bool { return kind == cause.ChangeConfig }

// outcome tells about one change.
func (e *Entry) outcome(it *Item) Outcome {
	return Outcome{e.ID, e.Cause, it.Change.Text, it.Was.Was, it.Result, it.Note}
}

// Outcomes tells what became of the changes of e that were to be put back, the
// last one first.
func (e *Entry) Outcomes() []Outcome {
	var list []Outcome
	for _, it := range slices.Backward(e.Changes) {
		if it.Result != "" {
			list = append(list, e.outcome(&it))
		}
	}
	return list
}

// prepare reads the present state of what c changes.
func prepare(c *cause.Change) (change.State, error) {
	was, err := call(c.Kind, func(d change.Doer) (change.State, error) { return d.Prepare(c) })
	if err != nil {
		return was, fmt.Errorf("%s: %w", c.Text, err)
	}
	return was, nil
}

// holding is what a Doer says of a change that was made.
type holding struct {
	holds, gone bool
	now         string
}

func holds(it *Item) (holding, error) {
	return call(it.Change.Kind, func(d change.Doer) (h holding, err error) {
		h.holds, h.gone, h.now, err = d.Holds(&it.Change, it.Was)
		return h, err
	})
}

// do calls a Doer for its effect.
func do(kind cause.ChangeKind, f func(change.Doer) error) error {
	_, err := call(kind, func(d change.Doer) (struct{}, error) { return struct{}{}, f(d) })
	return err
}

// call asks the Doer of a kind. One that panics or hangs has failed: it must not
// take the watchdog with it.
func call[T any](kind cause.ChangeKind, f func(change.Doer) (T, error)) (result T, err error) {
	d, err := change.For(kind)
	if err != nil {
		return result, err
	}
	type answer struct {
		result T
		err    error
	}
	done := make(chan answer, 1)
	go func() {
		var a answer
		defer func() {
			if r := recover(); r != nil {
				a.err = fmt.Errorf("a bug in slowray: %v", r)
			}
			done <- a
		}()
		a.result, a.err = f(d)
	}()
	select {
	case a := <-done:
		return a.result, a.err
	case <-time.After(doerLimit):
		return result, fmt.Errorf("did not end within %s", doerLimit)
	}
}
