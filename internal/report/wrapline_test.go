package report

import (
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
)

// TestRequestLinesFit: no line is wider than the terminal, and no word is broken.
func TestRequestLinesFit(t *testing.T) {
	for _, style := range []Style{{Width: 80}, {Width: 60, Color: true}} {
		r := called()
		text := string(AppendRequestText(AppendRequestHeader(nil, style), r, names, nil, style))
		for line := range strings.Lines(text) {
			if n := ansi.StringWidth(strings.TrimSuffix(line, "\n")); n > style.Width {
				t.Errorf("%d columns: %q", n, line)
			}
		}
		wide := string(AppendRequestText(AppendRequestHeader(nil, Style{Color: style.Color}), r, names, nil, Style{Color: style.Color}))
		if strings.Join(strings.Fields(text), " ") != strings.Join(strings.Fields(wide), " ") {
			t.Error(text)
		}
	}
}
