package doctor

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/sense/function"
)

// beTracer has the test binary count calls in itself, as slowray func does.
const beTracer = "SLOWRAY_TEST_TRACER"

func TestMain(m *testing.M) {
	if os.Getenv(beTracer) != "" {
		if err := traced(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

//go:noinline
func hitByTest(n int) int { return n*3 + 1 }

// traced hits a probe some thousand times a second, until it is killed.
func traced() error {
	path, err := self()
	if err != nil {
		return err
	}
	plan, err := function.Prepare(context.Background(), function.Options{Target: path, PID: os.Getpid(), Symbols: []string{"*hitByTest"}, CountOnly: true, MaxRate: 1 << 30})
	if err != nil {
		return err
	}
	t, err := function.Start(plan)
	if err != nil {
		return err
	}
	defer t.Close()
	fmt.Println("ready")
	for sum := 0; ; {
		for i := range 200 {
			sum += hitByTest(i)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestRunning: what another slowray has in the kernel is found by its descriptors, with
// the files that it has probes in, how often they are hit, and what that takes.
func TestRunning(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIP: needs root: what runs is NOT tested")
	}
	child := exec.Command("/proc/self/exe", "record", "--to", "secret")
	child.Env = append(os.Environ(), beTracer+"=1")
	p, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	}()
	if line, err := bufio.NewReader(p).ReadString('\n'); line != "ready\n" {
		t.Skipf("SKIP: no probes here: %s %v", line, err)
	}
	counted, err := countPrograms()
	if err != nil {
		t.Fatal(err)
	}
	defer counted.close()
	others := lookRunning()
	time.Sleep(time.Second)
	list := others.since(func() time.Duration {
		took, err := countSelf(t.Context())
		if err != nil {
			t.Error(err)
		}
		return took
	})
	var got *Running
	for i := range list {
		if list[i].PID == child.Process.Pid {
			got = &list[i]
		}
	}
	if got == nil {
		t.Fatalf("it is not among %+v", list)
	}
	text, _ := json.Marshal(got)
	if !strings.HasSuffix(got.Command, " record") || got.CPUShare <= 0 || got.CPUShare > 1 || len(got.Probes) != 1 {
		t.Fatalf("%s", text)
	}
	q := got.Probes[0]
	if q.Attached != 1 || q.HitsPerS < 2000 || q.HitsPerS > 11000 || q.EachNS < 5 || q.EachNS > 20_000 || q.EntryNS < 50 || q.EntryNS > 50_000 {
		t.Errorf("%+v", q)
	}
	if want := q.HitsPerS * (q.EachNS + q.EntryNS) / 1e9; q.CPUShare < want*0.99 || q.CPUShare > want*1.01 {
		t.Errorf("%+v: %g of a CPU, want %g", q, q.CPUShare, want)
	}
	if len(q.Files) > 0 && !strings.HasSuffix(q.Files[0], ".test") {
		t.Errorf("%q", q.Files)
	}
	var b strings.Builder
	(&Checkup{Running: list}).running(&b)
	if !strings.Contains(b.String(), "record (pid "+fmt.Sprint(got.PID)+")") || !strings.Contains(b.String(), "1 breakpoint in the code of ") || strings.Contains(b.String(), "secret") {
		t.Error(b.String())
	}
	t.Log(b.String())
}
