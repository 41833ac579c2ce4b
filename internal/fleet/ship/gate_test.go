package ship

import (
	"context"
	"testing"
	"time"
)

// A target that asks to be left alone is, whatever the other streams have success with.
func TestPauseIsAsLongAsTheTargetAsks(t *testing.T) {
	const after = 100 * time.Millisecond
	g := &gate{first: time.Millisecond, last: 2 * time.Millisecond}
	one, other := &backoff{gate: g}, &backoff{gate: g}
	ended := make(chan time.Duration, 1)
	began := time.Now()
	go func() {
		one.pause(t.Context(), false, after)
		ended <- time.Since(began)
	}()
	for waiting := true; waiting; {
		select {
		case took := <-ended:
			if took < after {
				t.Errorf("paused %s, asked for %s", took, after)
			}
			waiting = false
		default:
			other.success()
			time.Sleep(time.Millisecond)
		}
	}
	// The end does not wait for it.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	one.pause(ctx, false, time.Hour)
}
