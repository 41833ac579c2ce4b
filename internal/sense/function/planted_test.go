package function

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
)

const watchVariable = "SLOWRAY_TEST_WATCH"

// TestMain is also the process that TestKilled kills: with the variable set it
// watches hot() of a process until it is.
func TestMain(m *testing.M) {
	if pid := os.Getenv(watchVariable); pid != "" {
		os.Unsetenv(watchVariable)
		os.Exit(watchUntilKilled(pid))
	}
	code := m.Run()
	if planted.dir != "" {
		os.RemoveAll(planted.dir)
	}
	os.Exit(code)
}

// planted builds the programs once.
var planted struct {
	once   sync.Once
	dir    string
	c, gol string
	why    string
}

func build(t testing.TB) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, to load BPF programs")
	}
	if dir := os.Getenv("SLOWRAY_TEST_PLANTED"); dir != "" { // on a machine without compilers
		planted.c, planted.gol = filepath.Join(dir, "planted"), filepath.Join(dir, "golang")
		return
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("NO GO: planted programs are not tested")
	}
	planted.once.Do(func() {
		dir, err := os.MkdirTemp("", "function")
		if err != nil {
			planted.why = err.Error()
			return
		}
		planted.dir = dir
		if _, err := exec.LookPath("gcc"); err == nil {
			planted.c = filepath.Join(dir, "planted")
			if out, err := exec.Command("gcc", "-O2", "-pthread", "-o", planted.c, "testdata/planted.c").CombinedOutput(); err != nil {
				planted.why = "gcc: " + string(out)
			}
		}
		planted.gol = filepath.Join(dir, "golang")
		cmd := exec.Command("go", "build", "-o", planted.gol, "./testdata/golang")
		if out, err := cmd.CombinedOutput(); err != nil {
			planted.why += "go build: " + string(out)
		}
	})
	if planted.why != "" {
		t.Fatal(planted.why)
	}
}

// program is a planted program that runs.
type program struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func startC(t testing.TB) *program {
	build(t)
	if planted.c == "" {
		t.Skip("NO GCC: the calls of a C program are not tested")
	}
	return startProgram(t, planted.c)
}

func startProgram(t testing.TB, path string) *program {
	t.Helper()
	return startCommand(t, exec.Command(path))
}

func startCommand(t testing.TB, cmd *exec.Cmd) *program {
	t.Helper()
	p := &program{t: t, cmd: cmd}
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewScanner(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.in.Close()
		kill := time.AfterFunc(5*time.Second, func() { _ = p.cmd.Process.Kill() })
		defer kill.Stop()
		_ = p.cmd.Wait()
	})
	p.read("ready")
	return p
}

// read reads lines until one, and returns those before it.
func (p *program) read(until string) []string {
	p.t.Helper()
	var before []string
	for p.out.Scan() {
		if p.out.Text() == until {
			return before
		}
		before = append(before, p.out.Text())
	}
	p.t.Fatalf("the planted program ended, without saying %q: %v", until, before)
	return nil
}

// tell has the program do something, and waits until it is done.
func (p *program) tell(command string) []string {
	p.t.Helper()
	if _, err := io.WriteString(p.in, command+"\n"); err != nil {
		p.t.Fatalf("the planted program is gone: %v", err)
	}
	return p.read("done")
}

func (p *program) pid() int { return p.cmd.Process.Pid }

// watch watches while during runs.
func watch(t testing.TB, k kernel, opt Options, during func()) *observe.Functions {
	t.Helper()
	if opt.MaxRate == 0 {
		opt.MaxRate = 1_000_000
	}
	if opt.Top == 0 {
		opt.Top = 3
	}
	plan, err := Prepare(context.Background(), opt)
	if err != nil {
		t.Fatal(err)
	}
	defer plan.Close()
	tr, err := startOn(k, plan)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	done := make(chan struct{})
	var out *observe.Functions
	began := make(chan struct{})
	var once sync.Once
	go func() {
		defer close(done)
		out, err = tr.Run(ctx, time.Minute, func(time.Duration) { once.Do(func() { close(began) }) })
	}()
	<-began
	during()
	stop()
	<-done
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// of is what was seen of one function.
func of(t *testing.T, o *observe.Functions, name string) *observe.Function {
	t.Helper()
	for i := range o.Calls {
		if o.Calls[i].Name == name {
			return &o.Calls[i]
		}
	}
	t.Fatalf("%s is not among %d functions", name, len(o.Calls))
	return nil
}

// within says whether a duration is between what the program measured inside of its calls and
// around them, and not less than planted. Sleeps are longer on a busy machine, so only that is
// the truth.
func (p *program) within(what string, ns int64, planted time.Duration, inside, around int64) {
	p.t.Helper()
	if ns < int64(planted) || ns < inside || ns > around {
		p.t.Errorf("%s: %s; planted %s, which took %s inside and %s around", what, time.Duration(ns), planted, time.Duration(inside), time.Duration(around))
	}
}

// numbers are those that the program printed.
func (p *program) numbers(lines []string) []int64 {
	p.t.Helper()
	var out []int64
	for f := range strings.FieldsSeq(strings.Join(lines, " ")) {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			p.t.Fatal(err)
		}
		out = append(out, n)
	}
	return out
}

func lost(o *observe.Functions, about string) int64 {
	for _, l := range o.Losses {
		if strings.Contains(l.What, about) {
			return l.Count
		}
	}
	return 0
}
