package observe

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/bits"
)

// Histogram counts durations in buckets whose width grows with the value:
// every power of two is cut into 32 equal buckets, so a quantile is off by at
// most 1/64 of its value (1.6 %). Two histograms merge by adding their counts.
// The zero value is empty and ready.
//
// Values are nanoseconds from 0 to about 6.5 days; larger ones count in the
// last bucket. Values below 1,024 ns share buckets of 32 ns, and those below 32
// count as 0: most parts of most requests are.
type Histogram struct {
	low    uint64   // values of bucket 0
	counts []uint64 // of bucket base and the following ones, in whole powers of two
	base   int      // a multiple of 32
	n      uint64
	max    int64
}

const (
	subBits    = 5 // 32 buckets for each power of two
	linearBits = 10
	maxBucket  = (49 - linearBits + 1) << subBits
)

// bucketOf is the bucket a value falls into. It is monotonous.
func bucketOf(ns int64) int {
	if ns < 1<<linearBits {
		return int(max(ns, 0) >> (linearBits - subBits))
	}
	e := bits.Len64(uint64(ns)) - 1 // ≥ linearBits
	sub := int(ns>>(e-subBits)) & (1<<subBits - 1)
	return min((e-linearBits+1)<<subBits+sub, maxBucket-1)
}

// bucketMiddle is the value that stands for a bucket.
func bucketMiddle(b int) int64 {
	const width = 1 << (linearBits - subBits)
	if b == 0 {
		return 0
	}
	if b < 1<<subBits {
		return int64(b)*width + width/2
	}
	e := b>>subBits + linearBits - 1
	low := int64(1)<<e + int64(b&(1<<subBits-1))<<(e-subBits)
	return low + int64(1)<<(e-subBits)/2
}

// Add counts one value.
func (h *Histogram) Add(ns int64) { h.AddN(ns, 1) }

// AddN counts a value that stands for n of them.
func (h *Histogram) AddN(ns int64, n uint64) {
	if n == 0 {
		return
	}
	h.n += n
	h.max = max(h.max, ns)
	b := bucketOf(ns)
	if b == 0 {
		h.low += n
		return
	}
	i := b - h.base
	if uint(i) >= uint(len(h.counts)) {
		h.grow(b, b)
		i = b - h.base
	}
	h.counts[i] += n
}

// grow makes room for the buckets from one to another, in whole powers of two
// of the value: a histogram in use hardly ever allocates, and one of a few
// values stays small.
func (h *Histogram) grow(from, to int) {
	from, to = from>>subBits<<subBits, (to>>subBits+1)<<subBits
	if len(h.counts) > 0 {
		from, to = min(from, h.base), max(to, h.base+len(h.counts))
	}
	counts := make([]uint64, to-from)
	if len(h.counts) > 0 {
		copy(counts[h.base-from:], h.counts)
	}
	h.counts, h.base = counts, from
}

// Merge adds what other counted.
func (h *Histogram) Merge(other *Histogram) {
	if k := len(other.counts); k > 0 {
		last := other.base + k - 1
		if len(h.counts) == 0 || other.base < h.base || last >= h.base+len(h.counts) {
			h.grow(other.base, last)
		}
		into := h.counts[other.base-h.base:][:k]
		for i, n := range other.counts {
			into[i] += n
		}
	}
	h.low += other.low
	h.n += other.n
	h.max = max(h.max, other.max)
}

// Reset empties the histogram and keeps its memory.
func (h *Histogram) Reset() {
	clear(h.counts)
	h.low, h.n, h.max = 0, 0, 0
}

// Count is how many values were counted.
func (h *Histogram) Count() uint64 { return h.n }

// Max is the largest value, exactly; 0 when there is none.
func (h *Histogram) Max() int64 { return h.max }

