// Package budgettest holds parsers to what their input is worth.
//
// In: how long an input is, and a call that parses it. Out: a failed test when the
// call allocates more, or computes for longer, than an input of that length may make
// it. Fuzz targets use it for each input, so that an input that stalls a parser is
// kept by the fuzzer as one that crashes it is.
//
// It is for tests only, and measures the whole process: nothing else may allocate
// much meanwhile (no t.Parallel).
package budgettest

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// Cost is what a call may take.
type Cost struct {
	PerByte int           // bytes allocated for each byte of the input, in all: not what is in use at a time
	Fixed   int           // bytes allocated whatever the input is
	CPU     time.Duration // of this process
}

// Usual is the cost of parsers that make values of texts and records.
var Usual = Cost{PerByte: 64, Fixed: 1 << 20, CPU: time.Second}

// Within fails t when f, which parses an input of n bytes, takes more than the cost.
func Within(t testing.TB, n int, most Cost, f func()) {
	t.Helper()
	stop := watch(10 * most.CPU)
	allocated, cpu := used()
	f()
	bytes, after := used()
	stop()
	if limit := uint64(most.PerByte)*uint64(n) + uint64(most.Fixed); bytes-allocated > limit {
		t.Errorf("an input of %d bytes made it allocate %d bytes: at most %d", n, bytes-allocated, limit)
	}
	if after-cpu > most.CPU {
		t.Errorf("an input of %d bytes took %s of CPU time: at most %s", n, after-cpu, most.CPU)
	}
}

// used is what this process has allocated since it began, and its CPU time.
func used() (bytes uint64, cpu time.Duration) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m) // stops the world: what each CPU has allocated is counted to the byte
	return m.TotalAlloc, processCPU()
}

func processCPU() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail with a valid pointer
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// watch ends the process once it has computed for too long, with what it did then: a
// parser that never ends would otherwise be a fuzzer that finds nothing any more.
func watch(most time.Duration) (stop func()) {
	begun, done := processCPU(), make(chan struct{})
	go func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(most):
			}
			if took := processCPU() - begun; took >= most {
				panic(fmt.Sprintf("it has computed for %s, and has not ended", took))
			}
		}
	}()
	return func() { close(done) }
}
