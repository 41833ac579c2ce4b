// Package change makes hot changes, and puts them back: one file per kind of
// cause.Change.
//
// In: a cause.Change, which says what to set and where. Out: its State before,
// the effect on the host, and later the State again. It decides nothing, keeps
// no record (internal/prove/journal does, before anything is touched), and
// measures nothing.
package change

import (
	"encoding/json"
	"fmt"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/shell"
)

// State is what a change found before it was made: all that is needed to put it
// back, also by another process, later.
type State struct {
	Was string `json:"was"` // for people
	// Data is the kind's own: old values, and what tells whether the subject is
	// still the same one (start time of a process, inode of a socket or namespace,
	// a file's content).
	Data json.RawMessage `json:"data,omitempty"`
}

// Doer makes one kind of change. Its errors are one line that says what failed
// and what to do. A Doer keeps nothing in memory between calls: the process that
// undoes is often not the one that applied.
type Doer interface {
	// Prepare reads the present state and finds out whether the change can be
	// made. It changes nothing. ErrAlready says that there is nothing to change.
	Prepare(c *cause.Change) (State, error)
	// Apply makes the change. When it fails it has changed nothing, or what it
	// has changed is undone by Undo.
	Apply(c *cause.Change, was State) error
	// Holds says whether what Apply set is still there; if not, now tells what is
	// there instead, in the words of State.Was: the same words mean that all is as
	// it was before. A change to several things (sockets, threads) holds as long as
	// one of them has what was set; Undo leaves those alone that another has set.
	// A subject that is gone (the process has ended)
	// is gone=true: there is nothing left to undo.
	Holds(c *cause.Change, was State) (holds bool, gone bool, now string, err error)
	// Undo puts the old state back. Called again, or after a half-made Apply, it
	// does no harm.
	Undo(c *cause.Change, was State) error
	// Commands is what a person would type to do and to undo the same.
	Commands(c *cause.Change, was State) (do, undo []shell.Command)
}

var doers = map[cause.ChangeKind]Doer{}

// Register makes d the Doer of a kind. It is called by init functions only.
func Register(kind cause.ChangeKind, d Doer) { doers[kind] = d }

// For gives the Doer of a kind.
func For(kind cause.ChangeKind) (Doer, error) {
	if d, ok := doers[kind]; ok {
		return d, nil
	}
	return nil, fmt.Errorf("changes of kind %q cannot be made by this version", kind)
}
