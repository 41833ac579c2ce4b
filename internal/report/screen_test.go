package report

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
	"github.com/slowray/slowray/internal/shell"
)

// How many lines a report may have on the screen: as docs promise.
const (
	linesOfOne     = 35 // cause
	linesOfHealthy = 12
)

// TestImpactIsWhole: what harm a finding does, and when, is never cut, also of a history.
func TestImpactIsWhole(t *testing.T) {
	reports, err := filepath.Glob("../diagnose/testdata/corpus/*/report.json")
	if err != nil || len(reports) < 100 {
		t.Fatalf("%d reports: %v", len(reports), err)
	}
	onset := time.Date(2026, 11, 26, 12, 3, 0, 0, time.Local)
	for _, file := range reports {
		r := readReport(t, file)
		for i := range r.Findings {
			r.Findings[i].Over = &observe.Over{Onset: onset, End: onset.Add(5 * time.Minute), Worst: onset.Add(time.Minute), Windows: 4, Of: 12}
		}
		for _, width := range []int{80, 100} {
			var b strings.Builder
			if err := Text(&b, r, Style{Width: width}); err != nil {
				t.Fatal(err)
			}
			checkScreen(t, r, b.String(), width)
			text := strings.Join(strings.Fields(b.String()), " ")
			p := &printer{Style: Style{Width: width}}
			for i, f := range causesOf(r) {
				if i == screenCauses {
					break
				}
				for _, whole := range []string{p.impact(f), "12:03:00 to 12:08:00, in 4 of 12 windows; figures of 12:04:00"} {
					if whole = strings.Join(strings.Fields(printable.Text(whole)), " "); !strings.Contains(text, whole) {
						t.Errorf("%s, %d columns: %q is cut:\n%s", file, width, whole, b.String())
					}
				}
			}
		}
	}
}

// TestNarrowLists: where not all of a list has room, its items are whole, and the rest is counted.
func TestNarrowLists(t *testing.T) {
	before := 9.0
	change := func(what string) diagnose.Change {
		return diagnose.Change{Kind: observe.ChangeStart, Comm: "booking-app", PID: 4711, What: what, Before: &before}
	}
	r := &diagnose.Report{
		Findings:   []cause.Finding{{Cause: "conntrack-full", Role: cause.RoleCause}},
		Changes:    []diagnose.Change{change("started"), change("restarted"), change("started")},
		NotChecked: []diagnose.Excluded{{Cause: "a", Because: "what the threads of the services wait for was not watched"}},
	}
	screen := func(width int) string {
		var b strings.Builder
		if err := Text(&b, r, Style{Width: width}); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	for width, want := range map[int]string{
		80:  "Recent changes: booking-app (pid 4711): started (9 s); 2 more: -v\n1 not checked: what the threads of the services wait for was not watched\n0 causes ruled out · -v lists all\n",
		111: "Recent changes: booking-app (pid 4711): started (9 s); booking-app (pid 4711): restarted (9 s); 1 more: -v\n0 causes ruled out, 1 not checked (what the threads of the services wait for was not watched) · -v",
	} {
		if got := screen(width); !strings.Contains(got, want) {
			t.Errorf("%d columns: lacks %q:\n%s", width, want, got)
		}
	}
	r.Losses = []observe.Loss{{What: "stacks of CPU samples there was no room for", Count: 1}}
	if got, want := screen(80), "Lost events: 1 stack of CPU samples there was no room for\n"; !strings.Contains(got, want) {
		t.Errorf("lacks %q:\n%s", want, got)
	}
	r.Losses[0].Of = 4000
	if got := screen(80); strings.Contains(got, "Lost events") {
		t.Errorf("1 of 4,000 is reported without -v:\n%s", got)
	}
	r.Losses[0].Of = 400
	if got := screen(80); !strings.Contains(got, "Lost events") {
		t.Errorf("1 of 400 is not reported:\n%s", got)
	}
	r.Changes = []diagnose.Change{change("changed")}
	r.Changes[0].Path = "/srv/deployments/2026-11-26/booking/releases/current/main.conf"
	if got, want := screen(80), "Recent changes: booking-app (pid 4711): …/main.conf changed (9 s)\n"; !strings.Contains(got, want) {
		t.Errorf("lacks %q:\n%s", want, got)
	}
	r.Changes = []diagnose.Change{{Kind: observe.ChangeSetting, What: "net.ipv4.tcp_tw_reuse=1, net.core.somaxconn=128, vm.swappiness=0"}}
	if got, want := screen(80), "Recent changes: settings of the kernel that are not its own … (no date)\n"; !strings.Contains(got, want) {
		t.Errorf("lacks %q:\n%s", want, got)
	}
}

// TestScreenFits: of every report of the corpus the verdict stands on the first line, and the
// last where something was found; each cause has at most eight lines; and all of it fits.
func TestScreenFits(t *testing.T) {
	reports, err := filepath.Glob("../diagnose/testdata/corpus/*/report.json")
	if err != nil || len(reports) < 100 {
		t.Fatalf("%d reports: %v", len(reports), err)
	}
	for _, file := range reports {
		t.Run(filepath.Base(filepath.Dir(file)), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var r diagnose.Report
			if err := json.Unmarshal(text, &r); err != nil {
				t.Fatal(err)
			}
			for _, width := range []int{60, 80, 100, 200} {
				var b strings.Builder
				if err := Text(&b, &r, Style{Width: width}); err != nil {
					t.Fatal(err)
				}
				checkScreen(t, &r, b.String(), width)
			}
		})
	}
}

