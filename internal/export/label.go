package export

import (
	"strings"
	"unicode/utf8"

	"github.com/slowray/slowray/internal/printable"
)

// maxLabel bounds the value of a label, in bytes. Names of processes are 15
// bytes, those of containers 63 at most where an engine checks them.
const maxLabel = 128

// label makes text from the watched host a label value: valid UTF-8 without
// control and invisible characters, at most maxLabel bytes long.
func label(s string) string { return bounded(s, maxLabel) }

// bounded is the same for text of another length.
func bounded(s string, most int) string {
	if plain(s, most) {
		return s
	}
	s = printable.Text(strings.ToValidUTF8(cut(s, 2*most), "\uFFFD"))
	if len(s) <= most {
		return s
	}
	const more = "…"
	s = s[:most-len(more)]
	for len(s) > 0 && !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s + more
}

// plain says that s is short and all of printable ASCII, as nearly all names are.
func plain(s string, most int) bool {
	if len(s) > most {
		return false
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// cut is the first n bytes of s, which may end within a character.
func cut(s string, n int) string { return s[:min(n, len(s))] }
