package printable

import (
	"strings"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// Wrap breaks a text that is printable into lines of at most width columns, at blanks and
// between the characters of Chinese. A word that is longer has a line of its own.
func Wrap(text string, width int) []string {
	var lines []string
	line := ""
	n := 0
	for _, word := range words(text) {
		for i, piece := range pieces(word) {
			w, gap := ansi.StringWidth(piece), min(n, 1)
			if i > 0 {
				gap = 0
			}
			if n > 0 && n+gap+w > width {
				lines = append(lines, line)
				line, n, gap = "", 0, 0
			}
			line += strings.Repeat(" ", gap) + piece
			n += gap + w
		}
	}
	return append(lines, line)
}

// words are those of a text; a figure keeps its %.
func words(text string) []string {
	list := strings.Fields(text)
	out := list[:0]
	for _, w := range list {
		if last := len(out) - 1; last >= 0 && strings.HasPrefix(w, "%") {
			out[last] += " " + w
		} else {
			out = append(out, w)
		}
	}
	return out
}

// pieces are the parts of a word that may stand on lines of their own: each character that is
// wide, with the punctuation next to it, which begins no line, or ends none.
func pieces(word string) []string {
	var out []string
	join := false
	for _, r := range word {
		wide := ansi.StringWidth(string(r)) > 1
		last := len(out) - 1
		switch {
		case last < 0:
			out = append(out, string(r))
		case join, strings.ContainsRune("，。；：、）”！？", r), !wide && ansi.StringWidth(out[last][lastRune(out[last]):]) < 2:
			out[last] += string(r)
		default:
			out = append(out, string(r))
		}
		join = strings.ContainsRune("（“", r)
	}
	return out
}

// lastRune is where the last character of text begins.
func lastRune(text string) int {
	_, size := utf8.DecodeLastRuneInString(text)
	return len(text) - size
}

// Pad appends blanks until text takes width columns.
func Pad(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-ansi.StringWidth(text)))
}

// PadLeft puts them before it.
func PadLeft(text string, width int) string {
	return strings.Repeat(" ", max(0, width-ansi.StringWidth(text))) + text
}

// Cut is a text that is printable in at most width columns, at least one: what is cut off is
// an ….
func Cut(text string, width int) string { return ansi.Truncate(text, max(width, 1), "…") }

// Clause is a text that is printable in at most width columns: what is too long ends with the
// last clause of it, or else the last word, that has room with an … after it.
func Clause(text string, width int) string {
	if ansi.StringWidth(text) <= width {
		return text
	}
	head := strings.TrimSuffix(Cut(text, max(width, 1)-1), "…")
	at := -1
	for _, end := range []string{"; ", ", ", ": ", " (", "；", "，", "：", "（"} {
		at = max(at, strings.LastIndex(text[:min(len(head)+len(end), len(text))], end))
	}
	if least := len(head) / 2; at < least { // it would say little
		if blank := strings.LastIndexByte(head, ' '); blank >= least {
			at = blank
		} else {
			at = len(head)
		}
	}
	if head = strings.TrimRight(head[:at], " ,;:("); head == "" {
		return "…"
	}
	return head + " …"
}
