package fleet

import (
	"errors"
	"time"
)

// ErrNoMark is what a Target's Mark returns when it cannot tell.
var ErrNoMark = errors.New("the target cannot tell what it has")

// ErrTooLarge is what the error of a Target's Send wraps when something refused the batch for
// its size, and nothing of it is stored: the agent then sends smaller ones.
var ErrTooLarge = errors.New("the batch is too large")

// permanent is an error that trying again does not fix.
type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// Permanent marks an error of a Target that somebody has to fix: a wrong password,
// a table that is missing, a batch that is refused for what it is. The agent tells
// it once a minute, tries again slowly, and loses nothing.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return permanent{err}
}

// Temporary says whether an error of a Target may pass by itself: all that are not
// Permanent.
func Temporary(err error) bool {
	var p permanent
	return err != nil && !errors.As(err, &p)
}

// later is an error of a target that wants to be left alone.
type later struct {
	error
	after time.Duration
}

func (l later) Unwrap() error { return l.error }

// Later marks an error of a Target that said how long it wants to be left alone.
func Later(err error, after time.Duration) error {
	if err == nil || after <= 0 {
		return err
	}
	return later{err, after}
}

// After is how long a target wants to be left alone after an error; 0 where it did not say.
func After(err error) time.Duration {
	var l later
	if errors.As(err, &l) {
		return l.after
	}
	return 0
}
