package alert

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestDiskFull: that the disk takes nothing is said once, and once that it does again.
func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	var said []string
	a, err := New(Options{Config: rules(t, "for: 0s\n"+oneHook), Dir: dir, Host: "h", Say: func(text string) { said = append(said, text) }})
	if err != nil {
		t.Fatal(err)
	}
	defer a.box.close()
	blocks := filepath.Join(dir, stateName+".new", "x") // cannot be removed, so nothing can be written
	if err := os.MkdirAll(blocks, 0o700); err != nil {
		t.Fatal(err)
	}
	for s := range 5 {
		a.takeIn(event{at: begin.Add(time.Duration(s) * time.Second), harms: []Harm{{Service: "svc:80", Share: 0.1}}})
	}
	if err := os.RemoveAll(filepath.Dir(blocks)); err != nil {
		t.Fatal(err)
	}
	for s := range 5 {
		a.takeIn(event{at: begin.Add(time.Duration(5+s) * time.Second), harms: []Harm{{Service: "svc:80", Share: 0.1}}})
	}
	if len(said) != 2 || !strings.Contains(said[0], "cannot be kept") || !strings.Contains(said[1], "kept again") {
		t.Errorf("%q", slices.Clone(said))
	}
}
