package web

import (
	"testing"

	"github.com/slowray/slowray/internal/observe"
)

// TestSplitOfOneRequestIsNotThatOfAll: of a service with many requests hardly any is followed in a second.
func TestSplitOfOneRequestIsNotThatOfAll(t *testing.T) {
	const n = 200
	split := func(requests uint64, p observe.ServerPart) *observe.SplitStats {
		ns := int64(requests) * 1_000_000
		return &observe.SplitStats{Requests: requests, ServerNS: ns, Parts: map[string]observe.PartStats{p.String(): {SumNS: ns}}}
	}
	at := map[int]*observe.SplitStats{10: split(19, observe.ServerCall), 12: split(1, observe.ServerOther), 100: split(1, observe.ServerOther), 110: split(30, observe.ServerCPU), 150: split(1, observe.ServerOther)}
	s := newSeries(endpointKey{}, n)
	for i := range n {
		requests := uint64(400)
		if i == 150 {
			requests = 1 // all of them
		}
		s.add(i, &observe.Endpoint{Requests: requests, Recorded: requests, Parts: map[string]observe.PartStats{observe.Server.String(): {SumNS: int64(requests) * 40_000_000}}, Split: at[i]}, 1, 1, true)
	}
	for _, c := range []struct {
		at               int
		call, other, cpu float64 // us
	}{{10, 40000, 0, 0}, {12, 38000, 2000, 0}, {60, 38000, 2000, 0}, {71, 0, 0, 0}, {100, 0, 0, 0}, {110, 0, 0, 40000}, {150, 0, 40000, 0}} {
		for p, want := range map[observe.ServerPart]float64{observe.ServerCall: c.call, observe.ServerOther: c.other, observe.ServerCPU: c.cpu} {
			if got := s.Ledger[p.String()][c.at]; !(got == want || want == 0 && got != got) {
				t.Errorf("second %d: %s %v us, want %v", c.at, p, got, want)
			}
		}
	}
}
