package main

import (
	"bytes"
	"strings"
	"testing"
	"unicode"
)

// TestErrorsAreOneLine: what is wrong is said on one line that drives no
// terminal, whatever was given.
func TestErrorsAreOneLine(t *testing.T) {
	for _, bad := range []string{"\x1b]0;owned\x07\x1b[2J", "a\nb\r\nc", "\u202egnp.exe", "\xff\xfe", strings.Repeat("A", 64<<10), "<script>"} {
		for _, args := range [][]string{
			{bad}, {"causes", bad}, {"replay", bad}, {"compare", bad, bad}, {"prove", bad}, {"--for", bad}, {"completion", bad}, {"lab", "run", bad},
			{"why", "--unit", bad, "--for", bad}, {"record", "--listen", bad, "--window", bad},
		} {
			var out, wrong bytes.Buffer
			if code := run(args, &out, &wrong); code != exitFailed {
				t.Errorf("%.60q: exit status %d", args, code)
			}
			text := wrong.String()
			if !strings.HasPrefix(text, "slowray: ") || strings.Count(text, "\n") != 1 || len(text) > 10_000 || out.Len() > 0 {
				t.Errorf("%.60q: %d bytes of errors, %d of output: %.200q", args, len(text), out.Len(), text)
			}
			for _, c := range strings.TrimSuffix(text, "\n") {
				if unicode.IsControl(c) || unicode.Is(unicode.Cf, c) {
					t.Errorf("%.60q: character %U in %.200q", args, c, text)
					break
				}
			}
		}
	}
}
