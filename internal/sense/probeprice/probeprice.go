// Package probeprice measures what a probe at a function of a process costs that process.
//
// In: what attaches a program to a place in an executable file. Out: the CPU time that a
// hit takes. It calls a function of this process; no other is touched.
package probeprice

import (
	"context"
	"errors"
	"os"
	"reflect"
	"runtime"
	"time"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/sense/host"
	"github.com/slowray/slowray/internal/sense/procmem"
)

// stepped is called to measure what a hit costs.
//
//go:noinline
func stepped(n int) int { return n*3 + 1 }

// Place is where the function is that is called: in this process's own file.
func Place() (ex *link.Executable, offset uint64, err error) {
	entry := uint64(reflect.ValueOf(stepped).Pointer())
	err = procmem.EachMapping(budget.New(context.Background(), budget.Limits{}), "/proc", os.Getpid(), func(m *procmem.Mapping) bool {
		if m.Executable && entry >= m.Start && entry < m.End {
			offset = entry - m.Start + m.Offset
		}
		return true
	})
	if err != nil {
		return nil, 0, err
	}
	if offset == 0 {
		return nil, 0, errors.New("own code is not mapped from a file")
	}
	ex, err = link.OpenExecutable("/proc/self/exe")
	return ex, offset, err
}

// Calls calls the function n times, in a thread that is not the process's first, and says
// how much CPU time that took.
func Calls(n int) time.Duration {
	done := make(chan time.Duration)
	var try func(depth int)
	try = func(depth int) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if unix.Gettid() == os.Getpid() && depth < 8 {
			go try(depth + 1) // this one keeps the first thread meanwhile
			time.Sleep(10 * time.Millisecond)
			return
		}
		start := host.ThreadCPU()
		sum := 0
		for i := range n {
			sum += stepped(i)
		}
		runtime.KeepAlive(sum)
		done <- host.ThreadCPU() - start
	}
	go try(0)
	return <-done
}
