package cause

import (
	"regexp"
	"strings"
	"testing"
)

// avoided are words of the glossary's left column: what the field has another word for.
var avoided = regexp.MustCompile(`(?i)\b(is|are|was|were) told\b|\bbeside\b|\bfor want of\b|\bdear(er)?\b|soft interrupt|collects? garbage|collecting garbage|` +
	`sent again|thrown? away|time of a request|\bmend|name server|99 of 100|99th of 100|takes up connections|gives way|may run on few`)

// TestTitles: a title names the fault in at most nine words, in the words of the field.
func TestTitles(t *testing.T) {
	for _, c := range Catalogue() {
		if n := len(strings.Fields(c.Title)); n > 9 {
			t.Errorf("%s: %d words: %s", c.ID, n, c.Title)
		}
		if found := avoided.FindString(c.Title); found != "" {
			t.Errorf("%s: %q in %q", c.ID, found, c.Title)
		}
	}
}
