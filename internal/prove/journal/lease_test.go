package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fails is an error that has this in it, in one line.
func fails(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("error: %v, want one line with %q", err, want)
	}
}

// Blocks: what is applied is there, what is undone is as before, and at the end
// the journal is empty.
func TestBlocks(t *testing.T) {
	t.Parallel()
	h := newHost(t, 3)
	l := h.begin()
	h.are(before)
	h.listed(Prepared)
	for range 3 {
		if err := l.Apply(); err != nil {
			t.Fatal(err)
		}
		h.are(with)
		h.listed(Applied)
		if err := l.Undo(); err != nil {
			t.Fatal(err)
		}
		h.are(before)
	}
	if err := l.Apply(); err != nil {
		t.Fatal(err)
	}
	fails(t, l.Apply(), "it cannot be applied")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	h.are(before)
	h.listed()
	if err := l.Close(); err != nil {
		t.Errorf("closed again: %v", err)
	}
	fails(t, l.Apply(), "the lease is closed")
	list, err := h.open().History()
	if err != nil || len(list) != 1 || list[0].State != Undone || list[0].Cause != "some-cause" || list[0].ID != "1" {
		t.Errorf("history: %+v, %v", list, err)
	}
	next := h.begin()
	if next.ID() != "2" {
		t.Errorf("the second entry has ID %s", next.ID())
	}
}

// What is kept stays, is listed, does not hinder the next lease, and is taken
// back by undo, the newest first.
func TestKeep(t *testing.T) {
	t.Parallel()
	h := newHost(t, 2)
	changes := h.changes
	for i := range changes {
		h.changes = changes[i : i+1]
		l := h.begin()
		fails(t, l.Keep(), "nothing to keep")
		if err := errors.Join(l.Apply(), l.Keep(), l.Close()); err != nil {
			t.Fatal(err)
		}
	}
	h.are(with)
	h.listed(Kept, Kept)
	if notice := Notice(h.dir); notice != "" {
		t.Errorf("what was kept is reported at every run: %s", notice)
	}
	j := h.open()
	_, err := j.Undo("7")
	fails(t, err, `"7": no such entry`)
	if o, err := j.Undo("1"); err != nil || len(o) != 1 || o[0].Result != ResultUndone || o[0].Change != "file0" || o[0].Was != before {
		t.Errorf("undo 1: %+v, %v", o, err)
	}
	h.is(0, before)
	h.is(1, with)
	if o, err := j.Undo(); err != nil || len(o) != 1 || o[0].Change != "file1" {
		t.Errorf("undo: %+v, %v", o, err)
	}
	h.are(before)
	if o, err := j.Undo(); err != nil || o != nil {
		t.Errorf("undo of nothing: %+v, %v", o, err)
	}
}

// The newest is put back first: each finds what it has left.
func TestKeptOnTopOfEachOther(t *testing.T) {
	t.Parallel()
	h := newHost(t, 1)
	for _, value := range []string{"first", "second"} {
		h.changes[0].Value = value
		l := h.begin()
		if err := errors.Join(l.Apply(), l.Keep(), l.Close()); err != nil {
			t.Fatal(err)
		}
	}
	h.are("second")
	if o, err := h.open().Undo(); err != nil || joined(o) != nil || len(o) != 2 || o[0].ID != "2" {
		t.Errorf("undo: %+v, %v", o, err)
	}
	h.are(before)
}

// What somebody else has set meanwhile is left as it is, and told; what is gone
// is reported; all else is put back.
func TestChangedByOthers(t *testing.T) {
	t.Parallel()
	h := newHost(t, 3)
	l := h.begin()
	if err := l.Apply(); err != nil {
		t.Fatal(err)
	}
	h.set(0, "by hand")
	if err := os.Remove(h.files[1]); err != nil {
		t.Fatal(err)
	}
	err := l.Undo()
	fails(t, err, "file0: somebody else has changed it meanwhile, it is left as it is: now by hand")
	fails(t, err, "file1: gone: the file is not there any more")
	h.is(0, "by hand")
	h.is(2, before)
	fails(t, l.Apply(), "file0: not made again: the last time it was changed: now by hand")
	h.is(2, before)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	h.listed()
}

// What others set between two blocks is what is put back after the second.
func TestChangedBetweenBlocks(t *testing.T) {
	t.Parallel()
	h := newHost(t, 1)
	l := h.begin()
	if err := errors.Join(l.Apply(), l.Undo()); err != nil {
		t.Fatal(err)
	}
	h.set(0, "set meanwhile")
	if err := errors.Join(l.Apply(), l.Close()); err != nil {
		t.Fatal(err)
	}
	h.are("set meanwhile")
}

// A change that fails half way, or that has a bug, is undone with those before
// it; the watchdog lives.
func TestApplyFails(t *testing.T) {
	for name, want := range map[string]string{"fail": "file1: refused", "bug": "file1: a bug in slowray: no such thing"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, 3)
			h.changes[1].Name = name
			l := h.begin()
			fails(t, l.Apply(), want)
			h.are(before)
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			h.listed()
		})
	}
}

