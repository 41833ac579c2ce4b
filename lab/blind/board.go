package blind

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Board writes docs/scoreboard.md.
func Board(results []Result) string {
	results = Unique(results)
	s := NewScore(results)
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# Scoreboard\n")
	line("<!-- made by: make scoreboard; not to be edited -->\n")
	line("Incidents that nobody designed: a seed draws what is wrong, in which server and language, behind how many hops, in which")
	line("network namespace or container, under which load, how strong, and what harmless things go on next to it (`lab/grammar`).")
	line("The lab injects the fault, measures what its removal gives, has slowray look for 5 s at the service's port, pastes the")
	line("commands of the first finding, and measures the service again. A draw whose fault does no measurable harm is drawn again.\n")
	line("%s\n", strings.ReplaceAll(s.Summary(), "\n", "  \n"))
	line("Drawn again: %d. Could not be run: %d. With a fault and something innocent blamed: %d. The report came %.1f s after the window (median; longest %.1f s); slowray used %.0f %% of one CPU while it looked, verdict included (median).\n", s.NoHarm, s.Failed, s.Innocent, s.LateP50, s.Late, 100*s.CPU)
	line("Seeds, from the clock: %s.  \n%s\n", strings.Join(seeds(results), ", "), strings.Join(made(results), "  \n"))
	line("## By cause\n")
	line("| cause | draws | first | in three | subject | fix works | harm explained |\n|---|---:|---:|---:|---:|---:|---:|")
	for _, r := range append(s.Rows, s.All) {
		name := r.Cause
		if name == "" {
			name = "**all**"
		}
		explains := "–"
		if r.explains > 0 {
			explains = fmt.Sprintf("%.0f %%", 100*r.Explains)
		}
		line("| %s | %d | %d | %d | %s | %s | %s |", name, r.First.Of, r.First.Have, r.InThree.Have, short(r.Subject), short(r.Fix), explains)
	}
	line("\nThe fix counts where its commands can be pasted, or `slowray prove` makes the change; a change of a program's code does not.\n")
	line("## Confidence\n")
	said := reported(results)
	line("Of findings with about such a confidence so many were true; the confidence was fitted on other draws. Expected calibration error %.3f over %d findings.\n", s.Error, len(said))
	if labels := Labels(results); len(labels) > 0 {
		line("Fitted on four fifths of these draws and asked about the others, the error is %.3f.\n", CalibrationError(HeldOut(labels)))
	}
	line("```text\nconfidence  findings  true")
	for _, bin := range Bins(said) {
		line("%.1f–%.1f     %8d  %3.0f %%  %s", bin.Low, bin.High, bin.N, 100*bin.Right, diagram(bin))
	}
	line("```\n\n`#` is how many were true, `|` what was said.\n")
	line("## What was drawn\n")
	for _, axis := range axes {
		line("- %s: %s", axis.name, tally(results, axis.of))
	}
	line("\n## Wrong draws\n")
	if len(s.Wrong) == 0 {
		line("None.")
	}
	for _, r := range s.Wrong {
		line("- `%s`: **%s** %s; %s. %s", r.Again(), r.Verdict, r.Shape.Kind, r.Shape.Chain, strings.Join(why(&r), "; "))
	}
	return b.String()
}

func short(s Share) string {
	if s.Of == 0 {
		return "–"
	}
	return fmt.Sprintf("%d of %d", s.Have, s.Of)
}

// diagram is a bar of how many are true, with a mark at what was said.
func diagram(b Bin) string {
	const width = 40
	bar := []rune(strings.Repeat("#", int(b.Right*width+0.5)) + strings.Repeat("·", width-int(b.Right*width+0.5)))
	bar[min(width-1, int(b.Said*width))] = '|'
	return string(bar)
}

func why(r *Result) []string {
	list := slices.Clone(r.Reasons)
	for _, a := range r.Against {
		list = append(list, "contradiction: "+a)
	}
	if len(r.Findings) > 0 && r.Healthy {
		list = append(list, "found "+r.Findings[0].Cause)
	}
	if r.Fix == FixFails {
		first, _, _ := strings.Cut(r.FixBy, "\n")
		list = append(list, fmt.Sprintf("the fix fails: `%s` %s", strings.ReplaceAll(first, "`", "'"), r.Proof))
	}
	return list
}

func seeds(results []Result) []string {
	all := map[string]bool{}
	for _, r := range results {
		all[fmt.Sprint(r.Seed)] = true
	}
	return slices.Sorted(maps.Keys(all))
}

func made(results []Result) []string {
	all := map[string]bool{}
	for _, r := range results {
		if r.Machine != "" {
			text := "Machine: " + r.Machine
			if r.Main != "" {
				text += "; slowray " + r.Main
			}
			all[text+"."] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

var axes = []struct {
	name string
	of   func(*Result) string
}{
	{"server or language of the fault", func(r *Result) string { return r.Shape.Server }},
	{"layout", func(r *Result) string { return r.Shape.Layout }},
	{"small services in the chain", func(r *Result) string { return fmt.Sprint(r.Shape.Hops) }},
	{"load", func(r *Result) string { load, _, _ := strings.Cut(r.Shape.Load, ":"); return load }},
	{"noise", func(r *Result) string {
		if r.Shape.Noise == "" {
			return "none"
		}
		return r.Shape.Noise
	}},
	{"second fault", func(r *Result) string {
		if r.Shape.Second == "" {
			return "none"
		}
		return "a sleep on another hop"
	}},
}

func tally(results []Result, of func(*Result) string) string {
	counts := map[string]int{}
	for i := range results {
		if results[i].Counts() {
			counts[of(&results[i])]++
		}
	}
	var list []string
	for _, name := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		if counts[a] != counts[b] {
			return counts[b] - counts[a]
		}
		return strings.Compare(a, b)
	}) {
		list = append(list, fmt.Sprintf("%s %d", name, counts[name]))
	}
	return strings.Join(list, ", ")
}
