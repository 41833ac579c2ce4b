package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/sense/app/nginx"
)

// editNginx sets a directive in the text of one file of nginx's configuration.
func editNginx(text string, p place) (edit, error) {
	ds, err := nginx.Places(text)
	if err != nil {
		return edit{}, err
	}
	if p.line == 0 {
		block, err := nginxSection(text, ds, p.section)
		if err != nil {
			return edit{}, err
		}
		return setInBlock(text, p, block)
	}
	all := flatten(ds, nil)
	if d := meant(all, p, p.directive); d != nil {
		if p.argName != "" {
			return setArgument(text, p, d, p.argName)
		}
		return setArguments(text, p, d)
	}
	if d := meant(all, p, "listen"); d != nil && p.argName == "" && slices.Contains(listenOptions, p.directive) {
		return setArgument(text, p, d, p.directive+"=")
	}
	for _, d := range all {
		if d.Line == p.line && d.IsOpen {
			return setInBlock(text, p, d)
		}
	}
	return edit{}, fmt.Errorf("line %d: no %s stands there (any more)", p.line, p.directive)
}

var listenOptions = []string{"backlog", "rcvbuf", "sndbuf", "fastopen"}

func flatten(ds []nginx.Place, out []*nginx.Place) []*nginx.Place {
	for i := range ds {
		out = append(out, &ds[i])
		out = flatten(ds[i].Block, out)
	}
	return out
}

// meant is the directive of that name at the place.
func meant(all []*nginx.Place, p place, name string) *nginx.Place {
	var lines []int
	var values []string
	var ds []*nginx.Place
	for _, d := range all {
		if d.Name != name || d.IsOpen {
			continue
		}
		value := strings.Join(d.Args, " ")
		if arg := p.argName; arg != "" || name != p.directive {
			value, _, _ = argument(d, argOf(p))
		}
		ds, lines, values = append(ds, d), append(lines, d.Line), append(values, value)
	}
	was := p.was
	if len(strings.Fields(was)) == 1 && p.argName == "" && name == p.directive {
		for i, d := range ds { // a reader tells the first argument
			values[i] = strings.Join(d.Args[:min(1, len(d.Args))], " ")
		}
	}
	if i := nearest(lines, values, p.line, was); i >= 0 {
		return ds[i]
	}
	return nil
}

func argOf(p place) string {
	if p.argName != "" {
		return p.argName
	}
	return p.directive + "="
}

// argument finds "NAME=value", or the word after NAME, among the arguments; the
// index is that of the word that holds the value.
func argument(d *nginx.Place, name string) (value string, index int, ok bool) {
	for i, a := range d.Args {
		if v, found := strings.CutPrefix(a, name); found && strings.HasSuffix(name, "=") {
			return v, i, true
		}
		if a == name && i+1 < len(d.Args) {
			return d.Args[i+1], i + 1, true
		}
	}
	return "", 0, false
}

// setArgument sets one argument of a directive, or adds it at the end.
func setArgument(text string, p place, d *nginx.Place, name string) (edit, error) {
	prefix := ""
	if strings.HasSuffix(name, "=") {
		prefix = name
	}
	was, i, ok := argument(d, name)
	e := edit{line: d.Line, was: was}
	if ok {
		w := d.Words[i+1]
		e.splices = []splice{{w.Begin, w.End, prefix + p.value}}
		return e.describe(text, p.value, false)
	}
	if prefix == "" {
		prefix = name + " "
	}
	end := d.Words[len(d.Words)-1].End
	e.splices = []splice{{end, end, " " + prefix + p.value}}
	return e.describe(text, p.value, false)
}

// setArguments sets all arguments of a directive.
func setArguments(text string, p place, d *nginx.Place) (edit, error) {
	e := edit{line: d.Line, was: strings.Join(d.Args, " ")}
	values := strings.Fields(p.value)
	words := d.Words[1:]
	switch {
	case len(words) == 0:
		end := d.Words[0].End
		e.splices = []splice{{end, end, " " + p.value}}
	case len(words) == len(values):
		for i, w := range words {
			if values[i] != d.Args[i] {
				e.splices = append(e.splices, splice{w.Begin, w.End, values[i]})
			}
		}
		if len(e.splices) == 0 {
			return e, errSame
		}
	case strings.ContainsAny(text[words[0].Begin:words[len(words)-1].End], "#\n"):
		return e, fmt.Errorf("line %d: %s is written over several lines, or with a comment inside", d.Line, d.Name)
	default:
		e.splices = []splice{{words[0].Begin, words[len(words)-1].End, p.value}}
	}
	return e.describe(text, p.value, false)
}

// nginxSection finds a block by the words before its brace ("events",
// "upstream back"); nil is the top level.
func nginxSection(text string, ds []nginx.Place, section string) (*nginx.Place, error) {
	if section == "" {
		return &nginx.Place{Block: ds, Inside: nginx.Span{End: len(text)}}, nil
	}
	var found *nginx.Place
	for _, d := range flatten(ds, nil) {
		if !d.IsOpen || strings.Join(append([]string{d.Name}, d.Args...), " ") != strings.Join(strings.Fields(section), " ") {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("there are several blocks %q", section)
		}
		found = d
	}
	if found == nil {
		return nil, fmt.Errorf("%w %q", errNoSection, section)
	}
	return found, nil
}

// setInBlock sets a directive that stands in a block, or adds it there.
func setInBlock(text string, p place, block *nginx.Place) (edit, error) {
	if p.argName != "" {
		return edit{}, fmt.Errorf("%q stands in no line yet", p.name)
	}
	for i := range block.Block {
		if d := &block.Block[i]; d.Name == p.directive && !d.IsOpen {
			return setArguments(text, p, d)
		}
	}
	line := p.name + " " + p.value + ";"
	e := edit{section: block.Name}
	if at, ok := anchor(block); ok {
		if indent, own := indentAt(text, at); own && (strings.Contains(text[block.Inside.Begin:at], "\n") || block.Name == "") {
			at -= len(indent)
			e.splices = []splice{{at, at, indent + line + lineEnd(text)}}
			return e.describe(text, p.value, true)
		}
	}
	begin := block.Inside.Begin
	switch closing, own := indentAt(text, block.Inside.End); {
	case block.Name == "" && block.Inside.Begin == 0:
		e.splices = []splice{{topOf(text), topOf(text), line + lineEnd(text)}}
	case own && len(block.Block) == 0 && strings.Contains(text[begin:block.Inside.End], "\n"):
		// Before the line of the closing brace, behind what comments there are.
		at := block.Inside.End - len(closing)
		e.splices = []splice{{at, at, closing + "    " + line + lineEnd(text)}}
	default:
		e.splices = []splice{{begin, begin, " " + line}}
	}
	return e.describe(text, p.value, true)
}

// anchor is where a directive is added before: the first one of a block; at the
// top level the first block, so that it stands among its like.
func anchor(block *nginx.Place) (int, bool) {
	for i := range block.Block {
		if d := &block.Block[i]; block.Name != "" || d.IsOpen {
			return d.Whole.Begin, true
		}
	}
	return 0, false
}

// topOf is behind a byte order mark.
func topOf(text string) int {
	if strings.HasPrefix(text, "\ufeff") {
		return len("\ufeff")
	}
	return 0
}
