package ship

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

// gate is where the streams of a target wait after failures. When the target takes
// something from one of them, the others try at once.
type gate struct {
	first, last time.Duration

	mu   sync.Mutex
	open chan struct{} // closed when the target answered; nil when nobody waits
}

// backoff is the wait of one stream after failures.
type backoff struct {
	gate   *gate
	wait   time.Duration
	deaf   bool // it was called once, in vain: others' success is not its own
	failed bool
}

// pause waits after a failure: longer after each, with jitter, not longer than
// gate.last, and as long as that when the failure is one that does not pass by
// itself; never shorter than after, which is what the target asked for, up to mostAfter.
// It ends early when ctx does, or when another stream has success and the target asked for
// nothing.
func (b *backoff) pause(ctx context.Context, permanent bool, after time.Duration) {
	b.failed = true
	b.wait = min(max(2*b.wait, b.gate.first), b.gate.last)
	if permanent {
		b.wait = b.gate.last
	}
	var called <-chan struct{}
	if !b.deaf && !permanent && after <= 0 {
		called = b.gate.waitFor()
	}
	pause := b.wait/2 + rand.N(b.wait/2+1)
	if after > 0 {
		// All hosts may have heard the same: they do not come back at once.
		after = min(after, mostAfter)
		pause = max(pause, after+rand.N(after/8+1))
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-called:
		b.wait, b.deaf = 0, true
	}
}

// mostAfter is the longest pause that a target may ask for: what waits is on disk, and a
// mistake of a collector must not keep it there for long.
const mostAfter = 5 * time.Minute

// success ends the waiting, of this stream and of the others.
func (b *backoff) success() {
	b.wait, b.deaf, b.failed = 0, false, false
	b.gate.call()
}

func (g *gate) waitFor() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open == nil {
		g.open = make(chan struct{})
	}
	return g.open
}

func (g *gate) call() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open != nil {
		close(g.open)
		g.open = nil
	}
}

// oneLine is an error as one line of bounded length.
func oneLine(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	const most = 300
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
