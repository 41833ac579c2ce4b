package simulate_test

import (
	"os"
	"strconv"
	"testing"

	"github.com/slowray/slowray/internal/fleet/simulate"
)

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
