package safefile

import (
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/safefile/safefiletest"
)

// write writes a text.
func write(text string) func(*os.File) error {
	return func(f *os.File) error {
		_, err := io.WriteString(f, text)
		return err
	}
}

func is(t *testing.T, path, want string) {
	t.Helper()
	if text, err := os.ReadFile(path); err != nil || string(text) != want {
		t.Errorf("%s has %q (%v), want %q", path, text, err, want)
	}
}

// fails is an error of one line with this in it.
func fails(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("error: %v, want one line with %q", err, want)
	}
}

// What was asked for is written through no link of somebody else's, and one's own
// links keep pointing.
func TestWrite(t *testing.T) {
	s := safefiletest.NewStage(t)
	his := func(name string) string { return filepath.Join(s.Dir, name) }
	own := t.TempDir()
	mine := func(name string) string { return filepath.Join(own, name) }
	s.Do(func() {
		os.Symlink(s.Outside, his("dir"))
		os.Symlink(filepath.Join(s.Outside, "file"), his("link"))
		os.Mkdir(his("real"), 0o755)
		os.WriteFile(his("old"), []byte("his"), 0o666)
	})
	if err := errors.Join(os.WriteFile(mine("file"), []byte("old"), 0o644), os.Symlink("file", mine("link")), os.Symlink(own, mine("dir")),
		os.Symlink("new", mine("dangling")), os.Symlink("loop", mine("loop")), unix.Mkfifo(mine("fifo"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		his("dir/x"):        "/his/dir belongs to user 65534",
		his("link"):         "/his/link belongs to user 65534",
		mine("loop"):        "too many levels",
		mine("fifo"):        "not a regular file",
		own:                 "not a regular file",
		own + "/":           "is a directory",
		mine("missing/x"):   "no such file",
		"/proc/self/cwd/x":  "too many levels of symbolic links",
		mine("file/x"):      "not a directory",
		"/proc/sys/slowray": "/proc/sys/slowray: ",
	} {
		fails(t, Writable(path), want)
		fails(t, Write(path, write("new")), want)
	}
	for path, at := range map[string]string{
		mine("link"): mine("file"), mine("dangling"): mine("new"), mine("dir/dir/y"): mine("y"), mine("plain"): mine("plain"),
		his("real/x"): his("real/x"), his("old"): his("old"),
	} {
		if err := errors.Join(Writable(path), Write(path, write(path))); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		is(t, at, path)
		if st, err := os.Lstat(at); err != nil || st.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", at, st.Mode(), err)
		}
	}
	if to, err := os.Readlink(mine("link")); err != nil || to != "file" {
		t.Errorf("the link leads to %q now (%v)", to, err)
	}
	// What fails leaves what was there, and nothing else.
	fails(t, Write(mine("file"), func(f *os.File) error {
		io.WriteString(f, "half")
		return errors.New("torn")
	}), "torn")
	is(t, mine("file"), mine("link"))
	for _, dir := range []string{own, s.Dir, his("real")} {
		if left, _ := filepath.Glob(filepath.Join(dir, UnfinishedPrefix+"*")); left != nil {
			t.Errorf("left: %v", left)
		}
	}
	s.Unharmed(t)
}

// A name relative to the working directory is taken as such.
func TestWriteRelative(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := errors.Join(os.Mkdir("sub", 0o755), os.Symlink("sub", "link"), Write("x", write("x")), Write("link/y", write("y")), Write("./sub/../z", write("z"))); err != nil {
		t.Fatal(err)
	}
	is(t, "x", "x")
	is(t, "sub/y", "y")
	is(t, "z", "z")
}

// raceTries is how often the races are run.
func raceTries() int {
	if testing.Short() {
		return 300
	}
	return 1500
}

// Whatever somebody else puts in the place of his own names, at any step, nothing
// of what is not his changes.
func TestRace(t *testing.T) {
	s := safefiletest.NewStage(t, "sub/state", "state", "sub/out")
	sub := filepath.Join(s.Dir, "sub")
	names := []string{sub, filepath.Join(sub, "out"), filepath.Join(sub, "state")}
	s.Do(func() {
		os.Mkdir(sub, 0o777)
		os.Mkdir(names[2], 0o777)
		os.WriteFile(names[1], []byte("his"), 0o666)
	})
	defer func() { step = func(string) {} }()
	steps, tries := map[string]int{}, raceTries()
	for n := range tries {
		s.Do(func() {
			for _, name := range names {
				s.Restore(name)
			}
			os.Remove(names[1]) // by his links to what was not finished, it may have become one
		})
		moment := rand.IntN(16) + 1
		step = func(name string) {
			steps[name]++
			if moment--; moment != 0 && (n%3 != 0 || rand.IntN(4) > 0) { // at one step, or at many
				return
			}
			s.Do(func() {
				s.Swap(names[rand.IntN(len(names))])
				if files, _ := filepath.Glob(filepath.Join(sub, UnfinishedPrefix+"*")); len(files) > 0 && rand.IntN(2) == 0 {
					os.Rename(files[0], files[0]+".his") // the file that is being written
					os.Symlink(filepath.Join(s.Outside, "file"), files[0])
				}
			})
		}
		var err error
		if n%2 == 0 {
			err = Write(filepath.Join(sub, "out"), write("slowray's"))
		} else {
			err = Writable(filepath.Join(sub, "out"))
		}
		d, taken := MakeDir(filepath.Join(sub, "state"), 0o700)
		if taken == nil {
			t.Errorf("his directory was taken for state (try %d)", n)
			d.Close()
		}
		for _, err := range []error{err, taken} {
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("more than a line: %v", err)
			}
		}
		s.Unharmed(t)
		if t.Failed() {
			return
		}
	}
	for _, name := range []string{"component", "target", "created", "written", "synced", "renamed"} {
		if steps[name] < tries/10 {
			t.Errorf("step %q was reached too seldom: %v", name, steps)
		}
	}
	t.Logf("steps: %v", steps)
}

