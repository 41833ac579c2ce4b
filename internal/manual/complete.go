package manual

import (
	"strings"

	"github.com/alecthomas/kong"
)

// Candidate is a word that may come next.
type Candidate struct {
	Word string
	Help string // one line, may be empty
}

// Completion is what may come next.
type Completion struct {
	Candidates []Candidate
	Files      bool // the names of files, too
	Dirs       bool // the names of directories, too
}

// Values gives the words of a kind: the value of the tag "complete" of a flag or
// an argument, as `complete:"causes"`. Names of files and directories, `complete:"files"`
// and `complete:"dirs"`, are the shell's.
type Values func(kind string) []Candidate

// Complete tells what the last of words may become, given those before it; words
// are without the program's name. It takes what bash makes of --flag=value, which
// is three words, for one.
func Complete(app *kong.Application, words []string, values Values) Completion {
	if len(words) == 0 {
		words = []string{""}
	}
	before, current := words[:len(words)-1], words[len(words)-1]
	at := position{node: app.Node}
	for _, word := range before {
		at.pass(word)
	}
	if current == "=" && at.flag != nil {
		current = ""
	}
	return at.next(current, values)
}

// position is where in a command line the next word is.
type position struct {
	node  *kong.Node
	flag  *kong.Flag // whose value comes next
	args  int        // positional arguments so far
	plain bool       // after --
}

// pass goes past a word.
func (p *position) pass(word string) {
	switch {
	case p.flag != nil:
		if word != "=" {
			p.flag = nil
		}
	case p.plain:
		p.args++
	case word == "--":
		p.plain = true
	case strings.HasPrefix(word, "--"):
		name, _, with := strings.Cut(word[2:], "=")
		if f := p.find(func(f *kong.Flag) bool { return f.Name == name }); !with && takesValue(f) {
			p.flag = f
		}
	case len(word) == 2 && word[0] == '-':
		if f := p.find(func(f *kong.Flag) bool { return f.Short == rune(word[1]) }); takesValue(f) {
			p.flag = f
		}
	case strings.HasPrefix(word, "-") && len(word) > 1:
	default:
		for _, child := range p.node.Children {
			if child.Name == word && p.args == 0 {
				p.node = child
				return
			}
		}
		p.args++
	}
}

// flags are those that may come here.
func (p *position) flags() []*kong.Flag {
	var list []*kong.Flag
	for _, group := range p.node.AllFlags(true) {
		list = append(list, group...)
	}
	if d := p.node.DefaultCmd; d != nil {
		for _, f := range d.Flags {
			if !f.Hidden {
				list = append(list, f)
			}
		}
	}
	return list
}

func (p *position) find(is func(*kong.Flag) bool) *kong.Flag {
	for _, f := range p.flags() {
		if is(f) {
			return f
		}
	}
	return nil
}

func takesValue(f *kong.Flag) bool { return f != nil && !f.IsBool() && !f.IsCounter() }

// next is what a word that begins so may become.
func (p *position) next(begin string, values Values) Completion {
	switch {
	case p.flag != nil:
		return valuesOf(p.flag.Value, p.flag.PlaceHolder, values).beginning("", begin)
	case !p.plain && strings.HasPrefix(begin, "--") && strings.Contains(begin, "="):
		name, part, _ := strings.Cut(begin[2:], "=")
		f := p.find(func(f *kong.Flag) bool { return f.Name == name })
		if !takesValue(f) {
			return Completion{}
		}
		return valuesOf(f.Value, f.PlaceHolder, values).beginning("--"+name+"=", part)
	case !p.plain && strings.HasPrefix(begin, "-"):
		var c Completion
		for _, f := range p.flags() {
			c.Candidates = append(c.Candidates, Candidate{"--" + f.Name, oneLine(f.Help)})
		}
		return c.beginning("", begin)
	}
	var c Completion
	if p.args == 0 && !p.plain {
		for _, child := range p.node.Children {
			if !child.Hidden {
				c.Candidates = append(c.Candidates, Candidate{child.Name, oneLine(child.Help)})
			}
		}
	}
	if list := p.node.Positional; len(list) > 0 && (p.args < len(list) || list[len(list)-1].IsSlice()) {
		more := valuesOf(list[min(p.args, len(list)-1)], "", values)
		c.Candidates = append(c.Candidates, more.Candidates...)
		c.Files, c.Dirs = more.Files, more.Dirs
	}
	return c.beginning("", begin)
}

// valuesOf is what a flag or an argument may be.
func valuesOf(v *kong.Value, placeholder string, values Values) Completion {
	var c Completion
	switch kind := v.Tag.Get("complete"); {
	case kind == "files" || kind == "" && (placeholder == "FILE" || placeholder == "DIR"):
		c.Files = true
	case kind == "dirs":
		c.Dirs = true
	case kind != "":
		c.Candidates = values(kind)
	case v.Enum != "":
		for _, word := range v.EnumSlice() {
			if word != "" {
				c.Candidates = append(c.Candidates, Candidate{Word: word})
			}
		}
	}
	return c
}

// beginning keeps what begins so, and puts what stands before it in front.
func (c Completion) beginning(before, begin string) Completion {
	kept := Completion{Files: c.Files, Dirs: c.Dirs}
	for _, word := range c.Candidates {
		if strings.HasPrefix(word.Word, begin) {
			kept.Candidates = append(kept.Candidates, Candidate{before + word.Word, word.Help})
		}
	}
	return kept
}

// oneLine is text without line breaks and tabs, which scripts split it by.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
