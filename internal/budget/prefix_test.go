package budget

import (
	"fmt"
	"testing"
)

func TestPrefix(t *testing.T) {
	for _, c := range []struct {
		writes []string
		text   string
		over   bool
	}{
		{nil, "", false},
		{[]string{"ab", "cd"}, "abcd", false},
		{[]string{"abcde"}, "abcd", true},
		{[]string{"abc", "de", "f"}, "abcd", true},
	} {
		p := Prefix{Most: 4}
		for _, w := range c.writes {
			if n, err := fmt.Fprint(&p, w); n != len(w) || err != nil {
				t.Errorf("%q: %d, %v", w, n, err)
			}
		}
		if string(p.Text) != c.text || p.Over != c.over {
			t.Errorf("%q: %q, over %t", c.writes, p.Text, p.Over)
		}
	}
}
