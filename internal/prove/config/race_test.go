package config

import (
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/safefile/safefiletest"
)

// TestUserSwapsAtRandom: while slowray prepares, makes and undoes a change, the server's
// user swaps his directory, his file and the unfinished one, at random moments, for
// links to root's and whatever else. Nothing of root's changes, and what is refused is so
// in one line. A try is a swap.
func TestUserSwapsAtRandom(t *testing.T) {
	bin := filepath.Join(safefiletest.NewStage(t).Outside, "nginx")
	install(t, bin, 0o755)
	// Some swap faster than a step takes, some hold what they have swapped through one.
	pauses := []time.Duration{4 * time.Millisecond, 60 * time.Millisecond, 300 * time.Millisecond}
	leastRounds := safefiletest.Tries() / 20
	var swaps atomic.Int64
	applied, refused := 0, 0
	for round := 0; round < leastRounds || swaps.Load() < int64(safefiletest.Tries()); round++ {
		ok := t.Run("", func(t *testing.T) {
			r := startRogue(t, "nginx", bin)
			r.outside(t, nginxConf)
			ready(t, r.name, r.pid)
			c := r.change()
			told := func(step string, err error) bool {
				if err != nil {
					if refused++; strings.Contains(err.Error(), "\n") {
						t.Errorf("%s: more than one line: %q", step, err)
					}
				}
				return err == nil
			}
			stop, stopped := make(chan struct{}), make(chan struct{})
			swapping := func() {
				defer close(stopped)
				for {
					select {
					case <-stop:
						return
					case <-time.After(rand.N(pauses[round%len(pauses)])):
					}
					r.Do(func() { r.swapOne() })
					swaps.Add(1)
				}
			}
			from := rand.IntN(3)
			if from == 0 {
				go swapping()
			}
			s, err := files{}.Prepare(c)
			prepared := told("prepare", err)
			if from == 1 {
				go swapping()
			}
			if prepared && told("apply", files{}.Apply(c, s)) {
				applied++
			}
			if from == 2 {
				go swapping()
			}
			if prepared {
				told("undo", files{}.Undo(c, s))
				_, _, _, err = files{}.Holds(c, s)
				told("holds", err)
				told("undo", files{}.Undo(c, s))
			}
			close(stop)
			<-stopped
			r.Unharmed(t)
		})
		if !ok {
			t.FailNow()
		}
	}
	t.Logf("%d swaps; %d changes were made, %d steps refused", swaps.Load(), applied, refused)
	if applied == 0 || refused == 0 {
		t.Errorf("%d changes were made and %d steps refused: nothing was raced", applied, refused)
	}
}

// swapOne puts something else in the place of one of the user's names, or back what was
// there. The user calls it.
func (r *rogue) swapOne() {
	names := []string{filepath.Dir(r.conf), r.conf}
	if unfinished, _ := filepath.Glob(filepath.Join(filepath.Dir(r.conf), ".slowray-*")); len(unfinished) > 0 {
		names = append(names, unfinished[0], unfinished[0])
	}
	name := names[rand.IntN(len(names))]
	if rand.IntN(2) == 0 {
		r.Restore(name)
	} else {
		r.Swap(name)
	}
}
