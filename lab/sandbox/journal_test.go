package sandbox

import (
	"os"
	"path/filepath"
	"testing"
)

// settings is a setter that gives numbers back as the kernel does.
type settings map[string]string

func (s settings) get(path string) (string, error) { return s[path], nil }
func (s settings) set(path, value string) error    { s[path] = value; return nil }

// TestUndoSettings: what the lab set is put back, also where the kernel writes it with
// tabs; what somebody else has set since is left alone.
func TestUndoSettings(t *testing.T) {
	old := stateDir
	stateDir = t.TempDir()
	defer func() { stateDir = old }()
	s := settings{"tcp_mem": "16\t32\t64", "file-max": "7"}
	j := &Journal{Changes: []Change{{Path: "tcp_mem", Old: "1\t2\t3", New: "16 32 64"}, {Path: "file-max", Old: "1000", New: "100"}}}
	if err := j.undo(s); err != nil {
		t.Fatal(err)
	}
	if s["tcp_mem"] != "1\t2\t3" || s["file-max"] != "7" {
		t.Errorf("%q", s)
	}
}

// TestUndoSwap: what is swapped to no more, or never was, is as it should be.
func TestUndoSwap(t *testing.T) {
	old := stateDir
	stateDir = t.TempDir()
	defer func() { stateDir = old }()
	file := filepath.Join(t.TempDir(), "swap")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() != 0 {
		t.Skip("SKIP: only root may take back a swap file; NOT tested")
	}
	j := &Journal{Swaps: []string{file, file + "-gone"}}
	if err := j.undo(settings{}); err != nil {
		t.Error(err)
	}
}
