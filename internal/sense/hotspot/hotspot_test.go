package hotspot

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/sense/procmem"
)

const program = `
public class Held {
    static final class Desk {}
    public static void main(String[] args) throws Exception {
        Desk a = new Desk(), b = new Desk();
        new Thread(() -> both(a, b), "first").start();
        new Thread(() -> both(b, a), "second").start();
        Thread.sleep(400);
        System.out.println("ready");
        Thread.sleep(20000);
        System.exit(0);
    }
    static void both(Desk one, Desk other) {
        synchronized (one) {
            try { Thread.sleep(100); } catch (InterruptedException e) { return; }
            synchronized (other) { System.out.println("not reached"); }
        }
    }
}
`

// TestWaits plants a deadlock of two monitors, and reads who waits for whom.
func TestWaits(t *testing.T) {
	java, err := exec.LookPath("java")
	if _, noCompiler := exec.LookPath("javac"); err != nil || noCompiler != nil {
		t.Skip("no JDK here")
	}
	source := filepath.Join(t.TempDir(), "Held.java")
	if err := os.WriteFile(source, []byte(program), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(java, source)
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Skipf("java said %q", line)
	}
	m, err := Open("/proc", cmd.Process.Pid, procmem.Read)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	waits := m.Waits()
	t.Logf("read within %v", time.Since(began))
	if len(waits) != 2 {
		t.Fatalf("%d threads wait for a monitor, want 2: %v", len(waits), waits)
	}
	for tid, w := range waits {
		other, ok := waits[w.Owner]
		if !ok || other.Owner != tid || w.Class != "Held$Desk" {
			t.Errorf("thread %d waits for %+v", tid, w)
		}
	}
	if _, err := Open("/proc", os.Getpid(), procmem.Read); !errors.Is(err, ErrNotJava) {
		t.Errorf("this program: %v", err)
	}
}
