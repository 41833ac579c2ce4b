package safefile

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/safefile/safefiletest"
)

const old, changed = "limit 64\n", "limit 128\n"

const temp = ".slowray-0123456789abcdef"

// editStage is a stage with a file of the attacker's, deep enough that each part of
// its path can be swapped, and one of root's of the same name and content.
func editStage(t *testing.T) (s *safefiletest.Stage, names []string, tree *Tree) {
	t.Helper()
	s = safefiletest.NewStage(t, "sub/conf")
	sub := filepath.Join(s.Dir, "sub")
	names = []string{sub, filepath.Join(sub, "conf"), filepath.Join(sub, "conf", "x.conf")}
	s.Do(func() { begin(names) })
	check(t, os.WriteFile(filepath.Join(s.Outside, "sub", "conf", "x.conf"), []byte(old), 0o644))
	s.Settle(t)
	tree, err := OpenTree("/")
	check(t, err)
	t.Cleanup(func() { tree.Close() })
	return s, names, tree
}

// begin has all of the attacker's as it was at first. He calls it.
func begin(names []string) {
	_ = os.RemoveAll(names[0])
	_ = os.RemoveAll(names[0] + ".first")
	_ = os.MkdirAll(names[1], 0o755)
	_ = os.WriteFile(names[2], []byte(old), 0o666)
	_ = os.Chmod(names[2], 0o666)
}

// TestEditRace: the owner of a file swaps parts of its path at every step of looking,
// reading, writing and putting back, which are done with his rights: nothing outside
// changes, and what is done is done to the file that was found, or not at all.
func TestEditRace(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	s, names, tree := editStage(t)
	owner := safefiletest.NewAttacker(t) // a thread with his rights, as the process has that does it
	defer func() { step = func(string) {} }()
	steps, done, tries := map[string]int{}, 0, raceTries()
	for n := range tries {
		s.Do(func() { begin(names) })
		moment := rand.IntN(80) + 1
		step = func(name string) {
			steps[name]++
			if moment--; moment != 0 && (n%3 != 0 || rand.IntN(8) > 0) { // at one step, or at many
				return
			}
			s.Do(func() {
				switch rand.IntN(6) {
				case 0: // the unfinished file
					at := filepath.Join(names[1], temp)
					if os.Rename(at, at+".his") == nil {
						_ = os.Symlink(filepath.Join(s.Outside, "file"), at)
					}
				case 1:
					_ = os.Chmod(names[rand.IntN(2)], 0o777)
				default:
					s.Swap(names[rand.IntN(len(names))])
				}
			})
		}
		as := func(r request) (a answer) {
			owner.Do(func() { a = serve(tree, r) })
			return a
		}
		edit := func(spot Spot, text string) error {
			a := as(request{Op: "read", Spot: spot})
			if err := a.err(spot.Path); err != nil {
				return err
			}
			a = as(request{Op: "write", Spot: spot, Was: a.File, Edit: Edit{Text: []byte(text), Temp: temp, InPlace: n%4 == 0, Times: true}})
			return a.err(spot.Path)
		}
		spot, err := tree.Find(names[2])
		if err == nil {
			if err = edit(spot, changed); err == nil {
				done++
			}
			err = errors.Join(edit(spot, old))
			a := as(request{Op: "drop", Spot: spot, Edit: Edit{Temp: temp}})
			if e := a.err(spot.Path); err == nil {
				err = e
			}
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("more than a line: %v", err)
		}
		s.Unharmed(t)
		if t.Failed() {
			t.Fatalf("try %d: %v", n, err)
		}
	}
	for _, name := range []string{"component", "walked", "opened", "created", "filled", "checked", "renamed"} {
		if steps[name] < tries/10 {
			t.Errorf("step %q was reached too seldom: %v", name, steps)
		}
	}
	if done < tries/10 {
		t.Errorf("only %d of %d edits were made", done, tries)
	}
	t.Logf("steps: %v; %d of %d edits were made", steps, done, tries)
}

// TestEditRaceOfProcesses is the same as it is in earnest: another process acts, and
// the owner swaps without a pause.
func TestEditRaceOfProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	s, names, tree := editStage(t)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			s.Do(func() {
				if n%3 == 0 {
					s.Swap(names[rand.IntN(len(names))])
				} else {
					begin(names)
				}
			})
			time.Sleep(rand.N(40 * time.Millisecond))
		}
	}()
	defer func() {
		close(stop)
		<-stopped
	}()
	found, done := 0, 0
	for end := time.Now().Add(20 * time.Second); found < 60 && time.Now().Before(end); {
		spot, err := tree.Find(names[2])
		if err != nil {
			continue
		}
		found++
		for _, text := range []string{changed, old} {
			var f *File
			if f, err = tree.Read(spot); err == nil {
				err = tree.Write(spot, f, Edit{Text: []byte(text), Temp: temp})
			}
			if err == nil {
				done++
			} else if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than a line: %v", err)
			}
		}
		s.Unharmed(t)
	}
	if found == 0 || done == 0 {
		t.Errorf("found %d times, %d edits were made: the race was not run", found, done)
	}
	t.Logf("found %d times, %d edits were made", found, done)
}

