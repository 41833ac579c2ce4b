package sandbox

import (
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Open files that the caller passes to init.
const (
	fdLock   = 3 + iota // keeps the lock
	fdSysctl            // first of the host-wide settings, in the order of hostSettings
)

// fdSide is the first of the control connections, in the order of the sides.
var fdSide = fdSysctl + len(hostSettings)

// The sides of a sandbox.
const (
	sideServer = iota
	sideClient
	sideBackend
)

// hostSettings are the host-wide settings the lab may change. They are not to
// be reached from another network namespace by path, only by an open file.
var hostSettings = []string{"/proc/sys/net/netfilter/nf_conntrack_max"}

// Init is the agent of the server side: also the process that cleans up.
type Init struct {
	*Agent
	journal chan Journal
}

// Guard tells init what to take back at its end.
func (i *Init) Guard(j Journal, _ *struct{}) error {
	i.journal <- j
	return nil
}

// initMain is process 1 of the sandbox. It ends when the caller does, or when
// its lifetime is over, and takes everything back first.
func initMain() error {
	// A hang-up or interrupt meant for the caller must not end the watchdog.
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT)
	files := openFiles{}
	for n, path := range hostSettings {
		syscall.CloseOnExec(fdSysctl + n)
		files[path] = fdSysctl + n
	}
	sides, err := strconv.Atoi(os.Getenv(sidesEnv))
	if err != nil {
		return fmt.Errorf("init: sides: %w", err)
	}
	syscall.CloseOnExec(fdLock)
	for n := range sides {
		syscall.CloseOnExec(fdSide + n)
	}
	lifetime, err := time.ParseDuration(os.Getenv(lifetimeEnv))
	if err != nil {
		return fmt.Errorf("init: %w", err)
	}
	if err := privateMounts(); err != nil {
		return fmt.Errorf("init: private mounts: %w", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("init: proc: %w", err)
	}
	exe := os.Getenv(exeEnv)
	for side := sideClient; side < sides; side++ {
		if err := startSide(exe, side); err != nil {
			return err
		}
	}
	guarded := Journal{}
	journal := make(chan Journal)
	ended := make(chan error, 1)
	server := &Init{Agent: newAgent(exe), journal: journal}
	go func() { ended <- serve(fdSide+sideServer, "Agent", server) }()
	deadline := time.After(lifetime)
	for {
		select {
		case guarded = <-journal:
			continue
		case err = <-ended:
		case <-deadline:
			err = fmt.Errorf("init: lifetime of %v is over", lifetime)
		}
		break
	}
	syscall.Kill(-1, syscall.SIGKILL)
	if guarded.Dir != "" {
		if uerr := unmountBelow(guarded.Dir); uerr != nil {
			// The directory stays: the caller removes it, for whom nothing is
			// mounted there.
			guarded.Dir, err = "", errors.Join(err, uerr)
		}
	}
	if guarded.PID != 0 {
		if uerr := guarded.undo(files); uerr != nil {
			return uerr
		}
	}
	return err
}

// fdAgent is the control connection of an agent that is not init.
const fdAgent = 3

// startSide starts the agent of a side other than the server's, in a network
// namespace of its own. Init's reaper collects it.
func startSide(exe string, side int) error {
	conn := os.NewFile(uintptr(fdSide+side), "control")
	defer conn.Close()
	proc, err := os.StartProcess(exe, []string{exe}, &os.ProcAttr{
		Env:   append(cleanEnv(), RoleEnv+"="+roleAgent, exeEnv+"="+exe, dirEnv+"="+os.Getenv(dirEnv)),
		Files: []*os.File{nil, os.Stderr, os.Stderr, conn},
		Sys:   &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET},
	})
	if err != nil {
		return fmt.Errorf("init: side %d: %w", side, err)
	}
	return proc.Release()
}

func agentMain() error {
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT)
	syscall.CloseOnExec(fdAgent)
	return serve(fdAgent, "Agent", newAgent(os.Getenv(exeEnv)))
}

// serve answers calls on an inherited connection until the other end closes.
func serve(fd int, name string, agent any) error {
	f := os.NewFile(uintptr(fd), "control")
	conn, err := net.FileConn(f)
	f.Close()
	if err != nil {
		return fmt.Errorf("control connection: %w", err)
	}
	srv := rpc.NewServer()
	if err := srv.RegisterName(name, agent); err != nil {
		return err
	}
	srv.ServeConn(conn)
	return nil
}

// openFiles is the setter of init: path to an open file of the host's.
type openFiles map[string]int

func (o openFiles) get(path string) (string, error) {
	fd, ok := o[path]
	if !ok {
		return "", fmt.Errorf("%s: not open", path)
	}
	buf := make([]byte, 256)
	n, err := syscall.Pread(fd, buf, 0)
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(buf[:n])), nil
}

func (o openFiles) set(path, value string) error {
	_, err := syscall.Pwrite(o[path], []byte(value), 0)
	return err
}
