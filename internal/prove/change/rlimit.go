package change

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/shell"
)

func init() {
	Register(cause.ChangeRlimit, kind[rlimitState]{
		read: readRlimit, apply: applyRlimit, present: presentRlimit, undo: undoRlimit, commands: rlimitCommands,
	})
}

type rlimitState struct {
	Process  Process `json:"process"`
	Resource int     `json:"resource"`
	Old      limits  `json:"old"`
	New      limits  `json:"new"`
}

// limits are the soft and the hard limit; MaxUint64 is none.
type limits struct {
	Soft uint64 `json:"soft"`
	Hard uint64 `json:"hard"`
}

// The names of prlimit(1).
var resources = map[string]int{
	"as": unix.RLIMIT_AS, "core": unix.RLIMIT_CORE, "cpu": unix.RLIMIT_CPU, "data": unix.RLIMIT_DATA,
	"fsize": unix.RLIMIT_FSIZE, "locks": unix.RLIMIT_LOCKS, "memlock": unix.RLIMIT_MEMLOCK,
	"msgqueue": unix.RLIMIT_MSGQUEUE, "nice": unix.RLIMIT_NICE, "nofile": unix.RLIMIT_NOFILE,
	"nproc": unix.RLIMIT_NPROC, "rss": unix.RLIMIT_RSS, "rtprio": unix.RLIMIT_RTPRIO,
	"rttime": unix.RLIMIT_RTTIME, "sigpending": unix.RLIMIT_SIGPENDING, "stack": unix.RLIMIT_STACK,
}

func readRlimit(c *cause.Change) (rlimitState, string, error) {
	var s rlimitState
	var ok bool
	if s.Resource, ok = resources[c.Name]; !ok {
		return s, "", fmt.Errorf("%q is not a resource of prlimit(1)", c.Name)
	}
	soft, err := parseLimit(c.Value)
	if err != nil {
		return s, "", err
	}
	if s.Process, err = ProcessOf(c.PID); err != nil {
		return s, "", err
	}
	if s.Old, err = s.get(); err != nil {
		return s, "", rlimitError(c, err)
	}
	was := s.Old.String()
	s.New = limits{soft, max(soft, s.Old.Hard)}
	if s.New == s.Old {
		return s, was, fmt.Errorf("limit %s of process %d is %s: %w", c.Name, c.PID, was, ErrAlready)
	}
	if s.New.Hard > s.Old.Hard && !Capable(unix.CAP_SYS_RESOURCE) {
		return s, was, rlimitError(c, fmt.Errorf("the hard limit is %s, and raising it needs CAP_SYS_RESOURCE", limitText(s.Old.Hard)))
	}
	if s.Resource == unix.RLIMIT_NOFILE {
		b, _ := os.ReadFile("/proc/sys/fs/nr_open")
		if most, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64); err == nil && s.New.Hard > most {
			return s, was, rlimitError(c, fmt.Errorf("fs.nr_open allows no more than %d", most))
		}
	}
	return s, was, nil
}

func parseLimit(s string) (uint64, error) {
	if s == "unlimited" {
		return math.MaxUint64, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a limit", s)
	}
	return n, nil
}

func limitText(n uint64) string {
	if n == math.MaxUint64 {
		return "unlimited"
	}
	return fmt.Sprint(n)
}

func (l limits) String() string {
	return fmt.Sprintf("%s, hard %s", limitText(l.Soft), limitText(l.Hard))
}

func rlimitError(c *cause.Change, err error) error {
	if err == nil || errors.Is(err, ErrGone) {
		return err
	}
	return fmt.Errorf("limit %s of process %d: %w", c.Name, c.PID, err)
}

func (s *rlimitState) get() (limits, error) { return s.prlimit(nil) }

// prlimit sets and gets the limits (prlimit64(2)). The process is looked at
// before and after, so that values of another are never taken for its own.
func (s *rlimitState) prlimit(set *unix.Rlimit) (limits, error) {
	if err := s.Process.Check(); err != nil {
		return limits{}, err
	}
	var old unix.Rlimit
	err := unix.Prlimit(s.Process.PID, s.Resource, set, &old)
	if errors.Is(err, unix.ESRCH) {
		return limits{}, ErrGone
	}
	if err != nil {
		return limits{}, refused(err, "CAP_SYS_RESOURCE")
	}
	return limits{old.Cur, old.Max}, s.Process.Check()
}

func applyRlimit(c *cause.Change, s *rlimitState) error {
	_, err := s.prlimit(&unix.Rlimit{Cur: s.New.Soft, Max: s.New.Hard})
	return rlimitError(c, err)
}

func presentRlimit(c *cause.Change, s *rlimitState) (changeState, string, error) {
	now, err := s.get()
	switch {
	case err != nil:
		return foreign, "", rlimitError(c, err)
	case now == s.New:
		return holds, "", nil
	case now == s.Old:
		return before, "", nil
	}
	return foreign, now.String(), nil
}

func undoRlimit(c *cause.Change, s *rlimitState) error {
	_, err := s.prlimit(&unix.Rlimit{Cur: s.Old.Soft, Max: s.Old.Hard})
	return rlimitError(c, err)
}

func rlimitCommands(c *cause.Change, s *rlimitState) (do, undo []shell.Command) {
	set := func(l limits) []shell.Command {
		return []shell.Command{shell.Line("prlimit --pid %s --%s=%s:%s", s.Process.PID, c.Name, limitText(l.Soft), limitText(l.Hard))}
	}
	return set(s.New), set(s.Old)
}
