package language

import (
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/budget/budgettest"
)

// FuzzText: whatever a report says is read within what a line of it is worth, and what is
// no sentence of the catalogue stays as it is.
func FuzzText(f *testing.F) {
	for _, text := range []string{"", "The conntrack table is full", "a request on :80 takes 3 ms on average, 2 ms of it waiting for accept()", "{1}; {2}", strings.Repeat("a, ", 300)} {
		f.Add(text)
	}
	l, err := New("zh")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		budgettest.Within(t, len(text), budgettest.Cost{PerByte: 64 << 10, Fixed: 64 << 20, CPU: budgettest.Usual.CPU}, func() {
			if l.Text(text) == "" && text != "" {
				t.Error("nothing is left of it")
			}
			if _, err := parse(text); err != nil && strings.Contains(err.Error(), "\n") {
				t.Error(err)
			}
		})
	})
}
