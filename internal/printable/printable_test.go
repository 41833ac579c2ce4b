package printable

import (
	"testing"
	"unicode/utf8"
)

func TestName(t *testing.T) {
	for in, want := range map[string]string{
		"plain":               "plain",
		"a\x00b\x1b[1m":       "a?b?[1m",
		"a\x1b[2J\n":          "a?[2J?",
		"caf\xc3\xa9":         "café",
		"\xff\xfe":            "??",
		"\xff\u202eé":         "??é", // what reverses the reading direction
		"0123456789abc":       "0123456789",
		"12345678\u20ac":      "12345678", // a rune is not cut
		"\x00123456789abcdef": "?123456789",
	} {
		if got := Name(in, 10); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
		if got := Name([]byte(in), 10); got != want {
			t.Errorf("bytes %q: %q, want %q", in, got, want)
		}
	}
	if n := testing.AllocsPerRun(10, func() { Name("worker-1", 64) }); n > 0 {
		t.Errorf("%.0f allocations for a plain name", n)
	}
}

func FuzzName(f *testing.F) {
	f.Add([]byte("nginx: worker \xff\u202e"), uint8(15))
	f.Fuzz(func(t *testing.T, b []byte, limit uint8) {
		s := Name(b, int(limit))
		if len(s) > int(limit) || !utf8.ValidString(s) || Name(s, int(limit)) != s {
			t.Errorf("%q: %q", b, s)
		}
	})
}
