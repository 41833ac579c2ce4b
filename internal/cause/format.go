package cause

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

func itoa(n int) string    { return strconv.Itoa(n) }
func utoa(n uint64) string { return strconv.FormatUint(n, 10) }

// count prints a number with thousands separators, as in "290,566".
func count[T int | int64 | uint32 | uint64](n T) string {
	digits := fmt.Sprint(n)
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	}
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return sign + b.String()
}

// percent prints a fraction for people: never "100 %" unless it is all, never
// "0 %" unless it is none.
func percent(f float64) string {
	switch {
	case f <= 0:
		return "0 %"
	case f >= 1:
		return "100 %"
	case f < 0.001:
		return "under 0.1 %"
	case f > 0.999:
		return "over 99.9 %"
	case f < 0.1:
		return strconv.FormatFloat(f*100, 'f', 1, 64) + " %"
	case f > 0.99:
		return strconv.FormatFloat(math.Floor(f*1000)/10, 'f', 1, 64) + " %"
	}
	return strconv.FormatFloat(f*100, 'f', 0, 64) + " %"
}

// seconds prints a duration in seconds with three significant digits.
func seconds(s float64) string {
	switch {
	case s < 0.001:
		return strconv.FormatFloat(s*1e6, 'g', 3, 64) + " µs"
	case s < 1:
		return strconv.FormatFloat(s*1e3, 'g', 3, 64) + " ms"
	}
	return strconv.FormatFloat(s, 'g', 3, 64) + " s"
}

// ratio is a/b, 0 when b is 0, and never above 1.
func ratio[A, B int | int64 | uint64 | uint32 | float64](a A, b B) float64 {
	if b == 0 {
		return 0
	}
	return min(float64(a)/float64(b), 1)
}

// round keeps evidence readable: three decimals.
func round(f float64) float64 { return math.Round(f*1000) / 1000 }
