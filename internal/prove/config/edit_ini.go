package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/slowray/slowray/internal/sense/app/phpfpm"
)

var errNoSection = errors.New("there is no section")

// editPHPFPM sets a directive in the text of one file of php-fpm's configuration.
func editPHPFPM(text string, p place) (edit, error) {
	return editINI(text, p, phpfpm.Lines(text), iniSpan)
}

// editINI sets a "key = value" of a section in lines that a reader has read; span
// tells where a value stands in what follows the "=".
func editINI(text string, p place, read []phpfpm.Line, span func(string) (from, to int)) (edit, error) {
	if p.argName != "" {
		return edit{}, fmt.Errorf("%q is no directive", p.name)
	}
	offsets := lineOffsets(text)
	section, first := "", 1
	var lines []int
	var values, sections []string
	last := map[string]int{} // of each section: its last line that says something
	for _, l := range read {
		switch {
		case l.Broken:
			continue
		case l.Section != "":
			section, first = l.Section, l.Number
		case l.Key == p.name:
			lines, values, sections = append(lines, l.Number), append(values, l.Value), append(sections, section)
		}
		last[strings.ToLower(section)] = max(l.Number, first)
	}
	if p.line > 0 {
		if i := nearest(lines, values, p.line, p.was); i >= 0 {
			return setINI(text, p, offsets, lines[i], values[i], sections[i], span)
		}
		if p.section == "" {
			return edit{}, fmt.Errorf("line %d: no %s stands there (any more)", p.line, p.name)
		}
	}
	for i := len(lines) - 1; i >= 0; i-- { // the last one counts
		if strings.EqualFold(sections[i], p.section) {
			return setINI(text, p, offsets, lines[i], values[i], sections[i], span)
		}
	}
	if p.section == "" {
		return edit{}, fmt.Errorf("%s stands in no line yet, and no section is named", p.name)
	}
	n, ok := last[strings.ToLower(p.section)]
	if !ok {
		return edit{}, fmt.Errorf("%w [%s]", errNoSection, p.section)
	}
	return addLine(text, n, p.name+" = "+p.value, p.value, p.section)
}

// addLine adds a line behind line n.
func addLine(text string, n int, line, value, section string) (edit, error) {
	offsets := lineOffsets(text)
	begin, end := offsets[n-1], offsets[n]
	body := strings.TrimPrefix(text[begin:end], "\ufeff")
	indent := body[:len(body)-len(strings.TrimLeft(body, " \t"))]
	e := edit{section: section, line: n + 1}
	if strings.HasSuffix(body, "\n") {
		e.splices = []splice{{end, end, indent + line + lineEnd(text)}}
	} else {
		e.splices = []splice{{end, end, lineEnd(text) + indent + line}}
	}
	return e.describe(text, value, true)
}

func setINI(text string, p place, offsets []int, n int, was, section string, span func(string) (from, to int)) (edit, error) {
	begin, end := offsets[n-1], offsets[n]
	body := text[begin:end]
	equals := strings.IndexByte(body, '=')
	from, to := span(body[equals+1:])
	from, to = begin+equals+1+from, begin+equals+1+to
	value := p.value
	if from == to && text[from-1] == '=' && equals > 0 && strings.IndexByte(" \t", body[equals-1]) >= 0 {
		value = " " + value // "name =" without a value
	}
	e := edit{line: n, was: was, section: section, splices: []splice{{from, to, value}}}
	return e.describe(text, p.value, false)
}

// iniSpan is where the value stands in what follows the "=" of a line: its
// quotes belong to it, blanks around it and a comment do not.
func iniSpan(s string) (from, to int) {
	for from < len(s) && strings.IndexByte(" \t", s[from]) >= 0 {
		from++
	}
	to = from
	for i := from; i < len(s); i++ {
		switch c := s[i]; {
		case c == ';' || c == '\n':
			return from, to
		case c == '"' || c == '\'':
			for i++; i < len(s) && s[i] != c; i++ {
				if s[i] == '\\' && c == '"' {
					i++
				}
			}
			to = min(i+1, len(strings.TrimRight(s, "\r\n")))
		case c != ' ' && c != '\t' && c != '\r' && c != 0:
			to = i + 1
		}
	}
	return from, to
}

// lineOffsets is where each line begins, and the end of the text as the last.
func lineOffsets(text string) []int {
	out := []int{0}
	for i := 0; i < len(text); i++ {
		if text[i] == '\n' && i+1 < len(text) {
			out = append(out, i+1)
		}
	}
	return append(out, len(text))
}
