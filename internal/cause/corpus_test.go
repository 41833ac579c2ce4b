package cause

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/observe/observetest"
)

var corpus = flag.String("corpus", "", "write every fixture as a saved observation below this directory")

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// TestWriteCorpus saves what the tests of causes are made of, so that the whole
// judgement of them can be compared before and after a change of it
// (internal/diagnose, TestCorpus). Only with -corpus.
func TestWriteCorpus(t *testing.T) {
	if *corpus == "" {
		t.Skip("only with -corpus=DIR: script/corpus.sh")
	}
	write := func(id, kind, name string, inject func(*observe.Observation)) {
		o := healthy()
		if inject != nil {
			inject(o)
		}
		slug := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(name), "-"), "-")
		dir := filepath.Join(*corpus, strings.Join([]string{"fixture", id, kind, slug[:min(len(slug), 60)]}, "-"))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, "observation.json.zst")
		if _, err := os.Stat(file); err == nil {
			t.Errorf("%s: two fixtures of this name", dir)
		}
		observetest.Save(t, file, o)
		if err := os.Chmod(file, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("healthy", "busy", "host", nil)
	for _, f := range allFiring() {
		write(string(f.cause.ID), "fires", f.name, f.inject)
	}
	for _, m := range allNearMisses() {
		write(string(m.cause.ID), "near-miss", m.name, m.inject)
	}
}
