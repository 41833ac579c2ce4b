package journal

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/slowray/slowray/internal/cause"
)

// Limits of the time of a lease.
const (
	DefaultFor = 10 * time.Minute
	MaxFor     = time.Hour
)

const (
	// readyLimit is how long a watchdog may take to start; it is slow where the
	// CPUs are what is short.
	readyLimit = 15 * time.Second
	// maxDead is how long a watchdog may be silent before it is taken for hung.
	maxDead = 3 * time.Second
	// leaveLimit is how long it may take to end after its last word.
	leaveLimit = 2 * time.Second
)

// Options of a lease.
type Options struct {
	Cause string        // ID of the cause that is to be proved
	Why   string        // the command, for people
	For   time.Duration // time limit of the lease; 0 is DefaultFor, at most MaxFor
}

// Health is how the service is, as the owner of a lease sees it.
type Health struct {
	Worse bool   // beyond the bound: the watchdog undoes at once
	Why   string // "errors 0 % → 12 %"
}

// Lease is one set of changes, from when it is on disk until it is put back or
// kept. Its methods may be called from several goroutines.
type Lease struct {
	dir   *directory
	id    string
	locks []*os.File
	cmd   *exec.Cmd
	wire  *wire
	beat  chan Health
	ended chan string
	left  chan struct{} // closed when the watchdog's process is gone

	mu      sync.Mutex
	n       int
	waiting map[int]chan message
	heard   int         // ticks since the watchdog's last word
	over    *EndedError // how the lease has ended; nil while it has not
	closed  bool
}

// newLease starts the watchdog of entry e, which is on disk.
func newLease(d *directory, e *Entry, locks []*os.File) (*Lease, error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("journal: socketpair: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "socket"), os.NewFile(uintptr(fds[1]), "socket")
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	ours.Close()
	if err != nil {
		return nil, fmt.Errorf("journal: socketpair: %w", err)
	}
	cmd := exec.Command("/proc/self/exe", watchdogCommand, d.path, e.ID, fmt.Sprint(len(locks)))
	cmd.Args[0] = "slowray"
	cmd.Dir = "/"
	cmd.ExtraFiles = append([]*os.File{theirs}, locks...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		conn.Close()
		return nil, fmt.Errorf("journal: watchdog: %w", err)
	}
	theirs.Close()
	l := &Lease{dir: d, id: e.ID, locks: locks, cmd: cmd, wire: newWire(conn), beat: make(chan Health, 1),
		ended: make(chan string, 1), left: make(chan struct{}), waiting: map[int]chan message{}}
	go func() {
		cmd.Wait()
		close(l.left)
	}()
	ready := make(chan struct{})
	go l.listen(ready)
	select {
	case <-ready:
	case <-l.left:
		l.mu.Lock()
		why := ""
		if l.over != nil {
			why = ": " + l.over.Why
		}
		err = fmt.Errorf("journal: watchdog: ended before it was ready (%s)%s: nothing was changed", cmd.ProcessState, why)
		l.mu.Unlock()
	case <-time.After(readyLimit):
		err = fmt.Errorf("journal: watchdog: not ready within %s: nothing was changed", readyLimit)
	}
	if err != nil {
		l.mu.Lock()
		l.closed = true // what follows is no loss
		l.mu.Unlock()
		cmd.Process.Kill()
		conn.Close()
		return nil, err
	}
	go l.sendBeats()
	go l.watch()
	return l, nil
}

// ID is that of the entry in the journal.
func (l *Lease) ID() string { return l.id }

// EndedError says that a lease has ended by itself: its watchdog, or its owner in the
// watchdog's place, has put back what was applied.
type EndedError struct {
	Why  string
	Left error // what was not put back, a *LeftError mostly; nil: all was
}

func (e *EndedError) Error() string {
	if e.Left == nil {
		return "journal: the lease has ended: " + e.Why
	}
	return fmt.Sprintf("journal: the lease has ended: %s; %v", e.Why, e.Left)
}

func (e *EndedError) Unwrap() error { return e.Left }

// Apply makes the changes. It may be called again after Undo. When it fails, what was
// made of them is put back already; Undo tells whether all is.
func (l *Lease) Apply() error {
	_, err := l.ask(opApply)
	return err
}

// Undo puts the changes back; the lease goes on, and Apply may make them again. The
// error is a *LeftError about those that were not put back, and says the same when
// it is asked for again; an *EndedError, which may wrap one, when the lease is over.
func (l *Lease) Undo() error {
	m, err := l.ask(opUndo)
	if err != nil {
		return err
	}
	return joined(m.Outcomes)
}

// Keep leaves the changes in place, also after Close. They stay in the journal,
// for `slowray undo`.
func (l *Lease) Keep() error {
	_, err := l.ask(opKeep)
	return err
}

// Beat tells the watchdog that the owner is there, and how the service is. It is
// to be called several times a second while changes are in place. It never waits.
func (l *Lease) Beat(h Health) {
	for {
		select {
		case l.beat <- h:
			return
		default:
		}
		select { // the one before was not sent yet: bad news is not lost
		case old := <-l.beat:
			if old.Worse {
				h = old
			}
		default:
		}
	}
}

// Ended tells, once, that the lease has ended without the owner, and why. What was
// not put back then is reported by Undo.
func (l *Lease) Ended() <-chan string { return l.ended }

// Close ends the lease: what is applied and not kept is undone. The error tells
// what was not put back. Closing again does nothing.
func (l *Lease) Close() error {
	m, err := l.ask(opClose)
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	over := l.over
	l.mu.Unlock()
	if over != nil {
		err = nil
		select {
		case <-l.ended: // nobody knows yet
			err = over
		default:
		}
	}
	select {
	case <-l.left:
	case <-time.After(leaveLimit):
		l.cmd.Process.Kill()
		<-l.left
	}
	l.wire.conn.Close()
	release(l.locks)
	l.dir.root.Close()
	return cmp.Or(err, joined(m.Outcomes))
}

// ask has the watchdog do something.
func (l *Lease) ask(op string) (message, error) {
	l.mu.Lock()
	if l.closed || l.over != nil {
		defer l.mu.Unlock()
		return message{}, l.ending()
	}
	l.n++
	n, answer := l.n, make(chan message, 1)
	l.waiting[n] = answer
	l.mu.Unlock()
	if err := l.wire.send(message{Op: op, N: n}); err != nil {
		l.cmd.Process.Kill() // listen sees its end, and undoes
	}
	m := <-answer
	switch {
	case m.Op == opEnded:
		l.mu.Lock()
		defer l.mu.Unlock()
		return m, l.ending()
	case m.Text != "":
		return m, errors.New(m.Text)
	}
	return m, nil
}

// ending is why nothing can be asked for any more. mu is held.
func (l *Lease) ending() error {
	if l.over != nil {
		return l.over
	}
	return errors.New("journal: the lease is closed")
}

// sendBeats passes heartbeats on, so that Beat need not wait for a watchdog that
// was stopped.
func (l *Lease) sendBeats() {
	for {
		select {
		case h := <-l.beat:
			l.wire.send(message{Op: opBeat, Worse: h.Worse, Text: h.Why})
		case <-l.left:
			return
		}
	}
}

// listen reads what the watchdog says, until it has ended.
func (l *Lease) listen(ready chan struct{}) {
	l.wire.receive(func(m message) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.heard = 0
		switch m.Op {
		case opReady:
			close(ready)
		case opAnswer:
			l.waiting[m.N] <- m
			delete(l.waiting, m.N)
		case opEnded:
			l.end(m.Text, joined(m.Outcomes))
		}
	})
	<-l.left
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over == nil && !l.closed && !l.finished() {
		text, left := l.takeOver()
		l.end(fmt.Sprintf("the watchdog (pid %d) was killed: %s", l.cmd.Process.Pid, text), left)
	}
	for _, answer := range l.waiting {
		answer <- message{Op: opEnded}
	}
	clear(l.waiting)
}

