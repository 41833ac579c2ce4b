package wait

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/observe"
)

const javaLocks = `
import java.util.concurrent.locks.ReentrantLock;
public class Desk {
    public static void main(String[] args) throws Exception {
        ReentrantLock a = new ReentrantLock(), b = new ReentrantLock(), left = new ReentrantLock();
        Thread t = new Thread(() -> left.lock());
        t.start();
        t.join();
        new Thread(() -> both(a, b), "first").start();
        new Thread(() -> both(b, a), "second").start();
        new Thread(() -> left.lock(), "late").start();
        Thread.sleep(500);
        System.out.println("ready");
        Thread.sleep(20000);
        System.exit(0);
    }
    static void both(ReentrantLock one, ReentrantLock other) {
        one.lock();
        try { Thread.sleep(100); } catch (InterruptedException e) { return; }
        other.lock();
    }
}
`

// TestJavaLocks: locks of java.util.concurrent say who holds them: a circle of
// them is a deadlock, and so is one whose owner has ended.
func TestJavaLocks(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	java, err := exec.LookPath("java")
	if _, noCompiler := exec.LookPath("javac"); err != nil || noCompiler != nil {
		t.Skip("SKIP: no JDK here")
	}
	source := filepath.Join(t.TempDir(), "Desk.java")
	if err := os.WriteFile(source, []byte(javaLocks), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(java, "-Xmx64m", source)
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Skipf("SKIP: java said %q", line)
	}
	c := lookFor(t, cmd.Process.Pid, func(c *observe.WaitChain) bool { return c.End == observe.EndCycle })
	if !c.Deadlock() || len(c.Hops) != 2 || c.Hops[1].How != observe.HowOwner || !strings.HasPrefix(c.Hops[0].Object, "Java lock, a java.util.concurrent.locks.ReentrantLock") {
		t.Error(chainText(c))
	}
	c = lookFor(t, cmd.Process.Pid, func(c *observe.WaitChain) bool { return c.End == observe.EndGone })
	if len(c.Hops) != 1 || c.Hops[0].Comm != "late" || !strings.Contains(c.Text, "has ended without letting it go") {
		t.Error(chainText(c))
	}
}
