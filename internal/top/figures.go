package top

import (
	"math"
	"strconv"

	"github.com/charmbracelet/x/ansi"
)

// duration writes nanoseconds in at most five columns: "340µs", "1.2ms", "12s".
func duration(ns float64) string {
	switch us := ns / 1e3; {
	case ns <= 0 || math.IsNaN(ns):
		return "0"
	case us < 0.1:
		return "0.1µs"
	case us < 999.5:
		return twoDigits(us) + "µs"
	case us < 999.5e3:
		return twoDigits(us/1e3) + "ms"
	case us < 9999.5e6:
		return twoDigits(us/1e6) + "s"
	}
	return "hours"
}

// twoDigits writes a number below 10 with one decimal and others with none.
func twoDigits(v float64) string {
	if v < 9.95 {
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

// amount writes a rate or count in at most five columns: "0.3", "12", "9999",
// "150k", "1.2M".
func amount(v float64) string {
	switch {
	case v <= 0 || math.IsNaN(v):
		return "0"
	case v < 0.05:
		return "<0.1"
	case v < 9999.5:
		return twoDigits(v)
	case v < 999.5e3:
		return twoDigits(v/1e3) + "k"
	case v < 999.5e6:
		return twoDigits(v/1e6) + "M"
	}
	return "many"
}

// percent writes a share of one in at most four columns, never 0 % for
// something and never 100 % for not quite all.
func percent(share float64) string {
	switch {
	case share <= 0 || math.IsNaN(share):
		return "0%"
	case share < 0.005:
		return "<1%"
	case share >= 1:
		return "100%"
	case share > 0.99:
		return "99%"
	}
	return strconv.FormatFloat(share*100, 'f', 0, 64) + "%"
}

// left cuts or fills text to a width, in columns.
func left(text string, width int) string {
	text = ansi.Truncate(text, width, "…")
	return text + blanks(width-ansi.StringWidth(text))
}

// right is left with the blanks before the text.
func right(text string, width int) string {
	text = ansi.Truncate(text, width, "…")
	return blanks(width-ansi.StringWidth(text)) + text
}

// tail cuts the beginning instead of the end: an address keeps its port.
func tail(text string, width int) string {
	if n := ansi.StringWidth(text); n > width {
		text = ansi.TruncateLeft(text, n-width+1, "…")
	}
	return text + blanks(width-ansi.StringWidth(text))
}

func blanks(n int) string {
	const many = "                                                                                "
	if n <= 0 {
		return ""
	}
	for n > len(many) {
		return many + blanks(n-len(many))
	}
	return many[:n]
}
