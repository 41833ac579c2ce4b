package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/osthread"
)

// taskEnv holds the task of a keeper.
const taskEnv = "SLOWRAY_KUBE_TASK"

// lockFD is the keeper's lock: its first extra file.
const lockFD = 3

// task is what a keeper is to do.
type task struct {
	Dir     string
	Options Options
}

// message is what a keeper says, a line each.
type message struct {
	Text  string `json:",omitempty"`
	Ready bool   `json:",omitempty"`
	Error string `json:",omitempty"` // it ends the node
}

// InitMain makes the process the keeper of a node if Start has started it as one. A program
// that calls Start calls it first.
func InitMain() {
	text := os.Getenv(taskEnv)
	if text == "" {
		return
	}
	os.Unsetenv(taskEnv)
	unix.CloseOnExec(lockFD) // or whatever the keeper starts would hold it, too
	signal.Ignore(syscall.SIGPIPE, syscall.SIGINT, syscall.SIGHUP)
	out := json.NewEncoder(os.Stdout)
	k := &keeper{say: func(m message) { out.Encode(m) }, early: make(chan error, 1)} // a parent that is gone hears nothing
	err := json.Unmarshal([]byte(text), &k.task)
	if err == nil {
		err = k.run()
	}
	if err != nil {
		k.say(message{Error: err.Error()})
		os.Exit(1)
	}
	os.Exit(0)
}

// keeper is the process that holds a node: it has made its namespaces, is the parent
// of its programs, and takes it down.
type keeper struct {
	task
	say      func(message)
	programs []*program // in the order in which they were started
	early    chan error // of a program that ended before it was asked to
}

// program is one of the node's that runs.
type program struct {
	name  string
	cmd   *exec.Cmd
	ended chan struct{}
}

// run brings the node up and holds it until the parent is gone.
func (k *keeper) run() error {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin) // ends when the parent closes it, or ends
		cancel()
	}()
	err := k.up(ctx)
	if err == nil {
		k.say(message{Ready: true})
		select {
		case <-ctx.Done():
		case err = <-k.early:
		}
	}
	if ctx.Err() != nil {
		err = nil
	}
	return errors.Join(err, k.down())
}

// up brings up what belongs to the node, each when it needs only what is there already.
func (k *keeper) up(ctx context.Context) error {
	group := filepath.Base(k.Dir)
	if err := makeGroups(group); err != nil {
		return fmt.Errorf("control groups: %w", err)
	}
	if err := mounts(k.Dir); err != nil {
		return err
	}
	if err := network(); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(nodeName)); err != nil {
		return err
	}
	for _, d := range []string{"logs", "conf", "static", "images"} {
		if err := os.MkdirAll(filepath.Join(k.Dir, d), 0o755); err != nil {
			return err
		}
	}
	steps := k.steps()
	for i, s := range steps {
		k.say(message{Text: fmt.Sprintf("%d of %d  %s", i+1, len(steps), s.text)})
		if err := s.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.text, err)
		}
	}
	return nil
}

// down ends the node: first the kubelet, which would start pods again, then pods, then
// everything else.
func (k *keeper) down() error {
	group := filepath.Base(k.Dir)
	for _, p := range k.programs {
		if p.name == "kubelet" {
			p.cmd.Process.Signal(syscall.SIGTERM)
			select {
			case <-p.ended:
			case <-time.After(3 * time.Second):
				p.cmd.Process.Kill()
				<-p.ended
			}
		}
	}
	return errors.Join(
		endGroup(filepath.Join(group, "kubepods"), 3*time.Second),
		endGroup(group, 2*time.Second),
		leaveGroups(),
		unmount(),
		remove(k.Dir)) // the parent may be gone
}

// start starts a program that ends with the keeper, whatever ends that. What it prints is in
// logs/NAME.
func (k *keeper) start(name string, args ...string) error {
	log, err := os.Create(filepath.Join(k.Dir, "logs", name))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(k.Dir, "bin")+":"+os.Getenv("PATH"))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p := &program{name: name, cmd: cmd, ended: make(chan struct{})}
	begun := make(chan error)
	// Pdeathsig goes by thread: this one lives as long as the program.
	go osthread.Own(func() error {
		err := cmd.Start()
		begun <- err
		if err != nil {
			return err
		}
		err = cmd.Wait()
		select {
		case k.early <- fmt.Errorf("%s ended (%v): %s", name, err, lastLines(log.Name(), 3)):
		default:
		}
		close(p.ended)
		return err
	})
	if err := <-begun; err != nil {
		return err
	}
	k.programs = append(k.programs, p)
	return nil
}

// wait waits until ok gives no error, unless a program ends meanwhile.
func (k *keeper) wait(ctx context.Context, limit time.Duration, ok func(context.Context) error) error {
	late := time.After(limit)
	for {
		try, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := ok(try)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case early := <-k.early:
			return early
		case <-late:
			return fmt.Errorf("not ready after %v: %w", limit, err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}
