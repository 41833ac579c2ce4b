package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	osuser "os/user"
	"strings"
	"syscall"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/prove/change"
)

// DefaultDir is where the journal is, unless --state says otherwise.
const DefaultDir = "/var/lib/slowray/journal"

// hostLock is held while something on the host is changed, whatever directory
// the journal is in.
const hostLock = "/run/slowray.lock"

// lockFile is the lock of one directory.
const lockFile = "lock"

// Journal is the record of changes in one directory.
type Journal struct {
	dir  *directory
	host bool // the host's lock is taken too
}

// Open opens the journal in dir, and makes the directory if there is none. One
// that is a symbolic link, belongs to somebody else, or can be read by others is
// refused.
func Open(dir string) (*Journal, error) {
	d, err := openDirectory(dir, true)
	if err != nil {
		return nil, err
	}
	return &Journal{dir: d}, nil
}

// OpenHost is Open for changes to this host: with all journals that were opened
// by it, wherever they are, one set of changes at a time is made.
func OpenHost(dir string) (*Journal, error) {
	j, err := Open(dir)
	if err != nil {
		return nil, err
	}
	j.host = true
	return j, nil
}

// Existing is OpenHost for a directory that is there already; it makes nothing.
// The error is fs.ErrNotExist where nothing was ever changed.
func Existing(dir string) (*Journal, error) {
	d, err := openDirectory(dir, false)
	if err != nil {
		return nil, err
	}
	return &Journal{dir: d, host: true}, nil
}

// Close closes the directory. Leases that are open go on.
func (j *Journal) Close() error { return j.dir.root.Close() }

// Begin prepares changes: each is looked at, what was is written down, the
// watchdog is started. Nothing is changed yet. It fails while other changes are
// being tried, and while those of a killed run are still there.
func (j *Journal) Begin(changes []cause.Change, o Options) (*Lease, error) {
	switch {
	case len(changes) == 0:
		return nil, errors.New("journal: no changes")
	case o.For < 0 || o.For > MaxFor:
		return nil, fmt.Errorf("journal: a lease of %s: must be at most %s", o.For, MaxFor)
	case o.For == 0:
		o.For = DefaultFor
	}
	boot, err := bootID()
	if err != nil {
		return nil, err
	}
	locks, err := j.lock(o.Why)
	if err != nil {
		return nil, err
	}
	l, err := j.begin(changes, o, boot, locks)
	if err != nil {
		release(locks)
		return nil, err
	}
	return l, nil
}

func (j *Journal) begin(changes []cause.Change, o Options, boot string, locks []*os.File) (*Lease, error) {
	if err := j.tidy(boot); err != nil {
		return nil, err
	}
	id, err := j.dir.nextID()
	if err != nil {
		return nil, err
	}
	e := newEntry(id, boot, changes, o)
	for i := range e.Changes {
		it := &e.Changes[i]
		if it.Was, err = prepare(&it.Change); err != nil && (i == 0 || !errors.Is(err, change.ErrFirst)) {
			return nil, err
		}
	}
	if err := j.dir.write(e); err != nil {
		return nil, err
	}
	d, err := openDirectory(j.dir.path, false)
	if err != nil {
		return nil, err
	}
	l, err := newLease(d, e, locks)
	if err != nil {
		d.root.Close()
		return nil, errors.Join(err, j.dir.close(id))
	}
	return l, nil
}

// tidy closes what is done with, and refuses to go on where changes of a killed
// run are left. The lock is held: nobody else is at work.
func (j *Journal) tidy(boot string) error {
	list, err := j.dir.entries(".")
	if err != nil {
		return err
	}
	for i := range list {
		e := &list[i]
		if e.Open() && e.lost(boot) {
			// With nothing left of it, undo only writes that down.
			(&keeper{j.dir, e, "slowray"}).undo("the host was started anew")
		}
		switch {
		case e.State == Damaged:
			return fmt.Errorf("journal: entry %s (%s) may be in force: %s: %s", e.ID, e.texts(), e.Problem, e.remedy())
		case !e.Open():
			if e.torn { // what is put into the history is whole
				if err := j.dir.write(e); err != nil {
					return err
				}
			}
			if err := j.dir.close(e.ID); err != nil {
				return err
			}
		case e.State == Failed:
			return fmt.Errorf("journal: entry %s (%s) could not be put back: try again first: slowray undo, or slowray undo --forget %s", e.ID, e.texts(), e.ID)
		case e.State != Kept:
			return fmt.Errorf("journal: changes of a run that was killed are still there (%s): put them back first: slowray undo", e.texts())
		}
	}
	return nil
}

// remedy is what to do about a damaged entry.
func (e *Entry) remedy() string {
	if e.foreign || e.unknown() && len(e.Changes) == 1 {
		return "look for what it has changed by hand, then: slowray undo --forget " + e.ID
	}
	return "put it back first: slowray undo " + e.ID
}

