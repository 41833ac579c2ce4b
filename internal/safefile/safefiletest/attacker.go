// Package safefiletest has what tests attack slowray's files with.
//
// In: a directory for the attacker, and one that is none of his business. Out: a
// thread of this process that has another user's ID and no capability, which does
// to names what that user may do.
package safefiletest

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// UID is the attacker's user ID and group ID.
const UID = 65534

// Attacker is a thread that has the rights of a user without any.
type Attacker struct {
	do   chan func()
	done chan struct{}
}

// NewAttacker skips the test where this process is not root. The thread ends with
// the test.
func NewAttacker(t testing.TB) *Attacker {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: needs root to act as two users")
	}
	a := &Attacker{make(chan func()), make(chan struct{})}
	ready := make(chan error)
	go func() {
		// The rights are the thread's alone (setresuid(2), C library/kernel differences);
		// it is not unlocked, and so ends with the goroutine.
		runtime.LockOSThread()
		_, _, groups := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0)
		_, _, group := unix.RawSyscall(unix.SYS_SETRESGID, UID, UID, UID)
		_, _, user := unix.RawSyscall(unix.SYS_SETRESUID, UID, UID, UID)
		for _, e := range []syscall.Errno{groups, group, user} {
			if e != 0 {
				ready <- e
				return
			}
		}
		ready <- nil
		for f := range a.do {
			f()
			a.done <- struct{}{}
		}
	}()
	if err := <-ready; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { close(a.do) })
	return a
}

// Do runs f with the attacker's rights and waits for it. It must not start
// goroutines.
func (a *Attacker) Do(f func()) {
	a.do <- f
	<-a.done
}

// Stage is what an attack is played on: a directory of the attacker's, and one of
// root's in which nothing may happen.
type Stage struct {
	*Attacker
	Dir     string // the attacker's, in a directory as /tmp is
	Outside string // root's
	before  string
}

// NewStage makes a stage. Outside has directories of the same names as in Dir, so
// that a path that is led there fits.
func NewStage(t testing.TB, names ...string) *Stage {
	t.Helper()
	a := NewAttacker(t)
	top, err := os.MkdirTemp("", "slowray-attack-") // not below a test's directory, into which no other user gets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	s := &Stage{Attacker: a, Dir: filepath.Join(top, "his"), Outside: filepath.Join(top, "outside")}
	err = errors.Join(os.Chmod(top, 0o777|os.ModeSticky), os.Mkdir(s.Dir, 0o755), os.Chown(s.Dir, UID, UID), os.Mkdir(s.Outside, 0o755))
	for _, name := range names {
		err = errors.Join(err, os.MkdirAll(filepath.Join(s.Outside, name), 0o755))
	}
	err = errors.Join(err, os.WriteFile(filepath.Join(s.Outside, "file"), []byte("root's"), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	s.before = s.look(t)
	return s
}

// Settle takes what is outside now for what it is to stay.
func (s *Stage) Settle(t testing.TB) {
	t.Helper()
	s.before = s.look(t)
}

// look lists what is outside: owners, modes, times, attributes and contents.
func (s *Stage) look(t testing.TB) string {
	t.Helper()
	var list []string
	err := filepath.WalkDir(s.Outside, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := os.Lstat(path)
		if err != nil {
			return err
		}
		sys := st.Sys().(*syscall.Stat_t)
		names := make([]byte, 4096)
		n, _ := unix.Llistxattr(path, names)
		line := fmt.Sprintf("%s %v %d:%d inode %d modified %v changed %v attributes %q", path, st.Mode(), sys.Uid, sys.Gid, sys.Ino, sys.Mtim, sys.Ctim, names[:max(0, n)])
		if st.Mode().IsRegular() {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %d links %q", sys.Nlink, text)
		}
		list = append(list, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(list)
	return strings.Join(list, "\n")
}

// Unharmed fails the test when anything outside is not as it was.
func (s *Stage) Unharmed(t testing.TB) {
	t.Helper()
	if now := s.look(t); now != s.before {
		t.Fatalf("outside was:\n%s\nis now:\n%s", s.before, now)
	}
}

// Swap has the attacker put something else in the place of path, which is below
// Dir, at random: a link to where Outside has the same name, a link to the file
// there, another directory, a file, a FIFO, nothing, or what was there at first. It
// opens nothing that could have to be waited for. The attacker calls it.
func (s *Stage) Swap(path string) {
	first := path + firstSuffix
	if _, err := os.Lstat(first); errors.Is(err, fs.ErrNotExist) {
		os.Rename(path, first)
	} else {
		s.drop(path)
	}
	rel, err := filepath.Rel(s.Dir, path)
	if err != nil {
		panic(err)
	}
	switch rand.IntN(7) {
	case 0:
		os.Symlink(filepath.Join(s.Outside, rel), path)
	case 1:
		os.Symlink(filepath.Join(s.Outside, "file"), path)
	case 2:
		os.Mkdir(path, 0o777)
	case 3:
		if f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666); err == nil {
			f.WriteString("his")
			f.Close()
		}
	case 4:
		unix.Mkfifo(path, 0o666)
	case 5:
	default:
		os.Rename(first, path)
	}
}

const firstSuffix = ".first"

// drop takes a name away.
func (s *Stage) drop(path string) {
	os.Rename(path, filepath.Join(s.Dir, fmt.Sprintf("old-%d", rand.Int())))
}

// Restore has the attacker put back what was at a path at first. He calls it.
func (s *Stage) Restore(path string) {
	if _, err := os.Lstat(path + firstSuffix); err == nil {
		s.drop(path)
		os.Rename(path+firstSuffix, path)
	}
}

// NewSharedStage is NewStage with Dir as /tmp is: root's files in it are not the
// attacker's, but names that are not there yet are anybody's. names are below Outside
// in the same way, and so are files, which hold what root's do.
func NewSharedStage(t testing.TB, names, files []string) *Stage {
	t.Helper()
	s := NewStage(t, names...)
	s.Dir = filepath.Dir(s.Dir)
	for _, name := range files {
		if err := os.WriteFile(filepath.Join(s.Outside, name), []byte("root's"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.Settle(t)
	return s
}

// Seize gives the attacker a path and all below it, as an administrator does by
// mistake, and has him swap some of the names.
func (s *Stage) Seize(path string, names ...string) {
	_ = filepath.WalkDir(path, func(name string, _ fs.DirEntry, err error) error {
		if err == nil {
			_ = os.Lchown(name, UID, UID)
		}
		return nil
	})
	s.Do(func() {
		for range 1 + rand.IntN(3) {
			s.Swap(names[rand.IntN(len(names))])
		}
	})
}

// Clear removes what is at a path, and what was there at first.
func (s *Stage) Clear(path string) {
	_ = os.RemoveAll(path)
	_ = os.RemoveAll(path + firstSuffix)
}

// Tries is how often a race is run.
func Tries() int {
	if testing.Short() {
		return 50
	}
	return 1000
}
