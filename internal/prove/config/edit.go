package config

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/slowray/slowray/internal/cause"
)

// place says what to set and where, as a Change does.
type place struct {
	line               int
	section            string
	name, value, was   string
	directive, argName string // the words of the name
}

func placeOf(c *cause.Change, line int) place {
	p := place{line: line, section: c.Section, name: c.Name, value: c.Value, was: c.Was}
	p.directive, p.argName, _ = strings.Cut(c.Name, " ")
	return p
}

// plainValue is what can be written without quotes in every server's syntax.
var (
	plainValue = regexp.MustCompile(`^[A-Za-z0-9_.:/,=+*%@~-]+( [A-Za-z0-9_.:/,=+*%@~-]+)*$`)
	plainName  = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]*( [A-Za-z][A-Za-z0-9_.-]*=?)?$`)
)

func checkValue(c *cause.Change) error {
	switch {
	case !plainName.MatchString(c.Name):
		return fmt.Errorf("%q is no name of a directive", c.Name)
	case !plainValue.MatchString(c.Value):
		return fmt.Errorf("%s: the value %q would need quotes, which is not done", c.Name, c.Value)
	}
	return nil
}

// edit is a change of a text: splices in ascending order.
type edit struct {
	splices          []splice
	line             int    // where it begins, from 1
	was              string // the old value; empty where it was not written
	section          string // of the file that it is in: a pool, a block
	oldLine, newLine string // for people; oldLine is empty where a line is added
}

type splice struct {
	begin, end int
	text       string
}

var errSame = errors.New("it has that value already")

// describe fills what people are shown.
func (e edit) describe(text, value string, added bool) (edit, error) {
	if !added && e.was == value {
		return e, errSame
	}
	first := e.splices[0].begin
	from := strings.LastIndexByte(text[:first], '\n') + 1
	last := e.splices[len(e.splices)-1].end
	to := len(text)
	if i := strings.IndexByte(text[last:], '\n'); i >= 0 {
		to = last + i
	}
	whole := string(e.apply([]byte(text)))
	grown := len(whole) - len(text)
	if e.line == 0 {
		e.line = strings.Count(text[:first], "\n") + 1
	}
	e.oldLine, e.newLine = strings.TrimSpace(text[from:to]), strings.TrimSpace(whole[from:to+grown])
	if added {
		e.oldLine, e.newLine = "", strings.TrimSpace(e.splices[0].text)
	}
	return e, nil
}

func (e edit) apply(old []byte) []byte {
	var out []byte
	at := 0
	for _, s := range e.splices {
		out = append(out, old[at:s.begin]...)
		out = append(out, s.text...)
		at = s.end
	}
	return append(out, old[at:]...)
}

// lineEnd is how the lines of text end.
func lineEnd(text string) string {
	if i := strings.IndexByte(text, '\n'); i > 0 && text[i-1] == '\r' {
		return "\r\n"
	}
	return "\n"
}

// indentAt is the white space between the beginning of the line and at; ok is
// false where something else stands there.
func indentAt(text string, at int) (indent string, ok bool) {
	from := strings.LastIndexByte(text[:at], '\n') + 1
	indent = strings.TrimPrefix(text[from:at], "\ufeff")
	return indent, strings.Trim(indent, " \t") == ""
}

// nearest picks of the lines at which a directive stands the one that was meant:
// the one at line, or, where lines were added or taken away above it, the
// nearest of those that have the value that was seen. -1: none, or two.
func nearest(lines []int, values []string, line int, was string) int {
	best, tie := -1, false
	for i, l := range lines {
		if l == line && (values[i] == was || was == "") {
			return i
		}
		if was == "" || values[i] != was {
			continue
		}
		switch d := distance(l, line); {
		case d > maxShift:
		case best < 0 || d < distance(lines[best], line):
			best, tie = i, false
		case d == distance(lines[best], line):
			tie = true
		}
	}
	if best >= 0 && !tie {
		return best
	}
	for i, l := range lines {
		if l == line {
			return i // it has another value by now, which is to be put back
		}
	}
	return -1
}

// maxShift is how many lines a directive may have moved since it was read.
const maxShift = 20

func distance(a, b int) int {
	if a < b {
		return b - a
	}
	return a - b
}
