package procmem

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOpenFile: who owns a process may mount another file system over a file that it has
// mapped, and there give a file the number of that one.
func TestOpenFile(t *testing.T) {
	proc := t.TempDir()
	at := func(name, text string) string {
		name = filepath.Join(proc, "7", name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if text != "" {
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return name
	}
	var st unix.Stat_t
	if err := unix.Stat(at("root/lib", "in its place"), &st); err != nil {
		t.Fatal(err)
	}
	mapped := at("mapped", "mapped")
	if err := os.Symlink(mapped, at("map_files/1000-2000", "")); err != nil {
		t.Fatal(err)
	}
	here := fmt.Sprintf("%02x:%02x", unix.Major(st.Dev), unix.Minor(st.Dev))
	for _, step := range []struct{ device, want string }{
		{here, "in its place"}, {"", "in its place"}, {"ff:ff", "mapped"}, {"ff:fe", "in its place"},
	} {
		if step.device == "ff:fe" { // without the right to open it
			if err := os.Remove(mapped); err != nil {
				t.Fatal(err)
			}
		}
		f, err := OpenFile(proc, 7, &Mapping{Start: 0x1000, End: 0x2000, Device: step.device, Inode: st.Ino, Path: "/lib"})
		if err != nil {
			t.Fatal(err)
		}
		if b, _ := io.ReadAll(f); string(b) != step.want {
			t.Errorf("device %q: %q, want %q", step.device, b, step.want)
		}
		f.Close()
	}
}
