package observe

import (
	"encoding/json"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// lastBound is where the last bucket begins to be open.
const lastBound = 1 << 49

// near says whether got is as close to a value as the histogram promises.
func near(got, value int64) bool {
	off := math.Abs(float64(got - value))
	if value < 1<<linearBits {
		return off < 32
	}
	return off <= float64(value)*0.016
}

func TestHistogramBuckets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.Int64().Draw(t, "a")
		b := rapid.Int64().Draw(t, "b")
		if (a < b && bucketOf(a) > bucketOf(b)) || (a > b && bucketOf(a) < bucketOf(b)) {
			t.Fatalf("buckets of %d and %d are not in order: %d, %d", a, b, bucketOf(a), bucketOf(b))
		}
		if k := bucketOf(a); k < 0 || k >= maxBucket {
			t.Fatalf("bucket of %d is %d", a, k)
		}
	})
	for b := range maxBucket {
		if got := bucketOf(bucketMiddle(b)); got != b {
			t.Errorf("the middle of bucket %d, %d, is in bucket %d", b, bucketMiddle(b), got)
		}
	}
	if got := bucketOf(lastBound - 1); got != maxBucket-1 {
		t.Errorf("bucket of %d is %d, not the last", lastBound-1, got)
	}
}

func durations() *rapid.Generator[int64] {
	return rapid.Custom(func(t *rapid.T) int64 {
		bits := rapid.IntRange(0, 48).Draw(t, "bits")
		return rapid.Int64Range(0, 1<<bits).Draw(t, "ns")
	})
}

func histogramOf(values []int64) *Histogram {
	h := new(Histogram)
	for _, v := range values {
		h.Add(v)
	}
	return h
}

func TestHistogramQuantile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(durations(), 1, 200).Draw(t, "values")
		q := rapid.Float64Range(0, 1).Draw(t, "q")
		h := histogramOf(values)
		slices.Sort(values)
		want := values[int(q*float64(len(values)-1)+0.5)]
		if got := h.Quantile(q); !near(got, want) {
			t.Fatalf("quantile %g is %d, want about %d", q, got, want)
		}
		if h.Max() != values[len(values)-1] || h.Count() != uint64(len(values)) {
			t.Fatalf("max %d, count %d of %v", h.Max(), h.Count(), values)
		}
		limit := rapid.SampledFrom(values).Draw(t, "limit")
		var above, surely uint64
		for _, v := range values {
			if v > limit {
				above++
				if bucketOf(v) > bucketOf(limit) {
					surely++
				}
			}
		}
		if got := h.Above(limit); got > above || got < surely {
			t.Fatalf("%d above %d, want %d to %d", got, limit, surely, above)
		}
	})
}

func TestHistogramExtremes(t *testing.T) {
	var h Histogram
	if h.Quantile(0.5) != 0 || h.Max() != 0 || h.Count() != 0 || h.Above(0) != 0 {
		t.Error("an empty histogram is not 0")
	}
	h.AddN(5, 0)
	if h.Max() != 0 || h.Count() != 0 {
		t.Error("no values changed something")
	}
	h.Add(-7)
	if h.Quantile(1) != 0 || h.Max() != 0 || h.Count() != 1 {
		t.Error("a negative value is not counted as 0")
	}
	h.AddN(math.MaxInt64, 3)
	for _, q := range []float64{0.5, 1, 7, math.Inf(1)} {
		if got := h.Quantile(q); got != math.MaxInt64 {
			t.Errorf("quantile %g is %d", q, got)
		}
	}
	for _, q := range []float64{0, -1, math.NaN(), math.Inf(-1)} {
		if got := h.Quantile(q); got != 0 {
			t.Errorf("quantile %g is %d", q, got)
		}
	}
	h.Reset()
	if h.Count() != 0 || h.Max() != 0 || h.Quantile(1) != 0 {
		t.Error("reset left something")
	}
}

func TestHistogramMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.SliceOfN(durations(), 0, 50).Draw(t, "a")
		b := rapid.SliceOfN(durations(), 0, 50).Draw(t, "b")
		merged := histogramOf(a)
		merged.Merge(histogramOf(b))
		other := histogramOf(b)
		other.Merge(histogramOf(a))
		same(t, merged, histogramOf(append(slices.Clone(a), b...)))
		same(t, merged, other)
	})
}

func TestHistogramRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := new(Histogram)
		for _, v := range rapid.SliceOfN(rapid.Int64(), 0, 50).Draw(t, "values") {
			h.AddN(v, rapid.Uint64Range(0, 1<<50).Draw(t, "n"))
		}
		data, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		var back Histogram
		if err := json.Unmarshal(data, &back); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		same(t, h, &back)
	})
}

// same compares what two histograms say, whatever room they have.
func same(t interface{ Fatalf(string, ...any) }, a, b *Histogram) {
	ja, _ := json.Marshal(a)
	jb, _ := json.Marshal(b)
	if d := cmp.Diff(string(ja), string(jb)); d != "" || a.n != b.n {
		t.Fatalf("histograms of %d and %d values differ: %s", a.n, b.n, d)
	}
	for q := range 11 {
		if x, y := a.Quantile(float64(q)/10), b.Quantile(float64(q)/10); x != y {
			t.Fatalf("quantile %d0 %%: %d, %d", q, x, y)
		}
	}
}

func TestHistogramHostileJSON(t *testing.T) {
	for _, text := range []string{
		`{"max":1,"counts":[[1280,1]]}`,
		`{"max":1,"counts":[[18446744073709551615,1]]}`,
		`{"max":1,"counts":[[-1,1]]}`,
		`{"max":1,"counts":[[0,18446744073709551615],[0,1]]}`,
		`{"max":40,"counts":[[1,9223372036854775808],[1,9223372036854775808]]}`,
		`{"max":-1,"counts":[[0,1]]}`,
		`{"max":5000,"counts":[]}`,
		`{"max":5000,"counts":[[1,1]]}`,
		`{"max":5,"counts":[[1000,1]]}`,
		`{"max":1e300,"counts":[]}`,
		`{"max":"1","counts":[]}`,
		`{"max":1,"counts":[[1]]`,
		`[]`,
	} {
		h := Histogram{low: 1, n: 1}
		if err := json.Unmarshal([]byte(text), &h); err == nil {
			t.Errorf("%s was accepted", text)
		}
		if h.n != 1 {
			t.Errorf("%s: changed in spite of the error", text)
		}
	}
}

func FuzzHistogramUnmarshal(f *testing.F) {
	f.Add([]byte(`{"max":0,"counts":[]}`))
	f.Add([]byte(`{"max":70000,"counts":[[0,3],[33,1],[195,2]]}`))
	f.Add([]byte(`{"max":9223372036854775807,"counts":[[1279,18446744073709551615]]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var h Histogram
		if json.Unmarshal(data, &h) != nil {
			return
		}
		if len(h.counts) > maxBucket {
			t.Fatalf("%d buckets", len(h.counts))
		}
		for _, q := range []float64{0, 0.5, 0.99, 1} {
			if v := h.Quantile(q); v < 0 || v > h.Max() {
				t.Fatalf("quantile %g is %d, maximum %d", q, v, h.Max())
			}
		}
		again, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		var back Histogram
		if err := json.Unmarshal(again, &back); err != nil {
			t.Fatalf("%s: %v", again, err)
		}
		same(t, &h, &back)
	})
}

func BenchmarkHistogramAdd(b *testing.B) {
	var h Histogram
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		h.Add(int64(i&1023) * 1000)
	}
}

// What Buckets tells is enough to make the histogram again, also when the maximum
// is only known to the microsecond.
func TestHistogramFromItsBuckets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := histogramOf(rapid.SliceOf(durations()).Draw(t, "values"))
		var again, rounded Histogram
		for ns, n := range h.Buckets() {
			again.AddBucket(ns, n)
			rounded.AddBucket(ns, n)
		}
		again.RaiseMax(h.Max())
		rounded.RaiseMax((h.Max() + 500) / 1000 * 1000)
		same(t, &again, h)
		// Half a microsecond off, and what a bucket is wide.
		if off := rounded.Max() - h.Max(); rounded.Count() != h.Count() || !near(rounded.Max(), h.Max()) && max(off, -off) > 500 {
			t.Fatalf("made again with a rounded maximum: %d of %d, maximum %d, want %d", rounded.Count(), h.Count(), rounded.Max(), h.Max())
		}
	})
}
