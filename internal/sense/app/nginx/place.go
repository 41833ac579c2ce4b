package nginx

import (
	"fmt"
	"strings"
)

// Span is a part of a text: [Begin, End) in bytes.
type Span struct{ Begin, End int }

// Place is a directive with where it stands in the text of its file.
type Place struct {
	Name   string
	Args   []string
	Line   int    // of its name, from 1
	Words  []Span // the name and each argument, with their quotes
	Whole  Span   // from the name to the ";" or the "}"
	Block  []Place
	Inside Span // between the braces; empty without a block
	IsOpen bool // it has a block
}

// Places parses the text of one file, without what it includes. An error says
// where the text is not a configuration.
func Places(text string) ([]Place, error) {
	l := newLexer(text)
	shift := len(text) - len(l.text) // a byte order mark
	ds, closed, err := places(l, shift, 0)
	if err == nil && closed {
		err = fmt.Errorf("line %d: unexpected \"}\"", l.line)
	}
	return ds, err
}

func places(l *lexer, shift, depth int) (out []Place, closed bool, err error) {
	var now Place
	for {
		t := l.next()
		at := Span{t.begin + shift, t.end + shift}
		switch t.kind {
		case tokenWord:
			if len(now.Words) == 0 {
				now.Name, now.Line, now.Whole.Begin = t.text, t.line, at.Begin
			} else {
				now.Args = append(now.Args, t.text)
			}
			now.Words = append(now.Words, at)
			continue
		case tokenEOF, tokenClose:
			if len(now.Words) > 0 {
				return nil, false, fmt.Errorf("line %d: %q is not ended by \";\"", now.Line, now.Name)
			}
			return out, t.kind == tokenClose, nil
		}
		if len(now.Words) == 0 {
			return nil, false, fmt.Errorf("line %d: unexpected %q", t.line, t.text)
		}
		if t.kind == tokenOpen {
			if err := now.open(l, shift, depth, at.End); err != nil {
				return nil, false, err
			}
		}
		now.Whole.End = l.pos + shift
		out = append(out, now)
		now = Place{}
	}
}

// open reads the block of a directive, whose "{" ends at begin.
func (p *Place) open(l *lexer, shift, depth, begin int) error {
	p.IsOpen = true
	closed := false
	if strings.HasSuffix(p.Name, "_by_lua_block") {
		closed = l.skipLua()
	} else if depth >= maxBlockDepth {
		return fmt.Errorf("line %d: more than %d nested blocks", p.Line, maxBlockDepth)
	} else {
		var err error
		if p.Block, closed, err = places(l, shift, depth+1); err != nil {
			return err
		}
	}
	if !closed {
		return fmt.Errorf("line %d: block %q is not closed", p.Line, p.Name)
	}
	p.Inside = Span{begin, l.pos + shift - 1}
	return nil
}
