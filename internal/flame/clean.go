package flame

import (
	"strings"
	"unicode/utf8"

	"github.com/slowray/slowray/internal/printable"
)

// nameLimit is how many characters of a name are kept, in the middle of which
// the rest is left out: a C++ name can have a million.
const nameLimit = 4000

// clean makes a name from the watched host safe to show: control characters,
// invisible ones that reverse the reading direction, what XML cannot say, and
// invalid UTF-8 become a replacement character.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\t' || r == '\n':
			return ' '
		case printable.Unseen(r), r == 0xFFFE, r == 0xFFFF:
			return utf8.RuneError
		}
		return r
	}, s)
	if len(s) <= nameLimit {
		return s
	}
	runes := []rune(s)
	if len(runes) <= nameLimit {
		return s
	}
	return string(runes[:nameLimit/2]) + "…" + string(runes[len(runes)-nameLimit/2:])
}

// fit cuts text to at most n characters, the last of which is then "…".
func fit(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	if n < 1 {
		return ""
	}
	return string([]rune(s)[:n-1]) + "…"
}
