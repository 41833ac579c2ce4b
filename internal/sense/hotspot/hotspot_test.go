package hotspot

import (
	"bufio"
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/budget"
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
	m, err := Open(ample(), "/proc", cmd.Process.Pid, procmem.Read)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	waits := m.Waits(ample())
	t.Logf("read within %v", time.Since(began))
	maps.DeleteFunc(waits, func(_ int, w Wait) bool { return w.Sleeps })
	if len(waits) != 2 {
		t.Fatalf("%d threads wait for a monitor, want 2: %v", len(waits), waits)
	}
	for tid, w := range waits {
		other, ok := waits[w.Owner]
		if !ok || other.Owner != tid || w.Class != "Held$Desk" {
			t.Errorf("thread %d waits for %+v", tid, w)
		}
	}
	if _, err := Open(ample(), "/proc", os.Getpid(), procmem.Read); !errors.Is(err, ErrNotJava) {
		t.Errorf("this program: %v", err)
	}
}

const locks = `
import java.util.concurrent.Semaphore;
import java.util.concurrent.locks.ReentrantLock;
import java.util.concurrent.locks.ReentrantReadWriteLock;
public class Locks {
    static final class Guard extends ReentrantLock {}
    public static void main(String[] args) throws Exception {
        ReentrantLock held = new Guard(), left = new ReentrantLock();
        ReentrantReadWriteLock both = new ReentrantReadWriteLock();
        Thread t = new Thread(() -> left.lock());
        t.start();
        t.join();
        new Thread(() -> { held.lock(); both.writeLock().lock(); sleep(); }, "holder").start();
        Thread.sleep(300);
        new Thread(() -> held.lock(), "waiter").start();
        new Thread(() -> both.readLock().lock(), "reader").start();
        new Thread(() -> left.lock(), "late").start();
        new Thread(() -> new Semaphore(0).acquireUninterruptibly(), "idle").start();
        new Thread(() -> { try { held.newCondition(); synchronized (args) { args.wait(); } } catch (InterruptedException e) { } }, "other").start();
        Thread.sleep(400);
        System.out.println("ready");
        sleep();
        System.exit(0);
    }
    static void sleep() {
        try { Thread.sleep(20000); } catch (InterruptedException e) { }
    }
}
`

// TestLocks plants waits for locks of java.util.concurrent, and reads who holds
// them.
func TestLocks(t *testing.T) {
	java, err := exec.LookPath("java")
	if _, noCompiler := exec.LookPath("javac"); err != nil || noCompiler != nil {
		t.Skip("no JDK here")
	}
	source := filepath.Join(t.TempDir(), "Locks.java")
	if err := os.WriteFile(source, []byte(locks), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{{"-Xmx64m"}, {"-Xmx64m", "-XX:-UseCompressedOops", "-XX:+UseSerialGC"}} {
		cmd := exec.Command(java, append(flags, source)...)
		out, _ := cmd.StdoutPipe()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { cmd.Process.Kill(); cmd.Wait() }()
		if line, _ := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
			t.Skipf("java said %q", line)
		}
		m, err := Open(ample(), "/proc", cmd.Process.Pid, procmem.Read)
		if err != nil {
			t.Fatal(err)
		}
		if !m.objects {
			t.Fatal("objects are not read")
		}
		began := time.Now()
		waits := m.Waits(ample())
		t.Logf("%v: read within %v", flags, time.Since(began))
		name := func(tid int) string {
			b, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid), "task", strconv.Itoa(tid), "comm"))
			return strings.TrimSpace(string(b))
		}
		got := map[string]string{}
		for tid, w := range waits {
			if w.Sleeps {
				got[name(tid)] = "sleeps"
				continue
			}
			got[name(tid)] = name(w.Owner)
			if w.OwnerEnded {
				got[name(tid)] = "ended"
			}
			if w.Lock == 0 || !strings.HasPrefix(w.Class, "java.util.concurrent.locks.Reentrant") || !m.Still(ample(), w) {
				t.Errorf("%v: %s waits for %+v", flags, name(tid), w)
			}
		}
		if want := map[string]string{"waiter": "holder", "reader": "holder", "late": "ended", "holder": "sleeps", "java": "sleeps"}; !maps.Equal(got, want) {
			t.Errorf("%v: %v, want %v", flags, got, want)
		}
	}
}

func TestUnsigned5(t *testing.T) {
	b := []byte{1, 5, 191, 192, 1, 255, 255, 1}
	var got []uint32
	for len(b) > 0 {
		got = append(got, unsigned5(&b))
	}
	if want := []uint32{0, 4, 190, 191, 254 + 254<<6}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if n := unsigned5(&b); n != 0 {
		t.Errorf("%d of nothing", n)
	}
}

// ample is a budget that no real program uses up.
func ample() *budget.Budget {
	return budget.New(context.Background(), budget.Limits{Bytes: 1 << 30, Wall: time.Minute})
}
