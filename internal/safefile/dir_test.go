package safefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// stranger is a user that is neither root nor the one that runs the test.
const stranger = 65533

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED WITHOUT RIGHTS: this test needs root")
	}
}

func check(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// unsafe wants an error of one line about what others could do.
func unsafe(t *testing.T, err error, words ...string) {
	t.Helper()
	if !errors.Is(err, ErrUnsafe) || strings.Contains(err.Error(), "\n") {
		t.Fatalf("got %v, want one line that says it is unsafe", err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
}

func TestDirIsMadeAndHeld(t *testing.T) {
	base := t.TempDir()
	name := filepath.Join(base, "a", "b")
	if _, err := OpenDir(name); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("OpenDir of nothing: %v", err)
	}
	d, err := MakeDir(name, 0o700)
	check(t, err)
	defer d.Close()
	for at, want := range map[string]fs.FileMode{filepath.Join(base, "a"): 0o755, name: 0o700} {
		if st, err := os.Stat(at); err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: %v %v, want mode %o", at, st, err, want)
		}
	}
	// It is renamed, and something else takes its place: names in it lead where they led.
	check(t, os.Rename(name, name+"-old"), os.Mkdir(name, 0o700), d.Replace("x", []byte("1")))
	if _, err := os.Stat(filepath.Join(name, "x")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("written into the directory that took its place: %v", err)
	}
	if text, err := os.ReadFile(filepath.Join(name+"-old", "x")); string(text) != "1" {
		t.Errorf("%q %v", text, err)
	}
	sub, err := d.Sub("s")
	check(t, err)
	defer sub.Close()
	check(t, sub.Replace("y", nil))
}

func TestDirFollowsLinksOfRootOnly(t *testing.T) {
	needRoot(t)
	base := t.TempDir()
	check(t, os.Mkdir(filepath.Join(base, "data"), 0o700), os.Symlink("data", filepath.Join(base, "link")))
	d, err := OpenDir(filepath.Join(base, "link"))
	check(t, err)
	check(t, d.Close(), os.Lchown(filepath.Join(base, "link"), stranger, stranger))
	_, err = OpenDir(filepath.Join(base, "link"))
	unsafe(t, err, "link belongs to user 65533")
	_, err = MakeDir(filepath.Join(base, "link", "new"), 0o700)
	unsafe(t, err, "link belongs to user 65533")
}

func TestDirInTheHandsOfOthersIsRefused(t *testing.T) {
	needRoot(t)
	for name, c := range map[string]struct {
		at  string
		uid int
		own fs.FileMode
		say string
	}{
		"it is another's":            {"a/b", stranger, 0o700, "belongs to user 65533"},
		"what is above it is":        {"a", stranger, 0o755, "belongs to user 65533"},
		"a group may write to it":    {"a/b", 0, 0o770, "mode 0770"},
		"all may write above it":     {"a", 0, 0o777, "mode 0777"},
		"it is sticky and all's":     {"a/b", 0, 0o777 | fs.ModeSticky, "mode 1777"},
		"a group may write above it": {"a", 0, 0o775, "mode 0775"},
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			full := filepath.Join(base, "a", "b")
			at := filepath.Join(base, c.at)
			check(t, os.MkdirAll(full, 0o700), os.Chown(at, c.uid, c.uid), os.Chmod(at, c.own))
			_, err := OpenDir(full)
			unsafe(t, err, c.say)
			_, err = MakeDir(filepath.Join(full, "c", "d"), 0o700)
			if c.own&fs.ModeSticky != 0 {
				check(t, err) // what root makes there stays root's
				return
			}
			unsafe(t, err, c.say)
			if _, err := os.Stat(filepath.Join(full, "c")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("made all the same: %v", err)
			}
		})
	}
}

