package shell

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

var (
	errNUL     = errors.New("a word cannot hold a NUL byte")
	errNewline = errors.New("it ends with a newline, which a shell would take off")
)

// plain says that no shell treats a byte specially, wherever in a word it stands.
// "=" is left alone but at the start of a word, where zsh expands it, and in the
// first word, which it would make an assignment. "~" and "#" are quoted always.
func plain(c byte, at int, first bool) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("@%+:,./_-", c) >= 0:
		return true
	}
	return c == '=' && at > 0 && !first
}

// quote is a word as a shell has to be given it; first says that it is the first
// of a command. Single quotes keep everything but themselves. Control characters
// and invisible ones would act on the terminal that a line is pasted into, and a
// newline would run the half that came first: printf(1) makes them, of its octal
// escapes, since $'…' is not known to dash (it is of POSIX.1-2024). Command
// substitution takes newlines off the end, so that no word can end with one, and
// execve(2) ends every word with a NUL byte.
func quote(word string, first bool) (string, error) {
	switch {
	case word == "":
		return "''", nil
	case strings.IndexByte(word, 0) >= 0:
		return "", fmt.Errorf("%s: %w", Show(word), errNUL)
	case !printable(word):
		if strings.HasSuffix(word, "\n") {
			return "", fmt.Errorf("%s: %w", Show(word), errNewline)
		}
		return `"$(printf '` + octal(word) + `')"`, nil
	}
	for i := range len(word) {
		if !plain(word[i], i, first) {
			return single(word), nil
		}
	}
	return word, nil
}

// single puts a word into single quotes. A quote stands outside of them, and so does
// a backslash before a quote, before another backslash and at the end: fish takes
// it for an escape even within.
func single(word string) string {
	var out strings.Builder
	out.WriteByte('\'')
	for i := range len(word) {
		c := word[i]
		last := i+1 == len(word)
		if c == '\'' || c == '\\' && (last || word[i+1] == '\'' || word[i+1] == '\\') {
			out.Write([]byte{'\'', '\\', c, '\''})
		} else {
			out.WriteByte(c)
		}
	}
	out.WriteByte('\'')
	return out.String()
}

// printable says that every character of text can be seen, and takes one place.
func printable(text string) bool {
	return utf8.ValidString(text) && strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

// octal is text as the format of printf(1). All but plain characters are escaped:
// "!", which bash expands within double quotes, a dash at the start, which is an
// option, and "%".
func octal(text string) string {
	var out strings.Builder
	for i := range len(text) {
		switch c := text[i]; {
		case c == '%':
			out.WriteString("%%")
		case c == ' ', plain(c, i, false) && (i > 0 || c != '-'):
			out.WriteByte(c)
		default:
			fmt.Fprintf(&out, `\%03o`, c)
		}
	}
	return out.String()
}

// Show is text from outside for people to read: what cannot be seen as an escape
// of Go, and quoted as a shell would need it, so that it is harmless in a line
// that is pasted, too.
func Show(text string) string {
	if !printable(text) {
		escaped := strconv.QuoteToASCII(text)
		text = strings.ReplaceAll(escaped[1:len(escaped)-1], `\"`, `"`)
	}
	word, err := quote(text, false)
	if err != nil { // nothing that cannot be seen is left
		return "''"
	}
	return word
}
