package alert

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/slowray/slowray/internal/safefile"
)

// stateName is the file of what is open and of what waits.
const stateName = "alerts.json"

const (
	// mostWaiting is how many messages wait for one receiver: the oldest give way.
	mostWaiting = 1000
	// oldest is after how long a message is of no use any more.
	oldest   = 24 * time.Hour
	maxState = 64 << 20 // bytes
)

// state is all that outlives the process.
type state struct {
	Incidents incidents             `json:"incidents"`
	Waiting   map[string][]*Message `json:"waiting"` // by receiver, oldest first
	Counts    map[string]*Counts    `json:"counts"`  // by receiver
}

// Counts is what became of messages to one receiver.
type Counts struct {
	Queued  uint64 `json:"queued"`
	Sent    uint64 `json:"sent"`
	Refused uint64 `json:"refused"`  // by the receiver, for good
	GivenUp uint64 `json:"given_up"` // too old, too many, or the receiver is gone
	Failed  uint64 `json:"failed_attempts"`
	// LastError is why the last attempt failed; empty when it did not.
	LastError string     `json:"last_error,omitempty"`
	LastSent  *time.Time `json:"last_sent,omitempty"`
}

// outbox keeps the state in a directory of slowray's own.
type outbox struct {
	dir   *safefile.Dir
	lock  *os.File // on it
	aside string   // why and where to a damaged file was moved when this was opened
	state
}

// openOutbox reads what an earlier run has left.
func openOutbox(name string) (*outbox, error) {
	dir, err := safefile.MakeDir(name, 0o700)
	if err != nil {
		return nil, err
	}
	lock, err := lockDir(dir)
	if err != nil {
		dir.Close()
		return nil, err
	}
	b := &outbox{dir: dir, lock: lock, state: newState()}
	err = b.read()
	if damage := (*damagedError)(nil); errors.As(err, &damage) {
		err = b.moveAside(damage)
	}
	if err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// damagedError is about a state that no slowray wrote.
type damagedError struct{ err error }

func (e *damagedError) Error() string { return stateName + " is damaged: " + e.err.Error() }
func (e *damagedError) Unwrap() error { return e.err }

const (
	// asidePrefix begins the names of damaged files; the time follows, so that they sort by it.
	asidePrefix = stateName + ".damaged-"
	mostAside   = 4
)

func newState() state {
	return state{Waiting: map[string][]*Message{}, Counts: map[string]*Counts{}}
}

// moveAside keeps a damaged file for a person to look at, and begins anew.
func (b *outbox) moveAside(damage *damagedError) error {
	name := asidePrefix + time.Now().UTC().Format("20060102T150405.000000000Z")
	if err := b.dir.Rename(stateName, name); err != nil {
		return err
	}
	list, err := asideIn(b.dir)
	if err != nil {
		return err
	}
	for len(list) > mostAside {
		if err := b.dir.Remove(list[0]); err != nil {
			return err
		}
		list = list[1:]
	}
	b.state = newState()
	b.aside = fmt.Sprintf("%v: it was moved to %s; incidents begin anew, and what waited in it is not sent", damage, filepath.Join(b.dir.Path(), name))
	return b.dir.Sync()
}

// asideIn names the damaged files in a directory, oldest first.
func asideIn(dir *safefile.Dir) (names []string, err error) {
	f, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all, err := f.Readdirnames(-1)
	for _, name := range all {
		if strings.HasPrefix(name, asidePrefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, err
}

// check refuses members that are null where something has to be.
func (s *state) check() error {
	if slices.Contains(s.Incidents.Open, nil) {
		return errors.New("an open incident is null")
	}
	for name, list := range s.Waiting {
		if slices.Contains(list, nil) {
			return fmt.Errorf("a message for %q is null", name)
		}
	}
	for name, c := range s.Counts {
		if c == nil {
			return fmt.Errorf("the counts of %q are null", name)
		}
	}
	return nil
}

// lockDir keeps the directory for this process, for as long as it lives: of two the one
// would overwrite what the other has told.
func lockDir(dir *safefile.Dir) (*os.File, error) {
	f, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("another slowray sends alerts from %s: %w", dir.Path(), err)
	}
	return f, nil
}

func (b *outbox) close() {
	b.lock.Close()
	b.dir.Close()
}

func (b *outbox) read() error {
	f, err := b.dir.OpenRegular(stateName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxState))
	if err != nil {
		return err // the disk's fault: the file may be whole
	}
	if err = json.Unmarshal(text, &b.state); err == nil {
		err = b.check()
	}
	if err != nil {
		return &damagedError{err}
	}
	if b.Waiting == nil {
		b.Waiting = map[string][]*Message{}
	}
	if b.Counts == nil {
		b.Counts = map[string]*Counts{}
	}
	return nil
}

// save makes the state outlive a power cut.
func (b *outbox) save() error {
	text, err := json.Marshal(&b.state)
	if err != nil {
		return err
	}
	return b.dir.Replace(stateName, text)
}

func (b *outbox) counts(receiver string) *Counts {
	c := b.Counts[receiver]
	if c == nil {
		c = &Counts{}
		b.Counts[receiver] = c
	}
	return c
}

// add queues a message.
func (b *outbox) add(receiver string, m *Message) {
	c := b.counts(receiver)
	c.Queued++
	list := append(b.Waiting[receiver], m)
	if over := len(list) - mostWaiting; over > 0 {
		list = list[over:]
		c.GivenUp += uint64(over)
	}
	b.Waiting[receiver] = list
}

// next is the message that is to be sent first; nil when none waits.
func (b *outbox) next(receiver string, now time.Time) *Message {
	list := b.Waiting[receiver]
	for len(list) > 0 && now.Sub(list[0].At) > oldest {
		list = list[1:]
		b.counts(receiver).GivenUp++
	}
	b.Waiting[receiver] = list
	if len(list) == 0 {
		return nil
	}
	return list[0]
}

// done takes a message away; it may have given way to younger ones meanwhile.
func (b *outbox) done(receiver, delivery string) {
	list := b.Waiting[receiver]
	for i, m := range list {
		if m.Delivery == delivery {
			b.Waiting[receiver] = append(list[:i:i], list[i+1:]...)
			return
		}
	}
}

// forget gives up what waits for receivers that the rules do not name any more.
func (b *outbox) forget(known func(string) bool) (given int) {
	for name, list := range b.Waiting {
		if !known(name) {
			given += len(list)
			b.counts(name).GivenUp += uint64(len(list))
			delete(b.Waiting, name)
		}
	}
	return given
}
