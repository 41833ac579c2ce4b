package printable

import (
	"strings"
	"unicode/utf8"
)

// Wrap breaks a text that is printable into lines of at most width columns, at blanks. A
// word that is longer has a line of its own.
func Wrap(text string, width int) []string {
	var lines []string
	line := ""
	n := 0
	for word := range strings.FieldsSeq(text) {
		w := utf8.RuneCountInString(word)
		if n > 0 && n+1+w > width && word != "%" { // a figure keeps its unit
			lines = append(lines, line)
			line, n = "", 0
		}
		if n > 0 {
			line += " "
			n++
		}
		line += word
		n += w
	}
	return append(lines, line)
}

// Cut is a text that is printable in at most width columns, at least one: what is cut off is
// an ….
func Cut(text string, width int) string {
	if r := []rune(text); len(r) > width {
		return string(r[:max(width, 1)-1]) + "…"
	}
	return text
}
