package wait

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
)

// TestChainOfThreeProcesses: a writer to a pipe, whose reader is busy writing to
// a connection, whose reader is stopped, or asleep.
func TestChainOfThreeProcesses(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			kind := map[string]observe.WaitKind{"tcp": observe.WaitTCP, "unix": observe.WaitUnix}[network]
			last := start(t, "server "+network+" "+place(t, network)+" sleep")
			at := last.says(t)
			r, w := pipe(t)
			middle := start(t, "middle "+network+" "+at, r)
			writer := start(t, "write", w)
			r.Close()
			w.Close()
			c := lookFor(t, writer.pid, endsIn(3, observe.EndSleep))
			hops(t, c, observe.EndSleep, hop(writer.pid, observe.WaitPipe, ""),
				hop(middle.pid, kind, observe.HowInferred), hop(last.pid, observe.WaitSleep, observe.HowInferred))
			if !c.Culprit() || c.Deadlock() || c.Hops[0].Wants != observe.WantsRoom || c.Hops[1].Wants != observe.WantsRoom {
				t.Error(chainText(c))
			}
			if c.Hops[0].ForNS < int64(testWindow) || c.Hops[1].TID != middle.pid || c.Hops[2].TID != last.pid {
				t.Error(chainText(c), c.Hops[0].ForNS)
			}
			if network == "tcp" && !strings.Contains(c.Hops[1].Detail, "bytes lie unread at the other end") {
				t.Error(c.Hops[1].Detail)
			}
			last.stop(t)
			c = lookFor(t, writer.pid, endsIn(3, observe.EndStopped))
			hops(t, c, observe.EndStopped, hop(writer.pid, observe.WaitPipe, ""),
				hop(middle.pid, kind, observe.HowInferred), hop(last.pid, observe.WaitStopped, observe.HowPeer))
		})
	}
}

// TestOwnPipe: a thread reads from a pipe of which only its own process has the
// other end. Any of the process's threads may write to it: no circle.
func TestOwnPipe(t *testing.T) {
	r, w := pipe(t)
	reader := start(t, "read", r, w)
	r.Close()
	w.Close()
	c := lookFor(t, reader.pid, func(c *observe.WaitChain) bool {
		return c.Hops[0].Kind == observe.WaitPipe && c.End == observe.EndNoOwner
	})
	if len(c.Hops) != 1 || c.Deadlock() || c.Culprit() {
		t.Error(chainText(c))
	}
}

// place is where a server of a test listens.
func place(t *testing.T, network string) string {
	if network == "tcp" {
		return "127.0.0.1:0"
	}
	return filepath.Join(t.TempDir(), "s")
}

// TestEventLoopInTheMiddle: the process in the middle leaves what it cannot
// write to its event loop, so that no thread of it is blocked; or only one that
// waits for a child, as dockerd has it for containerd.
func TestEventLoopInTheMiddle(t *testing.T) {
	for _, also := range []string{"", " child"} {
		t.Run("loop"+also, func(t *testing.T) {
			last := start(t, "server tcp 127.0.0.1:0 sleep")
			at := last.says(t)
			last.stop(t) // the kernel still completes the connection
			r, w := pipe(t)
			middle := start(t, "loop tcp "+at+also, r)
			writer := start(t, "write", w)
			r.Close()
			w.Close()
			c := lookFor(t, writer.pid, endsIn(3, observe.EndStopped))
			if c.Hops[1].Process.PID != middle.pid || c.Hops[1].Kind != observe.WaitTCP || !strings.Contains(c.Hops[1].Detail, "inferred") ||
				c.Hops[2].Process.PID != last.pid || !c.Culprit() {
				t.Error(chainText(c))
			}
		})
	}
}

