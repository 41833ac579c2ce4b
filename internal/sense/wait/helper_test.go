package wait

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
)

// helperEnv makes the test binary do one thing on its main thread, for tests
// that look at it from outside. The words after the first are arguments.
const helperEnv = "SLOWRAY_WAIT_TEST_HELPER"

func init() {
	if what := os.Getenv(helperEnv); what != "" {
		runtime.LockOSThread()
		// However the test ends, so does the helper.
		time.AfterFunc(30*time.Second, func() { os.Exit(1) })
		helper(strings.Fields(what))
		os.Exit(0)
	}
}

// extra is the first descriptor that a helper is given.
const extra = 3

func helper(args []string) {
	switch args[0] {
	case "write": // the descriptor it was given, until it blocks
		fill(extra)
	case "read":
		_, _ = unix.Read(extra, make([]byte, 1))
	case "poll": // with a time limit, as clients do
		_, _ = unix.Poll([]unix.PollFd{{Fd: extra, Events: unix.POLLIN}}, 20000)
	case "select":
		var set unix.FdSet
		set.Set(extra)
		_, _ = unix.Select(extra+1, &set, nil, nil, nil)
	case "sleep":
		_ = unix.Nanosleep(&unix.Timespec{Sec: 25}, nil)
	case "rest": // the same, once it has started
		fmt.Println("ready")
		_ = unix.Nanosleep(&unix.Timespec{Sec: 25}, nil)
	case "spin":
		for {
			runtime.KeepAlive(args)
		}
	case "middle": // holds a pipe that it does not read, and writes to a connection
		fill(dial(args[1], args[2]))
	case "loop": // the same as an event loop does it: no thread sleeps in a write
		c, err := net.Dial(args[1], args[2])
		fail(err)
		if len(args) > 3 { // and it waits for a child, on another thread
			pid, err := forkHelper("sleep")
			fail(err)
			go func() { _, _ = unix.Wait4(pid, nil, 0, nil) }()
		}
		_, _ = c.Write(make([]byte, 64<<20))
	case "ask": // sends a question and reads the answer
		s := dial(args[1], args[2])
		_, _ = unix.Write(s, []byte("?"))
		_, _ = unix.Read(s, make([]byte, 1))
	case "connect": // more than the listener's queue takes
		for {
			dial(args[1], args[2])
		}
	case "server": // accepts one connection, or none, and does something else
		server(args)
	case "flock":
		_ = unix.Flock(extra, unix.LOCK_EX)
		fmt.Println("locked")
		_ = unix.Nanosleep(&unix.Timespec{Sec: 25}, nil)
	case "lock-and-rest": // as a program does that sleeps in an event loop
		_ = unix.Flock(extra, unix.LOCK_EX)
		fmt.Println("locked")
		time.Sleep(25 * time.Second)
	case "fcntl":
		_ = unix.FcntlFlock(extra, unix.F_SETLKW, &unix.Flock_t{Type: unix.F_WRLCK})
		fmt.Println("locked")
		_ = unix.Nanosleep(&unix.Timespec{Sec: 25}, nil)
	case "parent": // waits for a child that sleeps
		if os.Getppid() == 1 || len(args) > 1 {
			fail(errors.New("only a test makes parents"))
		}
		pid, err := forkHelper("sleep")
		fail(err)
		fmt.Println(pid)
		_, _ = unix.Wait4(pid, nil, 0, nil)
	}
}

func fail(err error) {
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

// fill writes until nobody takes any more.
func fill(fd int) {
	b := make([]byte, 1<<16)
	for {
		if _, err := unix.Write(fd, b); err != nil && err != unix.EINTR {
			return
		}
	}
}

// dial connects with a descriptor that blocks.
func dial(network, addr string) int {
	family, to := address(network, addr)
	s, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	fail(err)
	fail(unix.Connect(s, to))
	return s
}

func address(network, addr string) (int, unix.Sockaddr) {
	if network == "unix" {
		return unix.AF_UNIX, &unix.SockaddrUnix{Name: addr}
	}
	hostname, port, _ := net.SplitHostPort(addr)
	n, _ := strconv.Atoi(port)
	return unix.AF_INET, &unix.SockaddrInet4{Addr: [4]byte(net.ParseIP(hostname).To4()), Port: n}
}

// server listens, says where, accepts as asked, and does what is asked:
// "sleep", "read" or "accept" (nothing is accepted).
func server(args []string) {
	family, at := address(args[1], args[2])
	s, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	fail(err)
	fail(unix.Bind(s, at))
	fail(unix.Listen(s, 1))
	name, err := unix.Getsockname(s)
	fail(err)
	switch a := name.(type) {
	case *unix.SockaddrInet4:
		fmt.Printf("%s:%d\n", net.IP(a.Addr[:]), a.Port)
	case *unix.SockaddrUnix:
		fmt.Println(a.Name)
	}
	if args[3] == "hang" {
		_ = unix.Nanosleep(&unix.Timespec{Sec: 25}, nil)
	}
	c, _, err := unix.Accept4(s, unix.SOCK_CLOEXEC)
	fail(err)
	switch args[3] {
	case "sleep":
		_ = unix.Nanosleep(&unix.Timespec{Sec: 25}, nil)
	case "read":
		for {
			if n, err := unix.Read(c, make([]byte, 1)); err != nil || n == 0 {
				break
			}
		}
	}
}

// forkHelper starts a helper that the caller waits for by itself.
func forkHelper(what string) (int, error) {
	// The environment must not have the variable twice: the first one counts, and
	// the child would be a parent again, without end.
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, helperEnv+"=") })
	env = append(env, helperEnv+"="+what)
	return syscall.ForkExec(os.Args[0], []string{os.Args[0], "-test.run=^$"}, &syscall.ProcAttr{
		Env: env, Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}, // with the main thread, which forks
	})
}

