package cause

import (
	"math"
	"testing"

	"github.com/slowray/slowray/internal/observe"
)

// TestPrice: what a finding cost is reported for the requests that it is about.
func TestPrice(t *testing.T) {
	failing := fpmServed().add(200, ms, ms, 0, parts{observe.Server: 20 * ms})
	inject := quiet(
		nginxServed().add(1000, ms, ms, 0, parts{observe.Server: 40 * ms}), // 40 s
		fpmCalled().add(500, ms, ms, 0, parts{observe.Server: 30 * ms}),    // 15 s
		failing, // 4 s
		servedAt(7000, "10.9.8.1", hog, "stray").add(100, ms, ms, 0, parts{observe.Server: ms})) // 0.1 s
	o := healthy()
	inject(o)
	for i := range o.Endpoints {
		if o.Endpoints[i].Port == fpmPort && o.Endpoints[i].Side == "served" {
			o.Endpoints[i].Errors = 30
		}
	}
	v := NewView(o)
	lost := 87.0
	for _, c := range []struct {
		name string
		f    Finding
		want float64 // s; -1: not known
	}{
		{"of a process", Finding{Weight: 0.5, Subject: Subject{Kind: "process", PID: nginxWorker1}, Impact: Impact{Of: "slow time", OfTime: true}}, 20},
		{"of a stray process", Finding{Weight: 1, Subject: Subject{Kind: "destination", PID: hog, Port: 1}, Impact: Impact{Of: "slow time", OfTime: true}}, 0.1},
		{"slow ones, of a service that fails too", Finding{Weight: 0.5, Subject: Subject{Kind: "listener", NetNS: serverNS, PID: fpmMaster, Port: fpmPort}, Impact: Impact{Of: "the requests' time", OfTime: true}}, 2},
		{"failed ones", Finding{Weight: 0.5, Subject: Subject{Kind: "listener", NetNS: serverNS, PID: fpmMaster, Port: fpmPort}, Impact: Impact{Of: "failed requests"}}, 17},
		{"of the machine: each request once", Finding{Weight: 0.5, layer: LayerMachine, Subject: Subject{Kind: "process", PID: 77}, Impact: Impact{Of: "slow time", OfTime: true}}, 20.05},
		{"what the check counted", Finding{Weight: 1, lost: &lost, Subject: Subject{PID: hog}}, 87},
		{"who stands outside", Finding{Weight: 1, uncounted: true, Subject: Subject{PID: nginxMaster}}, -1},
		{"of nobody's requests", Finding{Weight: 1, Subject: Subject{Kind: "process", NetNS: clientNS, PID: 555, Port: 9}}, -1},
	} {
		v.Price(&c.f)
		got := -1.0
		if c.f.Impact.Cost != nil {
			got = *c.f.Impact.Cost
		}
		if math.Abs(got-c.want) > 0.5*c.want*0.1+1e-9 && c.want >= 0 || c.want < 0 && got != -1 {
			t.Errorf("%s: %g s, want %g", c.name, got, c.want)
		}
	}
}

// TestDroppedAttemptsArePriced: a queue that is too short cost its clients a
// second for each attempt, whatever share of a quiet service that is.
func TestDroppedAttemptsArePriced(t *testing.T) {
	price := func(inject func(*observe.Observation)) *float64 {
		o := healthy()
		inject(o)
		v := NewView(o)
		r := acceptQueueOverflow.Judge(v)
		if len(r.Findings) != 1 {
			t.Fatalf("%d findings: %s", len(r.Findings), r.RuledOut)
		}
		v.Price(&r.Findings[0])
		return r.Findings[0].Impact.Cost
	}
	one := func(o *observe.Observation) {
		ns(o).Counters["TcpExt.ListenOverflows"] = 3
		web(o).Limit, web(o).QueuePeak, web(o).Drops, web(o).Opened, web(o).Clients = 5, 6, 3, 42, 0
	}
	if cost := price(one); cost == nil || *cost != 3 {
		t.Errorf("three dropped attempts cost %v", cost)
	}
	if cost := price(func(o *observe.Observation) {
		one(o)
		process(o, nginxMaster).EndedIn = true
	}); cost != nil {
		t.Errorf("of a server that is gone %g s are known to be lost", *cost)
	}
}
