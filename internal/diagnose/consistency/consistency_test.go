package consistency

import (
	"context"
	"path/filepath"
	"testing"

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
