package stack

import (
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
)

func TestParseCPUList(t *testing.T) {
	for text, want := range map[string][]int{"0": {0}, "0-3": {0, 1, 2, 3}, "0,2-3,8": {0, 2, 3, 8}} {
		got, err := parseCPUList(text)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%q: %s %v", text, diff, err)
		}
	}
	for _, bad := range []string{"", "a", "3-1", "0-", "0-9999999"} {
		if _, err := parseCPUList(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func FuzzParseCPUList(f *testing.F) {
	f.Add("0-3,8")
	f.Fuzz(func(_ *testing.T, s string) { _, _ = parseCPUList(s) })
}

// TestBusyLoopIsSeen: a process that computes for a second gets about one
// CPU's worth of samples, on the thread that computes and in its function.
func TestBusyLoopIsSeen(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to load BPF programs")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	all := cpuTime(t)
	p, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Want(os.Getpid()); err != nil {
		t.Fatal(err)
	}
	before := cpuTime(t)
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
	}
	used := cpuTime(t) - before
	got, losses, err := p.Read(Detail{PortSearch: true, Functions: func(pid int) int {
		if pid == os.Getpid() {
			return 1
		}
		return 0
	}})
	if err != nil || len(losses) != 0 {
		t.Fatal(err, losses)
	}
	all = cpuTime(t) - all // starting and reading are sampled too, in part
	for _, one := range got.Processes {
		if one.PID != os.Getpid() {
			if len(one.Functions) > 0 {
				t.Errorf("functions of %s, which nobody asked for", one.Comm)
			}
			continue
		}
		least, most := used.Seconds()*Hz/2, all.Seconds()*Hz*1.5+5
		if n := float64(one.Samples); n < least || n > most {
			t.Errorf("%.0f samples for %s to %s of CPU, want %.0f to %.0f", n, used, all, least, most)
		}
		if one.PortSearch != 0 {
			t.Errorf("%d samples in a port search that nobody made", one.PortSearch)
		}
		if one.Parent != os.Getppid() {
			t.Errorf("parent %d, want %d", one.Parent, os.Getppid())
		}
		if len(one.Threads) > 0 && one.Threads[0].TID != unix.Gettid() {
			t.Errorf("the busiest thread is not %d: %+v", unix.Gettid(), one.Threads)
		}
		if i := slices.IndexFunc(one.Functions, func(f observe.ProfileFunction) bool { return strings.HasSuffix(f.Name, "TestBusyLoopIsSeen") }); i < 0 || 2*one.Functions[i].Total < one.Samples {
			t.Errorf("this function does not have most of %d samples: %+v", one.Samples, one.Functions)
		}
		return
	}
	t.Errorf("this process is not among %+v", got.Processes)
}

// TestTally: a function that calls itself counts once in a sample, and what
// has most samples is kept whether they are its own or not.
func TestTally(t *testing.T) {
	frame := func(name string) observe.Frame { return observe.Frame{Name: name, Kind: observe.FrameNative} }
	all := tally{}
	all.add([]observe.Frame{frame("leaf"), frame("recurse"), frame("recurse"), frame("main")}, 3)
	all.add([]observe.Frame{frame("recurse"), {}, frame("main")}, 1)
	got := all.most(2)
	want := []observe.ProfileFunction{
		{Frame: frame("recurse"), Self: 1, Own: 1, Total: 4, Height: 0.75},
		{Frame: frame("main"), Total: 4, Height: 2.75},
		{Frame: frame("leaf"), Self: 3, Own: 3, Total: 3},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	// What an interpreter does is the interpreted function's own.
	price := observe.Frame{Name: "price", Kind: observe.FramePython}
	python := tally{}
	python.add([]observe.Frame{frame("PyLong_FromLong"), price, frame("eval"), {Name: "work", Kind: observe.FramePython}}, 2)
	if got := python.most(1); len(got) != 2 || got[0].Name != "PyLong_FromLong" || got[0].Own != 0 || got[1].Name != "price" || got[1].Own != 2 || got[1].Self != 0 {
		t.Errorf("%+v", got)
	}
}

// TestTallyKeepsTheKernel: an interpreter's many frames, which are in all stacks,
// leave room for the system calls that most of them end in.
func TestTallyKeepsTheKernel(t *testing.T) {
	native := func(name string) observe.Frame { return observe.Frame{Name: name, Kind: observe.FrameNative} }
	kernel := func(name string) observe.Frame { return observe.Frame{Name: name, Kind: observe.FrameKernel} }
	outer := []observe.Frame{native("include"), native("compile"), native("execute"), native("main")}
	all := tally{}
	for _, leaf := range []string{"hash", "copy"} {
		all.add(append([]observe.Frame{native(leaf)}, outer...), 10)
	}
	for _, leaf := range []string{"path_lookupat", "getname", "fillattr"} {
		all.add(append([]observe.Frame{kernel(leaf), kernel("vfs_fstatat")}, outer...), 4)
	}
	got := all.most(2)
	if !slices.ContainsFunc(got, func(f observe.ProfileFunction) bool { return f.Name == "vfs_fstatat" && f.Total == 12 }) || len(got) != 6 {
		t.Errorf("%+v", got)
	}
}

// TestTake: stacks with all frames take the place of what samples tell, of the
// processes and threads that they are of.
func TestTake(t *testing.T) {
	p := &observe.Profile{Processes: []observe.ProfileProcess{
		{PID: 1, Samples: 400, Functions: []observe.ProfileFunction{{Frame: observe.Frame{Name: "interpreter"}}}, Threads: []observe.ProfileThread{{TID: 11, Samples: 300}}},
		{PID: 2, Samples: 50, Functions: []observe.ProfileFunction{{Frame: observe.Frame{Name: "kept"}}}},
	}}
	s := &observe.Stacks{Frames: []observe.Frame{{Name: "hot", Kind: observe.FramePython}, {Name: "[unknown]", Kind: observe.FrameUnknown}, {Name: "main", Kind: observe.FramePython}},
		Samples: []observe.StackSample{{PID: 1, TID: 11, Frames: []int32{0, 2}, Values: []int64{30, 3e8}}, {PID: 1, TID: 12, Frames: []int32{1, 2}, Values: []int64{10, 1e8}}, {PID: 3, Frames: []int32{99}, Values: []int64{0}}}}
	if !Take(p, s) {
		t.Error("nothing was taken")
	}
	one := &p.Processes[0]
	if one.Looked != 40 || one.Unnamed != 10 || len(one.Functions) != 2 || one.Functions[0].Name != "main" || one.Functions[0].Total != 40 || one.Functions[1].Self != 30 || one.Functions[1].Own != 30 {
		t.Errorf("%+v", one)
	}
	if th := &one.Threads[0]; th.Looked != 30 || len(th.Functions) != 2 {
		t.Errorf("%+v", th)
	}
	if p.Processes[1].Functions[0].Name != "kept" || p.Processes[1].Looked != 0 {
		t.Errorf("%+v", p.Processes[1])
	}
	if Take(nil, s) || Take(p, nil) || Take(p, &observe.Stacks{}) {
		t.Error("something was taken of nothing")
	}
}
