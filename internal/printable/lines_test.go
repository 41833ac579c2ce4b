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

func TestClause(t *testing.T) {
	for _, c := range []struct {
		text  string
		width int
		want  string
	}{
		{"packages: curl, nginx, php8.2-fpm and 5 more", 44, "packages: curl, nginx, php8.2-fpm and 5 more"},
		{"packages: curl, nginx, php8.2-fpm and 5 more", 40, "packages: curl, nginx …"},
		{"packages: curl, nginx, php8.2-fpm and 5 more", 24, "packages: curl, nginx …"},
		{"what the threads wait for was not watched", 30, "what the threads wait for …"},
		{"not permitted (needs CAP_SYS_PTRACE)", 20, "not permitted …"},
		{"/a/path/that/is/long changed", 16, "/a/path/that/i …"},
		{"没有权限，需要 root", 14, "没有权限 …"},
		{"größer", 2, "…"},
		{"größer", 0, "…"},
	} {
		if got := Clause(c.text, c.width); got != c.want {
			t.Errorf("%q in %d columns: %q, want %q", c.text, c.width, got, c.want)
		}
	}
}
