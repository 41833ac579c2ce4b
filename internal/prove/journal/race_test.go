package journal

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/safefile/safefiletest"
)

// try is one try of a race: the moment at which another user seizes what he can, or, now
// and then, several of them.
type try struct {
	moment  int
	often   bool
	seize   func()
	refused int // errors that were reported
}

func newTry(steps int, seize func()) *try {
	return &try{moment: rand.IntN(steps + 1), often: rand.IntN(3) == 0, seize: seize}
}

// step comes before the i-th step of what is raced.
func (r *try) step(i int) {
	if i == r.moment || r.often && rand.IntN(2) == 0 {
		r.seize()
	}
}

// told takes what a step came to, and says whether it went well.
func (r *try) told(t *testing.T, err error) bool {
	t.Helper()
	if err == nil {
		return true
	}
	if r.refused++; strings.Contains(err.Error(), "\n") {
		t.Errorf("more than a line: %v", err)
	}
	return false
}

// Whatever another user puts in the place of a journal's files, or of its directory,
// before any step of looking into it and of undoing: nothing of what is not his changes.
func TestRace(t *testing.T) {
	h := newHost(t, 1)
	l := h.begin()
	if err := errors.Join(l.Apply(), l.Keep(), l.Close()); err != nil {
		t.Fatal(err)
	}
	h.free()
	entries := map[string][]byte{}
	found, _ := filepath.Glob(filepath.Join(h.dir, "*"))
	for _, name := range found {
		if st, err := os.Stat(name); err == nil && st.Mode().IsRegular() {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			entries[filepath.Base(name)] = text
		}
	}
	if len(entries) < 2 {
		t.Fatalf("no entry and backup in %v", found)
	}
	var files, names []string
	for name := range entries {
		files = append(files, "state/"+name)
	}
	s := safefiletest.NewSharedStage(t, []string{"state/history"}, files)
	dir := filepath.Join(s.Dir, "state")
	names = append(names, dir, filepath.Join(dir, "history"))
	for _, name := range files {
		names = append(names, filepath.Join(s.Dir, name))
	}
	const steps = 5
	refused, undone := 0, 0
	for n := range safefiletest.Tries() {
		s.Clear(dir)
		err := errors.Join(os.Mkdir(dir, 0o700), os.Mkdir(filepath.Join(dir, "history"), 0o700))
		for name, text := range entries {
			err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), text, 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
		h.set(0, with)
		r := newTry(steps, func() { s.Seize(dir, names...) })
		r.step(0)
		j, err := Open(dir)
		if r.told(t, err); err == nil {
			r.step(1)
			_, err := j.List()
			r.told(t, err)
			r.step(2)
			_, err = j.History()
			r.told(t, err)
			r.step(3)
			_, err = j.Undo()
			r.told(t, err)
			r.step(4)
			r.told(t, j.Forget("1"))
			j.Close()
			if text, err := os.ReadFile(h.files[0]); err == nil && string(text) == before {
				undone++
			}
		}
		refused += r.refused
		s.Unharmed(t)
		if t.Failed() {
			t.Fatalf("in try %d, at step %d", n, r.moment)
		}
	}
	if tries := safefiletest.Tries(); refused < tries/4 || undone < tries/10 {
		t.Errorf("of %d tries %d errors were reported and %d changes undone", tries, refused, undone)
	}
}

// The same before any step of a change that is made and undone, with its watchdog.
func TestRaceOfLease(t *testing.T) {
	h := newHost(t, 1)
	s := safefiletest.NewSharedStage(t, []string{"state/history"}, []string{"state/1.json", "state/1.bak"})
	dir := filepath.Join(s.Dir, "state")
	var names []string
	for _, name := range []string{"", "history", "1.json", "1.bak", "lock"} {
		names = append(names, filepath.Join(dir, name))
	}
	const steps = 4
	refused, undone := 0, 0
	for n := range safefiletest.Tries() / 4 {
		s.Clear(dir)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		h.set(0, before)
		r := newTry(steps, func() { s.Seize(dir, names...) })
		r.step(0)
		j, err := Open(dir)
		if r.told(t, err) {
			r.step(1)
			l, err := j.Begin(h.changes, Options{Cause: "conntrack-full", Why: "a race"})
			if r.told(t, err) {
				r.step(2)
				r.told(t, l.Apply())
				r.step(3)
				r.told(t, l.Undo())
				r.step(4)
				r.told(t, l.Close())
			}
			j.Close()
			if h.all(before) {
				undone++
			}
		}
		refused += r.refused
		s.Unharmed(t)
		if t.Failed() {
			t.Fatalf("in try %d, at step %d", n, r.moment)
		}
	}
	if tries := safefiletest.Tries() / 4; refused < tries/4 || undone < tries/4 {
		t.Errorf("of %d tries %d errors were reported and %d changes undone", tries, refused, undone)
	}
}
