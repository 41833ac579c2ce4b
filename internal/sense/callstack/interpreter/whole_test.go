package interpreter

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/callstack"
	"github.com/slowray/slowray/internal/sense/symbol"
)

// TestWholeStacks: the stack of a thread that computes or sleeps in a function of a native
// program leads through all that called it, as far as main. It judges no times: it runs in
// emulated machines, too.
func TestWholeStacks(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	var native []planted
	for _, p := range programs(t) {
		if p.kind == observe.FrameNative || p.kind == observe.FrameGo {
			native = append(native, p)
		}
	}
	// The first stacks are taken while the binaries are still read, and lack callers: that
	// second, or more of a busy machine, has to be little of the window.
	window, emulated := 10*time.Second, os.Getenv("SLOWRAY_TEST_EMULATED") != ""
	if emulated {
		// There the library reads binaries for most of a short window, and names take more
		// time than there is where people wait for them.
		window = 40 * time.Second
		limits := symbol.Limits
		symbol.Limits.Wall = time.Minute
		t.Cleanup(func() { symbol.Limits = limits })
	}
	for _, mode := range []struct {
		name   string
		leaves []string
		opt    callstack.Options
	}{
		{"burn", []string{"burn_most", "burn_some"}, callstack.Options{OnCPU: true}},
		{"wait", []string{"wait_on_db"}, callstack.Options{OffCPU: true}},
	} {
		opt := mode.opt
		opt.Unwinder = start
		for _, p := range native {
			opt.PIDs = append(opt.PIDs, p.run(t, mode.name))
		}
		s, err := callstack.Record(context.Background(), window, opt)
		if err != nil {
			t.Fatalf("%+v", err)
		}
		if i := slices.IndexFunc(s.Notes, func(n string) bool { return strings.HasPrefix(n, "no frames of interpreters") }); i >= 0 {
			t.Skipf("SKIP: %s: whole stacks are NOT tested", s.Notes[i])
		}
		for i, p := range native {
			t.Run(p.name+" "+mode.name, func(t *testing.T) {
				if p.leaf && mode.opt.OnCPU && errors.Is(features.HaveProgramHelper(ebpf.PerfEvent, asm.FnTaskPtRegs), ebpf.ErrNotSupported) {
					t.Skip("SKIP: before Linux 5.15 callers of functions without a frame are missing: whole stacks are NOT tested")
				}
				p.checkWhole(t, s, opt.PIDs[i], mode.leaves, emulated && !(p.ownEngine && mode.opt.OnCPU))
			})
		}
	}
}

// run starts the program and returns its process ID.
func (p planted) run(t *testing.T, mode string) int {
	t.Helper()
	cmd := exec.Command(p.command[0], append(slices.Clone(p.command[1:]), mode, "600")...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

// checkWhole checks nearly all stacks of a process; some says that enough of them will do.
func (p planted) checkWhole(t *testing.T, s *observe.Stacks, pid int, leaves []string, some bool) {
	t.Helper()
	mine := *s
	mine.Samples = slices.DeleteFunc(slices.Clone(s.Samples), func(x observe.StackSample) bool { return x.PID != pid })
	var all, whole int64
	for _, x := range mine.Samples {
		// at is how far from the leaf the first frame of one of these functions is.
		at := func(functions ...string) int {
			return slices.IndexFunc(x.Frames, func(f int32) bool {
				return s.Frames[f].Kind == p.kind && slices.ContainsFunc(functions, func(name string) bool { return s.Frames[f].Name == p.prefix+name })
			})
		}
		leaf := at(leaves...)
		if leaf < 0 {
			continue
		}
		all += x.Values[0]
		if caller := at("handle_request"); caller == leaf+1 && at("main") == caller+1 {
			whole += x.Values[0]
		}
	}
	if whole < 20 {
		t.Fatalf("%d of %d stacks lead through handle_request and main:\n%s", whole, all, folded(&mine))
	}
	if whole*10 < all*9 && !some {
		t.Errorf("%d of %d stacks lead through handle_request and main:\n%s", whole, all, folded(&mine))
	}
}
