package clickhouse

import (
	"fmt"
	"strings"
)

// quote is a text as a literal of SQL, whatever is in it: quotes and backslashes are
// escaped, and so is what is no printable ASCII, byte by byte.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('\'')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '\'' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c > '~':
			fmt.Fprintf(&b, `\x%02X`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('\'')
	return b.String()
}

// name is a column's name as an identifier of SQL: some are words of SQL, some have
// a dot.
func name(s string) string { return "`" + s + "`" }

// names is the same for columns, with commas.
func names(columns ...string) string {
	quoted := make([]string, len(columns))
	for i, c := range columns {
		quoted[i] = name(c)
	}
	return strings.Join(quoted, ", ")
}
