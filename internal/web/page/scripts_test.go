package page_test

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/web/page"
)

// text is a literal of a script.
type text struct {
	at     string // file and line
	text   string // with {1}, {2}… in the places of a template
	tagged bool   // say`…`
	of     string // the property that it is the value of, or the function it is given to
}

// script takes a script of the page apart into its texts. It knows as much of JavaScript
// as these scripts use, and stops at what it does not understand.
type script struct {
	t      *testing.T
	name   string
	src    string
	at     int
	last   string     // token before this one
	before string     // and the one before that
	calls  []string   // functions whose parentheses are open; "" for other brackets
	counts [][]string // words of plural(n, one, many), for each of them
	texts  []text
}

// scripts are those of all scripts of the page.
func scripts(t *testing.T) (all []text) {
	t.Helper()
	names, err := fs.Glob(page.Files, "assets/*.js")
	if err != nil || len(names) < 20 {
		t.Fatalf("%d scripts (%v)", len(names), err)
	}
	for _, name := range names {
		b, err := fs.ReadFile(page.Files, name)
		if err != nil {
			t.Fatal(err)
		}
		s := &script{t: t, name: path.Base(name), src: string(b)}
		s.read("")
		if len(s.calls) > 0 {
			t.Errorf("%s: %q is not closed: the script is read wrongly", name, s.calls)
		}
		all = append(all, s.texts...)
	}
	return all
}

var (
	word   = regexp.MustCompile(`^[A-Za-z_$][\w$]*`)
	digits = regexp.MustCompile(`^[0-9][\w.]*`)
)

func (s *script) where() string {
	return fmt.Sprintf("%s:%d", s.name, 1+strings.Count(s.src[:s.at], "\n"))
}

func (s *script) token(text string) { s.before, s.last = s.last, text }

// read goes on to end, which closes the place of a template, or to the end of the file.
func (s *script) read(end string) {
	depth := len(s.calls)
	for s.at < len(s.src) {
		rest := s.src[s.at:]
		switch c := rest[0]; {
		case end != "" && len(s.calls) == depth && strings.HasPrefix(rest, end):
			s.at += len(end)
			return
		case strings.ContainsRune(" \t\n", rune(c)):
			s.at++
		case strings.HasPrefix(rest, "//"):
			s.at += len(rest) - len(rest[strings.IndexByte(rest+"\n", '\n'):])
		case strings.HasPrefix(rest, "/*"):
			s.at += strings.Index(rest, "*/") + 2
		case c == '/' && (s.last == "" || strings.Contains("(,=:[!&|?{};>", s.last[len(s.last)-1:]) || s.last == "return"):
			s.regexp()
		case c == '"', c == '\'':
			s.quoted(c)
		case c == '`':
			s.template()
		case strings.IndexByte("([{", c) >= 0:
			call := ""
			if c == '(' && word.MatchString(s.last) {
				call = s.last
			}
			s.calls, s.counts = append(s.calls, call), append(s.counts, nil)
			s.token(string(c))
			s.at++
		case strings.IndexByte(")]}", c) >= 0:
			n := len(s.calls) - 1
			if n < 0 {
				s.t.Fatalf("%s: %c closes nothing", s.where(), c)
			}
			if words := s.counts[n]; s.calls[n] == "plural" && s.before+s.last != "plural=" && len(words) > 0 {
				many := words[len(words)-1]
				if len(words) == 1 {
					many += "s"
				}
				s.texts = append(s.texts, text{s.where(), "{1} " + many, true, "plural"})
			}
			s.calls, s.counts = s.calls[:n], s.counts[:n]
			s.token(string(c))
			s.at++
		case word.MatchString(rest):
			w := word.FindString(rest)
			s.token(w)
			s.at += len(w)
		case digits.MatchString(rest):
			w := digits.FindString(rest)
			s.token("0")
			s.at += len(w)
		default:
			s.token(string(c))
			s.at++
		}
	}
	if end != "" {
		s.t.Fatalf("%s: no %q", s.name, end)
	}
}

func (s *script) regexp() {
	class := false
	for s.at++; s.at < len(s.src); s.at++ {
		switch c := s.src[s.at]; {
		case c == '\\':
			s.at++
		case c == '[':
			class = true
		case c == ']':
			class = false
		case c == '\n':
			s.t.Fatalf("%s: no end of a regular expression", s.where())
		case c == '/' && !class:
			s.at++
			s.token("/x/")
			return
		}
	}
}

// of is what the text at hand is for.
func (s *script) of() string {
	if s.last == "=" && s.before == "=" {
		return "==="
	}
	if s.last == ":" && s.before != "" {
		return s.before
	}
	if n := len(s.calls); n > 0 && s.calls[n-1] != "" {
		return s.calls[n-1]
	}
	return ""
}

func (s *script) quoted(mark byte) {
	begin, of := s.at+1, s.of()
	for s.at++; s.src[s.at] != mark; s.at++ {
		if s.src[s.at] == '\\' {
			s.at++
		}
	}
	found := text{s.where(), s.src[begin:s.at], false, of}
	s.at++
	if strings.HasPrefix(s.src[s.at:], ":") && (s.last == "{" || s.last == ",") {
		found.of = "a key"
	}
	if n := len(s.calls); n > 0 && s.calls[n-1] == "plural" && s.last == "," {
		s.counts[n-1] = append(s.counts[n-1], found.text)
	} else {
		s.texts = append(s.texts, found)
	}
	s.token(found.text)
}

func (s *script) template() {
	found := text{s.where(), "", s.last == "say", s.of()}
	n := 0
	for s.at++; s.src[s.at] != '`'; {
		switch rest := s.src[s.at:]; {
		case rest[0] == '\\':
			found.text += rest[:2]
			s.at += 2
		case strings.HasPrefix(rest, "${"):
			n++
			found.text += fmt.Sprintf("{%d}", n)
			s.at += 2
			s.token("(")
			s.read("}")
		default:
			found.text += rest[:1]
			s.at++
		}
	}
	s.at++
	s.texts = append(s.texts, found)
	s.token("``")
}
