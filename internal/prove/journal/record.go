package journal

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// The file of an entry is lines of JSON, each a record with its length and its
// SHA-256: the head, a record for each change, and the end. A record that is whole
// can be trusted whatever became of the others, and that one is missing is seen.
// The changes come before what is said of them last, for it is the tail of a file
// that a power cut takes.

// frame is a line: a record, and how it is known to be whole.
type frame struct {
	Bytes  int             `json:"bytes"` // of the record, as it stands in the line
	SHA256 string          `json:"sha256"`
	Record json.RawMessage `json:"record"`
}

// record is one part of an entry.
type record struct {
	ID         string `json:"id"`
	Generation uint64 `json:"generation"` // counted up each time the entry is written
	Head       *head  `json:"head,omitempty"`
	Index      int    `json:"index,omitempty"` // of Item, from 0
	Item       *Item  `json:"item,omitempty"`
	End        *end   `json:"end,omitempty"`
}

// head is what does not change of an entry.
type head struct {
	Schema  string    `json:"schema"`
	Items   int       `json:"items"`
	BootID  string    `json:"boot_id"`
	Created time.Time `json:"created"`
	Until   time.Time `json:"until"`
	Cause   string    `json:"cause"`
	Why     string    `json:"why"`
	User    string    `json:"user"`
}

// end is what is said of all changes of an entry.
type end struct {
	State    State   `json:"state"`
	Owner    Process `json:"owner"`
	Watchdog Process `json:"guardian"`
	Events   []Event `json:"events"`
}

// encode gives the file of an entry.
func encode(e *Entry) ([]byte, error) {
	var out bytes.Buffer
	add := func(r record) error {
		r.ID, r.Generation = e.ID, e.Generation
		raw, err := json.Marshal(r)
		if err != nil {
			return err
		}
		line, err := json.Marshal(frame{len(raw), sum(raw), raw})
		out.Write(append(line, '\n'))
		return err
	}
	err := add(record{Head: &head{schemaID, len(e.Changes), e.BootID, e.Created, e.Until, e.Cause, e.Why, e.User}})
	for i := range e.Changes {
		err = errors.Join(err, add(record{Index: i, Item: &e.Changes[i]}))
	}
	err = errors.Join(err, add(record{End: &end{e.State, e.Owner, e.Watchdog, e.Events}}))
	if err == nil && (out.Len() > maxBytes || len(e.Changes) > maxItems) {
		err = fmt.Errorf("too large (%d changes, %d bytes)", len(e.Changes), out.Len())
	}
	return out.Bytes(), err
}

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

// salvage is what is whole of the file of an entry.
type salvage struct {
	generation uint64
	head       *head
	items      map[int]*Item
	end        *end
	damage     string // what is wrong with the file; empty: nothing
	foreign    bool   // it is of another version of slowray
}

// whole says that nothing is missing.
func (s *salvage) whole() bool { return s.damage == "" }

// parse reads the file of entry id. What it gives is what can be trusted, whatever
// the file holds.
func parse(id string, data []byte) salvage {
	s := salvage{items: map[int]*Item{}}
	switch {
	case len(data) == 0:
		s.damage = "is empty"
		return s
	case len(bytes.Trim(data, "\x00")) == 0:
		s.damage = "has only zeros"
		return s
	}
	if e, ok := parseOld(data); ok {
		return ofOld(id, e)
	}
	good, bad, problem := 0, 0, ""
	for line := range bytes.SplitAfterSeq(data, []byte("\n")) {
		if len(line) == 0 {
			continue // behind the last one
		}
		r, ok := parseLine(line)
		if !ok {
			bad++
			continue
		}
		good++
		if err := s.add(id, r); err != nil && problem == "" {
			problem = err.Error()
		}
	}
	switch {
	case problem != "":
		s.damage = problem
	case good == 0:
		s.damage = "is torn or not of the journal"
	case bad > 0 || s.head == nil || s.end == nil || s.missing() || len(s.items) != s.head.Items:
		s.damage = fmt.Sprintf("is damaged: %d of its records are whole", good)
		if s.head != nil {
			s.damage = fmt.Sprintf("is damaged: %d of its %d records are whole", good, s.head.Items+2)
		}
	case s.head.Items == 0:
		s.damage = "has no changes"
	}
	return s
}

// missing says that the record of a change is not there.
func (s *salvage) missing() bool {
	for i := range min(s.head.Items, maxItems) {
		if s.items[i] == nil {
			return true
		}
	}
	return s.head.Items > maxItems
}

