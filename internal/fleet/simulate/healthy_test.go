package simulate_test

import (
	"os"
	"strconv"
	"testing"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/anomaly"
	"github.com/slowray/slowray/internal/fleet/simulate"
)

// TestHealthyDaysRaiseNoAlarm watches a healthy fleet for ten days, with weekends,
// deploys, scheduled jobs and pauses, in steps of 30 s so that it takes seconds.
// SLOWRAY_HEALTHY=hosts watches so many hosts second by second, which takes long.
func TestHealthyDaysRaiseNoAlarm(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const days, begin = 10, int64(1_790_000_000) / 86400 * 86400
	hosts, _ := strconv.Atoi(os.Getenv("SLOWRAY_HEALTHY"))
	seed, _ := strconv.Atoi(os.Getenv("SLOWRAY_SEED"))
	opt := simulate.Options{Hosts: max(hosts, 8), Endpoints: 4, Seed: uint64(seed) + 21}
	if hosts > 0 {
		opt.Endpoints = 8
	}
	f := simulate.New(opt)
	facts := hostsOf(f)
	m := anomaly.New(anomaly.Options{})
	alarms, judged := 0, 0
	judge := func(at int64) {
		j := m.Judge(at)
		judged += j.Judged
		if j.Changed && len(j.Anomalies) > 0 {
			alarms++
			t.Errorf("day %d, second %d: %s %+v", (at-begin)/86400, at%86400, m.Explain(&j, facts).Text, j.Anomalies[0])
		}
	}
	if hosts > 0 {
		for at := begin; at < begin+days*86400; at++ {
			f.Second(at, m.Add)
			judge(at)
			if (at+1-begin)%86400 == 0 {
				t.Logf("day %d over: %d endpoints, %d alarms", (at-begin)/86400, m.Endpoints(), alarms)
			}
		}
	} else {
		last := begin
		f.History(begin, begin+days*86400, 30, func(p *fleet.Point) {
			if p.At != last {
				judge(last)
				last = p.At
			}
			m.Add(p)
		})
	}
	t.Logf("%d hosts, %d endpoints, %d steps of endpoints judged, %d alarms", len(f.Hosts), m.Endpoints(), judged, alarms)
	if judged == 0 {
		t.Error("nothing was judged")
	}
}
