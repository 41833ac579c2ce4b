package logtail

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestPrintable(t *testing.T) {
	for _, c := range []struct {
		in   string
		max  int
		want string
	}{
		{"plain text", 100, "plain text"},
		{"\x1b[31mred\x07\r\n", 100, `\x1b[31mred\x07\x0d\x0a`},
		{"a\tb", 100, "a b"},
		{"\xff\xc3(", 100, `\xff\xc3(`},
		{"\u202egnp.exe", 100, `\u202egnp.exe`},
		{"\u0085\u009b", 100, `\u0085\u009b`},
		{"grüße", 100, "grüße"},
		{"12345", 5, "12345"},
		{"123456", 5, "12…"},
		{"1\x00", 5, `1\x00`},
		{"12\x00", 5, "12…"},
		{"abc", 2, "ab"},
		{"abc", 0, ""},
		{"é\xff", 3, "…"},
	} {
		if got := Printable([]byte(c.in), c.max); got != c.want && !(c.max < 3 && len(got) <= c.max) {
			t.Errorf("%q in %d: got %q, want %q", c.in, c.max, got, c.want)
		}
	}
}

func FuzzPrintable(f *testing.F) {
	f.Add([]byte("\x1b]0;x\x07\u202e\xff"), 20)
	f.Fuzz(func(t *testing.T, b []byte, max int) {
		if max > 1<<16 {
			return
		}
		s := Printable(b, max)
		if len(s) > max && s != "" || !utf8.ValidString(s) {
			t.Errorf("%q is %d bytes, at most %d", s, len(s), max)
		}
		if i := strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
			t.Errorf("%q is not printable at %d", s, i)
		}
		if again := Printable([]byte(s), len(s)); again != s {
			t.Errorf("%q becomes %q", s, again)
		}
	})
}
