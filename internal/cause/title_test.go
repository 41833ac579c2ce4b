package cause

import (
	"strings"
	"testing"
)

// TestTitles: a title names the fault in at most nine words. In which words is a matter of
// the glossary (internal/catalogue).
func TestTitles(t *testing.T) {
	for _, c := range Catalogue() {
		if n := len(strings.Fields(c.Title)); n > 9 {
			t.Errorf("%s: %d words: %s", c.ID, n, c.Title)
		}
	}
}
