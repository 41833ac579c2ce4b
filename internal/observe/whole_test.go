package observe

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestWriteWhole(t *testing.T) {
	for _, unfinished := range []string{"", ".new-x"} {
		dir := t.TempDir()
		path := filepath.Join(dir, "x")
		named := unfinished
		if named != "" {
			named = filepath.Join(dir, named)
		}
		names := func() (list []string) {
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				list = append(list, e.Name())
			}
			return list
		}
		text := func(s string, err error) func(*os.File) error {
			return func(f *os.File) error {
				if got, _ := os.ReadFile(path); s == "second" && string(got) != "first" {
					t.Errorf("while it is written it is %q", got)
				}
				_, failed := f.WriteString(s)
				return errors.Join(failed, err)
			}
		}
		broken := errors.New("broken")
		if err := WriteWhole(path, named, text("none", broken)); !errors.Is(err, broken) || len(names()) > 0 {
			t.Errorf("%v, there is %q", err, names())
		}
		for _, s := range []string{"first", "second"} {
			if err := WriteWhole(path, named, text(s, nil)); err != nil {
				t.Fatal(err)
			}
		}
		if err := WriteWhole(path, named, text("third", broken)); !errors.Is(err, broken) {
			t.Error(err)
		}
		got, err := os.ReadFile(path)
		info, _ := os.Stat(path)
		if err != nil || string(got) != "second" || len(names()) != 1 || info.Mode().Perm() != 0o600 {
			t.Errorf("%q, %v, %v of %q", got, err, info.Mode(), names())
		}
	}
	if err := WriteWhole(filepath.Join(t.TempDir(), "no", "x"), "", func(*os.File) error { return nil }); err == nil {
		t.Error("into a directory that is not there")
	}
}
