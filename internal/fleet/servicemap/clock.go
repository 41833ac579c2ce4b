package servicemap

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Clock is by how much the clock of host B is ahead of that of host A.
type Clock struct {
	A, B string
	// OffsetNS is the difference at a time of A's clock; it is known to ±UncertaintyNS.
	At            time.Time
	OffsetNS      int64
	UncertaintyNS int64
	// DriftPPM is by how much B's clock runs faster, in millionths; 0 where none shows.
	DriftPPM float64
	Requests int // seen at both ends that tell it
	Outside  int // of them those that contradict it: not the same request, or a clock that was set
}

// at is the offset at a time of A's clock, ns.
func (c *Clock) at(ns int64) int64 {
	return c.OffsetNS + int64(c.DriftPPM*1e-6*float64(ns-c.At.UnixNano()))
}

// bound is what one request tells of B − A, at a time of A's clock.
type bound struct{ at, low, high int64 }

const (
	// rounding is by how much a moment may be off: stores keep whole µs, and a moment
	// may be the sum of two.
	rounding = 2_000
	// leastBounds makes a clock known; a single request might not be the same.
	leastBounds = 3
	// sliceNS is the time in which a clock's drift is nothing next to what is not known
	// of its offset.
	sliceNS = int64(30 * time.Second)
	maxPPM  = 1000 // a quartz is off by less than a tenth of this
)

// boundOf is what both ends of a request say of the server's clock next to the
// client's, as NTP has it: nothing is received before it was sent. The request: the
// server's clock is ahead by at most what lies between the two moments. The answer: by
// at least that.
func boundOf(called, served *End) bound {
	return bound{
		at:   called.First,
		low:  served.Answer - called.Answer - rounding,
		high: served.First - called.First + rounding,
	}
}

// estimate is the offset that agrees with the most requests, and with all where none is
// wrong: the wait in a queue widens a request's bounds and does not move them.
func estimate(bounds []bound) (c Clock, ok bool) {
	bounds = slices.DeleteFunc(slices.Clone(bounds), func(b bound) bool { return b.low > b.high })
	if len(bounds) < leastBounds {
		return c, false
	}
	slices.SortFunc(bounds, func(x, y bound) int {
		return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(x.low, y.low), cmp.Compare(x.high, y.high))
	})
	middle := bounds[len(bounds)/2].at
	low, high, best := agree(bounds, middle, 0)
	slope := 0.0 // ns per ns
	if best < len(bounds) {
		// Some disagree: does the difference grow?
		for range 6 {
			more, ok := slopeOf(bounds, middle, slope)
			if !ok {
				break
			}
			slope += more
		}
		if l, h, n := agree(bounds, middle, slope); math.Abs(slope) < maxPPM*1e-6 && n > best {
			low, high, best = l, h, n
		} else {
			slope = 0
		}
	}
	if 2*best <= len(bounds) {
		return c, false // most contradict each other
	}
	return Clock{
		At: time.Unix(0, middle).UTC(), OffsetNS: low + (high-low)/2, UncertaintyNS: max((high-low+1)/2, 1),
		DriftPPM: slope * 1e6, Requests: len(bounds), Outside: len(bounds) - best,
	}, true
}

// agree is where most bounds overlap (Marzullo's algorithm), with the drift taken off,
// and how many they are.
func agree(bounds []bound, middle int64, slope float64) (low, high int64, n int) {
	type edge struct {
		at   int64
		kind int // -1 begins, +1 ends
	}
	edges := make([]edge, 0, 2*len(bounds))
	for _, b := range bounds {
		moved := int64(slope * float64(b.at-middle))
		edges = append(edges, edge{b.low - moved, -1}, edge{b.high - moved, 1})
	}
	slices.SortFunc(edges, func(x, y edge) int { return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(x.kind, y.kind)) })
	inside := 0
	for i, e := range edges {
		inside -= e.kind
		if inside > n {
			n, low, high = inside, e.at, edges[i+1].at
		}
	}
	return low, high, n
}

// slopeOf is the drift that remains beyond slope: the median of the slopes between the
// offsets of slices of time (Theil and Sen), so that some wrong ones do not matter.
func slopeOf(bounds []bound, middle int64, slope float64) (float64, bool) {
	type point struct{ at, offset float64 }
	var points []point
	for first := 0; first < len(bounds); {
		last := first
		for last < len(bounds) && bounds[last].at < bounds[first].at+sliceNS {
			last++
		}
		if last-first >= leastBounds {
			low, high, _ := agree(bounds[first:last], middle, slope)
			points = append(points, point{float64(bounds[(first+last)/2].at - middle), float64(low) + float64(high-low)/2})
		}
		first = last
	}
	var slopes []float64
	for i := range points {
		for j := range i {
			if apart := points[i].at - points[j].at; apart > 0 {
				slopes = append(slopes, (points[i].offset-points[j].offset)/apart)
			}
		}
	}
	if len(slopes) == 0 {
		return 0, false
	}
	slices.Sort(slopes)
	return slopes[len(slopes)/2], true
}