// TestPipeReaderStopped, and a FIFO in place of the pipe.
func TestPipeReaderStopped(t *testing.T) {
	for _, kind := range []string{"pipe", "fifo"} {
		t.Run(kind, func(t *testing.T) {
			r, w := pipe(t)
			if kind == "fifo" {
				path := filepath.Join(t.TempDir(), "fifo")
				if err := unix.Mkfifo(path, 0o600); err != nil {
					t.Fatal(err)
				}
				r = openBlocking(t, path, unix.O_RDONLY|unix.O_NONBLOCK)
				w = openBlocking(t, path, unix.O_WRONLY)
				if err := unix.SetNonblock(int(r.Fd()), false); err != nil {
					t.Fatal(err)
				}
			}
			reader := start(t, "sleep", r)
			writer := start(t, "write", w)
			r.Close()
			w.Close()
			reader.stop(t)
			c := lookFor(t, writer.pid, endsIn(2, observe.EndStopped))
			hops(t, c, observe.EndStopped, hop(writer.pid, observe.WaitPipe, ""), hop(reader.pid, observe.WaitStopped, observe.HowPeer))
			if c.Hops[0].Syscall != "write" || !strings.HasPrefix(c.Hops[0].Object, "fd 3 → ") {
				t.Error(chainText(c))
			}
		})
	}
}

func openBlocking(t *testing.T, path string, flags int) *os.File {
	t.Helper()
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), path)
	t.Cleanup(func() { f.Close() })
	return f
}

// TestPipeReadersWriterIdle: who waits for a writer that sleeps is not held up.
func TestPipeReaderIsIdle(t *testing.T) {
	r, w := pipe(t)
	writer := start(t, "sleep", w)
	reader := start(t, "read", r)
	r.Close()
	w.Close()
	c := lookFor(t, reader.pid, endsIn(2, observe.EndSleep))
	hops(t, c, observe.EndSleep, hop(reader.pid, observe.WaitPipe, ""), hop(writer.pid, observe.WaitSleep, observe.HowInferred))
	if c.Culprit() || c.Hops[0].Wants != observe.WantsData {
		t.Error(chainText(c))
	}
}

// TestSelfPipe: a process that fills a pipe that only it could read.
func TestSelfPipe(t *testing.T) {
	r, w := pipe(t)
	self := start(t, "write", w, r)
	r.Close()
	w.Close()
	c := lookFor(t, self.pid, func(c *observe.WaitChain) bool { return c.Hops[0].Kind == observe.WaitPipe })
	if !c.Culprit() || len(c.Hops) > 1 && c.Hops[1].Process.PID != self.pid {
		t.Error(chainText(c))
	}
}

