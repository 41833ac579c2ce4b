package lab

import (
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/lab/incident"
)

// endpointOf has these parts, in milliseconds.
func endpointOf(loss float64, parts map[string]float64) *Endpoint {
	e := &Endpoint{LossPermille: loss, Ledger: map[string]struct {
		Mean float64 `json:"mean"`
	}{}}
	for name, ms := range parts {
		part := e.Ledger[name]
		part.Mean = 1000 * ms
		e.Ledger[name] = part
	}
	return e
}

func TestJudgePhases(t *testing.T) {
	ms := func(f float64) time.Duration { return time.Duration(f * 1e6) }
	phases := []incident.Phase{
		{Name: "clean"},
		{Name: "far", RTT: ms(17)},
		{Name: "lossy", ToClient: 0.01, ToDatabase: 0.01},
		{Name: "lossy in", FromClient: 0.01},
	}
	// As it was measured, about.
	good := func() []PhaseResult {
		lost := wires{"server→client": {Packets: 9000, Lost: 90}, "server→backend": {Packets: 20000, Lost: 200}}
		return []PhaseResult{
			{Rate: 5800, Latency: ms(2.8), Served: endpointOf(0, map[string]float64{"server": 2, "network": 0.1}), Database: endpointOf(0, map[string]float64{"server": 1})},
			{Rate: 880, Latency: ms(18.2), Served: endpointOf(0, map[string]float64{"server": 0.7, "network": 17.1, "ack_delay": 50}), Database: endpointOf(0, map[string]float64{"server": 0.3})},
			{Rate: 2300, Latency: ms(7), Wires: lost, Served: endpointOf(9, map[string]float64{"server": 4.7, "retrans": 1.7}),
				Database: endpointOf(11, map[string]float64{"server": 0.7, "retrans": 2})},
			// Of 10 ‰ the server knew of 4: the others took 1.2 ms each, in the mean.
			{Rate: 4000, Latency: ms(4.4), Wires: wires{"client→server": {Packets: 9000, Lost: 90}},
				Served: endpointOf(4, map[string]float64{"server": 2, "retrans": 0.8}), Database: endpointOf(0, map[string]float64{"server": 1})},
		}
	}
	for _, tt := range []struct {
		name   string
		change func([]PhaseResult)
		reason string
	}{
		{"as measured", func([]PhaseResult) {}, ""},
		{"delay counted to the server", func(r []PhaseResult) {
			r[1].Served = endpointOf(0, map[string]float64{"server": 17.8})
		}, "far: server 18 ms, clean 2 ms"},
		{"delay counted twice", func(r []PhaseResult) {
			r[1].Served = endpointOf(0, map[string]float64{"server": 0.7, "network": 34})
		}, "network 34 ms"},
		{"total of something else", func(r []PhaseResult) {
			r[0].Served = endpointOf(0, map[string]float64{"server": 1, "network": 0.1, "ack_delay": 2})
		}, "the clients saw 3 ms"},
		{"loss not seen", func(r []PhaseResult) { r[2].Served.LossPermille = 3 }, "the link lost 10.0 ‰"},
		{"loss on the way in not seen", func(r []PhaseResult) { r[3].Served.LossPermille = 0.5 }, "the link lost 10.0 ‰"},
		{"loss on the way in seen twice", func(r []PhaseResult) { r[3].Served.LossPermille = 18 }, "the link lost 10.0 ‰"},
		{"loss on the way in seen, its time not", func(r []PhaseResult) { r[3].Served.LossPermille = 9 }, "the clients saw 4 ms"},
		{"retransmission counted to the database", func(r []PhaseResult) {
			r[2].Database = endpointOf(11, map[string]float64{"server": 2.7})
		}, "without retransmission"},
		{"loss that costs nothing", func(r []PhaseResult) { r[2].Rate = 5900 }, "loss costs nothing"},
		{"bad answers", func(r []PhaseResult) { r[1].Bad = 3 }, "3 answers were not good"},
		{"no endpoint", func(r []PhaseResult) { r[1].Database = nil }, "no endpoint"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			results := good()
			tt.change(results)
			got := strings.Join(judgePhases(phases, results, true), "; ")
			if (got == "") != (tt.reason == "") || !strings.Contains(got, tt.reason) {
				t.Errorf("%q, want %q", got, tt.reason)
			}
		})
	}
}

func TestReportEndpoints(t *testing.T) {
	var r Report
	err := r.parse([]byte(`{"schema":"slowray.report/1","findings":[],"endpoints":[
		{"side":"served","netns":7,"addr":"10.0.0.1","port":80,"requests":3,"rps":1,"rtt_us":null,"min_rtt_us":1,
		 "ledger_us":{"server":{"mean":2000,"p99":9000,"share":0.9},"server.cpu":{"mean":500},"ack_delay":{"mean":7000}},"loss_permille":1.5},
		{"side":"served","netns":7,"port":80,"requests":2},{"side":"called","netns":7,"port":80,"requests":9}]}`))
	if err != nil {
		t.Fatal(err)
	}
	e := r.endpoint("served", 7, 80)
	if e == nil || e.Requests != 3 || e.Total() != 2*time.Millisecond || e.LossPermille != 1.5 {
		t.Errorf("%+v", e)
	}
	if r.endpoint("served", 8, 80) != nil {
		t.Error("an endpoint of another namespace")
	}
}
