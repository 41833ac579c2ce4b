package observe

import (
	"math/rand/v2"
	"testing"
)

func TestEndpointFigures(t *testing.T) {
	e := Endpoint{Requests: 4, Segments: 2000, Retrans: 6, SlowCount: 2,
		Parts: map[string]PartStats{
			"server": {SumNS: 300}, "network": {SumNS: 100}, "ack_delay": {SumNS: 5000},
		},
		SlowParts: map[string]int64{"server": 30, "retrans": 90, "ack_delay": 1000},
	}
	for _, c := range []struct {
		name      string
		got, want float64
	}{
		{"time without ack_delay", e.TimeNS(), 400},
		{"mean", e.MeanNS(Server), 75},
		{"share", e.Share(Server), 0.75},
		{"share of nothing", e.Share(Stall), 0},
		{"slow", e.SlowNS(Retrans), 45},
		{"slow total", e.SlowTotalNS(), 60},
		{"slow share", e.SlowShare(Retrans), 0.75},
		{"loss", e.LossPermille(), 3},
		{"empty", (&Endpoint{}).SlowShare(Server) + (&Endpoint{}).LossPermille() + (&Endpoint{}).MeanNS(Server), 0},
	} {
		if c.got != c.want {
			t.Errorf("%s = %v, want %v", c.name, c.got, c.want)
		}
	}
}

// TestSharesAddUp: whatever the parts, their shares are a whole.
func TestSharesAddUp(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		e := Endpoint{Requests: 1 + r.Uint64N(1000), SlowCount: 1 + r.Uint64N(10), Parts: map[string]PartStats{}, SlowParts: map[string]int64{}}
		for p := range NumParts {
			e.Parts[p.String()] = PartStats{SumNS: r.Int64N(1 << 50)}
			e.SlowParts[p.String()] = r.Int64N(1 << 50)
		}
		var share, slow float64
		for _, p := range Parts() {
			share += e.Share(p)
			slow += e.SlowShare(p)
		}
		if share < 0.999999 || share > 1.000001 || slow < 0.999999 || slow > 1.000001 {
			t.Fatalf("shares add up to %v, of the slow ones to %v", share, slow)
		}
	}
}