// TestAnswer: a client that waits for an answer by read, poll and select; a
// server that reads too is a mutual wait, and itself only ready for work.
func TestAnswer(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		kind := map[string]observe.WaitKind{"tcp": observe.WaitTCP, "unix": observe.WaitUnix}[network]
		t.Run(network, func(t *testing.T) {
			server := start(t, "server "+network+" "+place(t, network)+" sleep")
			at := server.says(t)
			client := start(t, "ask "+network+" "+at)
			c := lookFor(t, client.pid, endsIn(2, observe.EndSleep))
			hops(t, c, observe.EndSleep, hop(client.pid, kind, ""), hop(server.pid, observe.WaitSleep, observe.HowInferred))
			if !c.Culprit() || c.Hops[0].Wants != observe.WantsAnswer {
				t.Error(chainText(c))
			}
		})
		t.Run(network+" mutual", func(t *testing.T) {
			server := start(t, "server "+network+" "+place(t, network)+" read")
			at := server.says(t)
			client := start(t, "ask "+network+" "+at)
			c := lookFor(t, client.pid, endsIn(2, observe.EndMutual))
			hops(t, c, observe.EndMutual, hop(client.pid, kind, ""), hop(server.pid, kind, observe.HowPeer))
			c = lookFor(t, server.pid, func(c *observe.WaitChain) bool { return c.Hops[0].Kind == kind })
			if c.Culprit() || c.End != observe.EndIdle || c.Hops[0].Wants != observe.WantsRequest {
				t.Error(chainText(c))
			}
		})
		t.Run(network+" not accepted", func(t *testing.T) {
			server := start(t, "server "+network+" "+place(t, network)+" hang")
			at := server.says(t)
			client := start(t, "ask "+network+" "+at)
			c := lookFor(t, client.pid, endsIn(2, observe.EndSleep))
			hops(t, c, observe.EndSleep, hop(client.pid, kind, ""), hop(server.pid, observe.WaitSleep, observe.HowInferred))
			if c.Hops[0].Wants != observe.WantsAccept || !strings.Contains(c.Hops[1].Why, "has not accepted") {
				t.Error(chainText(c))
			}
		})
	}
	for _, call := range []string{"poll", "select"} {
		t.Run(call, func(t *testing.T) {
			server := start(t, "server tcp 127.0.0.1:0 sleep")
			at := server.says(t)
			conn, err := net.Dial("tcp", at)
			if err != nil {
				t.Fatal(err)
			}
			f, err := conn.(*net.TCPConn).File()
			if err != nil {
				t.Fatal(err)
			}
			conn.Close()
			client := start(t, call, f)
			f.Close()
			c := lookFor(t, client.pid, endsIn(2, observe.EndSleep))
			hops(t, c, observe.EndSleep, hop(client.pid, observe.WaitTCP, ""), hop(server.pid, observe.WaitSleep, observe.HowInferred))
			if c.Hops[0].Wants != observe.WantsAnswer || !strings.Contains(c.Hops[0].Syscall, call) {
				t.Error(chainText(c))
			}
		})
	}
}

// TestConnectUnixQueueFull: connect(2) waits while the listener's queue is full.
func TestConnectUnixQueueFull(t *testing.T) {
	server := start(t, "server unix "+place(t, "unix")+" hang")
	client := start(t, "connect unix "+server.says(t))
	c := lookFor(t, client.pid, endsIn(2, observe.EndSleep))
	hops(t, c, observe.EndSleep, hop(client.pid, observe.WaitUnix, ""), hop(server.pid, observe.WaitSleep, observe.HowInferred))
	if c.Hops[0].Syscall != "connect" || c.Hops[0].Wants != observe.WantsAccept {
		t.Error(chainText(c))
	}
}

// TestConnectTCPQueueFull: the SYN is dropped by a listener on this host.
func TestConnectTCPQueueFull(t *testing.T) {
	server := start(t, "server tcp 127.0.0.1:0 hang")
	client := start(t, "connect tcp "+server.says(t))
	c := lookFor(t, client.pid, func(c *observe.WaitChain) bool { return c.Hops[0].Kind == observe.WaitTCP })
	hops(t, c, observe.EndSleep, hop(client.pid, observe.WaitTCP, ""), hop(server.pid, observe.WaitSleep, observe.HowInferred))
	if c.Hops[0].Wants != observe.WantsAccept || !strings.Contains(c.Hops[0].Detail, "wait to be accepted") {
		t.Error(chainText(c))
	}
}

