package doctor

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/printable"
)

// How much of a list is shown.
const (
	shownPrograms = 8
	shownReaders  = 5
	shownReasons  = 4
)

// Text prints a Checkup for people, in so many columns; 0 is any.
func (c *Checkup) Text(out io.Writer, width int) error {
	b := &strings.Builder{}
	fmt.Fprintf(b, "%s: Linux %s, %s, %s CPUs\n", c.Host.Name, c.Host.Kernel, c.Host.Arch, figure.Count(c.Host.CPUs))
	if len(c.Rights.Lacks) == 0 {
		b.WriteString("Rights: all that slowray makes use of\n")
	} else {
		b.WriteString("Rights that are missing\n")
		var rows [][]string
		for _, l := range c.Rights.Lacks {
			rows = append(rows, []string{"  " + l.Capability, l.Lost})
		}
		b.WriteString(printable.Table(rows, width))
	}
	b.WriteString("\nPrograms in the kernel\n")
	var rows [][]string
	for _, p := range c.Parts {
		rows = append(rows, []string{fmt.Sprintf("  %s", p.State), p.Name, p.What})
	}
	b.WriteString(printable.Table(rows, width))
	for _, p := range c.Parts {
		for _, because := range p.Because {
			fmt.Fprintf(b, "  %s: %s\n", p.Name, strings.TrimPrefix(printable.Text(because), p.Name+": "))
		}
		if p.State == Missing && len(p.Lost) > 0 {
			fmt.Fprintf(b, "    lost: %s\n", strings.Join(p.Lost, ", "))
		}
	}
	if len(c.Kubernetes) > 0 {
		b.WriteString("\nWho tells of pods\n")
		w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
		for _, s := range c.Kubernetes {
			state, because := Works, ""
			if s.Error != "" {
				state, because = Missing, printable.Text(s.Error)
			}
			fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", state, s.Name, printable.Text(s.Where), because)
		}
		w.Flush()
	}
	b.WriteString("\nWhat is read\n")
	var works []string
	for _, r := range c.Readings {
		if r.State == Works {
			works = append(works, string(r.Kind))
		}
	}
	fmt.Fprintf(b, "  works: %s\n", strings.Join(works, ", "))
	for _, r := range c.Readings {
		shown := r.Because[:min(len(r.Because), shownReasons)]
		for _, because := range shown {
			fmt.Fprintf(b, "  %s, %s: %s\n", r.State, r.Kind, printable.Text(because))
		}
		if more := len(r.Because) - len(shown); more > 0 {
			fmt.Fprintf(b, "  %s, %s: and %d more, see --json\n", r.State, r.Kind, more)
		}
	}
	fmt.Fprintf(b, "\n%d of %d causes can be checked here", c.Causes.Checked, c.Causes.Known)
	if len(c.Causes.NotChecked) > 0 {
		fmt.Fprintf(b, ", not: %s", strings.Join(c.Causes.NotChecked, ", "))
	}
	b.WriteString("\n")
	c.price(b)
	c.running(b)
	_, err := io.WriteString(out, printable.Fold(b.String(), width))
	return err
}

// price tells what looking costs.
func (c *Checkup) price(b *strings.Builder) {
	fmt.Fprintf(b, "\nWhat a look of %s costs here: slowray itself %s of one CPU", figure.Seconds(c.Price.Seconds), figure.Percent(c.Price.CPUShare))
	if c.Price.Because != "" {
		fmt.Fprintf(b, "; its programs in the kernel are not known (%s)\n", printable.Text(c.Price.Because))
	} else {
		all := 0.0
		for _, p := range c.Price.Programs {
			all += p.CPUShare
		}
		fmt.Fprintf(b, ", its programs in the kernel %s\n", figure.Percent(all))
	}
	b.WriteString("  It tries everything at once, without a budget: slowray record keeps within 1 % of the host's CPUs (docs/cost.md).\n")
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, p := range c.Price.Programs[:min(len(c.Price.Programs), shownPrograms)] {
		fmt.Fprintf(w, "  %s\t%s calls\t%.0f ns each\t%s\t\n", printable.Text(p.Name), figure.Count(int(p.Calls)), p.EachNS, figure.Percent(p.CPUShare))
	}
	w.Flush()
	b.WriteString("Its most expensive readers\n")
	w = tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, r := range c.Price.Readers[:min(len(c.Price.Readers), shownReaders)] {
		fmt.Fprintf(w, "  %s\t%s\t%s samples\t%s gaps\t\n", r.Name, figure.Percent(r.CPUShare), figure.Count(r.Samples), figure.Count(r.Gaps))
	}
	w.Flush()
}
