package simulate_test

import (
	"testing"

	"github.com/slowray/slowray/lab/simulate"
)

// TestScenariosAreExplained injects each scenario in a fleet that was watched for an
// hour. What is injected, and how hard it hits, is drawn from a seed.
func TestScenariosAreExplained(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	l := learn(t, 3, 50, 3600, false)
	for _, a := range l.alarms {
		t.Errorf("false alarm while learning: %.300s", a)
	}
	injected, right, quick, controls := 0, 0, 0, 0
	for i, s := range simulate.Scenarios {
		if s.Slow || s.Days > 0 || s.Balanced {
			continue // these take long: TestBoard
		}
		r := l.try(t, s.Name, uint64(i+1), 1)
		if s.Control {
			controls++
			if r.found >= 0 {
				t.Errorf("%s: false alarm: %.300s", s.Name, r.text)
			}
			continue
		}
		injected++
		if r.right {
			right++
		}
		if r.found > 0 && r.found <= 5 {
			quick++
		}
		t.Logf("%-20s size %.2f: found after %d s, named after %d s, right %v; injected %s; %.200s", s.Name, r.size, r.found, r.named, r.right, r.truth, r.text)
	}
	t.Logf("%d hosts: %d of %d right, %d within 5 s, %d controls", l.options.Hosts, right, injected, quick, controls)
	if injected < 20 || 20*right < 19*injected {
		t.Errorf("%d of %d are right", right, injected)
	}
}
