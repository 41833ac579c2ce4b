package journal

import (
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
	// Damaged is only in lists: the file is not whole, and the changes may be in
	// force. What is known of them is from its backup, or from what is left of both.
	Damaged State = "damaged"
)

// states are those that a file may tell.
var states = []State{Prepared, Applying, Applied, Undoing, Undone, Failed, Kept}

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

func (m Made) known() bool { return m == MadeNo || m == MadeMaybe || m == MadeYes }

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

// Entry is one set of changes: made together, put back together. Its JSON is that of
// files of slowray.journal/1.
type Entry struct {
	Schema     string    `json:"schema"`
	ID         string    `json:"id"` // a number, counted up
	Generation uint64    `json:"-"`  // how often it was written
	BootID     string    `json:"boot_id"`
	Created    time.Time `json:"created"`
	Until      time.Time `json:"until"` // the end of the lease
	Cause      string    `json:"cause"`
	Why        string    `json:"why"`
	User       string    `json:"user"`
	State      State     `json:"state"`
	Owner      Process   `json:"owner"`
	Watchdog   Process   `json:"guardian"`
	Changes    []Item    `json:"changes"`
	Events     []Event   `json:"events"`
	Problem    string    `json:"-"` // of a damaged one: what is wrong with its file

	recorded State // what a damaged one was, as far as that is known
	foreign  bool  // a damaged one that this version of slowray must not write to
	torn     bool  // its file is not whole
}

// schemaID is the schema of the files; it grows a version when they change.
const schemaID = "slowray.journal/2"

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