// parseLine reads a record; false where it is not whole.
func parseLine(line []byte) (r record, ok bool) {
	var f frame
	text, ended := bytes.CutSuffix(line, []byte("\n"))
	if !ended || json.Unmarshal(text, &f) != nil || len(f.Record) != f.Bytes || sum(f.Record) != f.SHA256 {
		return r, false
	}
	return r, json.Unmarshal(f.Record, &r) == nil
}

// add takes a record. The error is about one that is whole, and yet is not of this
// entry.
func (s *salvage) add(id string, r record) error {
	first := s.head == nil && s.end == nil && len(s.items) == 0
	switch {
	case r.ID != id:
		return fmt.Errorf("says that it is entry %q", r.ID)
	case first:
		s.generation = r.Generation
	case r.Generation != s.generation:
		return errors.New("has records that were not written together")
	}
	switch {
	case r.Head != nil:
		if r.Head.Schema != schemaID {
			s.foreign = true
			return fmt.Errorf("has schema %q, this version of slowray knows %q", r.Head.Schema, schemaID)
		}
		s.head = r.Head
	case r.Item != nil:
		if r.Index < 0 || r.Index >= maxItems || !r.Item.Made.known() {
			return fmt.Errorf("has a change %d that is made %q", r.Index, r.Item.Made)
		}
		s.items[r.Index] = r.Item
	case r.End != nil:
		if !slices.Contains(states, r.End.State) {
			return fmt.Errorf("has the unknown state %q", r.End.State)
		}
		s.end = r.End
	}
	return nil
}

// oldSchema is that of files that are one JSON object, as written by versions of
// slowray without a second copy.
const oldSchema = "slowray.journal/1"

// parseOld reads a file that is one JSON object; false where it is none.
func parseOld(data []byte) (e *Entry, ok bool) {
	if json.Unmarshal(data, &e) != nil || e == nil || e.Schema == "" {
		return nil, false
	}
	return e, true
}

// ofOld takes over an entry of such a file.
func ofOld(id string, e *Entry) salvage {
	s := salvage{items: map[int]*Item{}}
	switch {
	case e.Schema != oldSchema:
		s.foreign = true
		s.damage = fmt.Sprintf("has schema %q, this version of slowray knows %q", e.Schema, schemaID)
		return s
	case e.ID != id:
		s.damage = fmt.Sprintf("says that it is entry %q", e.ID)
		return s
	case len(e.Changes) == 0:
		s.damage = "has no changes"
		return s
	case !slices.Contains(states, e.State):
		s.damage = fmt.Sprintf("has the unknown state %q", e.State)
	}
	s.head = &head{schemaID, len(e.Changes), e.BootID, e.Created, e.Until, e.Cause, e.Why, e.User}
	s.end = &end{e.State, e.Owner, e.Watchdog, e.Events}
	for i := range e.Changes {
		if it := &e.Changes[i]; it.Made.known() {
			s.items[i] = it
		} else {
			s.damage = fmt.Sprintf("has a change that is made %q", it.Made)
		}
	}
	return s
}

// entry puts together what is known. Of an entry that is not whole, all changes
// may be made or not, and those whose record is lost are there without a kind.
func (s *salvage) entry(id string) *Entry {
	e := &Entry{Schema: schemaID, ID: id, Generation: s.generation, State: Damaged, Problem: s.damage, foreign: s.foreign}
	if s.head != nil {
		e.BootID, e.Created, e.Until, e.Cause, e.Why, e.User = s.head.BootID, s.head.Created, s.head.Until, s.head.Cause, s.head.Why, s.head.User
	}
	if s.end != nil {
		e.recorded, e.Owner, e.Watchdog, e.Events = s.end.State, s.end.Owner, s.end.Watchdog, s.end.Events
	}
	n := 1 // at least
	if s.head != nil {
		n = s.head.Items
	}
	for i := range s.items {
		n = max(n, i+1)
	}
	for i := range min(n, maxItems) {
		it := Item{Made: MadeMaybe}
		it.Change.Text = lostText
		if known := s.items[i]; known != nil {
			it = *known
		}
		if !s.whole() {
			it.Made = MadeMaybe
		}
		e.Changes = append(e.Changes, it)
	}
	if s.whole() {
		e.State, e.recorded = s.end.State, s.end.State
	}
	return e
}

// merge takes from another copy what this one has lost.
func (s *salvage) merge(o *salvage) {
	if s.head == nil {
		s.head = o.head
	}
	if s.end == nil {
		s.end = o.end
	}
	for i, it := range o.items {
		if s.items[i] == nil {
			s.items[i] = it
		}
	}
	s.generation = max(s.generation, o.generation)
}

const (
	// lostText is what is said of a change whose record is lost.
	lostText = "a change of which nothing is known, for its record is damaged"
	// maxItems bounds the changes of an entry, also of a file that says that it has
	// very many.
	maxItems = 1000
)