func TestFileLocks(t *testing.T) {
	for _, call := range []string{"flock", "fcntl"} {
		t.Run(call, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "locked file")
			holder := start(t, call, create(t, path))
			holder.says(t)
			waiter := start(t, call, create(t, path))
			c := lookFor(t, waiter.pid, endsIn(2, observe.EndSleep))
			hops(t, c, observe.EndSleep, hop(waiter.pid, observe.WaitFileLock, ""), hop(holder.pid, observe.WaitSleep, observe.HowTable))
			if !c.Culprit() || !strings.Contains(c.Hops[0].Object, path) || c.Hops[0].Syscall != call {
				t.Error(chainText(c))
			}
		})
	}
	// No thread of a program that is at rest tells that it has a lock; it has it all the same.
	t.Run("at rest", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file")
		other := filepath.Join(t.TempDir(), "report") // workers of one service pass a lock on
		if err := os.Symlink(os.Args[0], other); err != nil {
			t.Fatal(err)
		}
		holder := startCommand(t, exec.Command(other, "-test.run=^$"), "lock-and-rest", create(t, path))
		holder.says(t)
		waiter := start(t, "flock", create(t, path))
		c := lookFor(t, waiter.pid, func(c *observe.WaitChain) bool { return c.Hops[0].Kind == observe.WaitFileLock })
		if len(c.Hops) != 2 || c.Hops[1].Process.PID != holder.pid || c.Hops[1].How != observe.HowTable || c.End != observe.EndIdle {
			t.Error(chainText(c))
		}
	})
	// A lock of flock is that of whoever has the open file now, not of whoever
	// took it.
	t.Run("inherited", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file")
		f := create(t, path)
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
			t.Fatal(err)
		}
		holder := start(t, "sleep", f)
		f.Close()
		waiter := start(t, "flock", create(t, path))
		c := lookFor(t, waiter.pid, endsIn(2, observe.EndSleep))
		hops(t, c, observe.EndSleep, hop(waiter.pid, observe.WaitFileLock, ""), hop(holder.pid, observe.WaitSleep, observe.HowTable))
	})
}

func create(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// TestChild: waiting for a child that sleeps is not being held up; for one that
// is stopped it is.
func TestChild(t *testing.T) {
	parent := start(t, "parent")
	pid, err := strconv.Atoi(parent.says(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Kill(pid, unix.SIGKILL) })
	c := lookFor(t, parent.pid, endsIn(2, observe.EndSleep))
	hops(t, c, observe.EndSleep, hop(parent.pid, observe.WaitChild, ""), hop(pid, observe.WaitSleep, observe.HowChild))
	if c.Culprit() {
		t.Error(chainText(c))
	}
	child{pid: pid}.stop(t)
	c = lookFor(t, parent.pid, endsIn(2, observe.EndStopped))
	if !c.Culprit() || c.Hops[1].Process.PID != pid {
		t.Error(chainText(c))
	}
}

func TestStoppedAndRunning(t *testing.T) {
	stopped := start(t, "sleep")
	stopped.stop(t)
	c := lookFor(t, stopped.pid, endsIn(1, observe.EndStopped))
	if !c.Culprit() {
		t.Error(chainText(c))
	}
	spinning := start(t, "spin")
	c = lookFor(t, spinning.pid, func(c *observe.WaitChain) bool {
		return c.End == observe.EndRunning && c.Hops[0].TID == spinning.pid && c.Hops[0].RunNS+c.Hops[0].DelayNS > 0
	})
	if c.Culprit() {
		t.Error(chainText(c))
	}
}

// TestFrozen: a control group of version 1 that is frozen.
func TestFrozen(t *testing.T) {
	needRoot(t)
	frozen := start(t, "sleep")
	dir := fmt.Sprintf("/sys/fs/cgroup/freezer/slowray-test-%d", frozen.pid)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skip("SKIPPED: no freezer of cgroup version 1: ", err)
	}
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0); err != nil {
			t.Error(err)
		}
	}
	home := "/sys/fs/cgroup/freezer/cgroup.procs"
	t.Cleanup(func() {
		write("freezer.state", "THAWED")
		if err := os.WriteFile(home, []byte(strconv.Itoa(frozen.pid)), 0); err != nil {
			t.Error(err)
		}
		for range 100 {
			if err := os.Remove(dir); err == nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Error("control group is left: ", dir)
	})
	write("cgroup.procs", strconv.Itoa(frozen.pid))
	write("freezer.state", "FROZEN")
	c := lookFor(t, frozen.pid, endsIn(1, observe.EndFrozen))
	if !c.Culprit() || c.Path != filepath.Join(dir, "freezer.state") {
		t.Error(chainText(c), c.Path)
	}
}

