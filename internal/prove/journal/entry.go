package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/prove/change"
)

// State is how far an [Entry] is.
type State string

// The states. What is to be put back is in all of them but prepared and undone.
const (
	Prepared State = "prepared" // on disk, nothing is changed
	Applying State = "applying" // changes may be made, or half made
	Applied  State = "applied"
	Undoing  State = "undoing" // changes may be put back, or not yet
	Undone   State = "undone"  // all is put back, or is not ours any more
	Failed   State = "failed"  // something could not be put back
	Kept     State = "kept"    // left in place on purpose
	Damaged  State = "damaged" // the file cannot be read; only in lists
)

// Result is what became of one change when it was to be put back.
type Result string

// The results.
const (
	ResultUndone  Result = "undone"  // it is as it was
	ResultGone    Result = "gone"    // what was changed is not there any more
	ResultChanged Result = "changed" // somebody else has changed it meanwhile: left alone
	ResultFailed  Result = "failed"
)

// Made says whether a change is in place.
type Made string

// What is known of a change.
const (
	MadeNo    Made = "no"
	MadeMaybe Made = "maybe" // it was being made, or undone: also half
	MadeYes   Made = "yes"
)

// Process names a process for as long as a host runs: by its ID and the moment
// it began, for IDs are used again.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // ticks after boot, proc_pid_stat(5)
}

// Item is one change of an entry.
type Item struct {
	Change cause.Change `json:"change"`
	Was    change.State `json:"was"`
	Made   Made         `json:"made"`
	Result Result       `json:"result,omitempty"` // of the last undoing
	Note   string       `json:"note,omitempty"`   // what is there instead, why it failed
}

// Event is something that happened to an entry.
type Event struct {
	Time time.Time `json:"time"`
	By   string    `json:"by"` // "slowray", "guardian", "undo"
	Text string    `json:"text"`
}

// Entry is one set of changes: made together, put back together.
type Entry struct {
	Schema   string    `json:"schema"`
	ID       string    `json:"id"` // a number, counted up
	BootID   string    `json:"boot_id"`
	Created  time.Time `json:"created"`
	Until    time.Time `json:"until"` // the end of the lease
	Cause    string    `json:"cause"`
	Why      string    `json:"why"`
	User     string    `json:"user"`
	State    State     `json:"state"`
	Owner    Process   `json:"owner"`
	Guardian Process   `json:"guardian"`
	Changes  []Item    `json:"changes"`
	Events   []Event   `json:"events"`
	Problem  string    `json:"-"` // of a damaged one: what is wrong with its file
}

// schemaID is the schema of the files; it grows a version when they change.
const schemaID = "slowray.journal/1"

// maxEvents bounds an entry that is applied and undone very often.
const maxEvents = 200

// Open says that there is something to put back.
func (e *Entry) Open() bool { return e.State != Prepared && e.State != Undone }

// note adds an event; the oldest but the first make room.
func (e *Entry) note(by, format string, args ...any) {
	if len(e.Events) >= maxEvents {
		e.Events = append(e.Events[:1], e.Events[2:]...)
	}
	e.Events = append(e.Events, Event{time.Now().UTC().Truncate(time.Millisecond), by, fmt.Sprintf(format, args...)})
}

// parseEntry reads the file of entry id. What is not exactly an entry is an
// error: undoing half an entry would be worse than asking.
func parseEntry(id string, data []byte) (*Entry, error) {
	e := &Entry{}
	if err := json.Unmarshal(data, e); err != nil {
		return nil, fmt.Errorf("is torn or not of the journal: %w", err)
	}
	switch {
	case e.Schema != schemaID:
		return nil, fmt.Errorf("has schema %q, this version of slowray knows %q", e.Schema, schemaID)
	case e.ID != id:
		return nil, fmt.Errorf("says that it is entry %q", e.ID)
	case len(e.Changes) == 0:
		return nil, errors.New("has no changes")
	}
	switch e.State {
	case Prepared, Applying, Applied, Undoing, Undone, Failed, Kept:
	default:
		return nil, fmt.Errorf("has the unknown state %q", e.State)
	}
	for _, it := range e.Changes {
		switch it.Made {
		case MadeNo, MadeMaybe, MadeYes:
		default:
			return nil, fmt.Errorf("has a change that is made %q", it.Made)
		}
	}
	return e, nil
}

const maxNumber = 1 << 30

// number is the ID as a number; 0 if it is none.
func number(id string) int {
	n, err := strconv.Atoi(id)
	if err != nil || n <= 0 || n > maxNumber || strconv.Itoa(n) != id {
		return 0
	}
	return n
}

// survivesReboot says whether a change is still there after the host was
// started anew. Only what is in files of configuration is.
func survivesReboot(kind cause.ChangeKind) bool { return kind == cause.ChangeConfig }
