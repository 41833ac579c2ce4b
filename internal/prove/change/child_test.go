package change

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/sense/host"
)

const childEnv = "SLOWRAY_CHANGE_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		serve()
		return
	}
	os.Exit(m.Run())
}

// A child is a process of the test's own, in a network namespace of its own,
// that does what it is asked. It ends with its standard input.
type child struct {
	t     *testing.T
	pid   int
	netns uint64
	in    io.WriteCloser
	out   *bufio.Reader
	cmd   *exec.Cmd
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 || !Capable(unix.CAP_SYS_ADMIN) {
		t.Skip("SKIPPED: needs root")
	}
}

func newChild(t *testing.T) *child {
	t.Helper()
	needRoot(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	c := &child{t: t, pid: cmd.Process.Pid, in: in, out: bufio.NewReader(out), cmd: cmd}
	t.Cleanup(c.end)
	c.tell("up")
	ns, err := host.Default().OpenNetNS(c.pid)
	must(t, err)
	c.netns = ns.Inode()
	ns.Close()
	return c
}

// end ends the child and waits for it.
func (c *child) end() {
	if c.cmd == nil {
		return
	}
	c.in.Close()
	_ = c.cmd.Process.Kill() // also when it is stopped
	_ = c.cmd.Wait()
	c.cmd = nil
}

// tell gives an order and returns the answer.
func (c *child) tell(order string, args ...any) string {
	c.t.Helper()
	fmt.Fprintf(c.in, order+"\n", args...)
	line, err := c.out.ReadString('\n')
	must(c.t, err)
	line = strings.TrimSpace(line)
	if why, failed := strings.CutPrefix(line, "error "); failed {
		c.t.Fatalf("child: %s: %s", order, why)
	}
	return line
}

// inside runs a program in the child's namespace and gives what it says.
func (c *child) inside(args ...string) string {
	c.t.Helper()
	out, err := c.try(args...)
	if err != nil {
		c.t.Fatalf("%v: %v: %s", args, err, out)
	}
	return out
}

func (c *child) try(args ...string) (string, error) {
	out, err := exec.Command("nsenter", append([]string{"-t", fmt.Sprint(c.pid), "-n"}, args...)...).CombinedOutput()
	return string(out), err
}

func (c *child) change(kind cause.ChangeKind) *cause.Change {
	return &cause.Change{Kind: kind, NetNS: c.netns, PID: c.pid, Text: "a change of the test"}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// cycle makes a change and takes it back, and looks at the system by other
// means each time. dump is everything that must be the same afterwards, effect
// what must be seen while it is in force.
func cycle(t *testing.T, c *cause.Change, dump func() string, effect func() error) State {
	t.Helper()
	d, err := For(c.Kind)
	must(t, err)
	at := func(when string) string { return when + " of " + string(c.Kind) }
	old := dump()
	was, err := d.Prepare(c)
	if err != nil {
		t.Fatalf("prepare: %v", err)
	}
	if now := dump(); now != old {
		t.Fatalf("Prepare has changed something:\n%s\n--- was\n%s", now, old)
	}
	if do, undo := d.Commands(c, was); len(do) == 0 || len(undo) == 0 {
		t.Errorf("no commands: %q, %q", do, undo)
	} else {
		t.Logf("do %q, undo %q, was %q", do, undo, was.Was)
	}
	check(t, d, c, was, at("before"), false, was.Was)
	must(t, d.Undo(c, was)) // nothing was made: nothing is to be taken back
	if now := dump(); now != old {
		t.Fatalf("Undo without Apply has changed something:\n%s\n--- was\n%s", now, old)
	}
	must(t, d.Apply(c, was))
	if err := effect(); err != nil {
		t.Fatalf("no effect: %v\n%s", err, dump())
	}
	check(t, d, c, was, at("with"), true, "")
	for range 2 {
		if err := d.Undo(c, was); err != nil {
			t.Fatalf("undo: %v", err)
		}
		if now := dump(); now != old {
			t.Fatalf("not as it was:\n%s\n--- was\n%s", now, old)
		}
		check(t, d, c, was, at("after"), false, was.Was)
	}
	return was
}

func check(t *testing.T, d Doer, c *cause.Change, was State, when string, want bool, wantNow string) {
	t.Helper()
	ok, gone, now, err := d.Holds(c, was)
	if err != nil || gone || ok != want || now != wantNow {
		t.Fatalf("%s: holds %v, gone %v, now %q, error %v; want holds %v, now %q", when, ok, gone, now, err, want, wantNow)
	}
}

// isGone asserts that nothing is left of the subject, and that nothing fails.
func isGone(t *testing.T, c *cause.Change, was State) {
	t.Helper()
	d, err := For(c.Kind)
	must(t, err)
	if ok, gone, _, err := d.Holds(c, was); ok || !gone || err != nil {
		t.Errorf("holds %v, gone %v, error %v; want gone", ok, gone, err)
	}
	if err := d.Undo(c, was); err != nil {
		t.Errorf("undo of what is gone: %v", err)
	}
	if err := d.Apply(c, was); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("apply to what is gone: %v; want one line", err)
	}
}

// refuses asserts that Prepare says no, in one line with the words.
func refuses(t *testing.T, c *cause.Change, words string) {
	t.Helper()
	d, err := For(c.Kind)
	must(t, err)
	_, err = d.Prepare(c)
	if err == nil || !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), "\n") {
		t.Errorf("prepare %s %s %s: %v; want one line with %q", c.Kind, c.Name, c.Value, err, words)
	}
}

