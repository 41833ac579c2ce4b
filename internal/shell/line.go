package shell

import (
	"errors"
	"fmt"
	"strings"
)

// lexer follows the quoting of a line, byte by byte (POSIX.1-2017, Shell Command
// Language, 2.2 and 2.3).
type lexer struct {
	quote   byte // ' or " within them, \ after one, else 0
	within  byte // what a backslash stands in: " or 0
	inWord  bool // the next byte goes on with a word
	word    strings.Builder
	program string // the first word
	dashes  bool   // a word "--" came before
}

// next takes a byte of the line and says whether it begins a comment.
func (l *lexer) next(c byte) (comment bool) {
	switch {
	case l.quote == '\\':
		l.quote = l.within
	case l.quote == '\'':
		if c == '\'' {
			l.quote = 0
		}
	case c == '\\':
		l.quote, l.within = '\\', l.quote
	case l.quote == '"':
		if c == '"' {
			l.quote = 0
		}
	case c == '\'' || c == '"':
		l.quote = c
	case strings.IndexByte(" \t\n;&|<>()", c) >= 0:
		l.endWord()
		return false
	case c == '#' && !l.inWord:
		return true
	}
	l.inWord = true
	l.word.WriteByte(c)
	return false
}

func (l *lexer) endWord() {
	if w := l.word.String(); w != "" {
		if l.program == "" {
			l.program = w
		}
		l.dashes = l.dashes || w == "--"
	}
	l.word.Reset()
	l.inWord = false
}

// cut divides a line into the command and what follows the # of its comment.
func cut(line string) (command, note string) {
	var l lexer
	for i := range len(line) {
		if l.next(line[i]) {
			return strings.TrimRight(line[:i], " \t"), strings.TrimPrefix(line[i+1:], " ")
		}
	}
	return line, ""
}

// fill puts values into the gaps of text, and gives those that are left. The
// problem is the first value that its program cannot be given.
func fill(text string, values []any, note bool) (line string, left []any, problem error) {
	var out strings.Builder
	var l lexer
	for rest := text; rest != ""; rest = rest[1:] {
		c := rest[0]
		if c == '%' {
			rest = rest[1:]
			switch {
			case strings.HasPrefix(rest, "%"):
			case strings.HasPrefix(rest, "s") && len(values) > 0:
				word, err := gap{lexer: &l, note: note, text: text}.put(values[0])
				if err != nil && problem == nil {
					problem = err
				}
				out.WriteString(word)
				values = values[1:]
				l.inWord = true
				l.word.WriteString(word)
				continue
			default:
				panic("shell: bad verb or too few values: " + text)
			}
		}
		if note && (strings.IndexByte("'\"`$\\&|<>!", c) >= 0 || c == ';' && len(rest) > 1) {
			panic("shell: a note must not hold what a shell would act on: " + text)
		}
		l.next(c)
		out.WriteByte(c)
	}
	if l.quote != 0 {
		panic("shell: quotes do not end: " + text)
	}
	return out.String(), values, problem
}

// gap is where a value is put.
type gap struct {
	*lexer
	note bool
	text string // what it is a part of
}

func (g gap) put(value any) (string, error) {
	switch v := value.(type) {
	case int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64, float32, float64, bool:
		return fmt.Sprint(v), nil
	}
	if g.quote != 0 {
		panic("shell: only a number may stand within quotes: " + g.text)
	}
	if g.note {
		return inNote(value), nil
	}
	if c, ok := value.(Command); ok && c.IsNote() {
		return "", errors.New(c.note)
	}
	first := g.program == "" && !g.inWord
	word, err := g.wordOf(value, first)
	switch {
	case err == nil:
		return word, nil
	case g.program == "":
		return "", fmt.Errorf("no command: %w", err)
	}
	return "", fmt.Errorf("no command for %s: %w", g.program, err)
}

// wordOf writes a value as a word, or as the part of one.
func (g gap) wordOf(value any, first bool) (string, error) {
	text, dash := "", g.inWord || g.dashes // whether it may begin with a dash
	switch v := value.(type) {
	case Command:
		text = v.line
	case Word:
		text, dash = string(v), true
	case Path:
		text = string(v)
		if strings.HasPrefix(text, "-") && !g.inWord {
			text = "./" + text
		}
	case Operand:
		return operand(string(v), dash)
	case Unit:
		if err := v.check(); err != nil {
			return "", err
		}
		return operand(string(v), dash)
	case name:
		if err := v.check(); err != nil {
			return "", err
		}
		text = fmt.Sprint(v)
	default:
		text = fmt.Sprint(v)
	}
	if text == "" && !g.inWord {
		return "", errors.New("a name is not known")
	}
	if strings.HasPrefix(text, "-") && !dash {
		return "", fmt.Errorf("%s begins with a dash and would be taken for an option", Show(text))
	}
	return quote(text, first)
}

// operand writes an operand; dash says that it may begin with one.
func operand(text string, dash bool) (string, error) {
	word, err := quote(text, false)
	if strings.HasPrefix(text, "-") && !dash && err == nil {
		return "-- " + word, nil
	}
	return word, err
}
