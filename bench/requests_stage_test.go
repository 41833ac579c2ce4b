package bench

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// stage is a network namespace of its own with nothing but loopback, where
// the servers and their clients run. Recorders run outside it, as on a host
// with containers.
type stage struct {
	b        *testing.B
	dir      string // readable by every user
	ns, home *os.File
	// pinned has servers run on the first CPU and what asks them on the second: where
	// the scheduler chooses, a request costs half as much again in some runs.
	pinned bool
}

func newStage(b *testing.B) *stage {
	b.Helper()
	if os.Getuid() != 0 {
		b.Skip("needs root, for namespaces and BPF")
	}
	home, err := os.Open("/proc/self/ns/net")
	if err != nil {
		b.Fatal(err)
	}
	type made struct {
		ns  *os.File
		err error
	}
	result := make(chan made)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			result <- made{nil, fmt.Errorf("unshare: %w", err)}
			return
		}
		if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
			result <- made{nil, fmt.Errorf("ip link set lo up: %w: %s", err, out)}
			return
		}
		ns, err := os.Open("/proc/thread-self/ns/net")
		result <- made{ns, err}
	}()
	m := <-result
	if m.err != nil {
		b.Fatalf("network namespace: %v", m.err)
	}
	b.Cleanup(func() {
		m.ns.Close()
		home.Close()
	})
	dir := b.TempDir()
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(d, 0o755); err != nil {
			b.Fatal(err)
		}
	}
	return &stage{b: b, dir: dir, ns: m.ns, home: home}
}

// within runs f on a thread that is in the stage's network namespace.
func (s *stage) within(f func() error) error {
	runtime.LockOSThread()
	if err := unix.Setns(int(s.ns.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter the network namespace: %w", err)
	}
	err := f()
	if back := unix.Setns(int(s.home.Fd()), unix.CLONE_NEWNET); back != nil {
		return errors.Join(err, back) // still locked: the thread is given up
	}
	runtime.UnlockOSThread()
	return err
}

// command prepares a program that runs on the stage. It ends with the
// benchmark in any case.
func (s *stage) command(args ...string) *exec.Cmd {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

func (s *stage) start(cmd *exec.Cmd) error { return s.startOn(1, cmd) }

// startOn starts a program, on a CPU of its own where the stage is pinned.
func (s *stage) startOn(cpu int, cmd *exec.Cmd) error {
	return s.within(func() error {
		var before, one unix.CPUSet
		if err := unix.SchedGetaffinity(0, &before); err != nil || !s.pinned || !before.IsSet(cpu) {
			return cmd.Start()
		}
		one.Set(cpu)
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			return fmt.Errorf("pin to CPU %d: %w", cpu, err)
		}
		err := cmd.Start() // what it starts inherits the thread's
		return errors.Join(err, unix.SchedSetaffinity(0, &before))
	})
}

// output runs a program to its end and gives what it printed.
func (s *stage) output(args ...string) (string, *os.ProcessState, error) {
	cmd := s.command(args...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := s.start(cmd); err != nil {
		return "", nil, fmt.Errorf("%s: %w", args[0], err)
	}
	if err := cmd.Wait(); err != nil {
		return "", nil, fmt.Errorf("%s: %w: %s", args[0], err, out.String())
	}
	return out.String(), cmd.ProcessState, nil
}

// server starts a program that stays until the benchmark ends, and waits until
// it listens on a port.
func (s *stage) server(port int, args ...string) (pid int) {
	s.b.Helper()
	cmd := s.command(args...)
	log := filepath.Join(s.dir, filepath.Base(args[0])+".log")
	f, err := os.Create(log)
	if err != nil {
		s.b.Fatal(err)
	}
	defer f.Close()
	cmd.Stdout, cmd.Stderr = f, f
	if err := s.startOn(0, cmd); err != nil {
		s.b.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	s.b.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			cmd.Process.Kill()
			<-ended
		}
	})
	deadline := time.Now().Add(20 * time.Second)
	for {
		conn, err := s.dial(port)
		if err == nil {
			conn.Close()
			return cmd.Process.Pid
		}
		select {
		case <-ended:
			ended <- nil
			text, _ := os.ReadFile(log)
			s.b.Fatalf("%s ended: %s", args[0], text)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(log)
			s.b.Fatalf("%s does not listen on %d: %v: %s", args[0], port, err, text)
		}
	}
}

func (s *stage) dial(port int) (conn net.Conn, err error) {
	err = s.within(func() error {
		conn, err = net.Dial("tcp4", "127.0.0.1:"+strconv.Itoa(port))
		return err
	})
	return conn, err
}

// ports finds n ports that are free on the stage.
func (s *stage) ports(n int) []int {
	s.b.Helper()
	var free []int
	err := s.within(func() error {
		for range n {
			l, err := net.Listen("tcp4", "127.0.0.1:0")
			if err != nil {
				return err
			}
			defer l.Close()
			free = append(free, l.Addr().(*net.TCPAddr).Port)
		}
		return nil
	})
	if err != nil {
		s.b.Fatal(err)
	}
	return free
}

// get is one HTTP request, with a connection of its own.
func (s *stage) get(port int) (string, error) {
	conn, err := s.dial(port)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n"); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	return string(answer), err
}

// cpuOf is the CPU time that running processes have used so far, threads that
// ended included.
func cpuOf(pids ...int) time.Duration {
	var sum time.Duration
	for _, pid := range pids {
		// The CPU clock of a process (clock_getcpuclockid(3), glibc's encoding).
		const cpuClockSched = 2
		var t unix.Timespec
		if err := unix.ClockGettime(int32(^pid<<3|cpuClockSched), &t); err == nil {
			sum += time.Duration(t.Nano())
		}
	}
	return sum
}

func cpuOfEnded(p *os.ProcessState) time.Duration { return p.UserTime() + p.SystemTime() }

// tcpdump is the comparison: a capture of headers that goes nowhere.
func (s *stage) tcpdump() variant {
	return variant{"tcpdump", func() (func() (alongside, error), error) {
		cmd := s.command("tcpdump", "-s", "96", "-w", "/dev/null", "-i", "lo")
		log, err := os.Create(filepath.Join(s.dir, "tcpdump.log"))
		if err != nil {
			return nil, err
		}
		defer log.Close()
		cmd.Stdout, cmd.Stderr = log, log
		if err := s.start(cmd); err != nil {
			return nil, err
		}
		read := func() string {
			text, _ := os.ReadFile(log.Name())
			return string(text)
		}
		for begin := time.Now(); !strings.Contains(read(), "listening on"); time.Sleep(10 * time.Millisecond) {
			if time.Since(begin) > 5*time.Second {
				cmd.Process.Kill()
				cmd.Wait()
				return nil, errors.New("does not listen: " + read())
			}
		}
		before := cpuOf(cmd.Process.Pid)
		return func() (alongside, error) {
			used := cpuOf(cmd.Process.Pid) - before
			cmd.Process.Signal(syscall.SIGINT)
			err := cmd.Wait()
			return alongside{cpu: used, note: strings.Join(strings.Split(strings.TrimSpace(read()), "\n")[1:], ", ")}, err
		}, nil
	}}
}
