package cpython

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

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
		p, err := Open("/proc", cmd.Process.Pid, procmem.Read)
		if err != nil {
			t.Logf("%s: %v", python, err)
			continue
		}
		tried++
		all := ""
		// It says that it is ready one line before it sleeps.
		for range 50 {
			var told []string
			for _, stack := range p.Stacks() {
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
	if _, err := Open("/proc", os.Getpid(), procmem.Read); err != ErrNotPython {
		t.Errorf("this program: %v", err)
	}
}
