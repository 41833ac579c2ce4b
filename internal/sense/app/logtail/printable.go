package logtail

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable makes the text of a log line safe for a terminal, a report and
// JSON: at most max bytes of valid UTF-8 without control, format or
// direction-changing characters, which are written as escapes (\x1b, \u202e).
// A line that does not fit ends in "…". Log text comes from the network: it
// must be taken for hostile.
func Printable(b []byte, max int) string {
	const more = "…"
	if max <= 0 {
		return ""
	}
	var out strings.Builder
	fits := 0 // length of the longest prefix that leaves room for more
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		piece := string(b[:size])
		switch {
		case r == utf8.RuneError && size == 1:
			piece = `\x` + hex2(b[0])
		case r == '\t':
			piece = " "
		case r < 0x80 && !unicode.IsPrint(r):
			piece = `\x` + hex2(b[0])
		case !unicode.IsPrint(r):
			q := strconv.QuoteRuneToASCII(r)
			piece = q[1 : len(q)-1]
		}
		if out.Len()+len(piece) > max {
			if max < len(more) {
				return out.String()[:fits]
			}
			return out.String()[:fits] + more
		}
		out.WriteString(piece)
		if out.Len()+len(more) <= max {
			fits = out.Len()
		}
		b = b[size:]
	}
	return out.String()
}

func hex2(c byte) string {
	const digits = "0123456789abcdef"
	return string([]byte{digits[c>>4], digits[c&15]})
}