// lost says that all changes of e ended with the boot they were made in.
func (e *Entry) lost(boot string) bool {
	if e.foreign || e.unknown() || e.BootID == "" {
		return false
	}
	for _, it := range e.Changes {
		if it.Made != MadeNo && (e.BootID == boot || survivesReboot(it.Change.Kind)) {
			return false
		}
	}
	return true
}

// texts is what e changes, for one line.
func (e *Entry) texts() string {
	var texts []string
	for _, it := range e.Changes {
		if it.Made != MadeNo {
			texts = append(texts, it.Change.Text)
		}
	}
	return strings.Join(texts, "; ")
}

// ErrBusy says that somebody else is changing something: another run, or undo.
var ErrBusy = errors.New("one set of changes at a time")

// lock takes the locks, or says who has them. The files are closed to release
// them; a watchdog that has inherited them holds them too.
func (j *Journal) lock(why string) (locks []*os.File, err error) {
	f, err := j.dir.root.OpenFile(lockFile, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("journal: lock: %w", advise(j.dir.path, err))
	}
	locks = append(locks, f)
	if j.host {
		// Where there is no /run, the directory's own lock has to do.
		if f, err := os.OpenFile(hostLock, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600); err == nil {
			locks = append(locks, f)
		}
	}
	for _, f := range locks {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = fmt.Errorf("journal: %s is changing something: %w: wait for it, or end it", holder(f), ErrBusy)
		} else if err != nil {
			err = fmt.Errorf("journal: lock: %w", err)
		}
		if err != nil {
			release(locks)
			return nil, err
		}
	}
	for _, f := range locks {
		// For people only: a full disk must not be in the way.
		f.Truncate(0)
		f.WriteAt(fmt.Appendf(nil, "%q, process %d", why, os.Getpid()), 0)
	}
	return locks, nil
}

// holder is who has the lock, in words.
func holder(f *os.File) string {
	text := make([]byte, 200)
	n, _ := f.ReadAt(text, 0)
	if n == 0 {
		return "another run of slowray"
	}
	return string(text[:n])
}

// release unlocks at once. Closing alone would not: a process that is being
// started has all open files until it is there.
func release(locks []*os.File) {
	for _, f := range locks {
		syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
		f.Close()
	}
}

// user is who runs this, also behind sudo.
func user() string {
	if name := os.Getenv("SUDO_USER"); name != "" {
		return name
	}
	if u, err := osuser.Current(); err == nil {
		return u.Username
	}
	return fmt.Sprint(os.Getuid())
}

// List gives what is not put back: also what is kept, what is being tried now,
// and files that cannot be read (state Damaged). Oldest first.
func (j *Journal) List() ([]Entry, error) {
	list, err := j.dir.entries(".")
	if err != nil {
		return nil, err
	}
	open := list[:0]
	for _, e := range list {
		if e.Open() || e.Live() {
			open = append(open, e)
		}
	}
	return open, nil
}

// History gives entries that are closed, oldest first.
func (j *Journal) History() ([]Entry, error) { return j.dir.entries(historyDir) }

// Live says that the run it belongs to is still going on.
func (e *Entry) Live() bool {
	return e.State != Kept && e.recorded != Kept && (e.Owner.Lives() || e.Watchdog.Lives())
}

// Now is what is there at present, as a person would say it; "" where it cannot
// be reported.
func (it *Item) Now() string {
	switch h, err := holds(it); {
	case err != nil:
		return ""
	case h.gone:
		return "gone"
	case h.holds:
		return it.Change.Value
	default:
		return h.now
	}
}

// Notice says in one line that changes of a killed run are still there, or that
// an entry cannot be read; "" if all is well. It is cheap, and whoever may not
// look there learns nothing.
func Notice(dir string) string {
	if _, err := os.Lstat(dir); err != nil {
		return ""
	}
	d, err := openDirectory(dir, false)
	if err != nil {
		return ""
	}
	defer d.root.Close()
	list, err := d.entries(".")
	boot, berr := bootID()
	if err != nil || berr != nil {
		return ""
	}
	for i := range list {
		e := &list[i]
		switch {
		case e.State == Damaged && !e.Live() && !e.lost(boot):
			return fmt.Sprintf("a change may be in force (%s), and its entry in the journal is damaged: %s: %s", e.texts(), e.Problem, e.remedy())
		case e.Open() && e.State != Kept && !e.Live() && !e.lost(boot):
			return fmt.Sprintf("changes of a run that was killed are still there (%s): put them back with: slowray undo", e.texts())
		}
	}
	return ""
}

// ErrUnknown is the error for an ID that is not in the journal.
var ErrUnknown = errors.New("no such entry (slowray undo --list shows them)")

// wait looks every little while whether done, for at most limit.
func wait(limit time.Duration, done func() bool) bool {
	for end := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		if done() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}

// isGone says that there is no such file.
func isGone(err error) bool { return errors.Is(err, fs.ErrNotExist) }
