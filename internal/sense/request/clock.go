package request

import (
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// clockReadings are made, of which the best counts: on a busy host a program
// may have to wait between looking at the one clock and at the other.
const clockReadings = 5

// setClock notes how the kernel's clock, in which records are, relates to the
// wall clock. Requests keep their order: what may only be the error of the
// comparison does not move it.
func (r *Recorder) setClock() {
	offset, within := compareClocks(monotonic, func() int64 { return time.Now().UnixNano() })
	if d := offset - r.clock; d > within || d < -within {
		r.clock = offset
	}
}

// compareClocks tells how far wall is ahead of mono, in ns, and how exact that
// is.
func compareClocks(mono, wall func() int64) (offset, within int64) {
	within = math.MaxInt64
	for range clockReadings {
		before := mono()
		at := wall()
		took := mono() - before
		if took < within {
			offset, within = at-before-took/2, took
		}
	}
	return offset, within
}

func monotonic() int64 {
	var t unix.Timespec
	// clock_gettime(CLOCK_MONOTONIC) cannot fail on Linux.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return t.Nano()
}
