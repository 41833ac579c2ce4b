package interpreter

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/callstack"
	"github.com/slowray/slowray/internal/sense/symbol"
)

// planted is a program whose hot functions and waits are known.
type planted struct {
	name    string
	command []string
	// prefix is what the language writes before a function.
	prefix string
	kind   observe.FrameKind
	// ownEngine says that frame pointers alone lead through its stacks.
	ownEngine bool
	// leaf says that innermost functions have no frame pointer of their own:
	// what called them is missing.
	leaf bool
}

// programs builds what can be built here.
func programs(t *testing.T) []planted {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, to load BPF programs")
	}
	dir, built := os.LookupEnv("SLOWRAY_TEST_PLANTED") // on a machine without compilers
	if !built {
		dir = t.TempDir()
	}
	var all []planted
	add := func(p planted, need string, build ...string) {
		if testing.Short() && need != "go" {
			t.Logf("SKIPPED %s: -short", p.name)
			return
		}
		if built && len(build) > 0 {
			if _, err := os.Stat(p.command[0]); err != nil {
				t.Logf("SKIPPED %s: %v", p.name, err)
				return
			}
			all = append(all, p)
			return
		}
		if _, err := exec.LookPath(need); err != nil {
			t.Logf("SKIPPED %s: %v", p.name, err)
			return
		}
		if len(build) > 0 {
			cmd := exec.Command(build[0], build[1:]...)
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", p.name, err, out)
			}
		}
		all = append(all, p)
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	add(planted{name: "C", command: []string{in("c")}, kind: observe.FrameNative},
		"gcc", "gcc", "-O2", "-fomit-frame-pointer", "-o", in("c"), "testdata/planted.c")
	if runtime.GOARCH == "arm64" {
		add(planted{name: "C, return addresses signed", command: []string{in("cpac")}, kind: observe.FrameNative},
			"gcc", "gcc", "-O2", "-fomit-frame-pointer", "-mbranch-protection=pac-ret", "-o", in("cpac"), "testdata/planted.c")
	}
	add(planted{name: "C with frame pointers", command: []string{in("cfp")}, kind: observe.FrameNative, ownEngine: true, leaf: true},
		"gcc", "gcc", "-O1", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-o", in("cfp"), "testdata/planted.c")
	add(planted{name: "Go, stripped", command: []string{in("go")}, kind: observe.FrameGo, prefix: "main.", ownEngine: true, leaf: true},
		"go", "go", "build", "-ldflags=-s -w", "-o", in("go"), "./testdata/planted")
	add(planted{name: "Python", command: []string{"/usr/bin/python3", "testdata/planted.py"}, kind: observe.FramePython}, "/usr/bin/python3")
	add(planted{name: "PHP", command: []string{"php", "testdata/planted.php"}, kind: observe.FramePHP}, "php")
	add(planted{name: "Node", command: []string{"node", "testdata/planted.js"}, kind: observe.FrameNode}, "node")
	add(planted{name: "Java", command: []string{"java", "-cp", dir, "Planted"}, kind: observe.FrameJava, prefix: "Planted."},
		"javac", "javac", "-d", dir, "testdata/Planted.java")
	return all
}

// record runs the program and records its stacks for two seconds. It says, too, how long the
// sleeps took on average while it did, by the program's clock.
func (p planted) record(t *testing.T, mode string, full bool) (*observe.Stacks, time.Duration) {
	t.Helper()
	cmd := exec.Command(p.command[0], append(slices.Clone(p.command[1:]), mode, "20")...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout // where println of Go writes
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var naps, slept atomic.Int64
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if ns, err := strconv.ParseInt(lines.Text(), 10, 64); err == nil {
				naps.Add(1)
				slept.Add(ns)
			}
		}
	}()
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	time.Sleep(500 * time.Millisecond) // for the JVM and the compilers
	opt := callstack.Options{PIDs: []int{cmd.Process.Pid}, OnCPU: mode == "burn", OffCPU: mode == "wait"}
	if full {
		opt.Unwinder = start
	}
	before, sum := naps.Load(), slept.Load()
	s, err := callstack.Record(context.Background(), 2*time.Second, opt)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	return s, time.Duration((slept.Load() - sum) / max(naps.Load()-before, 1))
}

func start(space *symbol.Space, pids []int) (callstack.Unwinder, error) {
	u, err := Start(space, pids)
	if err != nil {
		return nil, err
	}
	return u, nil
}

