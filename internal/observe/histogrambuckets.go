package observe

import "iter"

// NumBuckets is how many buckets a Histogram has at most: they are numbered from 0.
const NumBuckets = maxBucket

// Numbered gives the buckets in use, lowest first: the number of each, and how many
// values it holds. AddNumbered makes the histogram again from them. The numbers are
// kept in other stores: they never change.
func (h *Histogram) Numbered() iter.Seq2[int, uint64] {
	return func(yield func(int, uint64) bool) {
		if h.low > 0 && !yield(0, h.low) {
			return
		}
		for i, n := range h.counts {
			if n > 0 && !yield(h.base+i, n) {
				return
			}
		}
	}
}

// AddNumbered counts n values in the bucket of a number; a number that is none
// counts as the nearest. Max is not what it should be until RaiseMax is called.
func (h *Histogram) AddNumbered(bucket int, n uint64) {
	h.AddBucket(bucketMiddle(min(max(bucket, 0), maxBucket-1)), n)
}
