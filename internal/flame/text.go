package flame

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/observe"
)

// What a summary shows at most.
const (
	textWidth     = 100
	textFunctions = 10
	textProcesses = 5
	textStacks    = 3
	textLines     = 5 // of one stack
	textLosses    = 5
)

// Text writes a summary for the terminal: of the processes with the largest
// values the functions that take most, and the hottest stacks of all. The error
// is w's, or an UnknownValue.
func Text(w io.Writer, s *observe.Stacks, o Options) error {
	m := newModel(byFunction, s)
	p, err := newTextPrinter(w, m, o)
	if err != nil {
		return err
	}
	p.head()
	if p.total() > 0 {
		p.processes()
		p.stacks()
	}
	p.foot()
	return p.Flush()
}

// DiffText writes, for the terminal, the functions whose own share has changed
// most between two windows.
func DiffText(w io.Writer, pair Pair, o Options) error {
	m := pair.model()
	p, err := newTextPrinter(w, m, o)
	if err != nil {
		return err
	}
	p.head()
	p.changes()
	p.foot()
	return p.Flush()
}

// textPrinter is a summary on its way out.
type textPrinter struct {
	*bufio.Writer
	m     *model
	o     Options
	value int
	tree  tree
}

func newTextPrinter(w io.Writer, m *model, o Options) (*textPrinter, error) {
	value, err := o.value(m)
	if err != nil {
		return nil, err
	}
	if o.Width <= 0 {
		o.Width = textWidth
	}
	o.Width = max(o.Width, 40)
	if o.Top <= 0 {
		o.Top = textFunctions
	}
	return &textPrinter{Writer: bufio.NewWriter(w), m: m, o: o, value: value, tree: m.tree(value, o.roots())}, nil
}

func (p *textPrinter) total() int64 { return p.tree[0].total[p.m.side()] }