// serve is the child: one order on each line.
func serve() {
	runtime.LockOSThread() // orders about threads are about this one
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		answer, err := obey(strings.Fields(in.Text()))
		if err != nil {
			answer = "error " + err.Error()
		}
		fmt.Println(answer)
	}
}

func obey(order []string) (string, error) {
	arg := func(i int) string {
		if i < len(order) {
			return order[i]
		}
		return ""
	}
	number := func(i int) int {
		n, _ := strconv.Atoi(arg(i))
		return n
	}
	switch arg(0) {
	case "up":
		out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput()
		if err != nil {
			return "", errors.New(string(out))
		}
		return "ok", nil
	case "listen": // port, backlog
		fd, err := listen(number(1), number(2))
		return fmt.Sprint(fd), err
	case "relisten": // descriptor, backlog
		return "ok", unix.Listen(number(1), number(2))
	case "listenunix": // path, backlog
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err == nil {
			err = unix.Bind(fd, &unix.SockaddrUnix{Name: arg(1)})
		}
		if err == nil {
			err = unix.Listen(fd, number(2))
		}
		return fmt.Sprint(fd), err
	case "dial": // port; gives the descriptor
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		if err == nil {
			err = unix.Connect(fd, &unix.SockaddrInet4{Port: number(1), Addr: [4]byte{127, 0, 0, 1}})
		}
		return fmt.Sprint(fd), err
	case "accept": // descriptor
		fd, _, err := unix.Accept(number(1))
		return fmt.Sprint(fd), err
	case "getopt": // descriptor, level, option
		n, err := unix.GetsockoptInt(number(1), number(2), number(3))
		return fmt.Sprint(n), err
	case "setopt": // descriptor, level, option, value
		return "ok", unix.SetsockoptInt(number(1), number(2), number(3), number(4))
	case "close":
		return "ok", unix.Close(number(1))
	case "udp": // port; gives the descriptor
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		if err == nil {
			err = unix.Bind(fd, &unix.SockaddrInet4{Port: number(1), Addr: [4]byte{127, 0, 0, 1}})
		}
		return fmt.Sprint(fd), err
	case "pipe":
		var p [2]int
		err := unix.Pipe(p[:])
		return fmt.Sprint(p[0], " ", p[1]), err
	case "write": // descriptor, bytes
		n, err := unix.Write(number(1), make([]byte, number(2)))
		return fmt.Sprint(n), err
	case "pipesize": // descriptor
		n, err := unix.FcntlInt(uintptr(number(1)), unix.F_GETPIPE_SZ, 0)
		return fmt.Sprint(n), err
	case "thread": // a new thread of the kernel's; gives its number
		tid := make(chan int)
		go func() {
			runtime.LockOSThread()
			tid <- unix.Gettid()
			select {}
		}()
		return fmt.Sprint(<-tid), nil
	}
	return "", fmt.Errorf("unknown order %q", order)
}

func listen(port, backlog int) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return -1, err
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: port}); err != nil {
		return -1, err
	}
	return fd, unix.Listen(fd, backlog)
}

// startInside starts another process in the child's namespace; what it returns
// ends that.
func startInside(t *testing.T, c *child) func() {
	t.Helper()
	cmd := exec.Command("nsenter", "-t", fmt.Sprint(c.pid), "-n", "sleep", "60")
	must(t, cmd.Start())
	ended := false
	end := func() {
		if !ended {
			ended = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	t.Cleanup(end)
	for range 500 { // until nsenter has gone inside
		ns, err := openPlace(cmd.Process.Pid, c.netns)
		if err == nil {
			ns.Close()
			return end
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("no process came into the namespace")
	return end
}
