package diagnose

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe/observetest"
)

// BenchmarkDiagnose shows what judging costs as one thing after the other grows.
func BenchmarkDiagnose(b *testing.B) {
	small := observetest.Host{Called: 64, Services: 64, Processes: 256, Namespaces: 16, Sockets: 64, Waits: 32, Drops: 32, Pools: 4, Ill: 0.05}
	for _, grow := range []struct {
		what string
		by   func(*observetest.Host, int)
		to   []int
	}{
		{"called", func(h *observetest.Host, n int) { h.Called = n }, []int{256, 512, 1024, 2048, 4096, 8192}},
		{"services", func(h *observetest.Host, n int) { h.Services = n }, []int{256, 512, 1024, 2048, 4096}},
		{"processes", func(h *observetest.Host, n int) { h.Processes = n }, []int{500, 1000, 2000, 4000, 8000}},
		{"namespaces", func(h *observetest.Host, n int) { h.Namespaces = n }, []int{75, 150, 300, 600, 1200}},
		{"sockets", func(h *observetest.Host, n int) { h.Sockets = n }, []int{1024, 4096, 16384}},
		{"waits", func(h *observetest.Host, n int) { h.Waits = n }, []int{256, 1024, 4096}},
		{"drops", func(h *observetest.Host, n int) { h.Drops = n }, []int{128, 512, 2048}},
		{"pools", func(h *observetest.Host, n int) { h.Pools = n }, []int{16, 64, 256}},
	} {
		for _, n := range grow.to {
			h := small
			grow.by(&h, n)
			b.Run(fmt.Sprintf("%s=%d", grow.what, n), func(b *testing.B) {
				benchmark(b, h)
			})
		}
	}
	b.Run("large", func(b *testing.B) { benchmark(b, observetest.Large()) })
}

// benchmark tells what judging costs of the CPUs, too: on a machine that is at work
// the time on the clock is somebody else's.
func benchmark(b *testing.B, h observetest.Host) {
	o := h.Observation()
	runtime.GC()
	b.ReportAllocs()
	begin, n := cpuTime(b), 0
	for b.Loop() {
		_ = judge(o)
		n++
	}
	b.ReportMetric(float64((cpuTime(b)-begin).Milliseconds())/float64(n), "cpu-ms/op")
}

// cpuTime is what this process has used of the CPUs.
func cpuTime(b *testing.B) time.Duration {
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		b.Fatal(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
