// Package printable makes what comes from the watched host safe to show.
//
// In: text, and values that hold it. Out: text and JSON without what drives a
// terminal, cannot be seen, or reverses the reading direction. It decides nothing
// about secrets (package observe).
package printable

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/slowray/slowray/internal/figure"
)

// MaxText is how much of a text from the watched host is printed, in bytes: what
// is longer was made to be.
const MaxText = 8192

// Text is s on one line: control characters, invisible ones and invalid UTF-8 become
// a replacement character, tabs and line feeds blanks. Of more than 8 KiB it is the
// beginning, and says how long it was.
func Text(s string) string {
	more := ""
	if len(s) > MaxText {
		more = fmt.Sprintf("… (%s bytes)", figure.Count(len(s)))
		s = s[:MaxText]
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t' || r == '\n':
			return ' '
		case r == utf8.RuneError || Unseen(r):
			return utf8.RuneError
		}
		return r
	}, s) + more
}

// Name is a name that others chose, of a process, a file or a device: what is not
// UTF-8 or does not print becomes '?', and at most limit bytes are kept.
func Name[T string | []byte](name T, limit int) string {
	if plain(name) {
		return string(name[:min(len(name), limit)])
	}
	var out strings.Builder
	for _, r := range string(name[:min(len(name), utf8.UTFMax*limit)]) {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			r = '?'
		}
		if out.Len()+utf8.RuneLen(r) > limit {
			break
		}
		out.WriteRune(r)
	}
	return out.String()
}

// plain says whether s is printable ASCII, as most names are.
func plain[T string | []byte](s T) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// Unseen says whether r is a control character, or one that cannot be seen or
// reverses the reading direction.
func Unseen(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp)
}
