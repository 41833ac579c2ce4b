package export

import (
	"math"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"pgregory.net/rapid"

	"github.com/slowray/slowray/internal/observe"
)

// values are durations in ns over the whole range, small ones too.
func values() *rapid.Generator[[]int64] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) int64 {
		bits := rapid.IntRange(0, 48).Draw(t, "bits")
		return rapid.Int64Range(0, 1<<bits).Draw(t, "ns")
	}), 1, 400)
}

// upper is the upper bound of a bucket, in seconds.
func upper(schema, index int32) float64 {
	return math.Exp2(float64(index+1) * math.Exp2(-float64(schema)))
}

// TestConvertedHistogramIsExact: every value is counted once, in a bucket whose
// bounds are within 1.6 % of it, and the sum is within 1.6 %.
func TestConvertedHistogramIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h observe.Histogram
		var sum, zero float64
		list := values().Draw(t, "values")
		for _, v := range list {
			h.Add(v)
			sum += float64(v) / 1e9
		}
		var e exponential
		e.convert(&h)
		if e.count != uint64(len(list)) {
			t.Fatalf("%d values of %d", e.count, len(list))
		}
		total := e.zero
		for i, n := range e.counts {
			total += n
			if n == 0 || (i > 0 && e.indices[i] <= e.indices[i-1]) {
				t.Fatalf("bucket %d: %d values at %v", i, n, e.indices)
			}
		}
		if total != e.count || len(e.counts) > mostBuckets {
			t.Fatalf("%d values in %d buckets, not %d", total, len(e.counts), e.count)
		}
		for _, v := range list {
			if v < 1024 {
				zero += 32e-9 // as far as these may be off
			}
		}
		if math.Abs(e.sum-sum) > sum/64+zero+1e-9 {
			t.Fatalf("sum %g, want %g", e.sum, sum)
		}
		// One value alone shows where each goes.
		v := list[0]
		var alone observe.Histogram
		alone.Add(v)
		e.convert(&alone)
		if v < 32 {
			if e.zero != 1 {
				t.Fatalf("%d ns is not zero", v)
			}
			return
		}
		s, off := float64(v)/1e9, float64(v)/1e9/64+17e-9
		if lo, hi := upper(e.schema, e.indices[0]-1), upper(e.schema, e.indices[0]); s+off < lo || s-off > hi {
			t.Fatalf("%g s is in the bucket from %g to %g", s, lo, hi)
		}
	})
}

// unfold gives the count of each bucket of a native histogram by its index, as
// Prometheus reads it.
func unfold(h *dto.Histogram) map[int32]int64 {
	out := map[int32]int64{}
	var index int32
	var n int64
	at := 0
	for _, s := range h.PositiveSpan {
		index += s.GetOffset()
		for range s.GetLength() {
			n += h.PositiveDelta[at]
			at++
			if n != 0 {
				out[index] = n
			}
			index++
		}
	}
	if at != len(h.PositiveDelta) {
		panic("spans and deltas differ")
	}
	return out
}

// TestSpansSayTheBuckets: spans and deltas give the buckets back.
func TestSpansSayTheBuckets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h observe.Histogram
		for _, v := range values().Draw(t, "values") {
			h.AddN(v, rapid.Uint64Range(1, 1<<40).Draw(t, "n"))
		}
		var e exponential
		e.convert(&h)
		var s slot
		s.upTo = classic(&h, durationBounds, nil)
		got := e.expose(&s, durationBounds, nil)
		buckets := unfold(got)
		if len(buckets) != len(e.counts) {
			t.Fatalf("%d buckets, want %d", len(buckets), len(e.counts))
		}
		for i, index := range e.indices {
			if buckets[index+1] != int64(e.counts[i]) {
				t.Fatalf("bucket %d has %d, want %d", index, buckets[index+1], e.counts[i])
			}
		}
		last := uint64(0)
		for _, b := range got.Bucket {
			if b.GetCumulativeCount() < last || b.GetCumulativeCount() > got.GetSampleCount() {
				t.Fatalf("classic buckets do not add up: %v", got.Bucket)
			}
			last = b.GetCumulativeCount()
		}
	})
}

// TestClassicBuckets: values clear of a bound are on its right side.
func TestClassicBuckets(t *testing.T) {
	var h observe.Histogram
	for _, b := range durationBounds {
		h.Add(int64(b * 1e9 * 0.98))
		h.Add(int64(b * 1e9 * 1.02))
	}
	for i, n := range classic(&h, durationBounds, nil) {
		if want := uint64(2*i + 1); n != want {
			t.Errorf("up to %g s: %d, want %d", durationBounds[i], n, want)
		}
	}
}

// TestHistogramsOnlyGrow: with more values no bucket loses any, also when the
// buckets become coarser.
func TestHistogramsOnlyGrow(t *testing.T) {
	var h observe.Histogram
	var before, after exponential
	schemas := map[int32]bool{}
	for v := int64(1000); v < 1<<46; v += v/11 + 1 {
		before.convert(&h)
		h.Add(v)
		after.convert(&h)
		schemas[after.schema] = true
		if after.schema > before.schema || after.count != before.count+1 || after.sum < before.sum {
			t.Fatalf("schema %d → %d, count %d → %d, sum %g → %g", before.schema, after.schema, before.count, after.count, before.sum, after.sum)
		}
		for before.schema > after.schema {
			before.coarser()
		}
		have := map[int32]uint64{}
		for i, index := range after.indices {
			have[index] = after.counts[i]
		}
		for i, index := range before.indices {
			if have[index] < before.counts[i] {
				t.Fatalf("bucket %d lost values", index)
			}
		}
	}
	if len(schemas) < 2 {
		t.Error("the buckets were never made coarser: the test shows nothing")
	}
}
