package request

import "testing"

// TestCompareClocks: a program that has to wait for a CPU between two clocks
// does not take the wait for a difference.
func TestCompareClocks(t *testing.T) {
	const ahead, read, wait = 1_000_000_000_000, 100, 5_000_000
	for _, test := range []struct {
		name  string
		waits map[int]int64 // before which reading of a clock, ns
	}{
		{"undisturbed", nil},
		{"before the wall clock", map[int]int64{1: wait}},
		{"behind the wall clock", map[int]int64{2: wait, 4: wait}},
		{"all but the last time", map[int]int64{1: wait, 4: wait, 8: wait, 10: wait}},
	} {
		var now int64
		n := 0
		tick := func(from int64) func() int64 {
			return func() int64 {
				now += read + test.waits[n]
				n++
				return from + now
			}
		}
		offset, within := compareClocks(tick(0), tick(ahead))
		if offset < ahead-read || offset > ahead+read || within != 2*read {
			t.Errorf("%s: %d ns ahead within %d, want %d within %d", test.name, offset, within, ahead, 2*read)
		}
	}
}
