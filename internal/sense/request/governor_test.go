package request

import (
	"testing"
	"time"
)

func TestGovernor(t *testing.T) {
	const cpus = 2
	type second struct {
		cpu     time.Duration // of this process
		records uint64
	}
	busy := second{60 * time.Millisecond, 150_000} // 3 % of two CPUs
	calm := second{4 * time.Millisecond, 10_000}
	for _, c := range []struct {
		name    string
		budget  float64
		seconds []second
		want    uint32 // mask
	}{
		{"within the budget", 0.01, []second{calm, calm}, 0},
		{"over the budget", 0.01, []second{busy}, 1},
		{"far over the budget", 0.01, []second{busy, busy, busy}, 7},
		{"busy with other things than records", 0.01, []second{{60 * time.Millisecond, 50}, {60 * time.Millisecond, 50}}, 0},
		{"calm again", 0.01, []second{busy, calm, calm, calm}, 0},
		{"not calm for long enough", 0.01, []second{busy, calm, calm}, 1},
		{"no limit", -1, []second{busy, busy}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := time.Unix(1000, 0)
			g := governor{budget: c.budget, at: now}
			var cpu time.Duration
			var records uint64
			for _, s := range c.seconds {
				now = now.Add(time.Second)
				cpu += s.cpu
				records += s.records
				g.look(now, cpu, records, cpus)
			}
			if g.mask != c.want {
				t.Errorf("one of %d requests is recorded, want one of %d", g.mask+1, c.want+1)
			}
		})
	}
}