// Whoever can change a directory that the path leaves again chooses where it leads.
func TestDirReachedThroughOthersIsRefused(t *testing.T) {
	needRoot(t)
	base := t.TempDir()
	at := func(name string) string { return filepath.Join(base, name) }
	check(t, os.MkdirAll(at("safe/dir"), 0o700), os.MkdirAll(at("all/in"), 0o755), os.Mkdir(at("theirs"), 0o755),
		os.Chmod(at("all"), 0o777), os.Chown(at("theirs"), stranger, stranger))
	for _, link := range []string{"all/link", "all/in/link", "theirs/link"} {
		for _, to := range []string{at("safe/dir"), strings.Repeat("../", strings.Count(link, "/")) + "safe/dir"} {
			os.Remove(at(link))
			check(t, os.Symlink(to, at(link)))
			_, err := OpenDir(at(link))
			unsafe(t, err)
			_, err = MakeDir(at(link)+"/new", 0o700)
			unsafe(t, err)
		}
	}
	if _, err := os.Stat(at("safe/dir/new")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("made all the same: %v", err)
	}
	// In a sticky directory it is root's to change.
	check(t, os.Chmod(at("all"), 0o777|fs.ModeSticky))
	d, err := OpenDir(at("all/link"))
	check(t, err)
	check(t, d.Close())
}

func TestSubOfOthersIsRefused(t *testing.T) {
	needRoot(t)
	base := t.TempDir()
	d, err := OpenDir(base)
	check(t, err)
	defer d.Close()
	check(t, os.Mkdir(filepath.Join(base, "theirs"), 0o700), os.Chown(filepath.Join(base, "theirs"), stranger, stranger),
		os.Symlink("/etc", filepath.Join(base, "out")), os.Symlink("theirs", filepath.Join(base, "in")))
	_, err = d.Sub("theirs")
	unsafe(t, err, "user 65533")
	for _, link := range []string{"out", "in"} {
		if _, err := d.Sub(link); err == nil {
			t.Errorf("the link %s is followed", link)
		}
	}
}

// A FIFO that takes the place of a directory between two looks at it is not waited
// for, and another directory is not taken for the one that was looked at.
func TestSubIsReplacedMeanwhile(t *testing.T) {
	base := t.TempDir()
	d, err := OpenDir(base)
	check(t, err)
	defer d.Close()
	sub := filepath.Join(base, "sub")
	check(t, os.Mkdir(sub, 0o700), unix.Mkfifo(sub+".fifo", 0o600), os.Mkdir(sub+".other", 0o700))
	var over atomic.Bool
	defer over.Store(true)
	go func() {
		for n := 0; !over.Load(); n++ {
			_ = unix.Renameat2(unix.AT_FDCWD, sub, unix.AT_FDCWD, sub+[]string{".fifo", ".other"}[n/2%2], unix.RENAME_EXCHANGE)
		}
	}()
	opened, refused := 0, 0
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 100_000 {
			if r, err := d.Sub("sub"); err == nil {
				opened++
				r.Close()
			} else {
				refused++
			}
		}
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("a FIFO is waited for")
	}
	if opened == 0 || refused == 0 {
		t.Errorf("opened %d times, refused %d times: the race is not run", opened, refused)
	}
}

func TestReplaceIsWholeOrNotAtAll(t *testing.T) {
	base := t.TempDir()
	d, err := OpenDir(base)
	check(t, err)
	defer d.Close()
	outside := filepath.Join(t.TempDir(), "outside")
	check(t, os.WriteFile(outside, []byte("theirs"), 0o644), d.Replace("f", []byte("old")),
		os.Symlink(outside, filepath.Join(base, "f.new"))) // of a killed run, or put there
	failed := errors.New("no more room")
	if err := d.ReplaceBy("f", "f.new", func(f *os.File) error {
		_, _ = f.WriteString("ha")
		return failed
	}); !errors.Is(err, failed) {
		t.Fatal(err)
	}
	if text, _ := d.ReadFile("f"); string(text) != "old" {
		t.Errorf("f is %q", text)
	}
	check(t, d.Replace("f", []byte("new")))
	if text, _ := d.ReadFile("f"); string(text) != "new" {
		t.Errorf("f is %q", text)
	}
	if text, _ := os.ReadFile(outside); string(text) != "theirs" {
		t.Errorf("what the link led to was written: %q", text)
	}
	names, err := os.ReadDir(base)
	if check(t, err); len(names) != 1 {
		t.Errorf("left: %v", names)
	}
}
