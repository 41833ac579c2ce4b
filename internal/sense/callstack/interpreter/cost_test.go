package interpreter

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/sense/callstack"
)

// TestMain runs one recording, without end, when it is asked to by
// TestKilled: it starts no other process.
func TestMain(m *testing.M) {
	if os.Getenv("SLOWRAY_TEST_RECORD") != "" {
		_, err := callstack.Record(context.Background(), time.Minute, callstack.Options{OffCPU: true, Unwinder: start})
		fmt.Println(err)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// loaded are the ids of the BPF programs of this name.
func loaded(t *testing.T, name string) map[ebpf.ProgramID]bool {
	t.Helper()
	ids := map[ebpf.ProgramID]bool{}
	for id := ebpf.ProgramID(0); ; {
		next, err := ebpf.ProgramGetNextID(id)
		if err != nil {
			return ids
		}
		id = next
		if p, err := ebpf.NewProgramFromID(id); err == nil {
			if info, err := p.Info(); err == nil && info.Name == name {
				ids[id] = true
			}
			p.Close()
		}
	}
}

// TestKilled: nothing stays attached when a recording is killed.
func TestKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	if os.Getuid() != 0 {
		t.Skip("needs root, to load BPF programs")
	}
	before := map[string]map[ebpf.ProgramID]bool{}
	names := []string{"switched", "leaving", "native_tracer_e"}
	for _, name := range names {
		before[name] = loaded(t, name)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "SLOWRAY_TEST_RECORD=1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fresh := func(name string) (n int) {
		for id := range loaded(t, name) {
			if !before[name][id] {
				n++
			}
		}
		return n
	}
	for end := time.Now().Add(20 * time.Second); fresh("switched") == 0; {
		if time.Now().After(end) {
			_ = cmd.Process.Kill()
			t.Fatal("the recording did not begin")
		}
		time.Sleep(50 * time.Millisecond)
	}
	time.Sleep(time.Second)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	for _, name := range names {
		left := fresh(name)
		for end := time.Now().Add(10 * time.Second); left > 0 && time.Now().Before(end); left = fresh(name) {
			time.Sleep(100 * time.Millisecond) // maps of programs are freed late
		}
		if left > 0 {
			t.Errorf("%d programs %s are still there", left, name)
		}
	}
}

// BenchmarkRecord tells what recording takes of one CPU, user space and BPF
// programs together, while every CPU computes: at 99 samples a second on each
// the target is 1 %.
func BenchmarkRecord(b *testing.B) {
	if os.Getuid() != 0 {
		b.Skip("needs root, to load BPF programs")
	}
	for _, c := range []struct {
		name string
		opt  callstack.Options
	}{
		{"on CPU, frame pointers", callstack.Options{OnCPU: true}},
		{"on CPU, interpreters", callstack.Options{OnCPU: true, Unwinder: start}},
		{"off CPU, frame pointers", callstack.Options{OffCPU: true}},
		{"off CPU, interpreters", callstack.Options{OffCPU: true, Unwinder: start}},
	} {
		b.Run(c.name, func(b *testing.B) { benchmark(b, c.opt, false) })
		b.Run(c.name+", one process", func(b *testing.B) { benchmark(b, c.opt, true) })
	}
}

func benchmark(b *testing.B, opt callstack.Options, one bool) {
	const window = 5 * time.Second
	load := exec.Command("/usr/bin/python3", "testdata/planted.py", "burn", "60")
	if err := load.Start(); err != nil {
		b.Skip(err)
	}
	defer func() {
		_ = load.Process.Kill()
		_ = load.Wait()
	}()
	if one {
		opt.PIDs = []int{load.Process.Pid}
	}
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		b.Skip(err)
	}
	defer stats.Close()
	for b.Loop() {
		var begun, ended time.Duration // CPU time of this process
		opt.Progress = func(time.Duration) {
			if ended = used(); begun == 0 {
				begun = ended
			}
		}
		var bpf time.Duration
		done := make(chan struct{})
		go func() { // the programs are gone when Record returns
			defer close(done)
			time.Sleep(window)
			bpf = runTime()
		}()
		s, err := callstack.Record(context.Background(), window, opt)
		if err != nil {
			b.Fatal(err)
		}
		after := used()
		<-done
		var samples int64
		for _, x := range s.Samples {
			samples += x.Values[0]
		}
		b.ReportMetric(100*float64(ended-begun)/float64(window), "user-cpu-%")
		b.ReportMetric(float64((after - ended).Milliseconds()), "ms-afterwards")
		b.ReportMetric(100*float64(bpf)/float64(window), "bpf-cpu-%")
		b.ReportMetric(float64(samples)/window.Seconds(), "records/s")
	}
}

// used is the CPU time of this process.
func used() time.Duration {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// runTime is the time that programs of these names have run, of all that there
// are.
func runTime() (sum time.Duration) {
	for id := ebpf.ProgramID(0); ; {
		next, err := ebpf.ProgramGetNextID(id)
		if err != nil {
			return sum
		}
		id = next
		p, err := ebpf.NewProgramFromID(id)
		if err != nil {
			continue
		}
		if info, err := p.Info(); err == nil {
			switch info.Name {
			case "sample", "switched", "woken", "leaving", "native_tracer_e":
				if st, err := p.Stats(); err == nil {
					sum += st.Runtime
				}
			}
		}
		p.Close()
	}
}
