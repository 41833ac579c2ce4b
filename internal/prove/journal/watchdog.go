package journal

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// watchdogCommand is the first argument of a watchdog.
const watchdogCommand = "guardian"

const (
	// maxSilence is how long the owner may say nothing while its changes are in
	// place; with the time to undo them it stays below three seconds.
	maxSilence = 2 * time.Second
	// watchdogTick is how often the watchdog looks at the clock.
	watchdogTick = 100 * time.Millisecond
	// aliveEvery is how often it tells the owner that it is there.
	aliveEvery = 500 * time.Millisecond
	// undoTries is how often it tries to undo what cannot be undone.
	undoTries = 3
	undoPause = 200 * time.Millisecond
)

// firstFD is the first of the open files that a watchdog inherits: its end of
// the socket, then the locks.
const firstFD = 3

// WatchdogMain is the watchdog, if this process was started as one: it does not
// return then. Every program that opens a journal calls it first in main, also
// tests in TestMain: the watchdog is the program itself, started again, because
// it needs the same Doers.
func WatchdogMain() {
	if len(os.Args) < 2 || os.Args[1] != watchdogCommand {
		return
	}
	if err := watchdogMain(os.Args[2:]); err != nil {
		fmt.Fprintf(os.Stderr, "slowray: watchdog: %v\n", err)
		os.Exit(2)
	}
	os.Exit(0)
}

func watchdogMain(args []string) error {
	if len(args) != 3 {
		return errors.New("is started by slowray itself, when it changes something")
	}
	// Whatever is meant for the owner must not end the watchdog. Handlers, for
	// ignored signals would stay ignored in the programs that it starts.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE,
		syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGUSR1, syscall.SIGUSR2)
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)

	dir, id := args[0], args[1]
	locks, err := strconv.Atoi(args[2])
	if err != nil {
		return fmt.Errorf("%q: not a number of locks", args[2])
	}
	keepOnly(firstFD, firstFD+locks)
	end := os.NewFile(firstFD, "socket")
	conn, err := net.FileConn(end)
	if err != nil {
		return errors.New("is started by slowray itself, when it changes something")
	}
	end.Close()
	g := &watchdog{wire: newWire(conn), asked: asked, inbox: make(chan message, 64)}
	if err := g.take(dir, id); err != nil {
		g.wire.send(message{Op: opEnded, Text: err.Error()})
		return err
	}
	return g.run()
}

// watchdog keeps one lease.
type watchdog struct {
	keeper
	wire   *wire
	asked  chan os.Signal // SIGTERM: `slowray undo`, or the host goes down
	inbox  chan message   // from the owner; closed when it has gone
	until  time.Time      // the end of the lease, by a clock that nobody sets
	silent time.Duration  // since the owner's last word, as far as the watchdog itself could run
	done   bool
}

// keepOnly closes the files that the owner was given by others: whoever waits for
// the end of one of its pipes must not wait for the watchdog. Those from first to
// last are kept, but not for programs that the watchdog starts.
func keepOnly(first, last int) {
	for fd := first; fd <= last; fd++ {
		syscall.CloseOnExec(fd)
	}
	names, _ := filepath.Glob("/proc/self/fd/*")
	for _, name := range names {
		fd, err := strconv.Atoi(filepath.Base(name))
		if err != nil || fd <= syscall.Stderr {
			continue
		}
		// What this process has opened itself is closed on exec, the rest is inherited.
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			syscall.Close(fd)
		}
	}
}

// take makes the watchdog the keeper of an entry.
func (g *watchdog) take(dir, id string) error {
	d, err := openDirectory(dir, false)
	if err != nil {
		return err
	}
	e, err := d.read(".", id)
	if err == nil && e.State == Damaged {
		err = errors.New(e.Problem)
	}
	if err != nil {
		return fmt.Errorf("journal: entry %s: %w", id, err)
	}
	e.Watchdog = self()
	g.until = time.Now().Add(time.Until(e.Until))
	g.keeper = keeper{d, e, "guardian"}
	return d.write(e)
}

func (g *watchdog) run() error {
	go func() {
		g.wire.receive(func(m message) { g.inbox <- m })
		close(g.inbox)
	}()
	if err := g.wire.send(message{Op: opReady}); err != nil {
		return fmt.Errorf("ready: %w", err)
	}
	go func() {
		for range time.Tick(aliveEvery) {
			g.wire.send(message{Op: opAlive}) // an owner that is gone is seen by the reader
		}
	}()
	tick := time.NewTicker(watchdogTick)
	last := time.Now()
	for !g.done {
		select {
		case m, ok := <-g.inbox:
			if !ok {
				g.end(fmt.Sprintf("slowray (pid %d) ended without putting it back", g.e.Owner.PID))
				break
			}
			g.silent = 0
			g.obey(m)
		case <-g.asked:
			g.end("asked to, by slowray undo or SIGTERM")
		case now := <-tick.C:
			// A watchdog that could not run itself, on a host without CPU to spare or
			// stopped, has not been listening either.
			g.silent += min(now.Sub(last), 3*watchdogTick)
			last = now
			switch {
			case g.e.State != Kept && now.After(g.until):
				g.end("the time of the lease is up")
			case g.e.State == Applied && g.silent > maxSilence:
				g.end(fmt.Sprintf("slowray (pid %d) has said nothing for %s: it hangs or was stopped", g.e.Owner.PID, maxSilence))
			}
		}
	}
	return nil
}

// obey does what the owner asks for.
func (g *watchdog) obey(m message) {
	answer := message{Op: opAnswer, N: m.N}
	var err error
	switch m.Op {
	case opBeat:
		if m.Worse && g.e.State == Applied {
			g.end("the service got worse: " + m.Text)
		}
		return
	case opApply:
		err = g.apply()
	case opUndo:
		if g.e.State == Applied || g.e.State == Failed {
			g.undo("as planned")
		}
		answer.Outcomes = g.e.Outcomes() // however often it is asked for
	case opKeep:
		if g.e.State != Applied {
			err = fmt.Errorf("journal: entry %s is %s, not applied: nothing to keep", g.e.ID, g.e.State)
			break
		}
		g.e.State = Kept
		g.e.note(g.by, "kept")
		if err = g.dir.write(g.e); err != nil {
			g.e.State = Applied
		}
	case opClose:
		if g.e.State == Applied || g.e.State == Failed {
			answer.Outcomes = g.putBack("as planned")
		}
		err = g.finish()
	}
	g.silent = 0
	if err != nil {
		answer.Text = err.Error()
	}
	g.wire.send(answer)
}

// end ends the lease, whatever the owner wants.
func (g *watchdog) end(why string) {
	var outcomes []Outcome
	switch g.e.State {
	case Applied, Failed:
		outcomes = g.putBack(why)
	case Kept:
	default:
		outcomes = g.e.Outcomes()
		g.e.note(g.by, "%s", why)
		g.dir.write(g.e)
	}
	g.finish()
	g.wire.send(message{Op: opEnded, Text: why, Outcomes: outcomes})
}

// putBack undoes, more than once if it has to.
func (g *watchdog) putBack(why string) []Outcome {
	outcomes := g.undo(why)
	for range undoTries - 1 {
		if g.e.State != Failed {
			break
		}
		time.Sleep(undoPause)
		g.undo("once more")
		outcomes = g.e.Outcomes()
	}
	return outcomes
}

// finish is the end of the watchdog: the entry is closed when nothing of it is left.
func (g *watchdog) finish() error {
	g.done = true
	if g.e.Open() {
		return nil
	}
	return g.dir.close(g.e.ID)
}
