package wait

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
)

// sampled is a sampler, and when its first look was over and its last began.
type sampled struct {
	*Sampler
	first, last time.Time
}

// sample looks at processes for a while, as a window does, and some times at least.
func sample(t *testing.T, window time.Duration, pids ...int) sampled {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s := sampled{Sampler: NewSampler(NewReader(host.Default()))}
	s.Look(pids, Follow)
	s.first = time.Now()
	for n := 0; n < 10 || time.Since(s.first) < window; n++ {
		// Threads in Python take turns of 5 ms: a multiple of it finds the same one.
		time.Sleep(23 * time.Millisecond)
		s.Look(pids, Follow)
	}
	s.last = time.Now()
	s.Look(pids, Finish)
	return s
}

// graphOf is what was seen, with a request that a process's main thread has read
// and that lasted all the time.
func graphOf(s sampled, pid int) *observe.WaitGraph {
	r := SlowRequest{PID: pid, TID: pid, From: s.first, To: s.last, Busy: s.last.Sub(s.first), Unfinished: true}
	return s.Graph([]SlowRequest{r}, 25*time.Millisecond, never)
}

// TestSamplerFollowsTheReader: a writer to a full pipe whose reader sleeps: all
// of the request's time, with the chain.
func TestSamplerFollowsTheReader(t *testing.T) {
	r, w := pipe(t)
	reader := start(t, "sleep", r)
	writer := start(t, "write", w)
	r.Close()
	w.Close()
	lookFor(t, writer.pid, endsIn(2, observe.EndSleep))
	looks := sample(t, 600*time.Millisecond, writer.pid)
	g := graphOf(looks, writer.pid)
	at := slices.IndexFunc(g.Shares, func(s observe.WaitShare) bool { return s.Chain.Hops[0].Kind == observe.WaitPipe })
	if at < 0 || len(g.Slow) != 1 {
		t.Fatalf("%+v", g)
	}
	s := &g.Shares[at]
	hops(t, &s.Chain, observe.EndSleep, hop(writer.pid, observe.WaitPipe, ""), hop(reader.pid, observe.WaitSleep, observe.HowInferred))
	if share := float64(s.SlowNS) / float64(g.Slow[0].NS); share < 0.9 || !s.Reader || s.SlowRequests < 0.9 || s.AtEnd != 1 {
		t.Errorf("share %.2f, want nearly all: %+v", share, s)
	}
	if s.LongestNS < int64(looks.last.Sub(looks.first)) || s.Samples < 5 || s.Chain.Hops[0].ForNS != s.LongestNS {
		t.Errorf("longest %d ns in %d samples", s.LongestNS, s.Samples)
	}
}

// TestSamplerStopped: a process that is stopped in the middle of the window.
func TestSamplerStopped(t *testing.T) {
	c := start(t, "sleep")
	time.AfterFunc(300*time.Millisecond, func() { c.stop(t) })
	g := graphOf(sample(t, time.Second, c.pid), c.pid)
	// While the process starts, its threads may be seen inside the kernel once; until it
	// is stopped it sleeps.
	g.Shares = slices.DeleteFunc(g.Shares, func(s observe.WaitShare) bool {
		return s.SlowNS < int64(10*time.Millisecond) || s.Chain.End == observe.EndSleep
	})
	if len(g.Shares) != 1 || g.Shares[0].Chain.End != observe.EndStopped {
		t.Fatalf("%+v", g.Shares)
	}
	if share := float64(g.Shares[0].SlowNS) / float64(g.Slow[0].NS); share < 0.4 || share > 0.9 {
		t.Errorf("share %.2f, want some 0.7", share)
	}
}

