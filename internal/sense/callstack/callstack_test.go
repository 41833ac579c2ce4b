package callstack

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/symbol"
)

func TestParseRecord(t *testing.T) {
	le := binary.LittleEndian
	var b []byte
	for _, v := range []uint64{7, 8, 9, 12} {
		b = le.AppendUint64(b, v)
	}
	b = le.AppendUint32(le.AppendUint32(b, 10), 11)
	for _, v := range []uint16{uint16(offCPU), 1, 2, flagKernelThread} {
		b = le.AppendUint16(b, v)
	}
	b = append(b, "worker\x00garbage!!"...)
	for _, ip := range []uint64{100, 200, 300} {
		b = le.AppendUint64(b, ip)
	}
	var r record
	if err := parseRecord(b, &r); err != nil {
		t.Fatal(err)
	}
	got := []any{r.time, r.blocked, r.runnable, r.caller, r.pid, r.tid, r.kind, r.flags, commText(r.comm), address(r.kernel, 0), address(r.user, 0), address(r.user, 1)}
	want := []any{uint64(7), uint64(8), uint64(9), uint64(12), 10, 11, offCPU, uint16(flagKernelThread), "worker", uint64(100), uint64(200), uint64(300)}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported()); diff != "" {
		t.Error(diff)
	}
	for n := range b {
		if parseRecord(b[:n], &r) == nil {
			t.Errorf("%d of %d bytes were accepted", n, len(b))
		}
	}
}

// TestMatch: a record finds the stack that was taken right after it in its
// thread, and no other.
func TestMatch(t *testing.T) {
	f := newFull()
	f.byThread[1] = []moment{{at: 1000, frames: []int32{1}}, {at: 5_000_000, frames: []int32{2}}}
	for _, c := range []struct {
		tid  int
		time uint64
		want []int32
	}{
		{1, 0, []int32{1}},
		{1, 1000, []int32{1}},
		{1, 1001, nil}, // the next is too far off
		{1, 4_999_000, []int32{2}},
		{1, 5_000_001, nil},
		{2, 1000, nil},
	} {
		if got := f.at(c.tid, c.time); !slices.Equal(got, c.want) {
			t.Errorf("thread %d at %d: %v, want %v", c.tid, c.time, got, c.want)
		}
	}
}

// TestTally: what differs in nothing that is shown is one sample.
func TestTally(t *testing.T) {
	space := symbol.NewSpace(t.TempDir())
	ta := newTally(space, false)
	f := ta.id(space.Function(observe.Frame{Name: "f", Kind: observe.FramePython, Line: 1}))
	g := ta.id(space.KernelFunction("g", ""))
	ta.id(space.Kernel(1)) // is in no stack: nothing is said of it
	add := func(tid int, v value, frames ...int32) {
		ta.count(thread{pid: 1, tid: tid, kernel: true, comm: [16]byte{'c'}}, frames, v)
	}
	add(1, value{first: 1}, g, f)
	add(2, value{first: 2}, g, f)
	add(1, value{first: 4, slow: true}, g, f)
	add(1, value{first: 8}, f)
	out := &observe.Stacks{Types: Types(false)}
	ta.export(out)
	want := &observe.Stacks{
		Types:  Types(false),
		Frames: []observe.Frame{{Name: "f", Kind: observe.FramePython, Line: 1}, {Name: "g", Kind: observe.FrameKernel, Module: "vmlinux"}},
		Samples: []observe.StackSample{
			{PID: 1, Comm: "c", Frames: []int32{0}, Values: []int64{1, 8}},
			{PID: 1, Comm: "c", Frames: []int32{1, 0}, Values: []int64{1, 4}, Slow: true},
			{PID: 1, Comm: "c", Frames: []int32{1, 0}, Values: []int64{2, 3}},
		},
	}
	if diff := cmp.Diff(want, out); diff != "" {
		t.Error(diff)
	}
}

