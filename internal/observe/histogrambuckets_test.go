package observe

import "testing"

func TestNumberedBucketsMakeTheSameHistogram(t *testing.T) {
	var h, again Histogram
	for ns := int64(1); ns < 1<<50; ns = ns*5/4 + 1 {
		h.AddN(ns, uint64(ns%7+1))
	}
	for b, n := range h.Numbered() {
		if b < 0 || b >= NumBuckets {
			t.Fatalf("bucket %d of %d", b, NumBuckets)
		}
		again.AddNumbered(b, n)
	}
	again.RaiseMax(h.Max())
	for _, q := range []float64{0, 0.01, 0.5, 0.99, 1} {
		if h.Quantile(q) != again.Quantile(q) {
			t.Errorf("quantile %g: %d, then %d", q, h.Quantile(q), again.Quantile(q))
		}
	}
	again.AddNumbered(-1, 1)
	again.AddNumbered(1<<20, 1)
	if again.Count() != h.Count()+2 {
		t.Errorf("%d values, want %d", again.Count(), h.Count()+2)
	}
}