// What was opened as one's own stays within itself, whoever it belongs to by now.
func TestGivenAway(t *testing.T) {
	s := safefiletest.NewStage(t, "sub")
	dir := filepath.Join(filepath.Dir(s.Dir), "state")
	d, err := MakeDir(dir, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := os.Chown(dir, safefiletest.UID, safefiletest.UID); err != nil {
		t.Fatal(err)
	}
	s.Do(func() {
		os.Symlink(s.Outside, filepath.Join(dir, "sub"))
		os.Symlink(filepath.Join(s.Outside, "file"), filepath.Join(dir, "out"))
		os.Symlink(filepath.Join(s.Outside, "file"), filepath.Join(dir, ".new"))
	})
	if err := d.ReplaceBy("sub/x", "sub/.new", write("x")); err == nil {
		t.Error("written through his link")
	}
	if err := d.ReplaceBy("out", ".new", write("x")); err != nil {
		t.Error(err)
	}
	if f, err := d.OpenRegular("sub/file"); err == nil {
		f.Close()
		t.Error("read through his link")
	}
	fails(t, d.Check(), "belongs to user 65534")
	s.Unharmed(t)
}

// Only regular files are read: nothing waits for a FIFO.
func TestOpenRegular(t *testing.T) {
	d, err := MakeDir(filepath.Join(t.TempDir(), "state"), 0o700)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := errors.Join(unix.Mkfifo(filepath.Join(d.Path(), "fifo"), 0o600), d.Mkdir("dir", 0o700), d.Replace("file", nil)); err != nil {
		t.Fatal(err)
	}
	for name, ok := range map[string]bool{"fifo": false, "dir": false, "file": true, "nothing": false} {
		f, err := d.OpenRegular(name)
		if (err == nil) != ok {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			f.Close()
		}
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// What becomes of a directory that is held is seen.
func TestCheck(t *testing.T) {
	d, err := MakeDir(filepath.Join(t.TempDir(), "state"), 0o700)
	check(t, err)
	defer d.Close()
	check(t, d.Check(), os.Rename(d.Path(), d.Path()+".old"))
	if err := d.Check(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("taken away: %v", err)
	}
	check(t, os.Mkdir(d.Path(), 0o700))
	if err := d.Check(); !errors.Is(err, ErrReplaced) {
		t.Errorf("replaced: %v", err)
	}
	check(t, os.Remove(d.Path()), os.Rename(d.Path()+".old", d.Path()), d.Check(), os.Chmod(d.Path(), 0o777))
	unsafe(t, d.Check(), "mode 0777")
}
