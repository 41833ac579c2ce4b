package cpython

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/sense/procmem"
)

const program = `import threading, time
class Desk:
    def book(self):
        lock.acquire()
lock = threading.Lock()
lock.acquire()
def serve():
    desk = Desk()

    desk.book()
threading.Thread(target=serve, daemon=True).start()
threading.Thread(target=lambda: threading.Event().wait(), daemon=True).start()
time.sleep(0.1)
print("ready", flush=True)
time.sleep(20)
`

// TestStacks reads the stacks of the interpreters that are installed.
func TestStacks(t *testing.T) {
	tried := 0
	for _, python := range []string{"/usr/bin/python3", "python3.11", "python3.12", "python3.13"} {
		path, err := exec.LookPath(python)
		if err != nil {
			continue
		}
		cmd := exec.Command(path, "-c", program)
		out, _ := cmd.StdoutPipe()
		if cmd.Start() != nil {
			continue
		}
		defer func() { cmd.Process.Kill(); cmd.Wait() }()
		if line, _ := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
			continue
		}
		p, err := Open(ample(), "/proc", cmd.Process.Pid, procmem.Read)
		if err != nil {
			t.Logf("%s: %v", python, err)
			continue
		}
		tried++
		all := ""
		// It says that it is ready one line before it sleeps.
		for range 50 {
			var told []string
			for _, stack := range p.Stacks(ample()) {
				var names []string
				for i := range stack {
					names = append(names, stack[i].String())
				}
				told = append(told, strings.Join(names, " < "))
			}
			if all = strings.Join(told, "\n"); strings.Contains(all, ":15") {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		for _, want := range []string{"Desk.book <string>:4 < serve <string>:10 < Thread.run threading.py:", "<module> <string>:15", "Condition.wait threading.py:"} {
			if !strings.Contains(all, want) {
				t.Errorf("Python %s: no %q in\n%s", p.Version, want, all)
			}
		}
	}
	if tried == 0 {
		t.Skip("no Python of 3.11 to 3.13 here")
	}
	if _, err := Open(ample(), "/proc", os.Getpid(), procmem.Read); err != ErrNotPython {
		t.Errorf("this program: %v", err)
	}
}

const locked = `import threading, time, logging
handler = logging.Handler()
ready = threading.Event()
def hold():
    handler.acquire()
    ready.set()
    time.sleep(20)
def wait():
    with handler.lock:
        pass
holder = threading.Thread(target=hold, daemon=True)
holder.start()
ready.wait()
waiters = [threading.Thread(target=wait, daemon=True), threading.Thread(target=handler.acquire, daemon=True)]
for w in waiters: w.start()
time.sleep(0.2)
print(holder.native_id, waiters[0].native_id, waiters[1].native_id, flush=True)
time.sleep(20)
`

// TestOwner reads who holds an RLock, which writes that down, from the threads
// that wait for it.
func TestOwner(t *testing.T) {
	cmd := exec.Command("/usr/bin/python3", "-c", locked)
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Skipf("SKIP: %v", err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	var holder, with, call int
	if _, err := fmt.Fscan(bufio.NewReader(out), &holder, &with, &call); err != nil {
		t.Fatal(err)
	}
	p, err := Open(ample(), "/proc", cmd.Process.Pid, procmem.Read)
	if err != nil {
		t.Skipf("SKIP: %v", err)
	}
	for _, tid := range []int{with, call} {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/syscall", cmd.Process.Pid, tid))
		var nr int
		var lock uint64
		if err == nil {
			_, err = fmt.Sscanf(string(b), "%d 0x%x", &nr, &lock)
		}
		if err != nil {
			t.Fatalf("%q: %v", b, err)
		}
		if got := p.Owner(ample(), tid, lock); got != holder {
			t.Errorf("thread %d waits for the lock of %d, not %d", tid, got, holder)
		}
		if got := p.Owner(ample(), tid, lock+8) + p.Owner(ample(), holder, lock) + p.Owner(ample(), 1, lock); got != 0 {
			t.Errorf("%d owns what is no lock, or nobody waits for", got)
		}
	}
}

// ample is a budget that no real program uses up.
func ample() *budget.Budget {
	return budget.New(context.Background(), budget.Limits{Bytes: 1 << 30, Wall: time.Minute})
}