// Quantile is the value below or at which the fraction q (0 to 1) of all
// values lies, within 1.6 % (within 32 ns below 1,024 ns); 0 when nothing was
// counted.
func (h *Histogram) Quantile(q float64) int64 {
	if h.n == 0 {
		return 0
	}
	if !(q > 0) { // also NaN
		q = 0
	}
	rank := uint64(min(q, 1)*float64(h.n-1) + 0.5)
	seen := h.low
	if seen > rank {
		return 0
	}
	for i, n := range h.counts {
		if seen += n; seen > rank {
			if h.base+i == maxBucket-1 {
				break // its values have no bound but the largest
			}
			return min(bucketMiddle(h.base+i), h.max)
		}
	}
	return h.max
}

// Above is how many values lie above a limit, within the width of a bucket.
func (h *Histogram) Above(ns int64) uint64 {
	var n uint64
	for i := max(bucketOf(ns)+1-h.base, 0); i < len(h.counts); i++ {
		n += h.counts[i]
	}
	return n
}

// Buckets gives the buckets in use, lowest first: the value in ns that stands for
// each, and how many values it holds. AddBucket and RaiseMax make the histogram
// again from them.
func (h *Histogram) Buckets() iter.Seq2[int64, uint64] {
	return func(yield func(int64, uint64) bool) {
		if h.low > 0 && !yield(0, h.low) {
			return
		}
		for i, n := range h.counts {
			if n > 0 && !yield(bucketMiddle(h.base+i), n) {
				return
			}
		}
	}
}

// AddBucket counts n values in the bucket that ns stands for. Max is not what it
// should be until RaiseMax is called.
func (h *Histogram) AddBucket(ns int64, n uint64) {
	known := h.max
	h.AddN(ns, n)
	h.max = known
}

// RaiseMax says that ns, or a value near it that is in the highest bucket in
// use, was the largest of those that were added with AddBucket.
func (h *Histogram) RaiseMax(ns int64) {
	highest := 0
	for i := len(h.counts) - 1; i >= 0; i-- {
		if h.counts[i] > 0 {
			highest = h.base + i
			break
		}
	}
	if h.max = max(h.max, ns, 0); bucketOf(h.max) != highest {
		h.max = bucketMiddle(highest)
	}
}

// histogramJSON is the saved form: runs of [bucket, count].
type histogramJSON struct {
	Max    int64       `json:"max"`
	Counts [][2]uint64 `json:"counts"`
}

// MarshalJSON writes only the buckets in use.
func (h Histogram) MarshalJSON() ([]byte, error) {
	j := histogramJSON{Max: h.max, Counts: [][2]uint64{}}
	if h.low > 0 {
		j.Counts = append(j.Counts, [2]uint64{0, h.low})
	}
	for i, n := range h.counts {
		if n > 0 {
			j.Counts = append(j.Counts, [2]uint64{uint64(h.base + i), n})
		}
	}
	return json.Marshal(j)
}

// UnmarshalJSON reads what MarshalJSON wrote. Buckets out of range, a sum
// beyond 64 bits, and a maximum that is not in the highest bucket are errors.
func (h *Histogram) UnmarshalJSON(data []byte) error {
	var j histogramJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return err
	}
	read := Histogram{max: j.Max}
	highest := 0
	for _, c := range j.Counts {
		b, n := c[0], c[1]
		switch {
		case b >= maxBucket:
			return fmt.Errorf("histogram: bucket %d is out of range", b)
		case n > math.MaxUint64-read.n:
			return errors.New("histogram: more values than 64 bits count")
		case n == 0:
			continue
		}
		read.n += n
		highest = max(highest, int(b))
		if b == 0 {
			read.low += n
			continue
		}
		if i := int(b) - read.base; uint(i) >= uint(len(read.counts)) {
			read.grow(int(b), int(b))
		}
		read.counts[int(b)-read.base] += n
	}
	if j.Max < 0 || bucketOf(j.Max) != highest {
		return fmt.Errorf("histogram: maximum %d is not in the highest bucket, %d", j.Max, highest)
	}
	*h = read
	return nil
}
