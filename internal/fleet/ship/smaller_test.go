package ship

import (
	"strings"
	"testing"
	"time"
)

// Where a proxy on the way bears only small bodies, what has piled up goes in smaller
// batches, each record once.
func TestBatchesThatAreRefusedForTheirSizeBecomeSmaller(t *testing.T) {
	for _, faults := range []bool{false, true} {
		f := newFake(3)
		f.down = true
		h := &history{t: t, dir: t.TempDir(), opt: quick(f)}
		h.open(200 * time.Millisecond)
		const n = 5000
		for i := range n {
			r := numbered(i, time.Now().UnixNano())
			h.store.AddRequest(&r)
			if i%1000 == 999 {
				if err := h.store.Sync(); err != nil {
					t.Fatal(err)
				}
			}
		}
		f.set(func() { f.down, f.bound, f.faults = false, 70, faults })
		f.arrived(t, "requests", n)
		f.set(func() { f.faults = false })
		h.close()
		f.check(t, "requests", 0, n)
		if f.largest > 70 || f.largest < 30 {
			t.Errorf("the largest batch has %d records", f.largest)
		}
		if said := h.lines(); strings.Contains(said, "does not fix itself") && !faults {
			t.Errorf("said: %s", said)
		}
	}
}
