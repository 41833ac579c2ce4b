package anomaly

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
)

// plain gives a second of some hosts of one service; change alters a point.
func plain(rng *rand.Rand, at int64, hosts int, change func(host int, p *fleet.Point), add func(*fleet.Point)) {
	for h := range hosts {
		n := 200 + rng.NormFloat64()*14
		mean := 10_000 * math.Exp(0.03*rng.NormFloat64())
		p := fleet.Point{
			Key: fleet.Key{Host: fmt.Sprintf("h%02d", h), Service: "app:8080", Side: observe.Served, Addr: "0.0.0.0", Port: 8080},
			At:  at, Seconds: 1, Requests: uint64(n), MinRTTUS: 200, Segments: uint64(3 * n),
		}
		p.TotalUS = int64(float64(p.Requests) * mean)
		p.PartsUS[observe.Server] = p.TotalUS * 9 / 10
		p.PartsUS[observe.Network] = p.TotalUS / 10
		p.SplitUS[observe.ServerCPU] = p.TotalUS * 9 / 10
		p.P50US, p.P99US = int64(mean*0.7), int64(mean*6*math.Exp(0.1*rng.NormFloat64()))
		if change != nil {
			change(h, &p)
		}
		add(&p)
	}
}

// blocked adds time that requests wait for the disk.
func blocked(p *fleet.Point, us int64) {
	added := int64(p.Requests) * us
	p.TotalUS += added
	p.PartsUS[observe.Server] += added
	p.SplitUS[observe.ServerDisk] += added
	p.P50US += us
	p.P99US += us
}

func TestASlowHostIsFoundInFiveSecondsAndEnds(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	m := New(Options{})
	at := int64(1_700_000_000)
	for range 900 {
		plain(rng, at, 30, nil, m.Add)
		if j := m.Judge(at); len(j.Anomalies) > 0 {
			t.Fatalf("false alarm: %+v", j.Anomalies)
		}
		at++
	}
	onset := at
	var found Anomaly
	for ; at < onset+5 && found.Host == ""; at++ {
		plain(rng, at, 30, func(h int, p *fleet.Point) {
			if h == 7 {
				blocked(p, 20_000)
			}
		}, m.Add)
		if j := m.Judge(at); len(j.Anomalies) > 0 {
			found = j.Anomalies[0]
			x := m.Explain(&j, Facts{})
			if len(x.Shared) != 1 || x.Shared[0].Component != (Component{Host, "h07"}) {
				t.Errorf("explained as %+v", x)
			}
		}
	}
	switch {
	case found.Host != "h07":
		t.Fatalf("found %+v", found)
	case found.Since < onset || found.Since > at, found.Part != SplitSignal(observe.ServerDisk), !(found.Effect > 0.5), !(found.P < 1e-6):
		t.Errorf("found %+v, onset %d", found, onset)
	}
	for end := at + 60; at < end; at++ {
		plain(rng, at, 30, nil, m.Add)
		if j := m.Judge(at); len(j.Anomalies) == 0 {
			return
		}
	}
	t.Error("the anomaly does not end")
}

func TestWhatDoesNotMatterIsNoAnomaly(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 2))
	m := New(Options{})
	at := int64(1_700_000_000)
	for second := range 1200 {
		plain(rng, at, 20, func(h int, p *fleet.Point) {
			if second > 900 && h == 3 {
				blocked(p, 500) // 5 %: as sure as can be
			}
		}, m.Add)
		if j := m.Judge(at); len(j.Anomalies) > 0 {
			t.Fatalf("second %d: %+v", second, j.Anomalies)
		}
		at++
	}
}

func TestChanceIsFishersTest(t *testing.T) {
	// 3 of 4 drawn are among the 4 marked of 8: (4·4 + 1)/70.
	if p := chance(3, 4, 4, 8); math.Abs(p-17./70) > 1e-9 {
		t.Errorf("chance = %v", p)
	}
	if p := chance(0, 4, 4, 8); p != 1 {
		t.Errorf("chance of 0 = %v", p)
	}
}

func TestTailTellsHowRareDeviationsAre(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var tl tail
	for range 2_000_000 {
		tl.add(rng.NormFloat64())
	}
	tl.fit()
	for _, z := range []float64{1, 2, 3, 4} {
		want := math.Erfc(z/math.Sqrt2) / 2
		got := math.Exp(-tl.rarity(z))
		if got < want*0.9 || got > want*30 {
			t.Errorf("P(>%v) = %v, is %v", z, got, want)
		}
	}
	if a, b := tl.rarity(20), tl.rarity(1000); !(b > a) {
		t.Errorf("not monotonous: %v %v", a, b)
	}
}

func TestDevianceIsNearANormalQuantile(t *testing.T) {
	// P(X ≥ 5) of a Poisson variable of mean 0.01 is 8e-13, 7.1 standard deviations.
	if z := deviance(5, 0.01); z < 6.5 || z > 7.5 {
		t.Errorf("deviance = %v", z)
	}
	if z := deviance(0, 2); math.Abs(z+2) > 1e-9 {
		t.Errorf("deviance = %v", z)
	}
}