// TestRootsFileStaysRoots: what was the user's when it was found and is root's at the
// time of writing, is not written; nor is the other way round.
func TestRootsFileStaysRoots(t *testing.T) {
	s, names, tree := editStage(t)
	conf := names[2]
	spot, err := tree.Find(conf)
	check(t, err)
	f, err := tree.Read(spot)
	check(t, err)
	edit := Edit{Text: []byte(changed), Temp: temp}
	check(t, os.Chown(conf, 0, 0))
	unsafe(t, tree.Write(spot, f, edit), "belongs to user 0")
	is(t, conf, old)

	// A hard link to root's file, where the kernel lets users make them.
	check(t, os.Remove(conf), os.Link(filepath.Join(s.Outside, "file"), conf))
	s.Settle(t)
	unsafe(t, tree.Write(spot, f, edit), "belongs to user 0")
	_, err = tree.Find(conf)
	unsafe(t, err, "belongs to user 65534")
	s.Unharmed(t)

	// A record that says it is root's.
	check(t, os.Remove(conf), os.WriteFile(conf, []byte(old), 0o644), os.Chown(conf, safefiletest.UID, safefiletest.UID))
	forged := spot
	forged.Owner, forged.Group = 0, 0
	_, err = tree.Read(forged)
	unsafe(t, err, "belongs to user 65534")
	for _, name := range []string{"../x", "x.conf", ".slowray-..", ".slowray-0123456789abcdef/x"} {
		if err := tree.Drop(spot, name); err == nil || !strings.Contains(err.Error(), "no name of an unfinished file") {
			t.Errorf("%q may be removed: %v", name, err)
		}
	}
}

// TestEditKeepsWhatIsNotItsOwn: mode, group, times, and attributes stay; attributes
// that the directory gives to new files do not come.
func TestEditKeepsWhatIsNotItsOwn(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	conf := filepath.Join(dir, "x.conf")
	check(t, os.WriteFile(conf, []byte(old), 0o640), os.Chown(conf, 0, 4), os.Chmod(conf, 0o640), unix.Setxattr(conf, "user.test", []byte("kept"), 0))
	tree, err := OpenTree("/")
	check(t, err)
	defer tree.Close()
	spot, err := tree.Find(conf)
	check(t, err)
	f, err := tree.Read(spot)
	check(t, err)
	check(t, tree.Write(spot, f, Edit{Text: []byte(changed), Temp: temp, Times: true, ATimeNS: 1e18 + 5, MTimeNS: 1e18 + 7}))
	now, err := tree.Read(spot)
	check(t, err)
	if string(now.Text) != changed || now.Mode != 0o640 || string(now.X["user.test"]) != "kept" || now.MTimeNS != 1e18+7 || now.Inode == f.Inode {
		t.Errorf("%+v", now)
	}
	if again, err := tree.Find(conf); err != nil || again != spot {
		t.Errorf("found at %+v, was %+v, %v", again, spot, err)
	}
	// What was read before is not what is there.
	if err := tree.Write(spot, f, Edit{Text: []byte(old), Temp: temp}); err == nil || !strings.Contains(err.Error(), "changed by somebody else in this moment") {
		t.Error(err)
	}
	if names, _ := os.ReadDir(dir); len(names) != 1 {
		t.Errorf("left: %v", names)
	}
}

// TestTreeIsNotLeft: no link and no ".." leads out of another root directory.
func TestTreeIsNotLeft(t *testing.T) {
	needRoot(t)
	top := t.TempDir()
	in := filepath.Join(top, "in")
	check(t, os.MkdirAll(filepath.Join(in, "etc"), 0o755), os.WriteFile(filepath.Join(top, "x.conf"), []byte("outside"), 0o644),
		os.WriteFile(filepath.Join(in, "x.conf"), []byte("inside"), 0o644))
	tree, err := OpenTree(in)
	check(t, err)
	defer tree.Close()
	for i, target := range []string{"../../x.conf", "/x.conf", "../../../../../../x.conf", "/../x.conf"} {
		name := fmt.Sprintf("etc/link%d", i)
		check(t, os.Symlink(target, filepath.Join(in, name)))
		spot, err := tree.Find("/" + name)
		check(t, err)
		f, err := tree.Read(spot) // root's, in another root directory: with root's ID and no capability
		check(t, err)
		if spot.Path != "/x.conf" || string(f.Text) != "inside" {
			t.Errorf("%s leads to %s: %q", target, spot.Path, f.Text)
		}
		check(t, tree.Write(spot, f, Edit{Text: []byte("inside"), Temp: temp}))
	}
	is(t, filepath.Join(top, "x.conf"), "outside")
	check(t, os.Symlink("/proc/self/root/etc/passwd", filepath.Join(in, "out")))
	if _, err := tree.Find("/out"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestOpenKernel: files of the kernel's own file systems, and no others.
func TestOpenKernel(t *testing.T) {
	f, err := OpenKernel("/proc/sys", "kernel/ostype", unix.O_RDONLY, unix.PROC_SUPER_MAGIC)
	check(t, err)
	f.Close()
	for name, err := range map[string]error{
		"another type":        second(OpenKernel("/etc", "passwd", unix.O_RDONLY, unix.PROC_SUPER_MAGIC)),
		"a link of procfs":    second(OpenKernel("/proc", "self/root/etc/passwd", unix.O_RDONLY, unix.PROC_SUPER_MAGIC)),
		"out of it":           second(OpenKernel("/proc/sys", "../../etc/passwd", unix.O_RDONLY, unix.PROC_SUPER_MAGIC)),
		"another one in it":   second(OpenKernel("/sys", "fs/cgroup", unix.O_RDONLY, unix.SYSFS_MAGIC)),
		"nothing":             second(OpenKernel("/sys", "nothing", unix.O_RDONLY, unix.SYSFS_MAGIC)),
		"a byte that ends it": second(OpenKernel("/proc/sys", "kernel/ostype\x00", unix.O_RDONLY, unix.PROC_SUPER_MAGIC)),
	} {
		if err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second(_ *os.File, err error) error { return err }