func checkScreen(t *testing.T, r *diagnose.Report, text string, width int) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	roots := causesOf(r)
	most := linesOfHealthy
	if len(roots) > 0 {
		most = linesOfOne + (screenLines+1)*(min(len(roots), screenCauses)-1) + max(0, len(roots)-screenCauses)
		if !strings.HasPrefix(lines[0], "PROBLEM") || lines[0] != lines[len(lines)-1] {
			t.Errorf("the verdict is not first and last:\n%s", text)
		}
	}
	if len(lines) > most {
		t.Errorf("%d lines of %d columns, more than %d:\n%s", len(lines), width, most, text)
	}
	var commands []string
	for _, f := range roots {
		for _, c := range f.Fix.Commands {
			line, _ := c.Parts()
			commands = append(commands, c.String(), line)
		}
		if f.Prove != nil {
			commands = append(commands, f.Prove.Command.String())
		}
	}
	for _, l := range lines {
		copied := slices.ContainsFunc(commands, func(c string) bool { return c != "" && strings.HasSuffix(l, c) })
		if n := utf8.RuneCountInString(l); n > width && !copied && strings.Contains(strings.TrimLeft(l, " #"), " ") { // one word cannot be broken
			t.Errorf("%d columns of %d: %s", n, width, l)
		}
	}
	of := 0
	for _, l := range lines {
		switch {
		case len(l) > 2 && l[0] >= '1' && l[0] <= '9' && l[1:3] == ". ":
			of = 1
		case l == "":
			of = 0
		case of > 0:
			if of++; of > screenLines {
				t.Errorf("a cause has more than %d lines:\n%s", screenLines, text)
			}
		}
	}
}

// TestProgram: commands that are to be pasted name the program as the shell finds it.
func TestProgram(t *testing.T) {
	f := cause.Finding{Cause: "conntrack-full", Role: cause.RoleCause, Title: "The table is full", Prove: &cause.Prove{Command: shell.Line("slowray prove conntrack-full --apply")}}
	for program, want := range map[string]string{"": "  slowray prove", "bin/slowray": "  bin/slowray prove"} {
		var b strings.Builder
		if err := Text(&b, &diagnose.Report{Findings: []cause.Finding{f}}, Style{Width: 80, Program: program}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q: lacks %q:\n%s", program, want, b.String())
		}
	}
}
