package blind

import (
	"strings"
	"testing"

	"github.com/slowray/slowray/lab/grammar"
)

// TestBoard: each number of the page is that of the draws, and what does not count is
// left out.
func TestBoard(t *testing.T) {
	shape := func(cause string) grammar.Shape {
		return grammar.Shape{Kind: "kind", Cause: cause, Server: "go", Layout: "own", Load: "open: 3 connections"}
	}
	right := Finding{Cause: "deadlock", Role: "cause", Right: true, Confidence: 0.9}
	results := []Result{
		{Seed: 5, Number: 1, Shape: shape("deadlock"), Verdict: First, Subject: true, Fix: FixWorks, Lost: 10, Explains: 9, Findings: []Finding{right}},
		{Seed: 5, Number: 2, Shape: shape("deadlock"), Verdict: InThree, Fix: FixNone, Lost: 10, Explains: 7, Findings: []Finding{{Cause: "x", Role: "cause", Confidence: 0.5}, right}, Reasons: []string{"x is found first"}},
		{Seed: 5, Number: 3, Shape: shape("fd-limit"), Verdict: Nothing, Lost: 4},
		{Seed: 5, Number: 4, Shape: shape("fd-limit"), Verdict: NoHarm},
		{Seed: 6, Number: 1, Healthy: true, Shape: shape(""), Verdict: Silent},
		{Seed: 6, Number: 2, Healthy: true, Shape: shape(""), Verdict: Blamed, Blamed: []string{"cpu-saturated"}, Against: []string{"3 of 2"}},
	}
	page := Board(append(results, results[0])) // the same draw twice is one
	for _, want := range []string{
		"3 draws with a fault: named first 1 of 3 (33 %), in the first three 2 of 3 (67 %), subject right 1 of 2 (50 %).",
		"The printed fix works 1 of 1 (100 %); 53 % of the harm is explained; nothing found over harm: 1 times.",
		"2 draws without a fault: 1 false findings; 1 of 5 reports contradict themselves;",
		"| deadlock | 2 | 1 | 2 | 1 of 2 | 1 of 1 | 80 % |",
		"| fd-limit | 1 | 0 | 0 | – | – | 0 % |",
		"Drawn again: 1.",
		"- `slowray lab bench --seed 5 --only 2`: **in three** kind;",
		"Seeds, from the clock: 5, 6.",
		"0.9–1.0            2  100 %",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is not in\n%s", want, page)
		}
	}
}
