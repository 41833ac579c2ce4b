package safefile

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/slowray/slowray/internal/budget/budgettest"
)

// FuzzAnswer takes any answer of a process that acts as another user.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"text":"open /etc/x: permission denied","errno":13,"unsafe":true}`))
	f.Add([]byte(`{"file":{"content":"AA=="},"text":"\n\u001b[2J","errno":-1}`))
	f.Add([]byte(`{"text":"x` + strings.Repeat("é", maxText) + `"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		budgettest.Within(t, len(text), budgettest.Usual, func() {
			var a answer
			if json.Unmarshal(text, &a) != nil {
				return
			}
			err := a.err("/etc/nginx.conf")
			if err == nil {
				return
			}
			if said := err.Error(); strings.Contains(said, "\n") || !utf8.ValidString(said) || len(said) > maxText+64 || !strings.Contains(said, "/etc/nginx.conf") {
				t.Errorf("%q", said)
			}
		})
	})
}
