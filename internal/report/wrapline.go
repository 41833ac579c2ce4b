package report

import (
	"slices"
	"unicode/utf8"
)

const wrapIndent = "             " // under the column after the clock

// WrapLine breaks the line that begins at dst[start] at spaces, where it is wider than the
// terminal. Nothing is allocated where dst has room.
func WrapLine(dst []byte, start int, style Style) []byte {
	column, space := 0, -1
	for i := start; style.Width > 0 && i < len(dst); {
		if dst[i] == '\x1b' { // a colour, to its m
			if n := slices.Index(dst[i:], 'm'); n > 0 {
				i += n + 1
				continue
			}
		}
		if dst[i] == ' ' {
			space = i
		}
		_, n := utf8.DecodeRune(dst[i:])
		i += n
		if column++; column <= style.Width || space < 0 {
			continue
		}
		dst[space] = '\n'
		end := len(dst)
		dst = append(dst, wrapIndent...)
		copy(dst[space+1+len(wrapIndent):], dst[space+1:end])
		copy(dst[space+1:], wrapIndent)
		i, column, space = space+1+len(wrapIndent), len(wrapIndent), -1
	}
	return dst
}
