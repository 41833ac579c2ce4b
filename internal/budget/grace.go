package budget

import (
	"context"
	"errors"
	"time"
)

// ErrInterrupted is the cause ([context.Cause]) of a context that a person ended with Ctrl-C, to
// see what there is so far: who waits for that waits longer, and can press it again.
var ErrInterrupted = errors.New("interrupted")

// PatienceOfPeople is how many times as long a person waits for what was asked for as a
// service manager that ends a process.
const PatienceOfPeople = 8

// Grace is a context that ends d after ctx does, or [PatienceOfPeople] times as long where a
// person ended it: what was asked to end has so long for what is left to do.
func Grace(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(GraceOf(ctx, d), cancel)
		context.AfterFunc(late, func() { timer.Stop() })
	})
	return late, func() {
		stop()
		cancel()
	}
}

// GraceOf is d, or longer where a person ended ctx.
func GraceOf(ctx context.Context, d time.Duration) time.Duration {
	if errors.Is(context.Cause(ctx), ErrInterrupted) {
		return d * PatienceOfPeople
	}
	return d
}
