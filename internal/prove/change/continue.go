package change

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/cause"
)

func init() {
	Register(cause.ChangeContinue, kind[stoppedState]{
		read: readStopped, apply: applyContinue, present: presentContinue, undo: undoContinue, commands: continueCommands,
	})
}

type stoppedState struct {
	Process process `json:"process"`
}

func readStopped(c *cause.Change) (stoppedState, string, error) {
	var s stoppedState
	var err error
	if s.Process, err = processOf(c.PID); err != nil {
		return s, "", err
	}
	stopped, err := s.stopped()
	if err != nil {
		return s, "", fmt.Errorf("process %d: %w", c.PID, err)
	}
	if !stopped {
		return s, "running", fmt.Errorf("process %d runs: %w", c.PID, ErrAlready)
	}
	// Signal 0 only asks whether one may be sent.
	if err := s.signal(0); err != nil {
		return s, "stopped", fmt.Errorf("process %d: %w", c.PID, err)
	}
	return s, "stopped", nil
}

// stopped says whether a signal stopped the process. One that a tracer has
// stopped is its tracer's matter.
func (s *stoppedState) stopped() (bool, error) {
	if err := s.Process.check(); err != nil {
		return false, err
	}
	_, state, err := startOf(fmt.Sprintf("/proc/%d", s.Process.PID))
	if state == 't' {
		return false, errors.New("a tracer (debugger) has stopped it: continue it there")
	}
	return state == 'T', err
}

func (s *stoppedState) signal(sig unix.Signal) error {
	fd, err := s.Process.open()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	err = unix.PidfdSendSignal(fd, sig, nil, 0)
	if errors.Is(err, unix.ESRCH) {
		return errGone
	}
	return refused(err, "CAP_KILL")
}

func applyContinue(c *cause.Change, s *stoppedState) error { return s.signal(unix.SIGCONT) }

func presentContinue(c *cause.Change, s *stoppedState) (hold, string, error) {
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
	return s.signal(unix.SIGSTOP)
}

func continueCommands(c *cause.Change, s *stoppedState) (do, undo []string) {
	return []string{fmt.Sprintf("kill -CONT %d", c.PID)}, []string{fmt.Sprintf("kill -STOP %d", c.PID)}
}