// through sums a value of the stacks that pass through a function.
func through(s *observe.Stacks, value int, name string, kind observe.FrameKind) (sum int64) {
	for _, x := range s.Samples {
		if slices.ContainsFunc(x.Frames, func(f int32) bool { return s.Frames[f].Name == name && s.Frames[f].Kind == kind }) {
			sum += x.Values[value]
		}
	}
	return sum
}

func folded(s *observe.Stacks) string {
	var b strings.Builder
	for _, x := range s.Samples {
		fmt.Fprint(&b, x.Values, " ", x.Comm)
		for _, f := range slices.Backward(x.Frames) {
			fmt.Fprintf(&b, ";%s(%s)", s.Frames[f].Name, s.Frames[f].Kind)
		}
		b.WriteByte('\n')
	}
	return fmt.Sprint(b.String(), s.Losses, s.Notes)
}

// TestHotFunction: the planted functions have their shares of the CPU.
func TestHotFunction(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	for _, p := range programs(t) {
		t.Run(p.name, func(t *testing.T) {
			s, _ := p.record(t, "burn", true)
			p.checkHot(t, s)
		})
		if p.ownEngine {
			t.Run(p.name+" by frame pointers", func(t *testing.T) {
				s, _ := p.record(t, "burn", false)
				p.checkHot(t, s)
			})
		}
	}
}

func (p planted) checkHot(t *testing.T, s *observe.Stacks) {
	t.Helper()
	const samples = 0
	most := through(s, samples, p.prefix+"burn_most", p.kind)
	some := through(s, samples, p.prefix+"burn_some", p.kind)
	outer := "handle_request"
	if p.leaf {
		outer = "main"
	}
	all := through(s, samples, p.prefix+outer, p.kind)
	if all < 20 { // a tenth of a CPU: there may be as little of a full machine
		t.Fatalf("%d samples in 2 s:\n%s", all, folded(s))
	}
	// A compiler may inline burn_some and burn_most into handle_request: then
	// their samples are missing, and the test fails, as it should.
	share := float64(most) / float64(most+some)
	tolerance := 4 * math.Sqrt(0.75*0.25/float64(most+some)) // four standard deviations
	if math.Abs(share-0.75) > tolerance+0.05 {
		t.Errorf("burn_most has %.2f of the samples, want 0.75 ± %.2f:\n%s", share, tolerance+0.05, folded(s))
	}
	if float64(most+some) < 0.9*float64(all) {
		t.Errorf("%d of %d samples are in the planted functions:\n%s", most+some, all, folded(s))
	}
}

// TestKnownSleep: the time of planted sleeps is the time that was slept, and
// the stack is known at nearly all of them.
func TestKnownSleep(t *testing.T) {
	for _, p := range programs(t) {
		t.Run(p.name, func(t *testing.T) { p.checkSleep(t, true, "wait_on_db") })
		if p.ownEngine {
			// The frame of a function that calls libc is not to be had by
			// frame pointers, which libc does not keep: its caller's is.
			t.Run(p.name+" by frame pointers", func(t *testing.T) { p.checkSleep(t, false, "handle_request") })
		}
	}
}

func (p planted) checkSleep(t *testing.T, full bool, function string) {
	t.Helper()
	s, took := p.record(t, "wait", full)
	const waits, blocked, runnable = 0, 1, 2
	name := p.prefix + function
	slept := *s
	// A thread that lost its CPU inside the call waited, but did not sleep.
	slept.Samples = slices.DeleteFunc(slices.Clone(s.Samples), func(x observe.StackSample) bool { return x.Values[blocked] == 0 })
	n, ns := through(&slept, waits, name, p.kind), through(&slept, blocked, name, p.kind)
	if n == 0 {
		t.Fatalf("no wait in %s:\n%s", name, folded(s))
	}
	// Each sleep takes 20 ms, and what the timer adds, which the program knows; the
	// window has only a part of the first and of the last.
	least := 20 * time.Millisecond * time.Duration(n-2) / time.Duration(n)
	if mean := time.Duration(ns / n); mean < least || mean > took+2*time.Millisecond {
		t.Errorf("a sleep of 20 ms took %s, the program says %s:\n%s", mean, took, folded(s))
	}
	// It does nothing but sleep, or want the CPU for it.
	total := float64(ns + through(s, runnable, name, p.kind))
	if window := float64(s.WindowNS); total < 0.95*window || total > 1.02*window {
		t.Errorf("slept %.2f s of a window of %.2f s:\n%s", total/1e9, window/1e9, folded(s))
	}
}
