package export

import (
	"math"
	"slices"

	"github.com/slowray/slowray/internal/observe"
)

// A histogram of observe has 32 equal buckets in each power of two nanoseconds;
// a native histogram of Prometheus, and an exponential one of OpenTelemetry, has
// 2^schema buckets, each by the same factor wider, in each power of two seconds.
// Every bucket is moved as a whole to where its middle lies: no value is lost or
// counted twice, and none is shown in a place that is off by more than 1/64
// (1.6 %) of it.
const (
	// finest is the schema (OpenTelemetry: scale) of a histogram of few buckets:
	// each is 2.2 % wider than the one below.
	finest = 5
	// mostBuckets is how many there are at most, as OpenTelemetry has it. When
	// there would be more, every two are made one, until there are not.
	mostBuckets = 160
	// zeroThreshold is what observe.Histogram counts as 0, in seconds.
	zeroThreshold = 32e-9
)

// exponential is a histogram with buckets that grow by the same factor.
type exponential struct {
	schema  int32
	zero    uint64 // values of up to zeroThreshold
	count   uint64
	sum     float64 // s, of the middles of the buckets: within 1.6 %
	max     float64 // s, exactly
	indices []int32 // of the buckets in use, ascending; bucket i has (2^(i·2^-schema), 2^((i+1)·2^-schema)] s
	counts  []uint64
}

// convert fills to from h. The memory of to is used again.
func (to *exponential) convert(h *observe.Histogram) {
	*to = exponential{schema: finest, indices: to.indices[:0], counts: to.counts[:0], max: float64(h.Max()) / 1e9}
	for middle, n := range h.Buckets() {
		to.count += n
		if middle == 0 {
			to.zero += n
			continue
		}
		s := float64(middle) / 1e9
		to.sum += s * float64(n)
		index := int32(math.Ceil(math.Log2(s)*(1<<finest))) - 1
		if k := len(to.indices); k > 0 && to.indices[k-1] == index {
			to.counts[k-1] += n
			continue
		}
		to.indices = append(to.indices, index)
		to.counts = append(to.counts, n)
	}
	for len(to.indices) > mostBuckets || to.span() > 2*mostBuckets {
		to.coarser()
	}
}

// span is how many buckets there are from the first to the last in use.
func (to *exponential) span() int {
	if len(to.indices) == 0 {
		return 0
	}
	return int(to.indices[len(to.indices)-1]-to.indices[0]) + 1
}

// coarser makes every two buckets one.
func (to *exponential) coarser() {
	to.schema--
	k := 0
	for i, index := range to.indices {
		index >>= 1 // rounds down, also below 0
		if k > 0 && to.indices[k-1] == index {
			to.counts[k-1] += to.counts[i]
			continue
		}
		to.indices[k], to.counts[k] = index, to.counts[i]
		k++
	}
	to.indices, to.counts = to.indices[:k], to.counts[:k]
}

// Bounds of the classic buckets, in seconds, without the infinite one.
var (
	durationBounds = []float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}
	rttBounds      = []float64{0.0001, 0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1}
)

// classic counts in counts, for each bound, the values up to it. A value that is
// less than 1.6 % from a bound may be counted on its other side.
func classic(h *observe.Histogram, bounds []float64, counts []uint64) []uint64 {
	counts = slices.Grow(counts[:0], len(bounds))[:len(bounds)]
	clear(counts)
	at := 0
	for middle, n := range h.Buckets() {
		for at < len(bounds) && float64(middle)/1e9 > bounds[at] {
			at++
		}
		if at < len(bounds) {
			counts[at] += n
		}
	}
	for i := 1; i < len(counts); i++ {
		counts[i] += counts[i-1]
	}
	return counts
}
