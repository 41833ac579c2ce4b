package host

import (
	"time"

	"golang.org/x/sys/unix"
)

// ThreadCPU is the CPU time that the calling thread has used
// (CLOCK_THREAD_CPUTIME_ID, clock_gettime(2)). What getrusage(2) tells of a
// running thread is as old as the last tick of the scheduler.
func ThreadCPU() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) // cannot fail on Linux
	return time.Duration(t.Nano())
}
