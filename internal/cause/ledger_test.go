package cause

import (
	"testing"

	"github.com/slowray/slowray/internal/observe"
)

// TestIdleWhileRequestsAreUnderWay: the CPUs are full with quick requests, and idle while few wait.
func TestIdleWhileRequestsAreUnderWay(t *testing.T) {
	o := healthy()
	o.Use.Course = []observe.CPUSpan{{Seconds: 5, Busy: 10}, {Seconds: 10, Idle: 10}}
	with(o, appServed().add(100, ms, ms, 0, parts{observe.Server: ms}))
	e := &o.Endpoints[0]
	e.LongestUS = make([]uint32, len(e.Arrivals))
	for i := range e.Arrivals {
		e.Arrivals[i], e.LongestUS[i] = 100, 1000
		if i >= 50 {
			e.Arrivals[i], e.LongestUS[i] = 0, 0
		}
	}
	e.Arrivals[55], e.LongestUS[55] = 10, 4_000_000
	idle := func() float64 {
		v := NewView(o)
		share, ok := v.idleWhile(v.ledgers[0])
		if !ok {
			t.Fatal("no request was under way")
		}
		return share
	}
	if share := idle(); share < 0.8 {
		t.Errorf("%.2f idle, want what they were in the 4 s in which requests waited", share)
	}
	e.LongestUS = nil
	if share := idle(); share > 0.1 {
		t.Errorf("%.2f idle, want what they were as requests came", share)
	}
}
