package host

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
)

// cpuMetric reports the CPU time of each operation: on a shared machine the
// wall clock says more about the neighbours.
func cpuMetric(b *testing.B) func() {
	start := cpuClock(b)
	return func() { b.ReportMetric(float64((cpuClock(b)-start).Nanoseconds())/float64(b.N), "cpu-ns/op") }
}

func BenchmarkProcesses(b *testing.B) {
	var procs []ProcSample
	threads := 0
	defer cpuMetric(b)()
	for b.Loop() {
		procs, _ = Default().Processes()
	}
	for _, p := range procs {
		threads += p.Threads
	}
	b.ReportMetric(float64(len(procs)), "processes")
	b.ReportMetric(float64(threads), "threads")
}

func BenchmarkActivity(b *testing.B) {
	defer cpuMetric(b)()
	for b.Loop() {
		Default().Activity(1)
	}
}

func BenchmarkSampleThreads(b *testing.B) {
	var s observe.ThreadStates
	defer cpuMetric(b)()
	for b.Loop() {
		_ = Default().SampleThreads(os.Getpid(), &s)
	}
}

func BenchmarkFDCount(b *testing.B) {
	defer cpuMetric(b)()
	for b.Loop() {
		_, _ = Default().FDCount(os.Getpid())
	}
}

func BenchmarkUse(b *testing.B) {
	b.ReportAllocs()
	defer cpuMetric(b)()
	for b.Loop() {
		Default().Use()
	}
}

func BenchmarkCgroups(b *testing.B) {
	procs, _ := Default().Processes()
	all := make(map[int]bool)
	for _, p := range procs {
		all[p.PID] = true
	}
	for b.Loop() {
		Default().Cgroups(procs, all)
	}
}

// BenchmarkSockets looks at 5,000 loopback connections (10,001 sockets) and
// 10,000 sockets in TIME_WAIT.
func BenchmarkSockets(b *testing.B) {
	n := privateNetNS(b)
	churn(b, n, 10_000)
	crowd(b, n)
	defer cpuMetric(b)()
	b.ReportAllocs()
	count := 0
	for b.Loop() {
		count = 0
		if err := n.Sockets(func(*SocketSample) { count++ }); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(count), "sockets")
}

func BenchmarkSocketOwners(b *testing.B) {
	n := privateNetNS(b)
	crowd(b, n)
	defer cpuMetric(b)()
	b.ReportAllocs()
	count := 0
	for b.Loop() {
		owners, _ := Default().SocketOwners([]int{os.Getpid()})
		count = len(owners)
	}
	b.ReportMetric(float64(count), "sockets")
}

func BenchmarkListeners(b *testing.B) {
	n := privateNetNS(b)
	listen(b, n, unix.AF_INET, 5)
	defer cpuMetric(b)()
	for b.Loop() {
		if _, err := n.Listeners(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCounters(b *testing.B) {
	n := privateNetNS(b)
	defer cpuMetric(b)()
	for b.Loop() {
		if _, err := n.Counters(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkConntrack(b *testing.B) {
	n := privateNetNS(b)
	defer cpuMetric(b)()
	for b.Loop() {
		_, _ = n.Conntrack()
	}
}

// crowd opens 5,000 connections in n and accepts them.
func crowd(b *testing.B, n *NetNS) {
	b.Helper()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Cur < 11_000 {
		b.Skip("SKIPPED: needs 11,000 open files, allowed are ", limit.Cur)
	}
	port := listen(b, n, unix.AF_INET, 4096)
	var accepted []int
	b.Cleanup(func() {
		for _, fd := range accepted {
			unix.Close(fd)
		}
	})
	for range 50 {
		connect(b, n, port, 100)
		err := n.Do(func() error {
			return forListener(port, func(l int) error {
				for range 100 {
					s, _, err := unix.Accept4(l, unix.SOCK_CLOEXEC)
					if err != nil {
						return err
					}
					accepted = append(accepted, s)
				}
				return nil
			})
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}
