package manual

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

// Section is a section of the manual page that is not of the command line, in
// paragraphs.
type Section struct {
	Title      string
	Paragraphs []string
}

// Page writes the manual page, in the language of man(7).
func Page(w io.Writer, app *kong.Application, version string, sections []Section) error {
	p := &page{}
	p.line(`.TH %s 1 "" "%s" "User commands"`, strings.ToUpper(quoted(app.Name)), quoted(version))
	p.line(".SH NAME")
	summary, _, _ := strings.Cut(app.Help, "\n")
	p.line("%s \\- %s", roff(app.Name), roff(strings.TrimSuffix(summary, ".")))
	p.line(".SH SYNOPSIS")
	p.line(".B %s", roff(app.Name))
	p.line(".RI [ command ]")
	p.line("[options] [arguments]")
	p.line(".SH DESCRIPTION")
	p.paragraphs(app.Help)
	p.line(".SH COMMANDS")
	p.commands(app.Node, app.Name)
	if len(app.Flags) > 0 {
		p.line(".SH OPTIONS OF EVERY COMMAND")
		p.flags(app.Flags)
	}
	for _, s := range sections {
		p.line(".SH %s", roff(strings.ToUpper(s.Title)))
		for i, text := range s.Paragraphs {
			if i > 0 {
				p.line(".PP")
			}
			p.paragraphs(text)
		}
	}
	_, err := io.WriteString(w, p.text.String())
	return err
}

type page struct{ text strings.Builder }

func (p *page) line(format string, args ...any) { fmt.Fprintf(&p.text, format+"\n", args...) }

// paragraphs writes text that is divided by empty lines.
func (p *page) paragraphs(text string) {
	first := true
	for part := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		if !first {
			p.line(".PP")
		}
		first = false
		as := false // as it is: tables and examples, which are indented
		for line := range strings.SplitSeq(part, "\n") {
			if indented := strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t"); indented != as {
				as = indented
				p.line("%s", map[bool]string{true: ".nf", false: ".fi"}[as])
			}
			if as {
				p.line(`\&%s`, roffInline(strings.TrimRight(line, " \t")))
			} else {
				p.line("%s", roff(line))
			}
		}
		if as {
			p.line(".fi")
		}
	}
}

// commands writes those below a node, and below those.
func (p *page) commands(n *kong.Node, path string) {
	for _, c := range n.Children {
		if c.Hidden {
			continue
		}
		name := path + " " + c.Name
		title := name
		for _, a := range c.Positional {
			title += " " + a.Summary()
		}
		p.line(`.SS "%s"`, quoted(title))
		p.paragraphs(c.Help)
		if c.Detail != "" {
			p.line(".PP")
			p.paragraphs(c.Detail)
		}
		for _, a := range c.Positional {
			p.line(".TP")
			p.line(".I %s", roff(a.Name))
			p.line("%s", roff(oneLine(a.Help)))
		}
		p.flags(c.Flags)
		p.commands(c, name)
	}
}

func (p *page) flags(list []*kong.Flag) {
	for _, f := range list {
		if f.Hidden {
			continue
		}
		p.line(".TP")
		name := `\fB` + roffInline("--"+f.Name) + `\fR`
		if f.Short != 0 {
			name = `\fB` + roffInline("-"+string(f.Short)) + `\fR, ` + name
		}
		if takesValue(f) {
			name += `=\fI` + roffInline(f.FormatPlaceHolder()) + `\fR`
		}
		p.line("%s", name)
		p.line("%s", roff(oneLine(f.Help)))
	}
}

// roffInline makes text harmless within a line (groff_char(7)).
func roffInline(text string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`, `"`, `\(dq`).Replace(text)
}

// roff makes text a line: one that begins with a dot would be a request.
func roff(text string) string {
	text = roffInline(oneLine(text))
	if strings.HasPrefix(text, ".") {
		return `\&` + text
	}
	return text
}

// quoted is an argument of a request, between quotes.
func quoted(text string) string { return roffInline(oneLine(text)) }
