package phpfpm

import "strings"

// entry is one line of a php-fpm configuration that says something.
type entry struct {
	section string // "[www]": the name
	key     string // "key = value"
	value   string
	line    int
	broken  bool // a line of neither form
}

// Line is a line of a configuration file that says something.
type Line struct {
	Section string // "[www]": the name; empty: a "key = value"
	Key     string
	Value   string
	Number  int // from 1
	Broken  bool
}

// Lines reads the text of one file, without what it includes.
func Lines(text string) []Line {
	var out []Line
	parseINI(text, func(e entry) bool {
		out = append(out, Line{Section: e.section, Key: e.key, Value: e.value, Number: e.line, Broken: e.broken})
		return true
	})
	return out
}

// parseINI reads configuration text line by line, as php-fpm does it
// (fpm_conf_load_ini_file, sapi/fpm/fpm/fpm_conf.c, 8.2): a value cannot reach
// over the end of its line. It stops where emit says so.
func parseINI(text string, emit func(entry) bool) {
	n := 0
	for line := range strings.SplitSeq(strings.TrimPrefix(text, "\ufeff"), "\n") {
		n++
		line = strings.TrimSpace(strings.TrimRight(line, "\x00"))
		switch {
		case line == "" || line[0] == ';' || line[0] == '#':
			continue
		case line[0] == '[':
			name, _, ok := strings.Cut(line[1:], "]")
			if !emit(entry{section: unquote(strings.TrimSpace(name)), line: n, broken: !ok || strings.TrimSpace(name) == ""}) {
				return
			}
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		key = strings.TrimSpace(key)
		if !emit(entry{key: key, value: iniValue(value), line: n, broken: !ok || key == ""}) {
			return
		}
	}
}

// iniValue reads a value: quoted and bare pieces joined, up to a comment.
func iniValue(s string) string {
	var b strings.Builder
	s = strings.TrimSpace(s)
	bare := 0 // length up to the last byte that is not a space outside quotes
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case ';':
			return b.String()[:bare]
		case '"', '\'':
			end := closing(s[i+1:], c)
			if end < 0 {
				b.WriteString(s[i+1:])
				return b.String()
			}
			text := s[i+1 : i+1+end]
			if c == '"' {
				text = strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(text)
			}
			b.WriteString(text)
			bare = b.Len()
			i += end + 1
		default:
			b.WriteByte(c)
			if c != ' ' && c != '\t' && c != '\r' {
				bare = b.Len()
			}
		}
	}
	return b.String()[:bare]
}

func closing(s string, quote byte) int {
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && quote == '"':
			i++
		case s[i] == quote:
			return i
		}
	}
	return -1
}

func unquote(s string) string {
	if len(s) >= 2 && (s[0] == '\'' || s[0] == '"') && s[len(s)-1] == s[0] {
		return s[1 : len(s)-1]
	}
	return s
}
