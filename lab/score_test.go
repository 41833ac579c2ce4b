package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// found is a report with these causes.
func found(ids ...string) *Report {
	r := &Report{}
	for _, id := range ids {
		r.Findings = append(r.Findings, Finding{Cause: id, Role: "cause"})
	}
	return r
}

func TestVerdicts(t *testing.T) {
	hurts := func(causes ...string) Truth {
		var t Truth
		for n, id := range causes {
			t.Removals = append(t.Removals, Removal{Fault: id, Cause: id, Hurts: true, Best: n == 0})
		}
		return t
	}
	harmless := Truth{Removals: []Removal{{Fault: "a", Cause: "a"}}}
	for _, c := range []struct {
		name string
		row  Row
		step StepResult
		want Verdict
	}{
		{"first", Row{Kind: "single", Verdict: First}, StepResult{Truth: hurts("a"), Found: found("a")}, First},
		{"behind another", Row{Kind: "several", Verdict: First}, StepResult{Truth: hurts("a", "b"), Found: found("b", "a")}, InList},
		{"not at all", Row{Kind: "single", Verdict: First}, StepResult{Truth: hurts("a"), Found: found("b")}, Missed},
		{"one of two", Row{Kind: "several", Verdict: First}, StepResult{Truth: hurts("a", "b"), Found: found("a")}, Missed},
		{"the worst of two steps", Row{Kind: "several", Verdict: Missed}, StepResult{Truth: hurts("a"), Found: found("a")}, Missed},
		{"no harm was done", Row{Kind: "single", Verdict: First}, StepResult{Truth: harmless, Found: found()}, NoHarm},
		{"slowray failed", Row{Kind: "single", Verdict: First}, StepResult{Truth: hurts("a"), Found: &Report{Problem: "slowray: killed"}}, Failed},
		{"a control", Row{Kind: "control", Verdict: Silent}, StepResult{harmless: true, Found: found()}, Silent},
	} {
		c.row.step(&c.step)
		if c.row.Verdict != c.want {
			t.Errorf("%s: %s, want %s", c.name, c.row.Verdict, c.want)
		}
	}
}

func TestTally(t *testing.T) {
	var s Score
	for _, r := range []Row{
		{Kind: "single", Verdict: First}, {Kind: "single", Verdict: InList}, {Kind: "single", Verdict: NoHarm}, {Kind: "several", Verdict: Missed},
		{Kind: "pair", Verdict: First}, {Kind: "control", Verdict: Silent}, {Kind: "healthy", Verdict: False, False: []string{"a", "b"}}, {Kind: "healthy", Verdict: Failed},
	} {
		s.add(r)
	}
	want := Score{Single: Tally{Asked: 3, First: 1, InList: 1, Missed: 1, NoHarm: 1}, Pairs: Tally{Asked: 1, First: 1}, Silent: Tally{Asked: 2, First: 1, Failed: 1}, False: 2}
	s.Rows = nil
	if diff := cmp.Diff(want, s); diff != "" {
		t.Error(diff)
	}
	if s.OK() {
		t.Error("that score is all right")
	}
}

// What cannot be run is a row, and the whole keeps to its contract.
func TestScoreMatchesItsSchema(t *testing.T) {
	var out bytes.Buffer
	s, err := RunBoard(context.Background(), Board{Names: []string{"no-such-incident"}}, Options{Out: &out, JSON: true})
	if err != nil {
		t.Fatal(err)
	}
	if s.Single.Failed != 1 || s.OK() {
		t.Errorf("%+v", s)
	}
	schema, err := jsonschema.NewCompiler().Compile("../schema/score.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(&out)
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(v); err != nil {
		t.Error(err)
	}
	if _, err := json.Marshal(s); err != nil {
		t.Error(err)
	}
}
