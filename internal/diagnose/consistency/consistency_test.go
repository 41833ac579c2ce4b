package consistency

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/observe"
)

// TestCorpus asks for contradictions in the reports of all saved observations.
func TestCorpus(t *testing.T) {
	files, err := filepath.Glob("../testdata/corpus/*/observation.json.zst")
	if err != nil || len(files) < 200 {
		t.Fatalf("%d observations (%v)", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(filepath.Dir(file)), func(t *testing.T) {
			t.Parallel()
			o, err := observe.Load(file)
			if err != nil {
				t.Fatal(err)
			}
			r := diagnose.Diagnose(context.Background(), o, diagnose.Saved)
			for _, what := range Check(&r) {
				t.Error(what)
			}
		})
	}
}

// TestQuotedLines: a line of somebody's log is not judged as slowray's own words.
func TestQuotedLines(t *testing.T) {
	const line = "2026-11-26  1:24:34 0 [Warning] Aborted connection"
	for source, wrong := range map[string]int{"log": 0, "request records": 1} {
		f := cause.Finding{Cause: "mariadb-connections-exhausted", Role: cause.RoleCause, Evidence: []cause.Evidence{{Fact: "the first such line", Value: line, Source: source}}}
		c := checker{}
		c.finding(&f)
		named := 0
		for _, what := range c.found {
			if strings.Contains(what, "no name") {
				named++
			}
		}
		if named != wrong {
			t.Errorf("%s: %q", source, c.found)
		}
	}
}
