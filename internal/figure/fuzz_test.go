package figure

import (
	"math"
	"strings"
	"testing"
	"unicode"
)

// FuzzFigures writes any numbers as people do: on one line, without an exponent up to
// what a number of 64 bits holds, and never as nothing.
func FuzzFigures(f *testing.F) {
	for _, x := range []float64{0, -0.5, 999.95, 1e15, 1e300, math.NaN(), math.Inf(-1), 12345.678, 1e-12, math.MaxUint64} {
		f.Add(x, int64(x), "s in which nginx\x1b was busy")
	}
	f.Add(0.5, int64(math.MinInt64), "share of the time")
	f.Fuzz(func(t *testing.T, x float64, n int64, unit string) {
		for what, text := range map[string]string{
			"number": number(x), "count": Count(n), "bytes": Bytes(n), "percent": Percent(x), "seconds": Seconds(x),
		} {
			if text == "" || len(text) > 64 || strings.ContainsFunc(text, unicode.IsControl) {
				t.Errorf("%s of %g, %d: %q", what, x, n, text)
			}
		}
		if text := number(x); math.Abs(x) < 1e15 && strings.ContainsAny(text, "eE") {
			t.Errorf("%g is written %s", x, text)
		}
		Evidence(x, n, unit)
		Evidence(n, x, unit)
		Evidence(unit, nil, unit)
		Evidence([]any{x, n, unit}, map[string]any{unit: x}, "")
	})
}
