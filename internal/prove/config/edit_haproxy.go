package config

import (
	"fmt"
	"slices"
	"strings"
)

// haproxySections are the keywords that begin a section (configuration.txt, 2.6
// to 3.2).
var haproxySections = []string{"global", "defaults", "frontend", "backend", "listen", "userlist", "peers", "resolvers", "mailers", "cache", "program",
	"http-errors", "ring", "fcgi-app", "traces", "log-forward", "log-profile", "crt-store", "acme"}

func haproxyLines(text string) []directiveLine {
	var out []directiveLine
	scope := ""
	offsets := lineOffsets(text)
	for n := 1; n < len(offsets); n++ {
		l := directiveLine{n: n, end: offsets[n], words: haproxyWords(text, offsets[n-1], offsets[n])}
		if len(l.words) == 0 {
			continue
		}
		if slices.Contains(haproxySections, l.words[0].text) {
			scope = l.words[0].text
			if len(l.words) > 1 {
				scope += " " + l.words[1].text
			}
			l.opens = true
		}
		l.scope = scope
		out = append(out, l)
	}
	return out
}

// haproxyWords splits a line at blanks outside quotes, up to a comment; a
// backslash takes the next character as it is (parse_line, src/tools.c).
func haproxyWords(text string, from, to int) []word {
	var out []word
	var b strings.Builder
	begin, quote := -1, byte(0)
	end := func(at int) {
		if begin >= 0 {
			out = append(out, word{b.String(), begin, at})
			b.Reset()
			begin = -1
		}
	}
	for i := from; i < to; i++ {
		c := text[i]
		blank := strings.IndexByte(" \t\r\n", c) >= 0
		switch {
		case c == '\n':
			end(i)
			return out
		case quote == 0 && blank:
			end(i)
			continue
		case quote == 0 && c == '#':
			end(i)
			return out
		}
		if begin < 0 {
			begin = i
		}
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case c == '\\' && quote != '\'' && i+1 < to && text[i+1] != '\n':
			i++
			b.WriteByte(text[i])
		default:
			b.WriteByte(c)
		}
	}
	end(to)
	return out
}

// editHAProxy sets a keyword in the text of one file of HAProxy's configuration.
func editHAProxy(text string, p place) (edit, error) {
	all := haproxyLines(text)
	if p.line == 0 {
		return editHAProxySection(text, p, all)
	}
	var lines []int
	var values []string
	var found []*directiveLine
	var index []int // of the value among the words; 0: it is to be added
	for i := range all {
		l := &all[i]
		at, ok := haproxyValue(l, p)
		if !ok {
			continue
		}
		value := ""
		if at > 0 {
			value = l.words[at].text
		}
		found, index, lines, values = append(found, l), append(index, at), append(lines, l.n), append(values, value)
	}
	i := nearest(lines, values, p.line, p.was)
	if i < 0 {
		for j := range all {
			if l := &all[j]; l.n == p.line && l.opens {
				p.section, p.line = l.scope, 0
				return editHAProxySection(text, p, all)
			}
		}
		return edit{}, fmt.Errorf("line %d: no %s stands there (any more)", p.line, p.name)
	}
	l := found[i]
	switch {
	case index[i] == 0:
		last := l.words[len(l.words)-1]
		e := edit{line: l.n, section: l.scope, splices: []splice{{last.end, last.end, " " + p.argName + " " + p.value}}}
		return e.describe(text, p.value, false)
	case index[i] > 1 || p.argName != "":
		w := l.words[index[i]]
		e := edit{line: l.n, section: l.scope, was: w.text, splices: []splice{{w.begin, w.end, p.value}}}
		return e.describe(text, p.value, false)
	}
	return setWords(text, p, l, 1)
}

// haproxyValue finds where on a line the value stands: behind the keyword, or
// behind a word of the line ("server", "bind"); 0: the line is the one that is
// meant and has no such word yet.
func haproxyValue(l *directiveLine, p place) (index int, ok bool) {
	argument := func(name string) int {
		for i := 2; i+1 < len(l.words); i++ {
			if l.words[i].text == name {
				return i + 1
			}
		}
		return 0
	}
	head := l.words[0].text
	switch {
	case l.opens:
	case p.argName != "":
		return argument(p.argName), head == p.directive && len(l.words) > 1
	case head == p.directive && len(l.words) > 1:
		return 1, true
	case head == "bind" || head == "server" || head == "default-server":
		i := argument(p.directive)
		return i, i > 0
	}
	return 0, false
}

// editHAProxySection sets a keyword in a section, named as its first line does
// ("frontend web") or by its name alone.
func editHAProxySection(text string, p place, all []directiveLine) (edit, error) {
	if p.argName != "" {
		return edit{}, fmt.Errorf("%q stands in no line yet", p.name)
	}
	var at *directiveLine
	for i := range all {
		l := &all[i]
		_, name, _ := strings.Cut(l.scope, " ")
		if l.scope != p.section && (name == "" || name != p.section) || p.section == "" {
			continue
		}
		switch {
		case l.opens && at != nil:
			return edit{}, fmt.Errorf("there are several sections %q", p.section)
		case l.opens:
			at = l
		case l.words[0].text == p.name && len(l.words) > 1:
			return setWords(text, p, l, 1)
		}
	}
	if at == nil {
		return edit{}, fmt.Errorf("%w %q", errNoSection, p.section)
	}
	return addInside(text, at, p.name+" "+p.value, p)
}
