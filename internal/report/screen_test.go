package report

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/slowray/slowray/internal/diagnose"
)

// How many lines a report may have on the screen: as docs promise.
const (
	linesOfOne     = 35 // cause
	linesOfHealthy = 12
)

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
		if n := utf8.RuneCountInString(l); n > width && !copied {
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
