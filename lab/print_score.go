package lab

import (
	"fmt"
	"strings"
)

const rowFormat = "%-34s %-8s %-8s %6s  %s\n"

func (p *printer) rowHeading() {
	p.printf(rowFormat, "incident", "kind", "verdict", "s", "found")
}

// row prints one line of a scoreboard, and under it what was wrong.
func (p *printer) row(r Row) {
	found := orNone(r.Found)
	name := r.Name
	if len(name) > 34 && r.Kind != "pair" {
		name = name[:34]
	}
	verdict := fmt.Sprintf("%-8s", r.Verdict)
	p.printf("%-34s %-8s %s %6.1f  %s\n", name, r.Kind, p.paint(r.Verdict == First || r.Verdict == Silent, verdict), r.Seconds, found)
	if len(r.False) > 0 {
		p.printf("    false: %s\n", strings.Join(r.False, ", "))
	}
	if r.Tries > 1 {
		p.printf("    done again: other programs took the CPUs (%.0f %% of them the second time)\n", 100*r.Others)
	}
	for _, reason := range r.Reasons {
		p.printf("    %s (seed %d)\n", reason, r.Seed)
	}
}

// score prints the sums.
func (p *printer) score(s *Score) {
	p.printf("\n")
	if t := s.Single; t.Asked+t.NoHarm+t.Failed > 0 {
		p.printf("incidents        %s\n", t.text("first"))
	}
	if t := s.Pairs; t.Asked+t.NoHarm+t.Failed > 0 {
		p.printf("two at once      %s\n", t.text("both found"))
	}
	if t := s.Silent; t.Asked+t.Failed > 0 {
		p.printf("nothing wrong    %d of %d silent%s\n", t.First, t.Asked, failures(t))
	}
	p.printf("false findings   %s\n", p.paint(s.False == 0, fmt.Sprint(s.False)))
	p.printf("time             %.0f s\n", s.Seconds)
}

func (t Tally) text(first string) string {
	text := fmt.Sprintf("%d of %d %s", t.First, t.Asked, first)
	if t.InList > 0 {
		text += fmt.Sprintf(", %d in the list", t.InList)
	}
	if t.Missed > 0 {
		text += fmt.Sprintf(", %d missed", t.Missed)
	}
	if t.NoHarm > 0 {
		text += fmt.Sprintf("; %d did no measurable harm", t.NoHarm)
	}
	return text + failures(t)
}

func failures(t Tally) string {
	if t.Failed == 0 {
		return ""
	}
	return fmt.Sprintf("; %d could not be run", t.Failed)
}
