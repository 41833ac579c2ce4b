// Package figure writes numbers the way people read them.
//
// In: numbers, and moments. Out: short text with a unit, or with the zone. It never rounds something to
// nothing or to everything: a share that is not quite all never reads "100 %".
package figure

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Count writes a whole number with thousands separators, as in "290,566".
func Count[T int | int64 | uint32 | uint64](n T) string {
	digits := fmt.Sprint(n)
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// Counted writes how many there are of something: "1 request", "2,140 requests".
func Counted[T int | int64 | uint32 | uint64](n T, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return Count(n) + " " + noun + "s"
}

// Percent writes a share of one.
func Percent(share float64) string {
	switch {
	case math.IsNaN(share) || share <= 0:
		return "0 %"
	case share >= 1:
		return "100 %"
	case share < 0.001:
		return "under 0.1 %"
	case share > 0.999:
		return "over 99.9 %"
	case share < 0.0995:
		return strconv.FormatFloat(share*100, 'f', 1, 64) + " %"
	case share > 0.99:
		return strconv.FormatFloat(math.Floor(share*1000)/10, 'f', 1, 64) + " %"
	}
	return strconv.FormatFloat(share*100, 'f', 0, 64) + " %"
}

// Seconds writes a duration given in seconds, with three significant digits.
func Seconds(s float64) string {
	switch {
	case s == 0:
		return "0 s"
	case s < 0.0009995: // what rounds up to 1,000 of a unit is 1 of the next
		return strconv.FormatFloat(s*1e6, 'g', 3, 64) + " µs"
	case s < 0.9995:
		return strconv.FormatFloat(s*1e3, 'g', 3, 64) + " ms"
	case s >= 999.5:
		return Count(int64(math.Round(s))) + " s"
	}
	return strconv.FormatFloat(s, 'g', 3, 64) + " s"
}

// Moment is a moment of the clock here, with its difference from UTC, for people at a
// terminal: "2026-11-22 12:03:20 +01:00".
func Moment(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05 -07:00") }

// Until is a moment that is reported after another one: without its date where that is the
// same.
func Until(t, before time.Time) string {
	t, before = t.Local(), before.Local()
	if t.Year() == before.Year() && t.YearDay() == before.YearDay() {
		return t.Format("15:04:05")
	}
	return Moment(t)
}

// Bytes writes a number of bytes in powers of 1,024, with three significant digits:
// "1.21 GB".
func Bytes(n int64) string {
	v, unit := float64(max(n, 0)), "B"
	for _, next := range []string{"KB", "MB", "GB", "TB"} {
		if v < 999.5 {
			break
		}
		v, unit = v/1024, next
	}
	return strconv.FormatFloat(v, 'g', 3, 64) + " " + unit
}
