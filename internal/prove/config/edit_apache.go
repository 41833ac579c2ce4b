package config

import (
	"fmt"
	"strings"
)

// directiveLine is a line of a configuration that is read word by word, with
// where its words stand in the text.
type directiveLine struct {
	n     int // of its first line, from 1
	words []word
	end   int    // of its last line, with the line's end
	scope string // the section that it stands in: the innermost that is no condition
	opens bool   // it opens a section
}

type word struct {
	text       string
	begin, end int // with its quotes
}

func (l *directiveLine) values() string {
	var out []string
	for _, w := range l.words[1:] {
		out = append(out, w.text)
	}
	return strings.Join(out, " ")
}

// apacheLines reads the directives and the opening lines of sections of one file
// (ap_cfg_getline, ap_getword_conf): a backslash at its end continues a line.
func apacheLines(text string) []directiveLine {
	var out []directiveLine
	var open []string // sections, conditions as ""
	offsets := lineOffsets(text)
	for n := 1; n < len(offsets); n++ {
		first := n
		for n+1 < len(offsets) && continued(text[offsets[n-1]:offsets[n]]) {
			n++
		}
		l := directiveLine{n: first, end: offsets[n], words: apacheWords(text, offsets[first-1], offsets[n])}
		if len(l.words) == 0 {
			continue
		}
		switch head := l.words[0].text; {
		case strings.HasPrefix(head, "</"):
			open = open[:max(0, len(open)-1)]
			continue
		case strings.HasPrefix(head, "<"):
			name := strings.TrimRight(strings.TrimPrefix(head, "<"), ">")
			l.scope = strings.TrimRight(strings.TrimSpace(name+" "+l.values()), ">")
			l.opens = true
			if strings.HasPrefix(strings.ToLower(name), "if") {
				open = append(open, "")
			} else {
				open = append(open, l.scope)
			}
		default:
			for _, s := range open {
				if s != "" {
					l.scope = s
				}
			}
		}
		out = append(out, l)
	}
	return out
}

func continued(line string) bool {
	return strings.HasSuffix(strings.TrimRight(line, "\r\n"), "\\")
}

func apacheWords(text string, from, to int) []word {
	var out []word
	for i := from; i < to; {
		switch c := text[i]; {
		case strings.IndexByte(" \t\r\n", c) >= 0, c == '\\' && i+1 < to && (text[i+1] == '\n' || text[i+1] == '\r'):
			i++
		case c == '#' && len(out) == 0:
			return nil
		case c == '"' || c == '\'':
			end := i + 1
			var b strings.Builder
			for ; end < to && text[end] != c && text[end] != '\n'; end++ {
				if text[end] == '\\' && end+1 < to && (text[end+1] == c || text[end+1] == '\\') {
					end++
				}
				b.WriteByte(text[end])
			}
			closed := end < to && text[end] == c
			if closed {
				end++
			}
			out = append(out, word{b.String(), i, end})
			i = end
		default:
			end := i
			for end < to && strings.IndexByte(" \t\r\n", text[end]) < 0 && (text[end] != '\\' || end+1 >= to || text[end+1] != '\n' && text[end+1] != '\r') {
				end++
			}
			out = append(out, word{text[i:end], i, end})
			i = end
		}
	}
	return out
}

// editApache sets a directive in the text of one file of Apache's configuration.
func editApache(text string, p place) (edit, error) {
	if p.argName != "" {
		return edit{}, fmt.Errorf("%q is no directive of Apache", p.name)
	}
	all := apacheLines(text)
	var lines []int
	var values []string
	var found []*directiveLine
	for i := range all {
		if l := &all[i]; !l.opens && isApache(l.words[0].text, p.name) && len(l.words) > 1 {
			found, lines, values = append(found, l), append(lines, l.n), append(values, l.words[1].text)
		}
	}
	if p.line > 0 {
		if i := nearest(lines, values, p.line, p.was); i >= 0 {
			return setWords(text, p, found[i], 1)
		}
		return edit{}, fmt.Errorf("line %d: no %s stands there (any more)", p.line, p.name)
	}
	for i := len(found) - 1; i >= 0; i-- { // the last one counts
		if strings.EqualFold(found[i].scope, p.section) {
			return setWords(text, p, found[i], 1)
		}
	}
	if p.section == "" {
		return addLine(text, max(1, len(lineOffsets(text))-1), p.name+" "+p.value, p.value, "")
	}
	var at *directiveLine
	for i := range all {
		if l := &all[i]; l.opens && strings.EqualFold(l.scope, p.section) {
			if at != nil {
				return edit{}, fmt.Errorf("there are several sections %q", p.section)
			}
			at = l
		}
	}
	if at == nil {
		return edit{}, fmt.Errorf("%w %q", errNoSection, p.section)
	}
	return addInside(text, at, p.name+" "+p.value, p)
}

func isApache(name, wanted string) bool {
	return strings.EqualFold(name, wanted) || strings.EqualFold(name, "MaxClients") && strings.EqualFold(wanted, "MaxRequestWorkers")
}

// setWords sets the words of a line from number i on; as many as the value has,
// or all of them.
func setWords(text string, p place, l *directiveLine, i int) (edit, error) {
	old, values := l.words[i:], strings.Fields(p.value)
	e := edit{line: l.n, section: l.scope}
	var was []string
	for _, w := range old {
		was = append(was, w.text)
	}
	e.was = strings.Join(was, " ")
	switch {
	case len(old) == len(values):
		for j, w := range old {
			if w.text != values[j] {
				e.splices = append(e.splices, splice{w.begin, w.end, values[j]})
			}
		}
		if len(e.splices) == 0 {
			return e, errSame
		}
	case strings.Contains(text[old[0].begin:old[len(old)-1].end], "\n"):
		return e, fmt.Errorf("line %d: %s is written over several lines", l.n, p.name)
	default:
		e.splices = []splice{{old[0].begin, old[len(old)-1].end, p.value}}
	}
	return e.describe(text, p.value, false)
}

// addInside adds a line behind the one that opens a section, indented as the
// next one.
func addInside(text string, at *directiveLine, line string, p place) (edit, error) {
	next := text[at.end:]
	if i := strings.IndexByte(next, '\n'); i >= 0 {
		next = next[:i]
	}
	indent := next[:len(next)-len(strings.TrimLeft(next, " \t"))]
	if own, ok := indentAt(text, at.words[0].begin); ok && len(indent) <= len(own) {
		indent = own + "    "
	}
	e := edit{section: at.scope, line: at.n + strings.Count(text[at.words[0].begin:at.end], "\n")}
	if e.splices = []splice{{at.end, at.end, indent + line + lineEnd(text)}}; !strings.HasSuffix(text[:at.end], "\n") {
		e.splices[0].text = lineEnd(text) + indent + line
		e.line++
	}
	return e.describe(text, p.value, true)
}
