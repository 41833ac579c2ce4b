package observe

import "testing"

// TestHistogramOf: a histogram from counts by bucket is that of the values.
func TestHistogramOf(t *testing.T) {
	var want Histogram
	counts := make([]uint64, Buckets)
	for _, ns := range []int64{0, 31, 32, 1000, 1023, 1024, 5_000_000, 5_000_001, 1 << 47, 1 << 60} {
		want.Add(ns)
		counts[bucketOf(ns)]++
	}
	got := HistogramOf(counts, 1<<60)
	if got.Count() != want.Count() || got.Max() != want.Max() {
		t.Errorf("%d values up to %d, want %d up to %d", got.Count(), got.Max(), want.Count(), want.Max())
	}
	for _, q := range []float64{0, 0.1, 0.5, 0.9, 1} {
		if g, w := got.Quantile(q), want.Quantile(q); g != w {
			t.Errorf("quantile %v: %d, want %d", q, g, w)
		}
	}
	var sum uint64
	last := int64(-1)
	for _, b := range got.Bars() {
		if b.FromNS <= last || b.ToNS <= b.FromNS {
			t.Errorf("bar %+v after one that begins at %d", b, last)
		}
		last = b.FromNS
		sum += b.Count
	}
	if sum != got.Count() {
		t.Errorf("the bars hold %d values, want %d", sum, got.Count())
	}
}
