package cause

import "testing"

func TestPermille(t *testing.T) {
	for f, want := range map[float64]string{0: "0 ‰", 0.0105: "0.011 ‰", 2.04: "2 ‰", 20.6: "21 ‰", 99.4: "99 ‰", 249.7: "250 ‰", 1000: "1000 ‰"} {
		if got := permille(f); got != want {
			t.Errorf("permille(%v) = %q, want %q", f, got, want)
		}
	}
}
