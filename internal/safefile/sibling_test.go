package safefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// next to makes a directory with two programs, and gives the path of the second and what
// the first one is.
func siblingFile(t *testing.T) (name string, own unix.Stat_t) {
	t.Helper()
	dir := t.TempDir()
	name = filepath.Join(dir, "other")
	check(t, os.WriteFile(filepath.Join(dir, "running"), nil, 0o755), os.WriteFile(name, nil, 0o755))
	check(t, unix.Stat(filepath.Join(dir, "running"), &own))
	return name, own
}

func TestSiblingIsInTheDirectoryOfTheRunningProgram(t *testing.T) {
	if _, err := Sibling("no-such-program"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want %v", err, fs.ErrNotExist)
	}
	exe, err := os.Executable()
	check(t, err)
	if exe, err = filepath.EvalSymlinks(exe); err != nil {
		t.Fatal(err)
	}
	if got, err := Sibling(filepath.Base(exe)); got != exe || err != nil {
		t.Errorf("%q %v, want %q", got, err, exe)
	}
	name, own := siblingFile(t)
	if _, err := sibling(filepath.Dir(name), &own, false); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("a directory: %v", err)
	}
}

// What others than root and the owner of the running program can change is not run.
func TestSiblingOfRootIsNotChangedByOthers(t *testing.T) {
	needRoot(t)
	for what, c := range map[string]struct {
		change func(name string) error
		words  string // of the refusal
	}{
		"untouched":                 {func(string) error { return nil }, ""},
		"of another user":           {func(name string) error { return os.Chown(name, stranger, 0) }, "belongs to user 65533"},
		"writable by all":           {func(name string) error { return os.Chmod(name, 0o757) }, "mode 0757"},
		"writable by a group":       {func(name string) error { return os.Chmod(name, 0o775) }, "mode 0775"},
		"directory of another user": {func(name string) error { return os.Chown(filepath.Dir(name), stranger, 0) }, ""}, // he can replace the running one too
		"directory open to all":     {func(name string) error { return os.Chmod(filepath.Dir(name), 0o777) }, "mode 0777"},
		"sticky directory":          {func(name string) error { return os.Chmod(filepath.Dir(name), os.ModeSticky|0o777) }, ""},
		"link of another user": {func(name string) error {
			return errors.Join(os.Rename(name, name+"-real"), os.Symlink(name+"-real", name), os.Lchown(name, stranger, stranger))
		}, "belongs to user 65533"},
		"link into a directory of another user": {func(name string) error {
			to := filepath.Join(filepath.Dir(name), "to")
			return errors.Join(os.Mkdir(to, 0o755), os.Rename(name, filepath.Join(to, "other")), os.Symlink("to/other", name), os.Chown(to, stranger, stranger))
		}, "belongs to user 65533"},
		"link of root": {func(name string) error {
			return errors.Join(os.Rename(name, name+"-real"), os.Symlink(name+"-real", name))
		}, ""},
	} {
		t.Run(what, func(t *testing.T) {
			name, own := siblingFile(t)
			check(t, c.change(name))
			_, err := sibling(name, &own, true)
			if c.words == "" {
				check(t, err)
				return
			}
			unsafe(t, err, c.words)
		})
	}
}

// Who built slowray may run it by sudo, also with a umask of 002.
func TestSiblingBelongsToWhoOwnsTheRunningProgram(t *testing.T) {
	needRoot(t)
	name, own := siblingFile(t)
	dir := filepath.Dir(name)
	check(t, os.Chown(dir, stranger, stranger), os.Chown(name, stranger, stranger), os.Chmod(dir, 0o775), os.Chmod(name, 0o775))
	own.Uid, own.Gid, own.Mode = stranger, stranger, own.Mode|0o020
	_, err := sibling(name, &own, true)
	check(t, err)
	own.Mode &^= 0o020 // then the group cannot change the running program
	_, err = sibling(name, &own, true)
	unsafe(t, err, "others may write")
}
