package anomaly

import (
	"math/rand/v2"
	"testing"
)

// A part that there is nothing of is left out quickly, and as any other.
func TestTrimmedOfNothingIsTrimmed(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		var w window
		for range random.IntN(2 * pieces) {
			s := sums{seconds: float32(random.IntN(3)), n: float32(random.IntN(4))}
			w.push(&s)
		}
		v, n, ok := w.trimmed(firstPart)
		wantV, wantN, wantOK := w.trimmedWorst(firstPart)
		if v != wantV || n != wantN || ok != wantOK {
			t.Fatalf("%v %v %v, want %v %v %v: %+v", v, n, ok, wantV, wantN, wantOK, w.ring)
		}
	}
}
