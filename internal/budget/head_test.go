package budget

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestHeadAndNames(t *testing.T) {
	dir := t.TempDir()
	if names, err := Names(dir, 2); err != nil || len(names) != 0 {
		t.Errorf("an empty directory: %q %v", names, err)
	}
	for _, name := range []string{"a", "b", "c"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("text of "+name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if names, err := Names(dir, 2); err != nil || len(names) != 2 {
		t.Errorf("at most 2: %q %v", names, err)
	}
	names, err := Names(dir, 9)
	slices.Sort(names)
	if err != nil || !slices.Equal(names, []string{"a", "b", "c"}) {
		t.Errorf("%q %v", names, err)
	}
	for max, want := range map[int64]string{4: "text", 99: "text of a"} {
		if text, err := Head(filepath.Join(dir, "a"), max); err != nil || string(text) != want {
			t.Errorf("%q %v, want %q", text, err, want)
		}
	}
	if _, err := Names(filepath.Join(dir, "none"), 1); err == nil {
		t.Error("no directory was listed")
	}
}
