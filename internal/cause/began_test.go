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
		e.LongestUS = make([]uint32, len(e.Arrivals))
		for i := range e.Arrivals {
			e.Arrivals[i], e.LongestUS[i] = 9, 1000
			if n > 0 && float64(i)*arrivalSlot >= from {
				e.LongestUS[i] = 200_000
			}
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
	if at := began(2000, 6, nil); at == nil || *at != 6 {
		t.Errorf("began %v, want 6 s into the window: most requests are slow, but none was before", at)
	}
	slow := func(seconds ...float64) func(*observe.Observation) {
		return func(o *observe.Observation) {
			e := &o.Endpoints[0]
			for i := range e.LongestUS {
				e.LongestUS[i] = 1000
			}
			for _, at := range seconds {
				e.LongestUS[int(at/arrivalSlot)] = 200_000
			}
			e.Slowest = e.Slowest[:1] // the others came later
		}
	}
	if at := began(100, 2.1, slow(2, 5, 8)); at != nil {
		t.Errorf("began %v: what is slow once in 3 s was so before", at)
	}
	if at := began(100, 5, slow(5, 6, 7, 9)); at == nil || *at != 5 {
		t.Errorf("began %v, want 5: nothing was slow for so long later", at)
	}
	all := 500.0
	f.Impact = Impact{Of: "the requests' time", OfTime: true, Cost: &all}
	if at := began(100, 6, nil); at != nil {
		t.Errorf("began %v: 20 of 500 s are lost in what is slowest", at)
	}
	all = 30
	if at := began(100, 6, nil); at == nil || *at != 6 {
		t.Errorf("began %v, want 6: 20 of 30 s are lost in what is slowest", at)
	}
	f.Impact = Impact{}
	if at := began(2, 6, nil); at != nil {
		t.Errorf("began %v: two slow requests may be slow at any time", at)
	}
	if at := began(100, 6, func(o *observe.Observation) { o.Endpoints[0].LongestUS = nil }); at != nil {
		t.Errorf("began %v: of 100 slow requests only the 20 slowest are known", at)
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
		for i := range int64(fewInBursts) {
			o.Endpoints[0].Failed = append(o.Endpoints[0].Failed, observe.RequestSample{StartNS: start.UnixNano() + 4e9 + i*1e8, TotalNS: ms})
		}
	}
	f.Impact = Impact{Of: "failed requests"}
	if at := began(0, 6, failed); at == nil || *at != 4 {
		t.Errorf("began %v, want the first failed one, 4 s into the window", at)
	}
	if at := began(0, 6, func(o *observe.Observation) { failed(o); o.Endpoints[0].Errors = 90 }); at != nil {
		t.Errorf("began %v: of 90 failed requests the last is known", at)
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
