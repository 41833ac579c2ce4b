package lab

import (
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"

	"github.com/slowray/slowray/lab/incident"
)

// TestStepFits: what is injected is broken at words where the terminal is narrow.
func TestStepFits(t *testing.T) {
	var out strings.Builder
	t.Setenv("COLUMNS", "80")
	p := newPrinter(Options{Out: &out})
	const text = "listen backlog of 16 in nginx, and net.core.somaxconn lowered to 16 in its network namespace"
	p.step(injectedSet{name: "injected, under load", faults: []incident.Fault{{Name: "backlog", Text: text}, {Name: "loss", Text: "3 % of the packets are lost"}}})
	for line := range strings.Lines(out.String()) {
		if ansi.StringWidth(strings.TrimSuffix(line, "\n")) > 80 {
			t.Errorf("too wide: %s", line)
		}
	}
	if joined := strings.Join(strings.Fields(out.String()), " "); joined != "injected, under load injected backlog "+text+" loss 3 % of the packets are lost" {
		t.Errorf("broken within a word:\n%s", out.String())
	}
}
