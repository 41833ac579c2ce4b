package nginx

import "strings"

type tokenKind int

const (
	tokenWord  tokenKind = iota
	tokenEnd             // ";"
	tokenOpen            // "{"
	tokenClose           // "}"
	tokenEOF
)

type token struct {
	kind       tokenKind
	text       string
	line       int
	begin, end int // in the lexer's text
}

// lexer cuts configuration text into tokens by the rules of
// ngx_conf_read_token (src/core/ngx_conf_file.c, 1.22).
type lexer struct {
	text string
	pos  int
	line int
}

func newLexer(text string) *lexer {
	return &lexer{text: strings.TrimPrefix(text, "\ufeff"), line: 1}
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

func (l *lexer) next() token {
	l.skipBlank()
	t := token{kind: tokenEOF, line: l.line, begin: l.pos}
	if l.pos < len(l.text) {
		t.kind, t.text = l.read(l.text[l.pos])
	}
	t.end = l.pos
	return t
}

// read takes the token that begins with c.
func (l *lexer) read(c byte) (tokenKind, string) {
	switch c {
	case ';':
		l.pos++
		return tokenEnd, ";"
	case '{':
		l.pos++
		return tokenOpen, "{"
	case '}':
		l.pos++
		return tokenClose, "}"
	case '"', '\'':
		l.pos++
		return tokenWord, l.quoted(c)
	}
	return tokenWord, l.bare()
}

func (l *lexer) skipBlank() {
	for l.pos < len(l.text) {
		switch c := l.text[l.pos]; {
		case c == '\n':
			l.line++
			l.pos++
		case isSpace(c):
			l.pos++
		case c == '#':
			i := strings.IndexByte(l.text[l.pos:], '\n')
			if i < 0 {
				l.pos = len(l.text)
				return
			}
			l.pos += i
		default:
			return
		}
	}
}

// quoted reads to the closing quote, which is passed over.
func (l *lexer) quoted(quote byte) string {
	begin := l.pos
	for l.pos < len(l.text) {
		switch c := l.text[l.pos]; {
		case c == '\\' && l.pos+1 < len(l.text):
			l.step()
		case c == quote:
			text := l.text[begin:l.pos]
			l.pos++
			return unescape(text)
		}
		l.step()
	}
	return unescape(l.text[begin:])
}

// bare reads an unquoted word: a "{" ends it unless it follows a "$", a "}"
// does not, nor do quotes and "#".
func (l *lexer) bare() string {
	begin := l.pos
	for l.pos < len(l.text) {
		c := l.text[l.pos]
		if c == '\\' && l.pos+1 < len(l.text) {
			l.step()
			l.step()
			continue
		}
		variable := l.pos > begin && l.text[l.pos-1] == '$'
		if isSpace(c) || c == ';' || c == '{' && !variable {
			break
		}
		l.step()
	}
	return unescape(l.text[begin:l.pos])
}

func (l *lexer) step() {
	if l.text[l.pos] == '\n' {
		l.line++
	}
	l.pos++
}

// unescape resolves the escapes nginx knows; others keep their backslash.
func unescape(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			if j := strings.IndexByte(`"'\trn`, s[i+1]); j >= 0 {
				b.WriteByte("\"'\\\t\r\n"[j])
				i++
				continue
			}
			b.WriteByte(s[i])
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// skipLua passes over the rest of a Lua block, whose "{" has been read, with
// its closing brace: braces inside Lua strings and comments do not count
// (lua-nginx-module, src/ngx_http_lua_lex.rl). False: the block has no end.
func (l *lexer) skipLua() bool {
	depth := 1
	for l.pos < len(l.text) {
		switch c := l.text[l.pos]; c {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				l.pos++
				return true
			}
		case '"', '\'':
			l.pos++
			l.luaString(c)
			continue
		case '[':
			if l.luaLong() {
				continue
			}
		case '-':
			if strings.HasPrefix(l.text[l.pos:], "--") {
				l.pos += 2
				if l.luaLong() {
					continue
				}
				for l.pos < len(l.text) && l.text[l.pos] != '\n' {
					l.pos++
				}
				continue
			}
		}
		l.step()
	}
	return false
}

func (l *lexer) luaString(quote byte) {
	for l.pos < len(l.text) {
		switch c := l.text[l.pos]; {
		case c == '\\' && l.pos+1 < len(l.text):
			l.step()
		case c == quote:
			l.pos++
			return
		case c == '\n': // not closed: Lua strings end with their line
			return
		}
		l.step()
	}
}

// luaLong passes over a long bracket, [[…]] or [=[…]=], that begins here.
func (l *lexer) luaLong() bool {
	rest := l.text[l.pos:]
	if !strings.HasPrefix(rest, "[") {
		return false
	}
	n := 1
	for n < len(rest) && rest[n] == '=' {
		n++
	}
	if n >= len(rest) || rest[n] != '[' {
		return false
	}
	closing := "]" + rest[1:n] + "]"
	end := strings.Index(rest[n+1:], closing)
	if end < 0 {
		end = len(rest)
	} else {
		end += n + 1 + len(closing)
	}
	l.line += strings.Count(rest[:end], "\n")
	l.pos += end
	return true
}
