package config

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/slowray/slowray/internal/prove/change"
	"github.com/slowray/slowray/internal/sense/app/gunicorn"
	"github.com/slowray/slowray/internal/shell"
	"golang.org/x/sys/unix"
)

// gunicornProduct: the arbiter of gunicorn starts one worker more at SIGTTIN, and ends
// the oldest one, once its request is done, at SIGTTOU (gunicorn/arbiter.py). Nothing is
// read anew for that, unlike at SIGHUP, which loads the application too.
var gunicornProduct = product{name: "gunicorn", comms: []string{"gunicorn", "gunicorn: maste", "python", "python3"}, ask: askGunicorn,
	settings: regexp.MustCompile(`^workers$`), same: func(a, b string) bool { return a == b },
	command: func(a *access, _, value string) shell.Command {
		now, _ := (gunicornTalk{a.pid}).count()
		want, _ := strconv.Atoi(value)
		name, n := "TTIN", want-now
		if n < 0 {
			name, n = "TTOU", -n
		}
		return shell.Line("kill -%s %s", name, a.pid).Note("%s times, a moment apart", n)
	}}

// gunicornTalk is the process of an arbiter.
type gunicornTalk struct{ pid int }

func askGunicorn(_ context.Context, a *access) (asker, error) {
	t := gunicornTalk{a.pid}
	_, err := t.count()
	return t, err
}

func (gunicornTalk) close() {}

// count is the workers that there are.
func (t gunicornTalk) count() (int, error) {
	for _, in := range gunicorn.Discover(processOf(t.pid), "/proc") {
		if n := len(in.Children()); in.PID == t.pid && n > 0 {
			return n, nil
		}
	}
	return 0, errors.New("it is no arbiter of gunicorn with workers")
}

// get waits for a worker that is just being replaced.
func (t gunicornTalk) get(ctx context.Context, _ string) (string, error) {
	n, err := t.count()
	for err == nil {
		was := n
		if err = sleep(ctx, signalEvery); err != nil {
			break
		}
		if n, err = t.count(); n == was {
			break
		}
	}
	return strconv.Itoa(n), err
}

// signalEvery is the time between two signals: the arbiter keeps five at most that it
// has not come round to, and the kernel one of a kind.
const signalEvery = 50 * time.Millisecond

func (t gunicornTalk) set(ctx context.Context, _, value string) error {
	want, err := strconv.Atoi(value)
	if err != nil || want < 1 {
		return fmt.Errorf("%q is no number of workers", value)
	}
	now, err := t.count()
	if err != nil {
		return err
	}
	sig := unix.SIGTTIN
	if want < now {
		sig = unix.SIGTTOU
	}
	p, err := change.ProcessOf(t.pid)
	if err != nil {
		return err
	}
	for range max(want-now, now-want) {
		if err := p.Signal(sig); err != nil {
			return err
		}
		if err := sleep(ctx, signalEvery); err != nil {
			return err
		}
	}
	// A worker that is to end finishes its request first.
	for now != want {
		if err := sleep(ctx, pollEvery); err != nil {
			return fmt.Errorf("it has %d workers, not %d: %w", now, want, err)
		}
		if now, err = t.count(); err != nil {
			return err
		}
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
