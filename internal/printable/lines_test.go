package printable

import (
	"slices"
	"testing"
)

func TestWrap(t *testing.T) {
	for _, c := range []struct {
		text  string
		width int
		want  []string
	}{
		{"", 10, []string{""}},
		{"one two  three", 7, []string{"one two", "three"}},
		{"a averylongword b", 5, []string{"a", "averylongword", "b"}},
		{"up to 55 %", 8, []string{"up to", "55 %"}},
		{"up to 55 %; more", 10, []string{"up to", "55 %; more"}},
		{"größer als", 6, []string{"größer", "als"}},
	} {
		if got := Wrap(c.text, c.width); !slices.Equal(got, c.want) {
			t.Errorf("%q in %d columns: %q", c.text, c.width, got)
		}
	}
}

func TestCut(t *testing.T) {
	for _, c := range []struct {
		text  string
		width int
		want  string
	}{{"größer", 6, "größer"}, {"größer", 5, "größ…"}, {"ab", 1, "…"}, {"ab", 0, "…"}, {"", 0, ""}} {
		if got := Cut(c.text, c.width); got != c.want {
			t.Errorf("%q in %d columns: %q", c.text, c.width, got)
		}
	}
}
