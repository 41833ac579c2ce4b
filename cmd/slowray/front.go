package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// A command that looks at other people's processes runs in a child of a process that
// does nothing but wait for it. A thread that waits for a file system in user space
// (FUSE) cannot be killed, and the process that it is part of does not end while it waits
// (request_wait_answer, fs/fuse/dev.c): whoever started that process waits too. The front ends
// all the same, as soon as the command has told it its exit status.

// statusEnv tells the child the descriptor that its exit status is written to.
const statusEnv = "SLOWRAY_STATUS_FD"

const (
	// reapLimit is how long the front waits for the end of a child that has told its
	// exit status.
	reapLimit = 500 * time.Millisecond
	// stopLimit is how long a command may take to end once it was asked to, on however
	// busy a host: what takes longer is stuck, and is killed.
	stopLimit = 8 * time.Second
)

// frontless are commands that need no front, for they look at nothing of others, or must
// not have one: whoever stops or kills what records, or changes a host, means the process
// that holds the history, or the lease.
var frontless = []string{
	"replay", "compare", "page", "causes", "fleet", "lab", "completion", "man", "complete", "record", "prove", "tune", "undo", "mcp", "alert",
}

// needsFront says that a command line is run by a child. Without root a process cannot be
// kept waiting by others: it may not read their memory, nor their file systems in user
// space.
func needsFront(args []string) bool {
	if os.Geteuid() != 0 {
		return false
	}
	if slices.ContainsFunc(args, func(a string) bool { return a == "--help" || a == "-h" || a == "--version" }) {
		return false
	}
	return len(args) == 0 || !slices.Contains(frontless, args[0])
}

// front runs the command line in a child, passes signals on, and gives its exit status.
func front(args []string, stderr io.Writer) int {
	// The child is killed when the thread that started it ends (PR_SET_PDEATHSIG).
	runtime.LockOSThread()
	told, tell, err := os.Pipe()
	if err != nil {
		fmt.Fprintf(stderr, "slowray: %v\n", err)
		return exitFailed
	}
	defer told.Close()
	asked := make(chan os.Signal, 8)
	signal.Notify(asked, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	child := exec.Command("/proc/self/exe", args...)
	child.Args[0] = os.Args[0]
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	child.ExtraFiles = []*os.File{tell}
	child.Env = append(os.Environ(), statusEnv+"=3")
	child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err = child.Start()
	tell.Close()
	if err != nil {
		fmt.Fprintf(stderr, "slowray: %v\n", err)
		return exitFailed
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	status := make(chan int, 1)
	go func() {
		var n int // not until the pipe is closed: a thread that is stuck holds it open
		if _, err := fmt.Fscanln(told, &n); err == nil {
			status <- n
		}
	}()
	var late <-chan time.Time
	reap := reapLimit
	for {
		select {
		case s := <-asked:
			_ = child.Process.Signal(s)
			if late == nil {
				late, reap = time.After(stopLimit), reapLimit/3
			}
		case <-late:
			fmt.Fprintln(stderr, "slowray: it did not end, and was killed")
			_ = child.Process.Kill()
			select {
			case err := <-ended:
				return exitStatus(err)
			case <-time.After(reapLimit):
				return exitFailed
			}
		case n := <-status:
			select {
			case err := <-ended:
				return exitStatus(err)
			case <-time.After(reap):
				fmt.Fprintf(stderr, "slowray: process %d of slowray ends when the kernel lets go of it: a thread of it waits for a file system, or programs are detached\n", child.Process.Pid)
				return n
			}
		case err := <-ended:
			return exitStatus(err)
		}
	}
}

// exitStatus is the exit status of a child, as a shell has it where a signal has ended it.
func exitStatus(err error) int {
	var ended *exec.ExitError
	switch {
	case err == nil:
		return exitNothing
	case !errors.As(err, &ended):
		return exitFailed
	}
	if s, ok := ended.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return 128 + int(s.Signal())
	}
	return ended.ExitCode()
}

// toFront is where this process tells its exit status; nil without a front.
var toFront *os.File

// openStatus says whether this process has a front. Programs that it starts know nothing
// of it.
func openStatus() bool {
	fd, err := strconv.Atoi(os.Getenv(statusEnv))
	_ = os.Unsetenv(statusEnv)
	if err != nil || fd < 3 {
		return false
	}
	syscall.CloseOnExec(fd)
	_ = os.WriteFile("/proc/self/comm", []byte("slowray"), 0) // it is that of /proc/self/exe, "exe"
	toFront = os.NewFile(uintptr(fd), "status")
	return true
}

// leave ends this process.
func leave(status int) {
	if toFront != nil {
		_, _ = fmt.Fprintln(toFront, status)
	}
	os.Exit(status)
}
