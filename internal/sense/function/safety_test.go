package function

import (
	"context"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// watchUntilKilled is another process that watches.
func watchUntilKilled(pid string) int {
	plan, err := Prepare(context.Background(), Options{Target: pid, Symbols: []string{"hot"}, MaxRate: 1_000_000})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	tr, err := Start(plan)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("watching")
	_, _ = tr.Run(context.Background(), 30*time.Second, nil) // a bound, should nobody kill it
	return 1
}

// code reads the first instruction of a function in a process's memory.
func code(t *testing.T, pid int, path, name string) byte {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	maps, err := mappings(ample(), pid)
	if err != nil {
		t.Fatal(err)
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	im, err := openImage(ample(), file{open: path, name: path})
	if err != nil {
		t.Fatal(err)
	}
	defer im.close()
	for _, s := range symbols {
		off, ok := im.offsetOf(s.Value)
		if s.Name != name || !ok {
			continue
		}
		for _, m := range maps {
			if strings.TrimSuffix(m.Path, " (deleted)") == path && off >= m.Offset && off < m.Offset+m.End-m.Start {
				var b [1]byte
				if _, err := mem.ReadAt(b[:], int64(m.Start+off-m.Offset)); err != nil {
					t.Fatal(err)
				}
				return b[0]
			}
		}
	}
	t.Fatalf("%s is not mapped", name)
	return 0
}

const breakpoint = 0xcc // int3

// TestKilled: after kill -9 no breakpoint is left, and the target goes on.
func TestKilled(t *testing.T) {
	p := startC(t)
	before := code(t, p.pid(), planted.c, "hot")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	w := exec.Command(self)
	w.Env = append(os.Environ(), watchVariable+"="+strconv.Itoa(p.pid()))
	out, err := w.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 64)
	n, _ := out.Read(line)
	if string(line[:n]) != "watching\n" {
		_ = w.Process.Kill()
		_ = w.Wait()
		t.Fatalf("the watcher says %q", line[:n])
	}
	p.tell("hot 100")
	if got := code(t, p.pid(), planted.c, "hot"); got == before {
		t.Errorf("no breakpoint while it is watched: %#x", got)
	}
	_ = w.Process.Kill()
	_ = w.Wait()
	for range 100 { // links are freed a moment later
		if code(t, p.pid(), planted.c, "hot") == before {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if got := code(t, p.pid(), planted.c, "hot"); got != before || before == breakpoint {
		t.Errorf("hot() begins with %#x, and with %#x before", got, before)
	}
	p.tell("hot 1000")
}

// TestRateBound: what is called too often is let go, and soon.
func TestRateBound(t *testing.T) {
	p := startC(t)
	before := code(t, p.pid(), planted.c, "hot")
	plan, err := Prepare(context.Background(), Options{Target: strconv.Itoa(p.pid()), Symbols: []string{"hot"}, MaxRate: 2000, Top: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer plan.Close()
	tr, err := Start(plan)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	told := make(chan struct{})
	go func() {
		defer close(told)
		p.tell("hot 20000")
	}()
	start := time.Now()
	o, err := tr.Run(context.Background(), 20*time.Second, nil)
	<-told
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(o.Stopped, "--max-rate") || time.Since(start) > 10*time.Second {
		t.Errorf("stopped after %s: %q", time.Since(start), o.Stopped)
	}
	// A quarter of a second's worth, and that of a moment on the other CPUs.
	if o.Price.Hits < 500 || o.Price.Hits > 600 {
		t.Errorf("%d hits, want 500", o.Price.Hits)
	}
	if f := of(t, o, "hot"); f.Calls < 200 || f.Calls > 300 {
		t.Errorf("%d calls of hot(), want 250", f.Calls)
	}
	if got := code(t, p.pid(), planted.c, "hot"); got != before {
		t.Errorf("hot() begins with %#x after it was let go, with %#x before", got, before)
	}
}

// TestDeletedProgram: a program that was replaced on disk is watched as it runs.
func TestDeletedProgram(t *testing.T) {
	build(t)
	if planted.c == "" {
		t.Skip("NO GCC: a deleted program is not tested")
	}
	copied := filepath.Join(t.TempDir(), "copied")
	data, err := os.ReadFile(planted.c)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(copied, data, 0o755); err != nil {
		t.Fatal(err)
	}
	p := startProgram(t, copied)
	if err := os.Remove(copied); err != nil {
		t.Fatal(err)
	}
	o := watch(t, probeKernel(), Options{Target: strconv.Itoa(p.pid()), Symbols: []string{"hot"}}, func() { p.tell("hot 77") })
	if f := of(t, o, "hot"); f.Calls != 77 {
		t.Errorf("%d calls, want 77", f.Calls)
	}
}

// TestProcessEnds: the report comes when the process ends, and calls that it
// was in are not said to go on.
func TestProcessEnds(t *testing.T) {
	p := startC(t)
	plan, err := Prepare(context.Background(), Options{Target: strconv.Itoa(p.pid()), Symbols: []string{"hang", "hot"}, MaxRate: 100000, Top: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer plan.Close()
	tr, err := Start(plan)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	go func() {
		time.Sleep(50 * time.Millisecond)
		_, _ = p.in.Write([]byte("hang\nhot 5\n"))
		time.Sleep(100 * time.Millisecond)
		p.in.Close()
		_, _ = p.cmd.Process.Wait()
	}()
	start := time.Now()
	o, err := tr.Run(context.Background(), 20*time.Second, nil)
	if err != nil {
		t.Fatal(err)
	}
	if time.Since(start) > 10*time.Second || !strings.Contains(o.Stopped, "ended") {
		t.Errorf("stopped after %s: %q", time.Since(start), o.Stopped)
	}
	if h := of(t, o, "hang"); h.Calls != 1 || h.Running != 0 || h.Left != 1 {
		t.Errorf("hang: %+v, want one call that was left by the thread's end", h)
	}
}

// TestRefusals: what cannot be done is one clear line.
func TestRefusals(t *testing.T) {
	build(t)
	self := strconv.Itoa(os.Getpid())
	for _, c := range []struct {
		target, symbol, want string
	}{
		{"999999999", "x", "no such process"},
		{"/etc/passwd", "x", "not an ELF file"},
		{"/no/such/file", "x", "no such file"},
		{"no-such-program", "x", "no such program or library"},
		{"[vdso]", "x", "no probe can be set there"},
		{planted.gol, "main.hndle", "there is main.handle"},
		{planted.gol, "__vdso_gettimeofday", "vDSO"},
		{planted.gol, "syscall:read", "give a pid"},
		{planted.gol, "usdt:x:y", "no static probe"},
		{"kernel", "main", "in a program or library"},
		{"kernel", "syscall:reed", "there is read"},
		{"kernel", "tracepoint:sched:sched_swich", "sched:sched_switch"},
		{"kernel", "tracepoint:nothing", "tracepoint:GROUP:NAME"},
		{self, "no_such_function_anywhere", "no function"},
		{self, "", "the name is missing"},
	} {
		p, err := Prepare(context.Background(), Options{Target: c.target, Symbols: []string{c.symbol}})
		if err == nil {
			p.Close()
			t.Errorf("%s %s: no error", c.target, c.symbol)
			continue
		}
		if !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s %s: %q, want one line with %q", c.target, c.symbol, err, c.want)
		}
	}
}
