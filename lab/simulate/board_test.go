package simulate_test

import (
	"cmp"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/slowray/slowray/lab/simulate"
)

// TestBoard injects all scenarios in fleets of their own seeds and tells how many are
// explained right, and after how many seconds they are found. It takes half a minute of
// CPU for each fleet. It is run by
//
//	SLOWRAY_SEEDS   how many fleets; without it the test is skipped
//	SLOWRAY_FIRST   seed of the first one, 1 unless told otherwise
//	SLOWRAY_LEARN   how many seconds each is watched before, at least 1200
//	SLOWRAY_SIZE    factor of how hard all hits
//	SLOWRAY_ONLY    names of scenarios, with commas
func TestBoard(t *testing.T) {
	seeds, _ := strconv.Atoi(os.Getenv("SLOWRAY_SEEDS"))
	if seeds == 0 {
		t.Skip("SLOWRAY_SEEDS is not set")
	}
	size, _ := strconv.ParseFloat(os.Getenv("SLOWRAY_SIZE"), 64)
	seconds, _ := strconv.Atoi(os.Getenv("SLOWRAY_LEARN"))
	first, _ := strconv.Atoi(os.Getenv("SLOWRAY_FIRST"))
	only := strings.Split(os.Getenv("SLOWRAY_ONLY"), ",")
	trials := make([][]trial, seeds)
	t.Run("fleets", func(t *testing.T) {
		for n := range seeds {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				l := learn(t, uint64(max(first, 1)+n), 80, max(seconds, 1200), false)
				for _, a := range l.alarms {
					t.Logf("false alarm, seed %d, %d hosts: %.500s", l.seed, l.options.Hosts, a)
				}
				for i, s := range simulate.Scenarios {
					if only[0] != "" && !slices.Contains(only, s.Name) {
						continue
					}
					r := l.try(t, s.Name, uint64(i*1000+n+max(first, 1)), size)
					trials[n] = append(trials[n], r)
					if r.ok(s) && r.alarms == 0 {
						continue
					}
					t.Logf("%-20s seed %d hosts %d size %.2f: found %d named %d, alarms before %d, members %d; truth %s; %.400s", r.scenario, r.seed, r.hosts, r.size, r.found, r.named, r.alarms, r.members, r.truth, r.text)
					if r.found < 0 && !s.Control {
						t.Logf("%-20s seed %d: it adds %.0f %% to the time of an endpoint's requests at most", r.scenario, r.seed, 100*l.effect(&r, size))
					}
				}
			})
		}
	})
	var all []trial
	for _, list := range trials {
		all = append(all, list...)
	}
	total, of := 0, 0
	var delays []int
	for _, s := range simulate.Scenarios {
		right, quick, alarms, n := 0, 0, 0, 0
		for i := range all {
			r := &all[i]
			if r.scenario != s.Name {
				continue
			}
			n++
			if r.ok(s) {
				right++
			}
			if r.found > 0 && r.found <= 5 {
				quick++
			}
			alarms += r.alarms
			if !s.Control && !s.Slow {
				delays = append(delays, cmp.Or(max(r.found, 0), 1000))
			}
		}
		if n == 0 {
			continue
		}
		t.Logf("%-20s right %d/%d, within 5 s %d, false before %d", s.Name, right, n, quick, alarms)
		if !s.Control {
			total += right
			of += n
		}
	}
	t.Logf("faults right %d/%d", total, of)
	if slices.Sort(delays); len(delays) > 0 {
		q := func(share float64) int { return delays[min(int(share*float64(len(delays))), len(delays)-1)] }
		t.Logf("seconds from the onset to the first anomaly, of %d that do not come slowly (1000: never): median %d, 75 %% %d, 90 %% %d, 95 %% %d", len(delays), q(0.5), q(0.75), q(0.9), q(0.95))
	}
}

// ok says whether the trial ended as it should.
func (t *trial) ok(s simulate.Scenario) bool {
	if s.Control {
		return t.found < 0
	}
	return t.right
}
