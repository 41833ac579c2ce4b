package wait

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/sense/host"
)

// TestHolderTellsWhoWaits: of whoever has the lock of a file it is reported who waits for it.
func TestHolderTellsWhoWaits(t *testing.T) {
	for _, call := range []string{"flock", "fcntl"} {
		path := filepath.Join(t.TempDir(), "held")
		holder := start(t, call, create(t, path))
		holder.says(t)
		waiter := start(t, call, create(t, path))
		for end := time.Now().Add(5 * time.Second); ; {
			w, err := NewReader(host.Default()).Look(t.Context(), holder.pid, 200*time.Millisecond)
			if err != nil {
				t.Fatal(err)
			}
			if lock := w.HoldsUp(); lock != nil && lock.AtOnce == 1 && len(lock.Waiters) == 1 && lock.Waiters[0].Process.PID == waiter.pid && lock.Object == path {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%s: %+v", call, w.Held)
			}
		}
		w, err := NewReader(host.Default()).Look(t.Context(), waiter.pid, 100*time.Millisecond)
		if err != nil || len(w.Held) > 0 {
			t.Errorf("%s: the one that waits: %+v, %v", call, w.Held, err)
		}
	}
}
