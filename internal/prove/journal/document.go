package journal

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/language"
	"github.com/slowray/slowray/internal/printable"
)

// Document is what `slowray undo --json` prints (schema/undo.schema.json).
type Document struct {
	Schema   string    `json:"schema"`
	Entries  []Listed  `json:"entries"`  // what is not put back, oldest first; with --all those that are, too
	Outcomes []Outcome `json:"outcomes"` // of this call, the last change first
}

// documentSchema grows a version when the document changes.
const documentSchema = "slowray.undo/1"

// Listed is an entry, as it is shown.
type Listed struct {
	ID      string         `json:"id"`
	State   State          `json:"state"`
	Live    bool           `json:"live"` // its run is still going on
	Created time.Time      `json:"created"`
	Until   time.Time      `json:"until"`
	Cause   string         `json:"cause"`
	Why     string         `json:"why"`
	User    string         `json:"user"`
	PID     int            `json:"pid"` // of the run
	Problem string         `json:"problem,omitempty"`
	Changes []ListedChange `json:"changes"`
	Events  []Event        `json:"events"`
}

// ListedChange is one change of an entry, as it is shown.
type ListedChange struct {
	Kind   cause.ChangeKind `json:"kind"`
	Text   string           `json:"text"`
	Was    string           `json:"was"`
	Set    string           `json:"set"`
	Now    string           `json:"now,omitempty"` // what is there at present, where it can be known
	Made   Made             `json:"made"`
	Result Result           `json:"result,omitempty"`
	Note   string           `json:"note,omitempty"`
}

// NewDocument shows entries and outcomes. What is open is looked at as it is now.
func NewDocument(entries []Entry, outcomes []Outcome) *Document {
	d := &Document{Schema: documentSchema, Entries: []Listed{}, Outcomes: append([]Outcome{}, outcomes...)}
	for i := range entries {
		e := &entries[i]
		l := Listed{ID: e.ID, State: e.State, Live: e.Live(), Created: e.Created, Until: e.Until, Cause: e.Cause, Why: e.Why,
			User: e.User, PID: e.Owner.PID, Problem: e.Problem, Changes: []ListedChange{}, Events: append([]Event{}, e.Events...)}
		for _, it := range e.Changes {
			c := ListedChange{Kind: it.Change.Kind, Text: it.Change.Text, Was: it.Was.Was, Set: it.Change.Value, Made: it.Made,
				Result: it.Result, Note: it.Note}
			if e.Open() {
				c.Now = it.Now()
			}
			l.Changes = append(l.Changes, c)
		}
		d.Entries = append(d.Entries, l)
	}
	return d
}

// JSON writes the document for programs.
func (d *Document) JSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(d)
}

// List writes the entries for people, in so many columns, 0 being any.
func (d *Document) List(w io.Writer, width int, reader *language.Language) error {
	if len(d.Entries) == 0 {
		_, err := fmt.Fprintln(w, reader.Text("No changes: nothing to undo."))
		return err
	}
	rows := [][]string{{"ID", reader.Text("WHEN"), reader.Text("STATE"), reader.Text("CAUSE"), reader.Text("WHO")}}
	for i := range d.Entries {
		l := &d.Entries[i]
		when, who := "-", printable.Text(l.Problem)
		if !l.Created.IsZero() {
			when = l.Created.Local().Format(time.DateTime)
		}
		if l.State != Damaged {
			who = reader.Sprintf("%s: %s (pid %d)", l.User, printable.Text(l.Why), l.PID)
			if l.Live {
				who = reader.Sprintf("%s: %s (pid %d, running)", l.User, printable.Text(l.Why), l.PID)
			}
		}
		rows = append(rows, []string{l.ID, when, reader.Text(string(l.State)), printable.Text(cmp.Or(l.Cause, "-")), who})
	}
	table := printable.Table(rows, width)
	var b strings.Builder
	for i := range d.Entries {
		for _, c := range d.Entries[i].Changes {
			values := reader.Text(printable.Text(c.values()))
			if d.Entries[i].State == Damaged {
				values = reader.Sprintf("may be in force: %s", values)
			}
			fmt.Fprintf(&b, "%s  %s\n   %s\n", d.Entries[i].ID, reader.Text(printable.Text(c.Text)), values)
		}
	}
	_, err := io.WriteString(w, table+printable.Fold(b.String(), width))
	return err
}

// values is what was and what is.
func (c *ListedChange) values() string {
	switch {
	case c.Result == ResultUndone:
		return "put back: " + c.Was
	case c.Result != "":
		return fmt.Sprintf("%s: %s; it was %s", c.Result, c.Note, c.Was)
	case c.Kind == "":
		return "look for it by hand"
	case c.Made == MadeNo:
		return fmt.Sprintf("is %s, not changed", c.Was)
	case c.Now == "":
		return fmt.Sprintf("was %s, set to %s, cannot be read now", c.Was, c.Set)
	}
	return fmt.Sprintf("was %s, is %s", c.Was, c.Now)
}

// Undone writes what became of the changes for people, in so many columns.
func (d *Document) Undone(w io.Writer, width int, reader *language.Language) error {
	if len(d.Outcomes) == 0 {
		_, err := fmt.Fprintln(w, reader.Text("Nothing to undo."))
		return err
	}
	var b strings.Builder
	for i := range d.Outcomes {
		o := &d.Outcomes[i]
		text := fmt.Sprintf("%s: put back (%s)", o.Change, o.Was)
		if err := o.Error(); err != nil {
			text = err.Error()
		} else if o.Note != "" {
			text += ": " + o.Note
		}
		fmt.Fprintf(&b, "%s  %s\n", o.ID, reader.Text(printable.Text(text)))
	}
	_, err := io.WriteString(w, printable.Fold(b.String(), width))
	return err
}

// Left says that something was not put back, though it is still there.
func (d *Document) Left() bool {
	return slices.ContainsFunc(d.Outcomes, func(o Outcome) bool { return o.Result == ResultFailed || o.Result == ResultChanged })
}
