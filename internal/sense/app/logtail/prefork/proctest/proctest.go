// Package proctest gives tests of application servers what they share: a
// process table and real servers that are started, waited for and ended.
//
// It ends only the processes it started, by pid.
package proctest

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
)

// Processes is the part of the process table that Discover functions look at.
func Processes(t testing.TB) []observe.Process {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var out []observe.Process
	for _, d := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(d))
		stat, err := os.ReadFile(d + "/stat")
		if err != nil {
			continue
		}
		open, shut := strings.IndexByte(string(stat), '('), strings.LastIndexByte(string(stat), ')')
		fields := strings.Fields(string(stat[shut+1:]))
		ppid, _ := strconv.Atoi(fields[1])
		cmdline, _ := os.ReadFile(d + "/cmdline")
		line := strings.TrimSpace(strings.ReplaceAll(strings.TrimRight(string(cmdline), "\x00"), "\x00", " "))
		out = append(out, observe.Process{PID: pid, PPID: ppid, State: fields[0], Threads: 1,
			Comm: string(stat[open+1 : shut]), Cmdline: line[:min(len(line), 512)], NetNS: 1})
	}
	return out
}

// Port is a free port on loopback.
func Port(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// Start runs a server in the foreground until the test ends, and waits until
// it listens on the port (0: does not wait).
func Start(t testing.TB, cmd *exec.Cmd, port int) {
	t.Helper()
	StartUntil(t, cmd, func() bool {
		if port == 0 {
			return true
		}
		c, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(port))
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

// startLimit is long: a server that starts slowly on a busy machine is none that hangs.
const startLimit = time.Minute

// StartUntil is Start for a server that is ready when it does something else than listen
// on a port.
func StartUntil(t testing.TB, cmd *exec.Cmd, ready func() bool) {
	t.Helper()
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { cmd.Wait(); close(done) }()
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-done:
		case <-time.After(5 * time.Second):
			cmd.Process.Kill()
			<-done
		}
	})
	for end := time.Now().Add(startLimit); time.Now().Before(end); {
		if ready() {
			return
		}
		select {
		case <-done:
			t.Fatalf("%v ended early: %s", cmd.Args, out.String())
		case <-time.After(25 * time.Millisecond):
		}
	}
	t.Fatalf("%v is not ready after %s: %s", cmd.Args, startLimit, out.String())
}

// Need skips the test, loudly, when a program is missing.
func Need(t testing.TB, program string) string {
	t.Helper()
	p, err := exec.LookPath(program)
	if err != nil {
		if p = "/usr/sbin/" + program; !exists(p) {
			t.Skipf("SKIPPED WITHOUT A PROGRAM: %s is not installed", program)
		}
	}
	return p
}

func exists(p string) bool {
	_, err := os.Stat(p)
	return err == nil
}
