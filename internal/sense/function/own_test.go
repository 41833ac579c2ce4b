package function

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

//go:noinline
func watched(n int) int {
	if n%50 == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	return n + 1
}

// TestOwnProcess needs no other program, so that it runs on every kernel:
// functions, system calls and tracepoints of this process.
func TestOwnProcess(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to load BPF programs")
	}
	for name, k := range kernels(t) {
		t.Run(name, func(t *testing.T) {
			o := watch(t, k, Options{
				Target: strconv.Itoa(os.Getpid()), Symbols: []string{"*/function.watched", "syscall:getppid", "tracepoint:sched:sched_process_fork"},
				Args: []Arg{{Number: 1, Type: "int"}},
			}, func() {
				for i := range 200 {
					watched(i)
				}
				for range 50 {
					unix.Getppid()
				}
			})
			f := of(t, o, "github.com/slowray/slowray/internal/sense/function.watched")
			if f.Calls != 200 || f.Returned != 200 || f.TotalNS < int64(40*time.Millisecond) || f.Slowest[0].DurationNS < int64(10*time.Millisecond) {
				t.Errorf("watched: %+v, want 200 calls, of which 4 take 10 ms", f)
			}
			if f := of(t, o, "getppid"); f.Calls != 50 || f.Returned != 50 {
				t.Errorf("getppid: %+v, want 50 calls", f)
			}
			for _, l := range o.Losses {
				// An interrupt may begin another program while one runs, above all
				// in an emulated machine: forks, of which this test counts none.
				if !strings.Contains(l.What, "another BPF program was running") {
					t.Errorf("losses %+v", o.Losses)
				}
			}
			if o.Price.PerHitNS == 0 {
				t.Errorf("price %+v, notes %q", o.Price, o.Notes)
			}
		})
	}
}
