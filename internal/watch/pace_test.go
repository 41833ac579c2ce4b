package watch

import (
	"runtime"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
)

// TestPaceSlowsDownWhenDear: what costs more than its share is done less often.
func TestPaceSlowsDownWhenDear(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, c := range []struct {
		cost     time.Duration
		min, max int
	}{{0, 40, 41}, {4 * time.Millisecond, 5, 12}} {
		p := pace{every: 250 * time.Millisecond}
		runs := 0
		for at := time.Duration(0); at < 10*time.Second; at += tick {
			p.do(at, func() {
				runs++
				for begin := host.ThreadCPU(); host.ThreadCPU()-begin < c.cost; {
				}
			})
		}
		if runs < c.min || runs > c.max {
			t.Errorf("cost %s: %d runs in 10 s, want %d to %d", c.cost, runs, c.min, c.max)
		}
	}
}

// TestScheduleKeepsTheEnds: dear snapshots are left out in the middle, the
// first and the last never.
func TestScheduleKeepsTheEnds(t *testing.T) {
	for _, c := range []struct {
		cost time.Duration
		want int
	}{{0, 4}, {30 * time.Millisecond, 2}} {
		var s schedule
		var at []time.Duration
		for elapsed := time.Duration(0); elapsed < 10*time.Second; elapsed += tick {
			s.do(elapsed, 10*time.Second, func() {
				at = append(at, elapsed)
				time.Sleep(c.cost)
			})
		}
		if len(at) != c.want || s.done != c.want {
			t.Fatalf("cost %s: snapshots at %v, want %d", c.cost, at, c.want)
		}
		if at[0] > 2*time.Second || at[len(at)-1] < 8*time.Second {
			t.Errorf("cost %s: snapshots at %v, want the first and the last", c.cost, at)
		}
	}
}

func TestInContainer(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{{"0123456789ab", "0123", true}, {"0123456789ab", "0123456789abcdef", true}, {"0123456789ab", "1", false}, {"", "1", false}} {
		if (observe.Filter{Container: c.b}).InContainer(c.a) != c.want {
			t.Errorf("container %q, asked for %q: not %v", c.a, c.b, c.want)
		}
	}
}