// child is a process that a test started.
type child struct {
	pid int
	out *bufio.Reader
}

// start runs a helper with descriptors 3, 4… until the test ends.
func start(t *testing.T, what string, files ...*os.File) child {
	t.Helper()
	return startCommand(t, exec.Command(os.Args[0], "-test.run=^$"), what, files...)
}

func startCommand(t *testing.T, cmd *exec.Cmd, what string, files ...*os.File) child {
	t.Helper()
	cmd.Env = append(os.Environ(), helperEnv+"="+what)
	cmd.ExtraFiles = files
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	})
	return child{pid: cmd.Process.Pid, out: bufio.NewReader(out)}
}

// says is the next line that a child prints.
func (c child) says(t *testing.T) string {
	t.Helper()
	line, err := c.out.ReadString('\n')
	if err != nil || strings.HasPrefix(line, "error:") {
		t.Fatalf("helper %d: %q %v", c.pid, line, err)
	}
	return strings.TrimSpace(line)
}

// stop stops a child by a signal, and sees that it is.
func (c child) stop(t *testing.T) {
	t.Helper()
	if err := unix.Kill(c.pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for range 200 {
		if host.Default().Activity(c.pid) == host.Stopped {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("helper %d does not stop", c.pid)
}

// pipe is a pipe whose ends the test closes once the children have them.
func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

const testWindow = 50 * time.Millisecond

// lookFor looks at a process until a chain is as wanted, for some seconds, and
// returns that chain. Helpers need a moment to get where they are going.
func lookFor(t *testing.T, pid int, wanted func(*observe.WaitChain) bool) *observe.WaitChain {
	t.Helper()
	var o *observe.Waits
	var err error
	for range 60 {
		o, err = NewReader(host.Default()).Look(context.Background(), pid, testWindow)
		if err != nil {
			t.Fatal(err)
		}
		for i := range o.Chains {
			if c := &o.Chains[i]; !c.Moving() && wanted(c) {
				return c
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	for i := range o.Chains {
		t.Log(chainText(&o.Chains[i]))
	}
	t.Fatalf("process %d: no such chain (unseen: %q)", pid, o.Unseen)
	return nil
}

// chainText is a chain on a few lines, for failures.
func chainText(c *observe.WaitChain) string {
	var b strings.Builder
	for _, h := range c.Hops {
		fmt.Fprintf(&b, "[%s] %s %d/%d %s %s %s wants %q %s; %s\n", h.How, h.Process.Comm, h.Process.PID, h.TID, h.State, h.Syscall, h.Kind, h.Wants, h.Object, h.Detail)
	}
	fmt.Fprintf(&b, "end %s: %s culprit=%v back=%d sure=%v", c.End, c.Text, c.Culprit(), c.BackTo, c.Sure)
	return b.String()
}

// hops compares a chain with "pid kind how" for each hop, and its end.
func hops(t *testing.T, c *observe.WaitChain, end observe.WaitEnd, want ...string) {
	t.Helper()
	var got []string
	for _, h := range c.Hops {
		got = append(got, strings.TrimSpace(fmt.Sprint(h.Process.PID, " ", h.Kind, " ", h.How)))
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") || c.End != end {
		t.Errorf("got\n%s\nend %s, want\n%s\nend %s\n%s", strings.Join(got, "\n"), c.End, strings.Join(want, "\n"), end, chainText(c))
	}
}

func hop(pid int, kind observe.WaitKind, how observe.WaitHow) string {
	return strings.TrimSpace(fmt.Sprint(pid, " ", kind, " ", how))
}

// endsIn matches chains of n hops with an end.
func endsIn(n int, end observe.WaitEnd) func(*observe.WaitChain) bool {
	return func(c *observe.WaitChain) bool { return len(c.Hops) == n && c.End == end }
}

// compile builds a C program, or skips loudly.
func compile(t *testing.T, source string) string {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("SKIPPED: needs a C compiler (cc) for programs with pthread locks")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "planted")
	if err := os.WriteFile(path+".c", []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, "-O1", "-pthread", "-o", path, path+".c").CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	return path
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: needs root")
	}
}
