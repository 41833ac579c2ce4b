package catalogue

import (
	"fmt"
	"strings"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/printable"
)

const generated = "<!-- Made by `make docs` from the declarations in internal/cause. Do not edit. -->\n\n"

// Page is the page of one cause, in Markdown.
func (e *Entry) Page() string {
	var b strings.Builder
	b.WriteString(generated)
	e.write(&b, linked)
	b.WriteString("\n[All causes](README.md)\n")
	return b.String()
}

// Text is the same for a terminal of so many columns; 0 is any.
func (e *Entry) Text(width int) string {
	var b strings.Builder
	e.write(&b, func(id cause.ID) string { return string(id) })
	return printable.Fold(b.String(), width)
}

func linked(id cause.ID) string { return fmt.Sprintf("[%s](%s.md)", id, id) }

// write tells the cause; name says how another cause is named.
func (e *Entry) write(b *strings.Builder, name func(id cause.ID) string) {
	fmt.Fprintf(b, "# %s\n\n**%s.**\n\n", e.ID, strings.TrimSuffix(e.Title, "."))
	if e.About != "" {
		fmt.Fprintf(b, "%s\n\n", e.About)
	}
	fmt.Fprintf(b, "Layer: %s.\n", e.Layer)
	if e.Informational {
		b.WriteString("It is never a finding: what was seen of it is listed under what is ruled out.\n")
	}
	section(b, "What is seen of it", texts(e.Symptoms))
	section(b, "How slowray knows", e.Known)
	if len(e.Needs) > 0 {
		b.WriteString("\nIt needs, and is \"not checked\" without:\n\n")
		for _, n := range e.Needs {
			fmt.Fprintf(b, "- %s: %s\n", n.Kind, n.Source)
		}
	}
	not := e.Not
	for _, p := range e.Controls {
		not = append(not[:len(not):len(not)], fmt.Sprintf("In the lab, `%s`: %s.", p.Name, p.Summary))
	}
	section(b, "What it is not", not)
	if e.Fix != "" {
		fmt.Fprintf(b, "\n## How to fix it\n\n%s\n", e.Fix)
		if !e.Informational {
			b.WriteString("\nThe finding itself has the commands for the host, with its figures.\n")
		}
	}
	if !e.Informational {
		b.WriteString("\n## How to prove it\n\n")
		if e.Provable {
			fmt.Fprintf(b, "`slowray prove %s --apply` makes the fix, measures, and undoes it; without `--apply` it only says what it would change.\n", e.ID)
		} else {
			b.WriteString("Nothing can be changed and undone at once that would show it: what the finding says has to be done by hand.\n")
		}
	}
	section(b, "What it may follow from", named(e.FollowsFrom, name))
	section(b, "What may follow from it", named(e.BringsAbout, name))
	b.WriteString("\n## How to reproduce it\n\n")
	for _, p := range e.Incidents {
		command := "slowray lab run " + p.Name
		if p.machine {
			command = "GUEST_RUN=/" + p.Name + "$ script/kernels.sh --only ./lab/guest"
		}
		fmt.Fprintf(b, "- `%s`: %s.\n", command, p.Summary)
	}
	if len(e.Incidents) == 0 {
		why := e.NotInjected
		if why == "" {
			why = "No incident of the lab injects it yet; a recorded or written observation in the tests stands for it."
		}
		fmt.Fprintf(b, "%s\n", why)
	}
}

func section(b *strings.Builder, heading string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## %s\n\n", heading)
	for _, l := range lines {
		fmt.Fprintf(b, "- %s\n", l)
	}
}

func texts(symptoms []cause.Symptom) []string {
	var list []string
	for _, s := range symptoms {
		list = append(list, string(s)+".")
	}
	return list
}

func named(ids []cause.ID, name func(cause.ID) string) []string {
	var list []string
	for _, id := range ids {
		list = append(list, name(id))
	}
	return list
}

// Index is the list of all pages, by symptom and by layer, in Markdown.
func (c *Catalogue) Index() string {
	var b strings.Builder
	b.WriteString(generated)
	injected := 0
	for i := range c.Causes {
		if len(c.Causes[i].Incidents) > 0 {
			injected++
		}
	}
	fmt.Fprintf(&b, `# Causes

slowray knows %d causes; incidents of its lab inject %d of them for real. Each has a
page: what it is, how slowray knows, what it is not, how to fix it,
how to reproduce it. `+"`slowray causes ID`"+` shows the same page in a terminal.

## What do you see?
`, len(c.Causes), injected)
	for _, s := range cause.Symptoms() {
		var rows []string
		for i := range c.Causes {
			e := &c.Causes[i]
			for _, has := range e.Symptoms {
				if has == s {
					rows = append(rows, fmt.Sprintf("%s: %s", linked(e.ID), e.Title))
				}
			}
		}
		if len(rows) > 0 {
			fmt.Fprintf(&b, "\n### %s\n\n- %s\n", s, strings.Join(rows, "\n- "))
		}
	}
	b.WriteString("\n## Not injected\n\n| cause | why not |\n|---|---|\n")
	for i := range c.Causes {
		if e := &c.Causes[i]; len(e.Incidents) == 0 {
			fmt.Fprintf(&b, "| %s | %s |\n", linked(e.ID), strings.ReplaceAll(e.NotInjected, "\n", " "))
		}
	}
	b.WriteString("\n## By layer\n")
	for l := cause.LayerPath; l <= cause.LayerMachine; l++ {
		var rows []string
		for i := range c.Causes {
			if e := &c.Causes[i]; e.Layer == l.String() {
				rows = append(rows, fmt.Sprintf("%s: %s", linked(e.ID), e.Title))
			}
		}
		if len(rows) > 0 {
			fmt.Fprintf(&b, "\n### %s%s\n\n- %s\n", strings.ToUpper(l.String()[:1]), l.String()[1:], strings.Join(rows, "\n- "))
		}
	}
	return b.String()
}

// Pages is the whole directory: text by file name.
func (c *Catalogue) Pages() map[string]string {
	pages := map[string]string{"README.md": c.Index()}
	for i := range c.Causes {
		pages[string(c.Causes[i].ID)+".md"] = c.Causes[i].Page()
	}
	return pages
}