// TestOtherNamespaces: the ends of a connection are in two network namespaces.
func TestOtherNamespaces(t *testing.T) {
	needRoot(t)
	for _, tool := range []string{"ip", "nsenter", "unshare"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("SKIPPED: needs " + tool)
		}
	}
	private := func(what string) child {
		cmd := exec.Command("unshare", "--net", os.Args[0], "-test.run=^$")
		return startCommand(t, cmd, what)
	}
	inside := func(pid int, args ...string) {
		t.Helper()
		all := append([]string{fmt.Sprintf("--net=/proc/%d/ns/net", pid)}, args...)
		if out, err := exec.Command("nsenter", all...).CombinedOutput(); err != nil {
			t.Skipf("SKIPPED: cannot connect two network namespaces: %v: %s", err, out)
		}
	}
	a, b := private("sleep"), private("sleep")
	for range 100 { // until both are in namespaces of their own
		na, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", a.pid))
		nb, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", b.pid))
		own, _ := os.Readlink("/proc/self/ns/net")
		if na != own && nb != own {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	inside(a.pid, "ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1", "netns", strconv.Itoa(b.pid))
	inside(a.pid, "ip", "addr", "add", "10.99.0.1/24", "dev", "v0")
	inside(a.pid, "ip", "link", "set", "v0", "up")
	inside(b.pid, "ip", "addr", "add", "10.99.0.2/24", "dev", "v1")
	inside(b.pid, "ip", "link", "set", "v1", "up")
	joined := func(pid int, what string) child {
		cmd := exec.Command("nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", pid), os.Args[0], "-test.run=^$")
		return startCommand(t, cmd, what)
	}
	server := joined(a.pid, "server tcp 10.99.0.1:0 sleep")
	client := joined(b.pid, "ask tcp "+server.says(t))
	c := lookFor(t, client.pid, endsIn(2, observe.EndSleep))
	hops(t, c, observe.EndSleep, hop(client.pid, observe.WaitTCP, ""), hop(server.pid, observe.WaitSleep, observe.HowInferred))
	if c.Hops[0].Process.NetNS == c.Hops[1].Process.NetNS || !c.Culprit() {
		t.Error(chainText(c))
	}
	// An address that nobody has: the chain leaves the host.
	lost := joined(b.pid, "connect tcp 10.99.0.77:80")
	c = lookFor(t, lost.pid, func(c *observe.WaitChain) bool { return c.Hops[0].Kind == observe.WaitTCP })
	if c.End != observe.EndRemote || c.Hops[0].Remote != "10.99.0.77:80" || !c.Culprit() {
		t.Error(chainText(c))
	}
}

func TestNoSuchProcess(t *testing.T) {
	_, err := NewReader(host.Default()).Look(context.Background(), 1<<30, time.Second)
	if !errors.Is(err, ErrNoProcess) {
		t.Error(err)
	}
}

// TestEndsEarly: a done context ends the window, not the look.
func TestEndsEarly(t *testing.T) {
	reader := start(t, "sleep")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	from := time.Now()
	o, err := NewReader(host.Default()).Look(ctx, reader.pid, time.Hour)
	if err != nil || len(o.Chains) == 0 || time.Since(from) > 10*time.Second {
		t.Error(o, err, time.Since(from))
	}
}

// TestOneThread: the number of a thread that is not its process's first.
func TestOneThread(t *testing.T) {
	p := start(t, "sleep")
	c := lookFor(t, p.pid, func(c *observe.WaitChain) bool { return c.Threads[0] != p.pid })
	o, err := NewReader(host.Default()).Look(context.Background(), c.Threads[0], testWindow)
	if err != nil {
		t.Fatal(err)
	}
	if o.TID != c.Threads[0] || o.Process.PID != p.pid || len(o.Chains) != 1 || o.Chains[0].Count != 1 {
		t.Errorf("%+v", o)
	}
}