// TestSamplerIdle: who is ready for work, or sleeps of its own will, is in no
// share.
func TestSamplerIdle(t *testing.T) {
	r, w := pipe(t)
	defer w.Close()
	sleeper := start(t, "rest")
	idle := start(t, "server tcp 127.0.0.1:0 sleep")
	sleeper.says(t)
	idle.says(t)
	reader := start(t, "read", r)
	s := sample(t, 400*time.Millisecond, sleeper.pid, idle.pid, reader.pid, os.Getpid())
	if g := graphOf(s, os.Getpid()); g.Parked == 0 || g.ParkedNS < int64(200*time.Millisecond) {
		t.Errorf("%d threads wait to be woken, the longest %d ns: a Go program has some", g.Parked, g.ParkedNS)
	}
	for _, pid := range []int{sleeper.pid, idle.pid} {
		if g := graphOf(s, pid); len(g.Shares) != 0 && slices.ContainsFunc(g.Shares, func(s observe.WaitShare) bool { return s.PID == pid }) {
			t.Errorf("process %d: %+v", pid, g.Shares)
		}
	}
}

// TestSamplerForgets: threads and processes that end leave nothing behind but
// what was seen of them.
func TestSamplerForgets(t *testing.T) {
	c := start(t, "sleep")
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s := NewSampler(NewReader(host.Default()))
	s.Look([]int{c.pid, 1 << 29}, Follow)
	if len(s.threads) == 0 {
		t.Fatal("nothing was seen")
	}
	for tid, w := range s.threads {
		w.listed, w.seen = w.listed.Add(-time.Minute), w.seen.Add(-time.Minute)
		s.processes[w.pid].last = time.Now()
		s.forget(time.Now())
		if s.threads[tid] != nil {
			t.Errorf("thread %d is still there", tid)
		}
	}
}

// TestSamplerShortCalls: a call on a file system in user space that is over before it is
// followed counts to the shape of those like it.
func TestSamplerShortCalls(t *testing.T) {
	f := newTree(t)
	f.process(100, 1, "app", "S", syscallLine(sysEpoll, 4))
	asks := func(tid int, wchan string) {
		f.thread(100, 1, tid, "app", "S", syscallLine(0, uint64(tid)))
		f.put(fmt.Sprintf("100/task/%d/wchan", tid), wchan)
	}
	asks(101, "request_wait_answer")
	f.fd(100, 101, "/mnt/prices/today", readOnly)
	f.put("100/mountinfo", "20 1 0:39 / /mnt/prices rw - fuse.prices prices rw\n")
	f.process(200, 1, "prices", "S", syscallLine(sysSleep, 0, 0, 0x8000))
	f.fd(200, 3, "/dev/fuse", readWrite)
	s := NewSampler(f.reader())
	s.Look([]int{100}, Glance)
	s.threads[101].since = s.start.Add(-time.Second)
	s.Look([]int{100}, Finish)
	asks(102, "request_wait_answer")
	asks(103, "wait_woken")
	s.Look([]int{100}, Glance)
	s.settle()
	for _, i := range s.intervals {
		if got := i.shape != nil && i.shape.chain.Hops[0].Kind == observe.WaitFuse; got != (i.tid != 103) {
			t.Errorf("thread %d waits for the file system: %v", i.tid, got)
		}
	}
	if len(s.intervals) != 3 {
		t.Errorf("%d waits, want 3", len(s.intervals))
	}
}

// TestShapes: waits that differ only in the descriptor, or in which thread of a
// process holds the lock, are of one shape.
func TestShapes(t *testing.T) {
	chain := func(fd, owner string) *observe.WaitChain {
		return &observe.WaitChain{End: observe.EndSleep, Hops: []observe.WaitHop{
			{Process: observe.WaitProcess{PID: 10}, Kind: observe.WaitTCP, Object: fd + " → tcp to 10.0.0.1:25", Syscall: "connect"},
			{Process: observe.WaitProcess{PID: 20}, TID: len(owner), Kind: observe.WaitSleep, Object: owner},
		}}
	}
	if a, b := shapeKey(1, chain("fd 5", "40ms")), shapeKey(1, chain("fd 6", "1s")); a != b {
		t.Errorf("%q is not %q", a, b)
	}
	other := chain("fd 5", "40ms")
	other.Hops[0].Object = "fd 5 → tcp to 10.0.0.2:25"
	if shapeKey(1, other) == shapeKey(1, chain("fd 5", "40ms")) || shapeKey(1, other) == shapeKey(2, other) {
		t.Error("another address, or another process, is another shape")
	}
}