// end notes that the lease is over. mu is held.
func (l *Lease) end(why string, left error) {
	l.over = &EndedError{why, left}
	l.ended <- why
}

// finished says that the watchdog has ended because its work was done.
func (l *Lease) finished() bool { return l.cmd.ProcessState.Success() }

// takeOver undoes what a killed watchdog has left. Nobody else writes to the
// entry now.
func (l *Lease) takeOver() (text string, left error) {
	e, err := l.dir.read(".", l.id)
	if err != nil {
		return "its changes may be in force", fmt.Errorf("entry %s cannot be read: %w", l.id, err)
	}
	if e.State == Kept || e.recorded == Kept {
		return "what was kept is left", nil
	}
	k := keeper{l.dir, e, "slowray"}
	if e.Open() {
		left = joined(k.undo("the watchdog was killed"))
	}
	if !e.Open() {
		left = cmp.Or(left, l.dir.close(l.id))
	}
	if left != nil {
		return "not all of its changes could be put back", left
	}
	return "its changes are put back", nil
}

// watch ends a watchdog that is there but does nothing any more. It counts its
// own ticks: an owner that was stopped for a while has not heard anything either.
func (l *Lease) watch() {
	const every = maxDead / 10
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-l.left:
			return
		case <-tick.C:
		}
		l.mu.Lock()
		l.heard++
		hung := l.heard > int(maxDead/every)
		l.mu.Unlock()
		if hung {
			l.cmd.Process.Kill()
		}
	}
}

// newEntry makes the entry of a lease that is to begin.
func newEntry(id, boot string, changes []cause.Change, o Options) *Entry {
	now := time.Now().UTC().Truncate(time.Millisecond)
	e := &Entry{Schema: schemaID, ID: id, BootID: boot, Created: now, Until: now.Add(o.For), Cause: o.Cause, Why: o.Why,
		User: user(), State: Prepared, Owner: self()}
	for _, c := range changes {
		e.Changes = append(e.Changes, Item{Change: c, Made: MadeNo})
	}
	return e
}