// What cannot be put back stays in the journal, is reported, and nothing else is
// changed before it was looked at.
func TestUndoFails(t *testing.T) {
	t.Parallel()
	h := newHost(t, 2)
	h.changes[0].Name = "stuck"
	l := h.begin()
	if err := l.Apply(); err != nil {
		t.Fatal(err)
	}
	fails(t, l.Close(), "file0: not put back: stuck")
	h.is(1, before)
	h.listed(Failed)
	_, err := h.open().Begin(h.changes, Options{})
	fails(t, err, "entry 1 (file0) could not be put back: try again first: slowray undo")
	if o, err := h.open().Undo(); err != nil || len(o) != 1 || o[0].Result != ResultFailed {
		t.Errorf("undo: %+v, %v", o, err)
	}
	fails(t, h.open().Forget("7"), `"7": no such entry`)
	if err := h.open().Forget("1"); err != nil {
		t.Error(err)
	}
	h.listed()
	h.is(0, with)
}

// One set of changes at a time; who is at it is reported.
func TestOneAtATime(t *testing.T) {
	t.Parallel()
	h := newHost(t, 1)
	l := h.begin()
	_, err := h.open().Begin(h.changes, Options{})
	fails(t, err, `"a test", process `+fmt.Sprint(os.Getpid())+" is changing something: one set of changes at a time")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	h.begin()
}

// Nothing begins with wrong options, or with a change that cannot be made.
func TestBeginRefuses(t *testing.T) {
	t.Parallel()
	h := newHost(t, 1)
	j := h.open()
	_, err := j.Begin(nil, Options{})
	fails(t, err, "no changes")
	_, err = j.Begin(h.changes, Options{For: 2 * time.Hour})
	fails(t, err, "a lease of 2h0m0s: must be at most 1h0m0s")
	h.changes[0].Path += "-not-there"
	_, err = j.Begin(h.changes, Options{})
	fails(t, err, "file0: open ")
	h.changes[0].Kind = "no-such-kind"
	_, err = j.Begin(h.changes, Options{})
	fails(t, err, `changes of kind "no-such-kind" cannot be made`)
	h.listed()
}

// When the time of a lease is up, the changes are undone, however healthy all is.
func TestTimeIsUp(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	t.Parallel()
	h := newHost(t, 1)
	l, err := h.open().Begin(h.changes, Options{For: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Apply(); err != nil {
		t.Fatal(err)
	}
	for {
		select {
		case why := <-l.Ended():
			if why != "the time of the lease is up" {
				t.Errorf("ended: %s", why)
			}
			h.are(before)
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			return
		case <-time.After(50 * time.Millisecond):
			l.Beat(Health{})
		}
	}
}

// Undo ends a run that is going on.
func TestUndoOfLiveRun(t *testing.T) {
	t.Parallel()
	h := newHost(t, 2)
	p := h.start("hold", "")
	p.says(t, "applied: <nil>")
	h.are(with)
	if list := h.listed(Applied); len(list) != 1 || !list[0].Live() || list[0].Owner.PID != p.Process.Pid || list[0].Watchdog.PID != p.watchdog {
		t.Errorf("%+v", list)
	}
	if notice := Notice(h.dir); notice != "" {
		t.Errorf("a run that is going on is reported as killed: %s", notice)
	}
	o, err := h.open().Undo()
	if err != nil || len(o) != 2 || joined(o) != nil {
		t.Errorf("undo: %+v, %v", o, err)
	}
	h.are(before)
	p.says(t, "ended: asked to, by slowray undo")
	h.listed()
}

// Signals of a terminal are not for the watchdog.
func TestWatchdogIgnoresSignals(t *testing.T) {
	t.Parallel()
	h := newHost(t, 1)
	l := h.begin()
	if err := l.Apply(); err != nil {
		t.Fatal(err)
	}
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE, syscall.SIGTSTP} {
		syscall.Kill(l.cmd.Process.Pid, s)
	}
	time.Sleep(50 * time.Millisecond)
	h.are(with)
	if sid, err := syscall.Getpgid(l.cmd.Process.Pid); err != nil || sid != l.cmd.Process.Pid {
		t.Errorf("its process group is %d (%v): a terminal's", sid, err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	h.are(before)
}

// Neither the watchdog nor what it starts keeps the files of the owner.
func TestNothingInherited(t *testing.T) {
	t.Parallel()
	h := newHost(t, 1)
	l := h.begin()
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", l.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		target, _ := os.Readlink(fd)
		info, _ := os.ReadFile(strings.Replace(fd, "/fd/", "/fdinfo/", 1))
		var flags uint64
		_, rest, _ := strings.Cut(string(info), "flags:")
		fmt.Sscanf(strings.TrimSpace(rest), "%o", &flags)
		if n := filepath.Base(fd); n != "0" && n != "1" && n != "2" && flags&syscall.O_CLOEXEC == 0 {
			t.Errorf("descriptor %s (%s) would go to programs that the watchdog starts", n, target)
		}
		if strings.HasPrefix(target, "pipe:") {
			t.Errorf("descriptor %s is a pipe: whoever reads from the owner would wait for the watchdog", fd)
		}
	}
}
