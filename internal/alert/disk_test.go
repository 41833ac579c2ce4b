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

// TestDamagedState: a state that no slowray wrote is refused by who reads it, and moved aside by
// who sends, which goes on; a bounded number is kept.
func TestDamagedState(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, stateName)
	damaged := []string{`{"incidents":{"open":[null]}}`, `{"waiting":{"am":[null]}}`, `{"counts":{"am":null}}`, `{`, ``, `[]`}
	for i, text := range damaged {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if s, err := ReadStatus(dir); err == nil || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("%s: %+v, %v", text, s, err)
		}
		var said []string
		a, err := New(Options{Config: rules(t, oneHook), Dir: dir, Host: "h", Say: func(text string) { said = append(said, text) }})
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		a.keep(func() { a.dirty = true })
		a.box.close()
		if len(said) != 1 || !strings.Contains(said[0], "damaged") {
			t.Errorf("%s: %q", text, said)
		}
		s, err := ReadStatus(dir)
		if err != nil || len(s.Damaged) != min(i+1, mostAside) {
			t.Fatalf("%s: %+v, %v", text, s, err)
		}
		if kept, err := os.ReadFile(s.Damaged[len(s.Damaged)-1]); err != nil || string(kept) != text {
			t.Errorf("kept %q of %q, %v", kept, text, err)
		}
	}
}
