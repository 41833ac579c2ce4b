package cause

import (
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
)

// TestBegan: a fault that begins within the window is reported from when it began.
func TestBegan(t *testing.T) {
	start := time.Date(2026, 11, 22, 12, 34, 54, 0, time.UTC)
	f := Finding{Subject: Subject{Kind: "process", PID: appPID, Port: appPort, NetNS: serverNS}}
	began := func(n int, from float64, inject func(*observe.Observation)) *float64 {
		o := healthy()
		o.Window.Start = start
		app(o, "app", 1, 0)
		with(o, appServed().add(900, ms, ms, 0, parts{observe.Server: ms}).add(n, ms, ms, 0, parts{observe.Server: 200 * ms}))
		e := &o.Endpoints[0]
		for i := range e.Slowest { // spread from there to the end of the window
			e.Slowest[i].StartNS = start.UnixNano() + int64((from+(10-from)*float64(len(e.Slowest)-1-i)/float64(len(e.Slowest)))*1e9)
		}
		for i := range e.Arrivals {
			e.Arrivals[i] = 9
		}
		if inject != nil {
			inject(o)
		}
		return NewView(o).Began(&f)
	}
	if at := began(100, 6, nil); at == nil || *at != 6 {
		t.Errorf("began %v, want 6 s into the window", at)
	}
	if at := began(100, 0.3, nil); at != nil {
		t.Errorf("began %v: what was slow from the beginning began before", at)
	}
	if at := began(100, 6, func(o *observe.Observation) {
		for i := range 60 {
			o.Endpoints[0].Arrivals[i] = 0
		}
	}); at != nil {
		t.Errorf("began %v: there were no requests before", at)
	}
	if at := began(0, 6, nil); at != nil {
		t.Errorf("began %v: none was slower than usual", at)
	}
	failed := func(o *observe.Observation) {
		o.Endpoints[0].Failed = []observe.RequestSample{{StartNS: start.UnixNano() + 4e9, TotalNS: ms}}
	}
	f.Impact = Impact{Of: "failed requests"}
	if at := began(0, 6, failed); at == nil || *at != 4 {
		t.Errorf("began %v, want the first failed one, 4 s into the window", at)
	}
	f.Impact = Impact{Of: "slow time", OfTime: true}
	if at := began(100, 6, failed); at == nil || *at != 6 {
		t.Errorf("began %v: one that fails at once is none of the slow ones", at)
	}
	f.firstNS = 5.5e9
	if at := began(100, 6, nil); at == nil || *at != 5.5 {
		t.Errorf("began %v, want the first look that saw threads wait, 5.5 s into the window", at)
	}
}
