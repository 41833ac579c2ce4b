package diagnose

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/cause"
)

// Bound is how long one judgement may take. What others run on a host decides how
// much there is to judge; a report that comes minutes late, and a CPU that is full
// until then, help nobody.
type Bound struct {
	// CPU time of the judging thread: on a host whose CPUs are full, which is when it
	// is asked for, the clock tells what others do.
	CPU time.Duration
	// Wall is for where the thread hardly runs.
	Wall time.Duration
}

var (
	// Live is for a window that was just watched. The largest host that is known,
	// with 4,096 called endpoints, takes half of it.
	Live = Bound{CPU: 1500 * time.Millisecond, Wall: 4 * time.Second}
	// Saved is for what is read from a file: somebody waits for it who can end it.
	Saved = Bound{CPU: 30 * time.Second, Wall: time.Minute}
)

// reserve is for putting in order what was found when judging was ended early.
var reserve = Bound{CPU: 100 * time.Millisecond, Wall: 250 * time.Millisecond}

// judging is a judgement that can be ended at any moment. It is for one goroutine.
type judging struct {
	ctx   context.Context
	bound Bound
	cpu   time.Duration // of the thread, when it began
	began time.Time
	ended string // why it was; empty while it goes on
}

// begin binds the calling goroutine to its thread until done.
func begin(ctx context.Context, b Bound) *judging {
	runtime.LockOSThread()
	return &judging{ctx: ctx, bound: b, cpu: threadCPU(), began: time.Now()}
}

func (*judging) done() { runtime.UnlockOSThread() }

// spare gives a judgement that was ended the time to put in order what it found.
func (j *judging) spare() *judging {
	if j.ended == "" {
		return j
	}
	return &judging{ctx: context.Background(), bound: reserve, cpu: threadCPU(), began: time.Now()}
}

// stop is the end of the context, or of the bound.
func (j *judging) stop() error {
	if j.ctx.Err() != nil {
		return errors.New("slowray was asked to end before this was judged")
	}
	if used := threadCPU() - j.cpu; used > j.bound.CPU {
		return fmt.Errorf("judging took more than %s of CPU time", j.bound.CPU)
	}
	if time.Since(j.began) > j.bound.Wall {
		return fmt.Errorf("judging took more than %s on the clock: the CPUs are full", j.bound.Wall)
	}
	return nil
}

// do takes a step, and says whether it was taken to its end.
func (j *judging) do(step func()) (whole bool) {
	if j.ended == "" {
		if err := j.stop(); err != nil {
			j.ended = err.Error()
		}
	}
	if j.ended != "" {
		return false
	}
	defer func() {
		switch p := recover().(type) {
		case nil:
		case cause.Stopped:
			j.ended = p.Err.Error()
		default:
			panic(p)
		}
	}()
	step()
	return true
}

// threadCPU is the CPU time of the calling thread.
func threadCPU() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0 // cannot fail with a valid pointer
	}
	return time.Duration(t.Nano())
}
