package privsep

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// User is whose rights a task has. It has no capability, also where it is root.
type User struct {
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups,omitempty"`
}

const (
	// timeLimit is how long a task may take: what it opens may be on a file system
	// that its user serves.
	timeLimit = 15 * time.Second
	// maxAnswer is the most that an answer may have, in bytes.
	maxAnswer = 32 << 20
	maxErrors = 4 << 10 // of its standard error
)

// ErrEnded says that a task did not come to its end.
var ErrEnded = errors.New("its process ended without an answer")

// Run has a registered task done with the rights of a user, in a process of its
// own, and gives its answer. files are the task's.
func Run(u User, task string, request []byte, files ...*os.File) (answer []byte, err error) {
	if !registered[task] {
		return nil, fmt.Errorf("act as user %d: there is no task %q", u.UID, task)
	}
	err = OnThread(func() error {
		answer, err = start(u, task, request, files)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("act as user %d: %w", u.UID, err)
	}
	return answer, nil
}

// start is called on a thread that ends with it. The process begins as root while
// it is to become another user, so that this user cannot trace it at any moment;
// with that right alone, and none at all where it is to stay root.
func start(u User, task string, request []byte, files []*os.File) ([]byte, error) {
	if err := errors.Join(SealFiles(), Confine(keep(u))); err != nil {
		return nil, err
	}
	who, err := json.Marshal(order{u, len(files), os.Getpid()})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeLimit)
	defer cancel()
	out, errs := bounded{most: maxAnswer}, bounded{most: maxErrors}
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args = []string{"slowray", command, task, string(who)}
	cmd.Env, cmd.Dir, cmd.WaitDelay = []string{}, "/", time.Second
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = bytes.NewReader(request), &out, &errs, files
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 0, Gid: u.GID, Groups: u.Groups}
	}
	err = RunWithin(ctx, cmd, nil)
	switch {
	case errors.Is(err, ErrLeft):
		return nil, err
	case ctx.Err() != nil:
		return nil, fmt.Errorf("no answer within %s", timeLimit)
	case len(errs.text) > 0:
		line, _, _ := strings.Cut(string(errs.text), "\n")
		return nil, errors.New(line)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrEnded, err)
	}
	return out.text, nil
}

// ErrLeft says that a process could not even be killed, and goes on waiting.
var ErrLeft = errors.New("its process waits for a file system that does not answer")

// killLimit is how long the end of a process is waited for that was killed.
const killLimit = 2 * time.Second

// RunWithin runs a command that was made with ctx, and waits for its end, but not for
// that of a process which waits for a file system in user space (FUSE): not even a kill
// ends that (request_wait_answer, fs/fuse/dev.c). It is left behind, the error is
// [ErrLeft], and what the command prints to must not be looked at. first, where set, is
// called as soon as it runs; it is killed where that fails.
func RunWithin(ctx context.Context, cmd *exec.Cmd, first func(*os.Process) error) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	if first != nil {
		if err := first(cmd.Process); err != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			return err
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(killLimit):
		return ErrLeft
	}
}

// keep is the capabilities that a process of a user needs to become it.
func keep(u User) uint64 {
	if u.UID == 0 || os.Geteuid() != 0 {
		return 0
	}
	return 1 << unix.CAP_SETUID
}

// bounded keeps so much and fails a writer of more.
type bounded struct {
	text []byte
	most int
}

func (b *bounded) Write(p []byte) (int, error) {
	if len(b.text)+len(p) > b.most {
		return 0, errors.New("too much")
	}
	b.text = append(b.text, p...)
	return len(p), nil
}
