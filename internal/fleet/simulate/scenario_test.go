package simulate_test

import (
	"os"
	"strconv"
	"testing"

	"github.com/slowray/slowray/internal/fleet/simulate"
)

// TestScenariosAreExplained plants each scenario in a fleet that was watched for an
// hour. What is planted, and how hard it hits, is drawn from a seed.
func TestScenariosAreExplained(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	l := learn(t, 3, 50, 3600)
	for _, a := range l.alarms {
		t.Errorf("false alarm while learning: %.300s", a)
	}
	planted, right, quick, controls := 0, 0, 0, 0
	for i, s := range simulate.Scenarios {
		if s.Slow || s.Name == "daily-peak" {
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
		planted++
		if r.right {
			right++
		}
		if r.found > 0 && r.found <= 5 {
			quick++
		}
		t.Logf("%-20s size %.2f: found after %d s, named after %d s, right %v; planted %s; %.200s", s.Name, r.size, r.found, r.named, r.right, r.truth, r.text)
	}
	t.Logf("%d hosts: %d of %d right, %d within 5 s, %d controls", l.options.Hosts, right, planted, quick, controls)
	if planted < 20 || 20*right < 19*planted {
		t.Errorf("%d of %d are right", right, planted)
	}
}

// TestBoard runs all scenarios; SLOWRAY_SEEDS=n runs each so often.
func TestBoard(t *testing.T) {
	seeds, _ := strconv.Atoi(os.Getenv("SLOWRAY_SEEDS"))
	if seeds == 0 {
		t.Skip("SLOWRAY_SEEDS is not set")
	}
	size, _ := strconv.ParseFloat(os.Getenv("SLOWRAY_SIZE"), 64)
	seconds, _ := strconv.Atoi(os.Getenv("SLOWRAY_LEARN"))
	var fleets []*learned
	for seed := range uint64(seeds) {
		l := learn(t, seed+1, 80, max(seconds, 1200))
		for _, a := range l.alarms {
			t.Logf("false alarm, seed %d, %d hosts: %.500s", seed+1, l.options.Hosts, a)
		}
		fleets = append(fleets, l)
	}
	for i, s := range simulate.Scenarios {
		if only := os.Getenv("SLOWRAY_ONLY"); only != "" && only != s.Name {
			continue
		}
		right, quick, alarms := 0, 0, 0
		for n, l := range fleets {
			r := l.try(t, s.Name, uint64(i*1000+n+1), size)
			ok := r.right
			if s.Control {
				ok = r.found < 0
			}
			if ok {
				right++
			}
			if r.found > 0 && r.found <= 5 {
				quick++
			}
			alarms += r.alarms
			if !ok || r.alarms > 0 {
				t.Logf("%-20s seed %d hosts %d size %.2f: found %d named %d, alarms before %d, members %d; truth %s; %.400s", r.scenario, r.seed, r.hosts, r.size, r.found, r.named, r.alarms, r.members, r.truth, r.text)
			}
		}
		t.Logf("%-20s right %d/%d, within 5 s %d, false before %d", s.Name, right, seeds, quick, alarms)
	}
}
