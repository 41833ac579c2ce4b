package experiment

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestRankCounts holds the counts against all arrangements.
func TestRankCounts(t *testing.T) {
	for na := range 5 {
		for nb := range 5 {
			want := make([]float64, na*nb+1)
			for mask := range 1 << (na + nb) { // bit set: an a, from the least on
				as, above, bs := 0, 0, 0
				for i := range na + nb {
					if mask>>i&1 == 1 {
						as++
						above += bs
					} else {
						bs++
					}
				}
				if as == na {
					want[above]++
				}
			}
			if got := rankCounts(na, nb); !slices.Equal(got, want) {
				t.Errorf("%d, %d: %v, want %v", na, nb, got, want)
			}
		}
	}
}

func TestRankP(t *testing.T) {
	low, high := []float64{1, 2, 3, 4, 5, 6}, []float64{7, 8, 9}
	if p := RankP(high, low); math.Abs(p-1.0/84) > 1e-12 {
		t.Errorf("all above: %v, want 1/84", p)
	}
	if p := RankP(low, high); p != 1 {
		t.Errorf("all below: %v", p)
	}
	if p := RankP([]float64{1, 1, 1}, []float64{1, 1, 1}); p != 1 {
		t.Errorf("all equal: %v", p)
	}
}

// TestShift holds the interval to its promise: it has the true shift in it as
// often as it says, whatever the distribution.
func TestShift(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	const times, shifted = 4000, 0.7
	in, sure := 0, 0.0
	for range times {
		a, b := make([]float64, 6), make([]float64, 9)
		for i := range a {
			a[i] = rnd.ExpFloat64() + shifted
		}
		for i := range b {
			b[i] = rnd.ExpFloat64()
		}
		middle, low, high, c := shift(a, b)
		if low > middle || middle > high {
			t.Fatalf("%v not in %v to %v", middle, low, high)
		}
		if low <= shifted && shifted <= high {
			in++
		}
		sure = c
	}
	if got := float64(in) / times; got < sure-0.015 || sure < 0.95 || sure > 0.99 {
		t.Errorf("%v of the intervals hold the shift, promised %v", got, sure)
	}
	if _, low, high, sure := shift([]float64{7, 8, 9}, []float64{1, 2, 3, 4, 5, 6}); low != 2 || high != 7 || math.Abs(sure-(1-4.0/84)) > 1e-9 {
		t.Errorf("%v to %v with %v", low, high, sure)
	}
}

func TestMedian(t *testing.T) {
	for want, of := range map[float64][]float64{0: nil, 3: {3}, 2: {3, 1}, 5: {9, 5, 1}} {
		if got := Median(of); got != want {
			t.Errorf("%v: %v", of, got)
		}
	}
}
