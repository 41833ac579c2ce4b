package symbol

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxName bounds a name, in bytes.
const maxName = 1024

// clean makes a name that others wrote fit to be shown: no control characters,
// no broken UTF-8, not endless.
func clean(name string) string {
	if len(name) > maxName {
		end := maxName
		for end > 0 && !utf8.RuneStart(name[end]) {
			end--
		}
		name = name[:end] + "…"
	}
	plain := true
	for _, r := range name {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			plain = false
			break
		}
	}
	if plain {
		return name
	}
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, name)
}
