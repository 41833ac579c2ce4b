package alert

import (
	"strings"
	"testing"
)

// FuzzRules: any text is rules that can be followed, or one line that says why not.
func FuzzRules(f *testing.F) {
	f.Add(oneHook)
	f.Add("for: 1h\nsilent: [{days: [sat], from: '22:00', to: '06:00'}]\nroutes: [{cause: 'a*', severity: critical, to: [hook]}]\n" + oneHook)
	f.Add("receivers: &a [*a]")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parse([]byte(text))
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q", err)
			}
			return
		}
		c.silent(begin, Warning)
		x, _ := follow(c)
		x.harm(begin, []Harm{{"nginx:80", 1, "all fail"}})
	})
}
