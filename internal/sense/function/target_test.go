package function

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/slowray/slowray/internal/budget"
)

// TestException: an exception through a function that is watched harms nobody.
func TestException(t *testing.T) {
	build(t)
	if _, err := exec.LookPath("g++"); err != nil {
		t.Skip("NO G++: exceptions are not tested")
	}
	path := filepath.Join(t.TempDir(), "throws")
	if out, err := exec.Command("g++", "-O2", "-o", path, "testdata/throws.cc").CombinedOutput(); err != nil {
		t.Fatalf("g++: %v\n%s", err, out)
	}
	p := startProgram(t, path)
	o := watch(t, probeKernel(), Options{Target: strconv.Itoa(p.pid()), Symbols: []string{"Shop::*"}}, func() { p.tell("sell") })
	// A frame is known to be left when the next call comes, so the last one may not be.
	sell := of(t, o, "Shop::sell(int)")
	if sell.Calls != 10 || sell.Returned != 5 || sell.Left+uint64(sell.Running) != 5 {
		t.Errorf("sell: %+v, want 10 calls of which 5 return", sell)
	}
	if price := of(t, o, "Shop::price(int)"); price.Calls != 10 || price.Returned != 5 {
		t.Errorf("price: %+v, want 10 calls of which 5 return", price)
	}
	p.tell("sell") // it is still there
}

// TestPathAndPID: a path is every process of it; with a pid the others are let
// alone.
func TestPathAndPID(t *testing.T) {
	for name, k := range kernels(t) {
		t.Run(name, func(t *testing.T) {
			p, other := startC(t), startC(t)
			both := func() {
				p.tell("hot 30")
				other.tell("hot 12")
			}
			opt := Options{Target: planted.c, Symbols: []string{"hot"}}
			if f := of(t, watch(t, k, opt, both), "hot"); f.Calls != 42 || f.Returned != 42 || len(f.Threads) != 2 {
				t.Errorf("%+v, want 42 calls by two", f)
			}
			before := code(t, other.pid(), planted.c, "hot")
			opt.PID = p.pid()
			f := of(t, watch(t, k, opt, func() {
				both()
				if now := code(t, other.pid(), planted.c, "hot"); now != before {
					t.Errorf("a breakpoint in the process that was not asked for: %#x", now)
				}
			}), "hot")
			if f.Calls != 30 || len(f.Threads) != 1 {
				t.Errorf("%+v, want 30 calls by one", f)
			}
		})
	}
}

// TestOtherMountNamespace: a program where this process cannot see it.
func TestOtherMountNamespace(t *testing.T) {
	build(t)
	if planted.c == "" {
		t.Skip("NO GCC: other mount namespaces are not tested")
	}
	dir := t.TempDir()
	script := fmt.Sprintf("mount -t tmpfs none %[1]s && cp %[2]s %[1]s/hidden && exec %[1]s/hidden", dir, planted.c)
	cmd := exec.Command("sh", "-c", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	p := startCommand(t, cmd)
	o := watch(t, probeKernel(), Options{Target: strconv.Itoa(p.pid()), Symbols: []string{"hot"}}, func() { p.tell("hot 9") })
	if f := of(t, o, "hot"); f.Calls != 9 || f.Module != dir+"/hidden" {
		t.Errorf("%+v, want 9 calls in %s/hidden", f, dir)
	}
}

// TestSyscallsAndTracepoints: of one process, with errors and arguments.
func TestSyscallsAndTracepoints(t *testing.T) {
	p := startC(t)
	o := watch(t, probeKernel(), Options{
		Target: strconv.Itoa(p.pid()), Symbols: []string{"syscall:clock_nanosleep", "syscall:write", "tracepoint:sched:sched_process_f*"},
		Args: []Arg{{Number: 2, Type: "int"}},
	}, func() {
		p.tell("nap")
		p.tell("threads")
	})
	if f := of(t, o, "clock_nanosleep"); f.Calls != 60 || f.Returned != 60 || f.Failed != 0 || len(f.Threads) != 5 {
		t.Errorf("clock_nanosleep: %+v, want 60 calls by 5 threads", f)
	}
	if f := of(t, o, "write"); f.Calls < 3 || f.Slowest[0].Args == nil {
		t.Errorf("write: %+v", f)
	}
	if f := of(t, o, "sched:sched_process_fork"); f.Calls != 4 || len(f.Slowest) == 0 {
		t.Errorf("sched_process_fork: %+v, want 4", f)
	}
}

// ample is a budget that no real program uses up.
func ample() *budget.Budget { return budget.New(context.Background(), limits) }
