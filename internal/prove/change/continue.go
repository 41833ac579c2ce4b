package change

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/shell"
)

func init() {
	Register(cause.ChangeContinue, kind[stoppedState]{
		read: readStopped, apply: applyContinue, present: presentContinue, undo: undoContinue, commands: continueCommands,
	})
}

type stoppedState struct {
	Process Process `json:"process"`
}

func readStopped(c *cause.Change) (stoppedState, string, error) {
	var s stoppedState
	var err error
	if s.Process, err = ProcessOf(c.PID); err != nil {
		return s, "", err
	}
	stopped, err := s.stopped()
	if err != nil {
		return s, "", fmt.Errorf("process %d: %w", c.PID, err)
	}
	if !stopped {
		return s, "running", fmt.Errorf("process %d runs: %w", c.PID, ErrAlready)
	}
	if err := s.Process.Signal(0); err != nil {
		return s, "stopped", fmt.Errorf("process %d: %w", c.PID, err)
	}
	return s, "stopped", nil
}

// stopped says whether a signal stopped the process. One that a tracer has
// stopped is its tracer's matter.
func (s *stoppedState) stopped() (bool, error) {
	if err := s.Process.Check(); err != nil {
		return false, err
	}
	_, state, err := startOf(fmt.Sprintf("/proc/%d", s.Process.PID))
	if state == 't' {
		return false, errors.New("a tracer (debugger) has stopped it: continue it there")
	}
	return state == 'T', err
}

func applyContinue(c *cause.Change, s *stoppedState) error { return s.Process.Signal(unix.SIGCONT) }

func presentContinue(c *cause.Change, s *stoppedState) (changeState, string, error) {
	stopped, err := s.stopped()
	if err != nil || stopped {
		return before, "", err
	}
	return holds, "", nil
}

// undoContinue stops it again: it was seen stopped, and it is the same process.
func undoContinue(c *cause.Change, s *stoppedState) error {
	stopped, err := s.stopped()
	if err != nil || stopped {
		return err
	}
	return s.Process.Signal(unix.SIGSTOP)
}

func continueCommands(c *cause.Change, s *stoppedState) (do, undo []shell.Command) {
	return []shell.Command{shell.Line("kill -CONT %s", c.PID)}, []shell.Command{shell.Line("kill -STOP %s", c.PID)}
}