// TestCalls: the caller of a function that was interrupted before it had a frame is in its
// stack once, and nobody is of one that had a frame by then.
func TestCalls(t *testing.T) {
	space := symbol.NewSpace("/proc")
	defer space.Close()
	pc, _, _, _ := runtime.Caller(0)
	entry, caller := uint64(reflect.ValueOf(computes).Pointer()), uint64(pc)
	word := func(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }
	name := func(f any) string { return runtime.FuncForPC(reflect.ValueOf(f).Pointer()).Name() }
	leaf, outer := name(computes), name(TestCalls)
	other := space.Function(observe.Frame{Name: "other", Kind: observe.FrameGo})
	for _, c := range []struct {
		name         string
		user, caller uint64
		full         []symbol.Location // that the unwinder found
		want         []string
	}{
		{"at its beginning", entry, caller, nil, []string{leaf, outer}},
		{"with a frame", caller, entry + 1, nil, []string{outer}},
		{"returns to no code", entry, 0x1001, nil, []string{leaf}},
		{"unwound by frame pointers", entry, caller, []symbol.Location{space.Function(observe.Frame{Name: leaf, Kind: observe.FrameGo}), other}, []string{leaf, outer, "other"}},
		{"unwound by tables", entry, caller, []symbol.Location{space.Function(observe.Frame{Name: leaf, Kind: observe.FrameGo}), space.Function(observe.Frame{Name: outer, Kind: observe.FrameGo})}, []string{leaf, outer}},
		{"unwound, with a frame", caller, entry + 1, []symbol.Location{other}, []string{"other"}},
	} {
		ta := newTally(space, false)
		frames := ta.userFrames(&record{pid: os.Getpid(), kind: onCPU, user: word(c.user), caller: c.caller}, nil)
		if c.full != nil {
			var full []int32
			for _, l := range c.full {
				full = append(full, ta.id(l))
			}
			frames = ta.withCall(nil, frames, full)
		}
		ta.count(thread{pid: os.Getpid()}, frames, value{first: 1})
		out := &observe.Stacks{Types: Types(false)}
		ta.export(out)
		var got []string
		for _, f := range out.Samples[0].Frames {
			got = append(got, out.Frames[f].Name)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

func TestNoProcess(t *testing.T) {
	const none = 1 << 30
	if _, err := Record(context.Background(), time.Second, Options{PIDs: []int{none}, OnCPU: true}); !errors.Is(err, ErrNoProcess) {
		t.Errorf("%v, want %v", err, ErrNoProcess)
	}
}

var sink atomic.Int64

//go:noinline
func computes(over *atomic.Bool) {
	for !over.Load() {
		for range 1000 {
			sink.Add(1)
		}
	}
}

//go:noinline
func sleeps(over *atomic.Bool) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for !over.Load() {
		naps = append(naps, time.Now().UnixNano())
		t := unix.NsecToTimespec(nap)
		_ = unix.Nanosleep(&t, nil)
	}
}

const nap = 20e6

var naps []int64 // when each of sleeps began, ns

// TestOwnStacks records this process: one goroutine computes, one sleeps.
func TestOwnStacks(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	if os.Getuid() != 0 {
		t.Skip("needs root, to load BPF programs")
	}
	const window = 2 * time.Second
	for _, c := range []struct {
		name, function string
		do             func(over *atomic.Bool)
		opt            Options
		kernel         string
	}{
		{"on CPU", "computes", computes, Options{OnCPU: true}, ""},
		{"off CPU", "sleeps", sleeps, Options{OffCPU: true}, "nanosleep"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var over atomic.Bool
			done := make(chan struct{})
			go func() { c.do(&over); close(done) }()
			c.opt.PIDs = []int{os.Getpid()}
			s, err := Record(context.Background(), window, c.opt)
			over.Store(true)
			<-done
			if errors.Is(err, ebpf.ErrNotSupported) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatalf("%+v", err)
			}
			var through, withKernel, runnable int64
			for _, x := range s.Samples {
				has := func(part string) bool {
					return slices.ContainsFunc(x.Frames, func(f int32) bool { return strings.Contains(s.Frames[f].Name, part) })
				}
				if has("callstack." + c.function) {
					through += x.Values[1]
					for _, v := range x.Values[2:] {
						runnable += v
					}
					if c.kernel != "" && has(c.kernel) {
						withKernel += x.Values[1]
					}
				}
			}
			// Computing may have to share the CPU; who sleeps waits, if not for the timer then
			// for the CPU.
			least := 0.2 * float64(s.WindowNS)
			if c.opt.OffCPU {
				least = 0.9 * float64(s.WindowNS)
			}
			if took := float64(through + runnable); took < least {
				t.Errorf("%.2f s in %s, want at least %.2f s: %+v", took/1e9, c.function, least/1e9, s)
			}
			within := int64(-2) // the timer of one may run before it has left the CPU
			for _, at := range naps {
				if at > s.StartNS && at+nap < s.StartNS+s.WindowNS {
					within++
				}
			}
			if c.opt.OffCPU && through < nap*within {
				t.Errorf("%d ns asleep, of %d and two naps: %+v", through, within, s)
			}
			if c.kernel != "" && !kernelHidden(s) && withKernel*10 < through*9 {
				t.Errorf("%d of %d ns have kernel frames", withKernel, through)
			}
		})
	}
}

