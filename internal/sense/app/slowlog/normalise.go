package slowlog

import "strings"

// maxStatement is how many bytes of a normalised statement are kept.
const maxStatement = 200

// Normalise takes the literals out of an SQL statement, so that statements
// that differ only in those are the same, and nobody's data is kept: numbers
// and quoted text become "?", lists of them "(?)", white space and comments one
// space. Text in double quotes and backticks names tables and columns, and
// stays.
func Normalise(sql string) string {
	var b strings.Builder
	space := false
	write := func(s string) {
		if space && b.Len() > 0 {
			b.WriteByte(' ')
		}
		space = false
		b.WriteString(s)
	}
	for i := 0; i < len(sql) && b.Len() < 4*maxStatement; {
		c := sql[i]
		switch {
		case c <= ' ':
			space = true
			i++
		case c == '/' && strings.HasPrefix(sql[i:], "/*"):
			i += skip(sql[i+2:], "*/") + 2
			space = true
		case c == '-' && strings.HasPrefix(sql[i:], "-- "):
			i += skip(sql[i:], "\n")
			space = true
		case c == '\'':
			i += quoted(sql[i:], c)
			write("?")
		case c == '"' || c == '`':
			n := quoted(sql[i:], c)
			write(sql[i : i+n])
			i += n
		case digit(c) || c == '.' && i+1 < len(sql) && digit(sql[i+1]):
			i += number(sql[i:])
			write("?")
		case word(c):
			n := 1
			for i+n < len(sql) && word(sql[i+n]) {
				n++
			}
			write(sql[i : i+n])
			i += n
		default:
			write(sql[i : i+1])
			i++
		}
	}
	text := lists(strings.TrimRight(b.String(), "; "))
	if len(text) > maxStatement {
		return strings.ToValidUTF8(text[:maxStatement], "") + "…"
	}
	return strings.ToValidUTF8(text, "?")
}

// lists makes lists of literals one: "IN (?, ?, ?)" and rows of INSERT.
func lists(s string) string {
	for _, r := range [][2]string{{"? , ?", "?"}, {"?, ?", "?"}, {"?,?", "?"}, {"(?), (?)", "(?)"}, {"(?),(?)", "(?)"}} {
		for strings.Contains(s, r[0]) {
			s = strings.ReplaceAll(s, r[0], r[1])
		}
	}
	return s
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

func word(c byte) bool {
	return c == '_' || c == '$' || c == '@' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || digit(c) || c >= 0x80
}

// skip is how many bytes go up to and with the end.
func skip(s, end string) int {
	if i := strings.Index(s, end); i >= 0 {
		return i + len(end)
	}
	return len(s)
}

// quoted is the length of a quoted text, its quotes included. A quote in it is
// doubled or has a backslash.
func quoted(s string, q byte) int {
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '\\' && q == '\'':
			i++
		case s[i] == q && i+1 < len(s) && s[i+1] == q:
			i++
		case s[i] == q:
			return i + 1
		}
	}
	return len(s)
}

// number is the length of a number: 12, 0x1f, 1.5e-3.
func number(s string) int {
	i := 1
	for i < len(s) && (word(s[i]) || s[i] == '.' || (s[i] == '-' || s[i] == '+') && (s[i-1] == 'e' || s[i-1] == 'E')) {
		i++
	}
	return i
}