func (p *textPrinter) paint(code, text string) string {
	if !p.o.Color {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

const (
	bold   = "1"
	dim    = "2"
	red    = "31"
	blue   = "34"
	yellow = "33"
)

// head says how much was seen: of the value that is shown first.
func (p *textPrinter) head() {
	sums := p.m.sums()
	var parts []string
	for i, t := range p.m.types {
		text := typeName(t) + " " + amount(sums[i][p.m.side()], t)
		if p.m.compares {
			text = fmt.Sprintf("%s: %s %s, %s %s", typeName(t), p.m.names[0], amount(sums[i][0], t), p.m.names[1], amount(sums[i][1], t))
		}
		switch {
		case i == p.value:
			parts = slices.Insert(parts, 0, p.paint(bold, text))
		case sums[i] != [2]int64{}:
			parts = append(parts, text)
		}
	}
	if s := p.o.subtitle(p.m, figure.Moment); s != "" && !p.m.compares {
		parts = append(parts, s)
	}
	if len(p.m.samples) == 0 {
		parts = []string{"No stack was seen"}
	}
	fmt.Fprintf(p, "%s\n", strings.Join(parts, " · "))
}

// processes writes a table for each of the largest.
func (p *textPrinter) processes() {
	t := p.m.types[p.value]
	own, wait := "self", waiting(t)
	if wait {
		own = "waits"
	}
	roots := p.tree[0].children
	for i, root := range roots {
		b := &p.tree[root]
		if i == textProcesses {
			var rest int64
			for _, r := range roots[i:] {
				rest = add(rest, p.tree[r].total[0])
			}
			fmt.Fprintf(p, "\n%s\n", p.paint(dim, fmt.Sprintf("and %s more with %s", figure.Count(len(roots)-i), figure.Percent(share(rest, p.total())))))
			return
		}
		fmt.Fprintf(p, "\n%s  %s, %s\n", p.paint(bold, p.process(b.name)), figure.Percent(share(b.total[0], p.total())), amount(b.total[0], t))
		list := p.tree.tally(p.m, root, wait)
		slices.SortFunc(list, func(x, y sum) int {
			return cmp.Or(cmp.Compare(y.self[0], x.self[0]), cmp.Compare(y.total[0], x.total[0]), cmp.Compare(x.function, y.function))
		})
		most := p.o.Top
		if len(roots) > 1 && i > 0 {
			most = max(3, p.o.Top/2) // of those that matter less, less
		}
		fmt.Fprintf(p, "%s\n", p.paint(dim, fmt.Sprintf("  %11s %11s  %s", own, "total", "function")))
		if bare := p.bare(root); bare > 0 {
			fmt.Fprintf(p, "  %11s %11s  %s\n", figure.Percent(share(bare, p.total())), "", p.paint(dim, "[no stack]"))
		}
		for _, f := range list[:min(most, len(list))] {
			if f.self[0] == 0 {
				break
			}
			fmt.Fprintf(p, "  %11s %11s  %s\n", figure.Percent(share(f.self[0], p.total())), figure.Percent(share(f.total[0], p.total())), p.function(f.function, p.o.Width-27))
		}
	}
}

// process is the name of a root, with its pid if it is one process of that name.
func (p *textPrinter) process(name string) string {
	if p.o.roots() != RootComm {
		return name
	}
	pids := map[int]bool{}
	for _, t := range p.m.threads {
		if t.comm == name {
			pids[t.pid] = true
		}
	}
	if len(pids) > 1 {
		return fmt.Sprintf("%s (%s processes)", name, figure.Count(len(pids)))
	}
	for pid := range pids {
		return fmt.Sprintf("%s (%d)", name, pid)
	}
	return name
}

// bare is the value of a root of which no function is known.
func (p *textPrinter) bare(root int32) int64 {
	sum := p.tree[root].self[0]
	for _, child := range p.tree[root].children {
		if p.tree[child].function < 0 {
			sum = add(sum, p.bare(child))
		}
	}
	return sum
}

// function names one in at most so many columns, and where it is if that fits.
func (p *textPrinter) function(f int32, columns int) string {
	fn := &p.m.functions[f]
	name := label(fn.Name, fn.Kind, columns)
	room := columns - utf8.RuneCountInString(name) - 2
	brief := *fn // without directories
	brief.File = brief.File[strings.LastIndexByte(brief.File, '/')+1:]
	for _, where := range []string{fn.where(), brief.where(), kindName(fn.Kind)} {
		if utf8.RuneCountInString(where) <= room {
			return name + "  " + p.paint(dim, where)
		}
	}
	return name
}

// stacks writes the hottest ones, the leaf first.
func (p *textPrinter) stacks() {
	hot := p.tree.hottest(p.m.side(), textStacks)
	if len(hot) == 0 {
		return
	}
	fmt.Fprintf(p, "\n%s\n", p.paint(bold, "Hottest stacks, the innermost function first"))
	for i, at := range hot {
		var words []string
		leaf := p.tree[at]
		root := at
		for p.tree[root].function >= 0 {
			name := p.tree[root].name
			if utf8.RuneCountInString(name) > 40 {
				name = label(name, p.tree[root].kind, 60)
			}
			words = append(words, name)
			root = p.tree[root].parent
		}
		fmt.Fprintf(p, "%d. %s, %s, %s\n", i+1, figure.Percent(share(leaf.self[0], p.total())), amount(leaf.self[0], p.m.types[p.value]), p.tree[root].name)
		p.wrapped(words, " < ")
	}
}

// wrapped writes words, with something in between, on at most textLines lines.
func (p *textPrinter) wrapped(words []string, between string) {
	lines := []string{""}
	for i, word := range words {
		if i < len(words)-1 {
			word += between
		}
		last := &lines[len(lines)-1]
		if *last != "" && utf8.RuneCountInString(*last)+utf8.RuneCountInString(word) > p.o.Width-5 {
			if len(lines) == textLines {
				*last += "…"
				break
			}
			lines = append(lines, "")
			last = &lines[len(lines)-1]
		}
		*last += word
	}
	for _, line := range lines {
		fmt.Fprintf(p, "   %s\n", strings.TrimRight(line, " "))
	}
}

// changes writes the functions whose own share has changed most.
func (p *textPrinter) changes() {
	all := p.tree[0].total
	if all[0] == 0 || all[1] == 0 {
		for i, v := range all {
			if v == 0 {
				fmt.Fprintf(p, "%s\n", p.paint(yellow, "Nothing to compare: no stack "+p.m.names[i]+"."))
			}
		}
		return
	}
	difference := func(s sum) float64 { return share(s.self[1], all[1]) - share(s.self[0], all[0]) }
	list := p.tree.tally(p.m, 0, waiting(p.m.types[p.value]))
	slices.SortFunc(list, func(x, y sum) int {
		return cmp.Or(cmp.Compare(math.Abs(difference(y)), math.Abs(difference(x))), cmp.Compare(x.function, y.function))
	})
	fmt.Fprintf(p, "\n%s\n", p.paint(dim, fmt.Sprintf("  %8s %11s %11s  %s", "points", fit(p.m.names[0], 11), fit(p.m.names[1], 11), "function, its own share of all")))
	for _, s := range list[:min(p.o.Top, len(list))] {
		d := difference(s)
		if math.Abs(d) < 0.0005 {
			break
		}
		color := red
		if d < 0 {
			color = blue
		}
		fmt.Fprintf(p, "  %s %11s %11s  %s\n", p.paint(color, fmt.Sprintf("%+8.1f", d*100)), figure.Percent(share(s.self[0], all[0])), figure.Percent(share(s.self[1], all[1])), p.function(s.function, p.o.Width-36))
	}
}

// foot says what is missing.
func (p *textPrinter) foot() {
	if len(p.m.losses)+len(p.m.notes) > 0 {
		fmt.Fprintln(p)
	}
	losses := slices.Clone(p.m.losses)
	slices.SortStableFunc(losses, func(x, y observe.Loss) int { return cmp.Compare(y.Count, x.Count) })
	for i, l := range losses {
		if i == textLosses {
			fmt.Fprintf(p, "%s %s more, which a page or a profile tells (-o)\n", p.paint(yellow, "Not complete:"), figure.Count(len(losses)-i))
			break
		}
		text := l.What
		if l.Count > 0 {
			text += ": " + figure.Count(l.Count)
		}
		fmt.Fprintf(p, "%s %s\n", p.paint(yellow, "Not complete:"), text)
	}
	for _, n := range p.m.notes {
		fmt.Fprintf(p, "%s %s\n", p.paint(dim, "Note:"), n)
	}
}
