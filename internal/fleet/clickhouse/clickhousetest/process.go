package clickhousetest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// process is a server's process. It is killed when this program ends, however
// that ends.
type process struct {
	cmd    *exec.Cmd
	output string // file of what it printed
	ended  chan struct{}
}

// start runs a command, what it prints goes to a file.
func start(cmd *exec.Cmd, output string) (*process, error) {
	f, err := os.OpenFile(output, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	cmd.Stdout, cmd.Stderr = f, f
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p := &process{cmd: cmd, output: output, ended: make(chan struct{})}
	begun := make(chan error)
	go func() {
		// Pdeathsig goes by thread: the one that starts it must outlive it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		begun <- err
		if err == nil {
			cmd.Wait()
			close(p.ended)
		}
	}()
	if err := <-begun; err != nil {
		return nil, err
	}
	return p, nil
}

// kill ends the process and its children and waits for it; again it does nothing.
func (p *process) kill() {
	select {
	case <-p.ended:
		return
	default:
	}
	syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.ended
}

// until waits until ready holds, and fails when the process ends before.
func until(ctx context.Context, p *process, ready func() bool) error {
	for !ready() {
		select {
		case <-p.ended:
			return fmt.Errorf("%s ended: %s", filepath.Base(p.cmd.Path), p.lastLines())
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %s", filepath.Base(p.cmd.Path), p.lastLines())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

func (p *process) lastLines() string {
	b, _ := os.ReadFile(p.output)
	return string(bytes.TrimSpace(b[max(0, len(b)-2000):]))
}

// freePorts finds ports of the loopback interface that are free now.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // all at the end: no port comes twice
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// fromRoot is a path below the root of the repository that the program runs in.
func fromRoot(elem ...string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(append([]string{dir}, elem...)...), nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", fmt.Errorf("not below a repository with %s", filepath.Join(elem...))
		}
		dir = up
	}
}
