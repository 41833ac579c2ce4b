package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Spec is one program to run in the sandbox.
type Spec struct {
	Args    []string // Args[0] is a path, or is looked up in PATH
	Env     []string // added to the environment
	Stdout  string   // file that takes the output; empty = discarded
	Stderr  string
	NoFile  uint64   // soft RLIMIT_NOFILE; 0 = as high as the hard limit
	Nice    int      // 0 … 19
	Cgroups []string // directories of further control groups it starts in
	Cgroup  string   // directory of the control group it starts in; empty = the caller's
}

// Exit is how a program ended.
type Exit struct {
	Code   int    // -1 if a signal ended it
	Signal string // name of that signal
	Output []byte // of Run: standard output and error together
}

// Agent runs programs in one network namespace. Its methods are called over
// the control connection (net/rpc), several at a time.
type Agent struct {
	exe  string
	mu   sync.Mutex
	jobs map[int]chan syscall.WaitStatus // by pid, as seen inside
}

func newAgent(exe string) *Agent {
	a := &Agent{exe: exe, jobs: map[int]chan syscall.WaitStatus{}}
	go a.reap()
	return a
}

// reap collects every child that ends: those started here, and, as the agent
// of the server side is init, orphans of the servers.
func (a *Agent) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil: // no children now
			time.Sleep(5 * time.Millisecond)
		default:
			a.mu.Lock()
			if done, ok := a.jobs[pid]; ok {
				done <- status
			}
			a.mu.Unlock()
		}
	}
}

// Start starts a program and gives its pid as seen inside.
func (a *Agent) Start(spec Spec, pid *int) error {
	path, err := exec.LookPath(spec.Args[0])
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	in, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := openOutput(spec.Stdout)
	if err != nil {
		return err
	}
	defer out.Close()
	errout := out
	if spec.Stderr != spec.Stdout {
		if errout, err = openOutput(spec.Stderr); err != nil {
			return err
		}
		defer errout.Close()
	}
	spec.Args[0] = path
	attr := &os.ProcAttr{
		Env:   append(cleanEnv(), execEnv(spec)...),
		Files: []*os.File{in, out, errout},
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	}
	// The lock keeps reap from seeing the end of a child that is not yet known.
	a.mu.Lock()
	defer a.mu.Unlock()
	proc, err := os.StartProcess(a.exe, []string{a.exe}, attr)
	if err != nil {
		return fmt.Errorf("start %s: %w", filepath.Base(path), err)
	}
	a.jobs[proc.Pid] = make(chan syscall.WaitStatus, 1)
	*pid = proc.Pid
	proc.Release()
	return nil
}

func openOutput(path string) (*os.File, error) {
	if path == "" {
		path = os.DevNull
	}
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
}

// Wait waits until a started program ends. It can be called once for each.
func (a *Agent) Wait(pid int, exit *Exit) error {
	a.mu.Lock()
	done, ok := a.jobs[pid]
	a.mu.Unlock()
	if !ok {
		return fmt.Errorf("wait: no program %d", pid)
	}
	status := <-done
	a.mu.Lock()
	delete(a.jobs, pid)
	a.mu.Unlock()
	if status.Signaled() {
		*exit = Exit{Code: -1, Signal: status.Signal().String()}
		return nil
	}
	exit.Code = status.ExitStatus()
	return nil
}

// SignalArgs names a started program and what to send it.
type SignalArgs struct {
	PID    int
	Signal syscall.Signal
}

// Signal sends a signal to a started program, unless it has ended.
func (a *Agent) Signal(args SignalArgs, _ *struct{}) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if done, ok := a.jobs[args.PID]; !ok || len(done) > 0 { // it has ended
		return nil
	}
	if err := syscall.Kill(args.PID, args.Signal); !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

// Run starts a program, waits for its end and gives its output.
func (a *Agent) Run(spec Spec, exit *Exit) error {
	f, err := os.CreateTemp(os.Getenv(dirEnv), "output-")
	if err != nil {
		return err
	}
	defer f.Close()
	defer os.Remove(f.Name())
	spec.Stdout, spec.Stderr = f.Name(), f.Name()
	var pid int
	if err := a.Start(spec, &pid); err != nil {
		return err
	}
	if err := a.Wait(pid, exit); err != nil {
		return err
	}
	exit.Output, err = os.ReadFile(f.Name())
	return err
}

// SysctlArgs is one setting of the agent's network namespace, as
// "net.core.somaxconn". An empty value reads it.
type SysctlArgs struct{ Key, Value string }

// Sysctl sets or reads a setting of the network namespace.
func (a *Agent) Sysctl(args SysctlArgs, value *string) error {
	path := "/proc/sys/" + strings.ReplaceAll(args.Key, ".", "/")
	if args.Value != "" {
		if err := os.WriteFile(path, []byte(args.Value), 0); err != nil {
			return fmt.Errorf("sysctl %s: %w", args.Key, err)
		}
	}
	data, err := os.ReadFile(path)
	*value = strings.TrimSpace(string(data))
	return err
}

// Listening waits, up to 5 s, until something listens on a TCP port. It reads
// the socket table, because a connection would leave a trace.
func (a *Agent) Listening(port int, _ *struct{}) error {
	want := []byte(fmt.Sprintf(":%04X 00000000:0000 0A", port))
	want6 := []byte(fmt.Sprintf(":%04X %032d:0000 0A", port, 0)) // Java has such sockets for both
	for range 250 {
		data, err := os.ReadFile("/proc/self/net/tcp")
		if err != nil {
			return err
		}
		data6, _ := os.ReadFile("/proc/self/net/tcp6") // not where IPv6 is off
		if bytes.Contains(data, want) || bytes.Contains(data6, want6) {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return errors.New("nothing listens on port " + strconv.Itoa(port))
}

// NetNS gives the inode of the agent's network namespace.
func (a *Agent) NetNS(_ struct{}, inode *uint64) error {
	var st syscall.Stat_t
	if err := syscall.Stat("/proc/self/ns/net", &st); err != nil {
		return err
	}
	*inode = st.Ino
	return nil
}

// PID gives the agent's process id, as seen inside.
func (a *Agent) PID(_ struct{}, pid *int) error {
	*pid = os.Getpid()
	return nil
}
