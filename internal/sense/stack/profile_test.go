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
	got, losses, err := p.Read(Detail{PortSearch: true, Functions: func(pid int) bool { return pid == os.Getpid() }, User: own{}})
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

// own names the functions of this process.
type own struct{}

func (own) Frame(_ int, ip uint64) (observe.Frame, bool) {
	f := runtime.FuncForPC(uintptr(ip))
	if f == nil {
		return observe.Frame{}, false
	}
	return observe.Frame{Name: f.Name(), Kind: observe.FrameGo}, true
}

func TestParseSymbols(t *testing.T) {
	const text = `ffffffff81000000 T _text
ffffffff82005600 t helper
ffffffff820056b0 T __inet_hash_connect
ffffffff820056b0 t __pfx_same_address
ffffffff820059f0 T next
ffffffff82007a40 d a_variable
not a line
ffffffffc0001000 t module_function	[some_module]
ffffffff82149280 W out_of_order
`
	got, err := parseSymbols(strings.NewReader(text), []uint64{
		0xffffffff82007b00, 0xffffffff820056b8, 0xffffffff820059f0, 0xffffffff82149281, 0xffffffffc0001010, 0xffffffffd0000000, 0x1000, 0xffffffff820056b8,
	})
	want := kernelNames{
		0xffffffff820056b8: {name: "__inet_hash_connect"}, 0xffffffff820059f0: {name: "next"}, 0xffffffff82007b00: {name: "next"},
		0xffffffff82149281: {name: "out_of_order"}, 0xffffffffc0001010: {name: "module_function", module: "some_module"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(kernelSymbol{})); diff != "" || err != nil {
		t.Error(diff, err)
	}
	for name, text := range map[string]string{"hidden": "0000000000000000 T __inet_hash_connect\n0000000000000000 T next\n", "empty": ""} {
		if _, err := parseSymbols(strings.NewReader(text), nil); err == nil || !strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %v, want an error that says so", name, err)
		}
	}
}

func FuzzParseSymbols(f *testing.F) {
	f.Add("ffffffff81000000 T _text\n", uint64(0xffffffff81000001))
	f.Fuzz(func(t *testing.T, s string, ip uint64) {
		names, _ := parseSymbols(strings.NewReader(s), []uint64{ip, ip + 1})
		if len(names) > 2 {
			t.Errorf("%d names for two addresses", len(names))
		}
	})
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
		{Frame: frame("recurse"), Self: 1, Total: 4, Height: 0.75},
		{Frame: frame("main"), Total: 4, Height: 2.75},
		{Frame: frame("leaf"), Self: 3, Total: 3},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
