package simulate_test

import (
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/anomaly"
	"github.com/slowray/slowray/lab/simulate"
)

// healthyDays are watched, from a Monday on (2026-09-21).
const healthyDays, healthyFrom = 10, int64(1_790_000_000) / 86400 * 86400

// watch is a healthy fleet that is judged; each alarm is an error.
type watch struct {
	t              *testing.T
	f              *simulate.Fleet
	m              *anomaly.Model
	facts          anomaly.Facts
	alarms, judged int
}

func newWatch(t *testing.T, o simulate.Options) *watch {
	f := simulate.New(o)
	return &watch{t: t, f: f, m: anomaly.New(anomaly.Options{}), facts: hostsOf(f)}
}

func (w *watch) judge(at int64) {
	j := w.m.Judge(at)
	w.judged += j.Judged
	if j.Changed && len(j.Anomalies) > 0 {
		w.alarms++
		w.t.Errorf("day %d, second %d: %s %+v", (at-healthyFrom)/86400, at%86400, w.m.Explain(&j, w.facts).Text, j.Anomalies[0])
	}
}

func (w *watch) end() {
	w.t.Logf("%d hosts, %d endpoints, %d steps of endpoints judged, %d alarms", len(w.f.Hosts), w.m.Endpoints(), w.judged, w.alarms)
	if w.judged == 0 {
		w.t.Error("nothing was judged")
	}
}

// TestHealthyDaysRaiseNoAlarm watches a healthy fleet for ten days, with weekends,
// deploys, scheduled jobs and pauses, in steps of 30 s so that it takes seconds.
func TestHealthyDaysRaiseNoAlarm(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	w := newWatch(t, simulate.Options{Hosts: 8, Endpoints: 4, Seed: 21})
	last := healthyFrom
	w.f.History(last, last+healthyDays*86400, 30, func(p *fleet.Point) {
		if p.At != last {
			w.judge(last)
			last = p.At
		}
		w.m.Add(p)
	})
	w.end()
}

// TestHealthySecondsRaiseNoAlarm does so second by second: 864,000 judgements of all
// endpoints. That takes about 25 CPU seconds a day of 20 hosts, and it is skipped but for
//
//	SLOWRAY_HEALTHY   so many hosts, with about eight endpoints each
//	SLOWRAY_SEED      another fleet
func TestHealthySecondsRaiseNoAlarm(t *testing.T) {
	hosts, _ := strconv.Atoi(os.Getenv("SLOWRAY_HEALTHY"))
	if hosts <= 0 {
		t.Skip("SLOWRAY_HEALTHY is not set")
	}
	seed, _ := strconv.Atoi(os.Getenv("SLOWRAY_SEED"))
	w := newWatch(t, simulate.Options{Hosts: hosts, Endpoints: 8, Seed: uint64(seed)})
	for at := healthyFrom; at < healthyFrom+healthyDays*86400; at++ {
		w.f.Second(at, w.m.Add)
		w.judge(at)
		if (at+1-healthyFrom)%86400 == 0 {
			t.Logf("day %d over: %d endpoints, %d alarms, %s of CPU", (at-healthyFrom)/86400, w.m.Endpoints(), w.alarms, cpu())
		}
	}
	w.end()
}

// cpu is what the process has computed until now.
func cpu() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Round(time.Second)
}
