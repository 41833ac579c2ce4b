package host

import (
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
)

func TestRunBetween(t *testing.T) {
	a := RunSample{threads: []threadSched{{tid: 10, run: 1e9, delay: 5e8}, {tid: 11, run: 2e9}}}
	b := RunSample{threads: []threadSched{{tid: 10, run: 1_200_000_000, delay: 600_000_000}, {tid: 12, run: 5e7, delay: 1e7}}}
	want := observe.RunSpan{CPU: 0.25, Delay: 0.11, TopTID: 10, TopCPU: 0.2, TopDelay: 0.1}
	if d := cmp.Diff(want, RunBetween(a, b), cmpopts.EquateApprox(0, 1e-9)); d != "" {
		t.Error(d)
	}
}

func TestBusiestBetween(t *testing.T) {
	old := ProcSample{PID: 10, RunNS: 1e9} // it had one thread then
	now := ProcSample{PID: 10, threads: []threadSched{{10, 2e9, 1e9, 0}, {11, 1e6, 0, 0}, {12, 3e9, 0, 0}}}
	want := []observe.Thread{{TID: 12, CPUSeconds: 3}, {TID: 10, CPUSeconds: 1, RunDelaySeconds: 1}}
	if d := cmp.Diff(want, busiestBetween(&old, &now)); d != "" {
		t.Error(d)
	}
	if got := busiestBetween(&old, &ProcSample{PID: 10, RunNS: 9e9}); got != nil {
		t.Errorf("a process of one thread has %+v", got)
	}
}

// threadCPU is the CPU time of the calling thread, by its own clock.
func threadCPU(t *testing.T) time.Duration {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		t.Fatal(err)
	}
	return time.Duration(now.Nano())
}

// TestOwnThreads: a thread of this process that computes is found to.
func TestOwnThreads(t *testing.T) {
	fs := Default()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	a, err := fs.RunTimes(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	begin := threadCPU(t)
	for threadCPU(t)-begin < 100*time.Millisecond {
	}
	want := (threadCPU(t) - begin).Seconds()
	b, err := fs.RunTimes(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if got := RunBetween(a, b); got.TopTID != unix.Gettid() || got.TopCPU < want || got.TopCPU > want+0.01 {
		t.Errorf("%+v, want thread %d with %.3f s", got, unix.Gettid(), want)
	}
	if exe := fs.Exe(os.Getpid()); !strings.HasSuffix(exe, ".test") {
		t.Errorf("executes %q", exe)
	}
	if comm := fs.ThreadComm(os.Getpid(), unix.Gettid()); comm == "" {
		t.Error("the thread has no name")
	}
	if list, n := fs.AllowedCPUs(os.Getpid()); n < 1 || list == "" {
		t.Errorf("%d CPUs: %q", n, list)
	}
	if _, err := fs.RunTimes(1 << 30); err == nil {
		t.Error("no error of a process that does not exist")
	}
}

func TestCountList(t *testing.T) {
	for list, want := range map[string]int{"0": 1, "0-3": 4, "0,2-3,8": 4, "": 0, "a": 0, "3-1": 0, "0-": 0, "0-999999": 0} {
		if got := countList([]byte(list)); got != want {
			t.Errorf("%q: %d, want %d", list, got, want)
		}
	}
}

func TestInterfacesBetween(t *testing.T) {
	const text = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 2167451363 14257106    0    0    0     0          0         0 2167451363 14257106    0    0    0     0       0          0
eth0:1:  10 20 0 3 0 0 0 0 100 200 0 7 0 0 0 0
  bad: 1 2
`
	a, err := parseNetDev(strings.NewReader(text))
	if err != nil || len(a) != 2 {
		t.Fatal(a, err)
	}
	b, _ := parseNetDev(strings.NewReader(strings.ReplaceAll(text, "10 20 0 3", "1510 21 0 4")))
	want := []observe.Interface{{Name: "eth0:1", RxBytes: 1500, RxPackets: 1, RxDropped: 1}}
	if d := cmp.Diff(want, InterfacesBetween(a, b)); d != "" {
		t.Error(d)
	}
}

func FuzzCPUFiles(f *testing.F) {
	f.Add("CPU0 CPU1\nNET_RX: 1 2\n eth0: 1 2 3 4 5 6 7 8 9 10 11 12\n0-3,8")
	f.Fuzz(func(_ *testing.T, s string) {
		_, _ = parseSoftIRQs(strings.NewReader(s))
		_, _ = parseNetDev(strings.NewReader(s))
		countList([]byte(s))
	})
}
