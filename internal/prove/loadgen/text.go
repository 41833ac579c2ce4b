package loadgen

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// after is what follows the first occurrence of a label, to the end of its line.
func after(text, label string) (string, bool) {
	_, rest, ok := strings.Cut(text, label)
	if !ok {
		return "", false
	}
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(line), true
}

// count is the whole number after a label; 0 and no error when it is not there.
func count(text, label string) (uint64, error) {
	line, ok := after(text, label)
	if !ok {
		return 0, nil
	}
	return whole(first(line))
}

// first is the first word of a line.
func first(line string) string {
	if words := strings.Fields(line); len(words) > 0 {
		return strings.Trim(words[0], ",;")
	}
	return ""
}

// whole reads a number of requests.
func whole(word string) (uint64, error) {
	n, err := strconv.ParseUint(word, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("%q is no number of requests", word)
	}
	return n, nil
}

// number reads a figure that is not negative.
func number(word string) (float64, error) {
	v, err := strconv.ParseFloat(word, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
		return 0, fmt.Errorf("%q is no figure", word)
	}
	return v, nil
}

// units are those of times as generators print them; "m" of wrk is a minute.
var units = []struct {
	name string
	in   time.Duration
}{
	{"ns", time.Nanosecond}, {"us", time.Microsecond}, {"µs", time.Microsecond}, {"μs", time.Microsecond}, {"ms", time.Millisecond},
	{"s", time.Second}, {"m", time.Minute}, {"h", time.Hour},
}

// span reads a time with its unit: "1.23ms", "10.02s", "1m30s", "1.00m".
func span(word string) (time.Duration, error) {
	if d, err := time.ParseDuration(word); err == nil && d >= 0 {
		return d, nil
	}
	for _, u := range units {
		if figure, ok := strings.CutSuffix(word, u.name); ok {
			return in(figure, u.in)
		}
	}
	return 0, fmt.Errorf("%q is no time", word)
}

// in reads a time in a unit that is printed elsewhere.
func in(figure string, unit time.Duration) (time.Duration, error) {
	v, err := number(figure)
	if err != nil {
		return 0, err
	}
	if v*float64(unit) > float64(365*24*time.Hour) {
		return 0, fmt.Errorf("%q is too long a time", figure)
	}
	return time.Duration(math.Round(v * float64(unit))), nil
}

// rank reads a percentage as a fraction of one: "99.9%" or "p(95)".
func rank(word string) (float64, bool) {
	v, err := number(word)
	if err != nil || v > 100 {
		return 0, false
	}
	return math.Round(v*1e6) / 1e8, true
}