// kernelHidden says that this kernel shows no kernel stacks of threads that
// wait, as was reported.
func kernelHidden(s *observe.Stacks) bool {
	return slices.ContainsFunc(s.Notes, func(n string) bool { return strings.Contains(n, "kernel stacks") })
}

// TestEarlierWait: a wait that began before the recording counts from the beginning
// of the recording.
func TestEarlierWait(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	if os.Getuid() != 0 {
		t.Skip("needs root, to load BPF programs")
	}
	const wait = 4 * time.Second
	began := make(chan time.Time, 1)
	woken := make(chan time.Time, 1)
	go func() {
		runtime.LockOSThread()
		began <- time.Now()
		d := unix.NsecToTimespec(int64(wait))
		_ = unix.ClockNanosleep(unix.CLOCK_BOOTTIME, 0, &d, nil)
		woken <- time.Now()
	}()
	earliest := (<-began).Add(wait)
	time.Sleep(100 * time.Millisecond)
	called := time.Now()
	s, err := Record(context.Background(), 5*time.Second, Options{PIDs: []int{os.Getpid()}, OffCPU: true})
	if errors.Is(err, ebpf.ErrNotSupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatalf("%+v", err)
	}
	// Loading the programs takes from a tenth of a second to seconds, as busy as the
	// machine is: the recording began in between these two.
	latest := time.Now().Add(-time.Duration(s.WindowNS))
	if kernelHidden(s) {
		t.Skip(s.Notes)
	}
	var waited, runnable time.Duration
	for _, x := range s.Samples {
		if slices.ContainsFunc(x.Frames, func(f int32) bool { return strings.Contains(s.Frames[f].Name, "sys_clock_nanosleep") }) {
			waited, runnable = waited+time.Duration(x.Values[1]), runnable+time.Duration(x.Values[2])
		}
	}
	// No timer fires early; when it is late, or the CPU after it, the thread knows the end.
	least, most := earliest.Sub(latest), (<-woken).Sub(called)
	if least <= 0 {
		t.Fatalf("the recording began %s after the call, when the wait was over", latest.Sub(called))
	}
	if waited < least || waited+runnable > most {
		t.Errorf("%s, and %s for the CPU, of a wait that went on for %s to %s after the recording began: %+v", waited, runnable, least, most, s)
	}
}

// TestNoUnwinder: when the better unwinder cannot be had, there are stacks all
// the same, and it is reported.
func TestNoUnwinder(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to load BPF programs")
	}
	var over atomic.Bool
	done := make(chan struct{})
	go func() { computes(&over); close(done) }()
	s, err := Record(context.Background(), time.Second, Options{
		PIDs: []int{os.Getpid()}, OnCPU: true, Threads: true,
		Unwinder: func(*symbol.Space, []int) (Unwinder, error) { return nil, errors.New("refused") },
	})
	over.Store(true)
	<-done
	if err != nil {
		t.Fatalf("%+v", err)
	}
	if !slices.ContainsFunc(s.Notes, func(n string) bool {
		return strings.HasPrefix(n, "no frames of interpreters") && strings.HasSuffix(n, ": refused")
	}) {
		t.Errorf("notes: %q", s.Notes)
	}
	if len(s.Samples) == 0 || s.Samples[0].TID == 0 {
		t.Errorf("%+v", s.Samples)
	}
}
