package pool

import "testing"

// FuzzNumber reads what a configuration gives as a number.
func FuzzNumber(f *testing.F) {
	for _, text := range []string{"", "150", "-1", "+80", "0x50", "65536", "9223372036854775808", "1e3", " 7"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if n := Count(text); n < 0 || n*n < n {
			t.Errorf("%q is %d", text, n)
		}
		if n := Port(text); n < 0 || n > 65535 || n > 0 && n != Count(text) {
			t.Errorf("%q is port %d, and the number %d", text, n, Count(text))
		}
	})
}
