package experiment

import (
	"math"
	"slices"
	"sync"
)

// The statistics are those of Wilcoxon, Mann and Whitney: they ask only which
// block is above which, so that one wild block among many moves nothing, and no
// distribution is assumed. All figures are exact, by counting, and the same each
// time.

// counted keeps what rankCounts was asked for: the same few sizes, again and again.
var counted sync.Map // [2]int → []float64

// rankCounts is in how many ways na values among na+nb can have each number U of
// pairs (a, b) with a above b.
func rankCounts(na, nb int) []float64 {
	if known, ok := counted.Load([2]int{na, nb}); ok {
		return known.([]float64)
	}
	// Of i values a and j values b the largest is either an a, above all b, or a b.
	table := make([][][]float64, na+1)
	for i := range table {
		table[i] = make([][]float64, nb+1)
		for j := range table[i] {
			counts := make([]float64, i*j+1)
			if i == 0 || j == 0 {
				counts[0] = 1
			} else {
				for u, n := range table[i-1][j] {
					counts[u+j] += n
				}
				for u, n := range table[i][j-1] {
					counts[u] += n
				}
			}
			table[i][j] = counts
		}
	}
	counted.Store([2]int{na, nb}, table[na][nb])
	return table[na][nb]
}

// RankP is the chance that values a would lie at least as far above values b as
// they do if nothing made them differ (one-sided). Equal values count against it.
func RankP(a, b []float64) float64 {
	if len(a) == 0 || len(b) == 0 {
		return 1
	}
	above := 0
	for _, x := range a {
		for _, y := range b {
			if x > y {
				above++
			}
		}
	}
	var tail, all float64
	for u, n := range rankCounts(len(a), len(b)) {
		all += n
		if u >= above {
			tail += n
		}
	}
	return tail / all
}

// confidence is what the interval of shift has at least, unless there are too few
// values for it.
const confidence = 0.95

// shift is by how much values a lie above values b: the median of all pairwise
// differences (Hodges and Lehmann), and the interval of all shifts that the rank
// test would not reject, with its exact confidence.
func shift(a, b []float64) (middle, low, high, sure float64) {
	if len(a) == 0 || len(b) == 0 {
		return 0, math.Inf(-1), math.Inf(1), 0
	}
	diffs := make([]float64, 0, len(a)*len(b))
	for _, x := range a {
		for _, y := range b {
			diffs = append(diffs, x-y)
		}
	}
	slices.Sort(diffs)
	counts := rankCounts(len(a), len(b))
	var all float64
	for _, n := range counts {
		all += n
	}
	skip, below := 0, counts[0]/all
	for tail := below; skip+1 < len(diffs)/2; skip++ {
		tail += counts[skip+1] / all
		if 2*tail > 1-confidence {
			break
		}
		below = tail
	}
	return Median(diffs), diffs[skip], diffs[len(diffs)-1-skip], 1 - 2*below
}

// Median is the middle of values; 0 of none.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(values))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// spread is the distance from the least to the greatest.
func spread(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	return slices.Max(values) - slices.Min(values)
}
