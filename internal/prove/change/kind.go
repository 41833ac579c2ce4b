package change

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/shell"
)

// ErrAlready is wrapped by the error of Prepare where things are already as
// the change would make them.
var ErrAlready = errors.New("it is so already")

// ErrFirst is wrapped by the error of Prepare where another setting has to be
// changed before: an earlier change of the same set may do that.
var ErrFirst = errors.New("raise that first")

// ErrGone says that the subject of a change is not there any more.
var ErrGone = errors.New("gone")

// changeState is what is found of a change that was made.
type changeState int

const (
	holds   changeState = iota // what was set is there
	before                     // all is as it was before
	foreign                    // something else has set it
)

// kind is a Doer, put together from functions that know the type of their state.
type kind[S any] struct {
	// read gives the present state and what it is called; it changes nothing.
	read  func(c *cause.Change) (S, string, error)
	apply func(c *cause.Change, s *S) error
	// present compares with what apply sets; the text is for people, and used
	// only for foreign. ErrGone: the subject is gone.
	present  func(c *cause.Change, s *S) (changeState, string, error)
	undo     func(c *cause.Change, s *S) error
	commands func(c *cause.Change, s *S) (do, undo []shell.Command)
	// whole says no to a state that lacks what the others rely on; nil: none can.
	whole func(s *S) bool
}

// envelope is State.Data: the kind's own, and the run of the kernel that it is
// of. What a restart has ended cannot be put back and need not.
type envelope struct {
	Boot string          `json:"boot"`
	Own  json.RawMessage `json:"own"`
}

// BootID names this run of the kernel (proc_sys_kernel(5), random/boot_id);
// empty where it cannot be read.
var BootID = sync.OnceValue(func() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
})

func (k kind[S]) open(was State) (*S, error) {
	var e envelope
	s := new(S)
	if err := json.Unmarshal(was.Data, &e); err != nil {
		return s, fmt.Errorf("state before the change: %w", err)
	}
	if e.Boot != BootID() {
		return s, ErrGone
	}
	if err := json.Unmarshal(e.Own, s); err != nil {
		return s, fmt.Errorf("state before the change: %w", err)
	}
	if k.whole != nil && !k.whole(s) {
		return new(S), errors.New("state before the change: it is not complete")
	}
	return s, nil
}

// Prepare is of Doer.
func (k kind[S]) Prepare(c *cause.Change) (State, error) {
	s, was, err := k.read(c)
	if err != nil {
		return State{Was: was}, err
	}
	own, err := json.Marshal(s)
	if err != nil {
		return State{}, fmt.Errorf("state before the change: %w", err)
	}
	data, err := json.Marshal(envelope{BootID(), own})
	return State{Was: was, Data: data}, err
}

// Apply is of Doer.
func (k kind[S]) Apply(c *cause.Change, was State) error {
	s, err := k.open(was)
	if err == nil {
		err = k.apply(c, s)
	}
	if errors.Is(err, ErrGone) {
		return fmt.Errorf("what was to be changed has gone: %s", cmpText(c.Text, string(c.Kind)))
	}
	return err
}

// Holds is of Doer.
func (k kind[S]) Holds(c *cause.Change, was State) (bool, bool, string, error) {
	s, err := k.open(was)
	if errors.Is(err, ErrGone) {
		return false, true, "", nil
	}
	if err != nil {
		return false, false, "", err
	}
	h, now, err := k.present(c, s)
	switch {
	case errors.Is(err, ErrGone):
		return false, true, "", nil
	case err != nil:
		return false, false, "", err
	case h == before:
		now = was.Was
	case h == holds:
		now = ""
	}
	return h == holds, false, now, nil
}

// Undo is of Doer.
func (k kind[S]) Undo(c *cause.Change, was State) error {
	s, err := k.open(was)
	if err == nil {
		err = k.undo(c, s)
	}
	if errors.Is(err, ErrGone) {
		return nil
	}
	return err
}

// Commands is of Doer.
func (k kind[S]) Commands(c *cause.Change, was State) (do, undo []shell.Command) {
	s, _ := k.open(was)
	return k.commands(c, s)
}

func cmpText(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// tally puts together what is found of a change to several things.
type tally struct{ ours, old, other int }

func (t *tally) add(ours, old bool) {
	switch {
	case old && !ours:
		t.old++
	case ours:
		t.ours++
	default:
		t.other++
	}
}

// state is that of the whole. As long as one has what was set there is something
// to undo: of a change that was half made, and where another has set some of
// them. Those, undo leaves alone.
func (t tally) state() (changeState, error) {
	switch {
	case t.ours+t.old+t.other == 0:
		return before, ErrGone
	case t.ours > 0:
		return holds, nil
	case t.other > 0:
		return foreign, nil
	}
	return before, nil
}

// refused puts what the kernel says into words: what is missing, and what to do.
func refused(err error, needs string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("not permitted (needs %s)", needs)
	case errors.Is(err, unix.EROFS):
		return errors.New("read-only here: run slowray on the host, not in a container")
	case errors.Is(err, unix.ENOSYS):
		return errors.New("this kernel has no call for it")
	}
	var path *os.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
