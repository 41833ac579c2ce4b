package results

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/safefile/safefiletest"
)

// Whatever another user puts in the place of the directories, while results are kept:
// nothing of what is not his changes.
func TestRace(t *testing.T) {
	const state, name = "state", "20261122T120000.000000Z-x.json"
	s := safefiletest.NewSharedStage(t, []string{"state/results"}, []string{"state/results/" + name, "state/results/" + name + ".new"})
	journal := filepath.Join(s.Dir, state)
	dir := Dir(journal)
	names := []string{journal, dir, filepath.Join(dir, name), filepath.Join(dir, name+".new")}
	at := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	kept, refused := 0, 0
	for n := range safefiletest.Tries() {
		s.Clear(journal)
		if err := os.Mkdir(journal, 0o700); err != nil {
			t.Fatal(err)
		}
		if n%2 == 0 {
			if err := Keep(journal, at, "x", []byte("{}")); err != nil {
				t.Fatal(err)
			}
		}
		// He swaps before, or all the time while results are kept.
		var begun, stop, stopped = make(chan struct{}), make(chan struct{}), make(chan struct{})
		if rand.IntN(2) == 0 {
			s.Seize(journal, names...)
		}
		go func() {
			defer close(stopped)
			s.Seize(journal, names...)
			close(begun)
			for {
				select {
				case <-stop:
					return
				default:
					s.Do(func() {
						name := names[rand.IntN(len(names))]
						if rand.IntN(3) == 0 {
							s.Restore(name)
						} else {
							s.Swap(name)
						}
					})
				}
			}
		}()
		if n%3 == 0 {
			<-begun
		}
		for range 3 {
			err := Keep(journal, at, "x", []byte("{}"))
			if kept++; err != nil {
				kept--
				refused++
				if strings.Contains(err.Error(), "\n") {
					t.Errorf("more than a line: %v", err)
				}
			}
		}
		close(stop)
		<-stopped
		s.Unharmed(t)
		if t.Failed() {
			t.Fatalf("in try %d", n)
		}
	}
	if kept == 0 || refused < safefiletest.Tries() {
		t.Errorf("%d were kept and %d refused", kept, refused)
	}
}
