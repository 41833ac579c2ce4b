package answer

import (
	"strings"
	"testing"
)

// TestEventLines: every line says with a word what kind it is.
func TestEventLines(t *testing.T) {
	for kind, word := range map[string]string{Onset: "BEGINS", Update: "CLEARER", Over: "OVER"} {
		e := Event{Kind: kind, Incident: Incident{Text: "app is slow."}}
		if f := strings.Fields(e.Line()); f[1] != word {
			t.Errorf("%s: %s", kind, e.Line())
		}
	}
}
