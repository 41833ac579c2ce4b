package wait

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/cpython"
	"github.com/slowray/slowray/internal/sense/procmem"
)

func TestAskedAt(t *testing.T) {
	frames := func(names ...string) (out []cpython.Frame) {
		for _, n := range names {
			out = append(out, cpython.Frame{Function: n})
		}
		return out
	}
	for _, c := range []struct {
		stack []cpython.Frame
		want  int
	}{
		{frames("Handler.acquire", "Handler.handle", "Logger.callHandlers"), 1},
		{frames("Guard.__enter__", "Guard.acquire", "book"), 2},
		{frames("book", "serve"), 0},
		{frames("acquire"), 0},
		{nil, 0},
	} {
		if got := askedAt(c.stack); got != c.want {
			t.Errorf("%v: frame %d asks, want %d", c.stack, got, c.want)
		}
	}
}

const loggers = `import logging, socket, threading, time
handler = logging.Handler()
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
class Slow(logging.Handler):
    def emit(self, record):
        while True:
            ours.send(b"x" * 1000)
log = logging.getLogger("desk")
log.addHandler(Slow())
threads = [threading.Thread(target=log.warning, args=("booked",), daemon=True) for _ in range(3)]
for t in threads: t.start()
time.sleep(0.5)
print("ready", flush=True)
time.sleep(20)
`

// startPython starts a program that says "ready", and gives its pid.
func startPython(t *testing.T, program string) int {
	t.Helper()
	cmd := exec.Command("/usr/bin/python3", "-c", program)
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Skipf("SKIP: %v", err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Skipf("SKIP: python3 said %q", line)
	}
	return cmd.Process.Pid
}

// TestLockOfLogging: who waits for a lock of Python's that says who holds it
// waits for what its holder waits for.
func TestLockOfLogging(t *testing.T) {
	pid := startPython(t, loggers)
	if _, err := cpython.Open(budget.New(t.Context(), budget.Limits{}), "/proc", pid, procmem.Read); err != nil {
		t.Skipf("SKIP: %v", err)
	}
	c := lookFor(t, pid, func(c *observe.WaitChain) bool { return c.Hops[0].Kind == observe.WaitLock && len(c.Hops) > 1 })
	h := c.Hops[1]
	if h.How != observe.HowOwner || h.Kind != observe.WaitUnix || h.Wants != observe.WantsRoom {
		t.Error(chainText(c))
	}
	if object := c.Hops[0].Object; !strings.HasPrefix(object, "Python RLock 0x") || !strings.Contains(object, "Handler.handle") {
		t.Errorf("the lock is called %q", object)
	}
}

// A page of memory that nobody supplies (userfaultfd(2)).
const faulter = `import ctypes, fcntl, mmap, struct, threading, time
page = mmap.mmap(-1, 4096)
at = ctypes.addressof(ctypes.c_char.from_buffer(page))
fd = ctypes.CDLL(None).syscall(323, 0o2000000)
fcntl.ioctl(fd, 0xC018AA3F, struct.pack("3Q", 0xAA, 0, 0))
fcntl.ioctl(fd, 0xC020AA00, struct.pack("4Q", at, 4096, 1, 0))
def fault():
    time.sleep(0.3)
    page[0]
threading.Thread(target=fault, daemon=True).start()
print("ready", flush=True)
while True:
    time.sleep(0.001)
`

// TestLockOfInterpreter: who has the interpreter's lock and waits for a page lets all
// others wait.
func TestLockOfInterpreter(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("SKIP: numbers of system calls are those of amd64")
	}
	pid := startPython(t, faulter)
	c := lookFor(t, pid, func(c *observe.WaitChain) bool { return c.Hops[0].Kind == observe.WaitLock && len(c.Hops) > 1 })
	if c.Hops[0].TID != pid || c.Hops[1].Wchan != "handle_userfault" || c.Hops[0].Wants != observe.WantsRelease {
		t.Error(chainText(c))
	}
}

// Threads of which one at a time may compute.
const turners = `import threading
def turn():
    while True:
        pass
for n in range(3):
    threading.Thread(target=turn, daemon=True).start()
print("ready", flush=True)
turn()
`

// wanted is how long a main thread had a CPU or was ready for one.
func wanted(t *testing.T, pid int) time.Duration {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/schedstat", pid, pid))
	if err != nil {
		t.Fatal(err)
	}
	var ran, delayed time.Duration
	if _, err := fmt.Sscanf(string(data), "%d %d", &ran, &delayed); err != nil {
		t.Fatal(err)
	}
	return ran + delayed
}

// TestTurnsAtInterpreter: of threads that compute, each waits for the interpreter's lock
// most of the time, and nobody holds up anybody by another one.
func TestTurnsAtInterpreter(t *testing.T) {
	pid := startPython(t, turners)
	if _, err := cpython.Open(budget.New(t.Context(), budget.Limits{}), "/proc", pid, procmem.Read); err != nil {
		t.Skipf("SKIP: %v", err)
	}
	before := wanted(t, pid)
	looks := sample(t, 1500*time.Millisecond, pid)
	used := wanted(t, pid) - before
	g := graphOf(looks, pid)
	if len(g.Slow) != 1 {
		t.Fatalf("%+v", g)
	}
	s := &g.Slow[0]
	// Who is at work and has no CPU is not in turn. Some 65 looks find a share to 0.06 each.
	share := float64(s.InterpreterNS) / float64(s.NS)
	if truth := 1 - float64(used)/float64(looks.last.Sub(looks.first)); math.Abs(share-truth) > 0.25 || share > 0.95 {
		t.Errorf("in turn %.2f of the time, of four threads, the kernel says %.2f: %+v", share, truth, s)
	}
	if s.InterpreterNS+s.ComputeNS > s.NS {
		t.Errorf("more than all: %+v", s)
	}
	for i := range g.Shares {
		if k := g.Shares[i].Chain.Hops[0].Kind; k == observe.WaitLock {
			t.Error(chainText(&g.Shares[i].Chain))
		}
	}
}
