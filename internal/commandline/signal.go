package commandline

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/slowray/slowray/internal/budget"
)

// sameSignal is how soon after a signal another one is the same: timeout(1) sends its own
// to the process and then to its group, and the front passes on what the terminal has sent
// to both, so that it comes twice.
const sameSignal = time.Second

// lastWord is how long a command that was asked to end may take to report what it has:
// with what the kernel takes to detach the programs of a process that ends, it is gone
// within a second of SIGTERM. Ctrl-C gives it longer, [budget.PatienceOfPeople]. No
// deadline of a reader sees to that: one call into the kernel, as for a file on a disk
// that hangs, may take any time.
const lastWord = 650 * time.Millisecond

// endAfter ends the process by leave some time after ctx, whatever it does then, unless ended was
// called. What was changed and not put back by then is put back by its watchdog, who
// outlives it.
func endAfter(ctx context.Context, d time.Duration, stderr io.Writer, leave func(status int)) (ended func()) {
	var done atomic.Bool
	context.AfterFunc(ctx, func() {
		time.AfterFunc(budget.GraceOf(ctx, d), func() {
			if done.Load() {
				return
			}
			said := make(chan struct{})
			go func() {
				fmt.Fprintln(stderr, "slowray: ended before it was done, as asked")
				close(said)
			}()
			select {
			case <-said:
			case <-time.After(50 * time.Millisecond): // nobody reads it
			}
			leave(ExitFailed)
		})
	})
	return func() { done.Store(true) }
}

// UntilSignal ends with the first Ctrl-C or SIGTERM, upon which a command still reports. One
// that comes later than same kills: then the default is back.
func UntilSignal(same time.Duration) context.Context {
	ctx, end := context.WithCancelCause(context.Background())
	told := make(chan os.Signal, 1)
	signal.Notify(told, os.Interrupt, syscall.SIGTERM)
	go func() {
		if <-told == os.Interrupt {
			end(budget.ErrInterrupted)
		} else {
			end(nil)
		}
		time.Sleep(same)
		signal.Stop(told)
	}()
	return ctx
}
