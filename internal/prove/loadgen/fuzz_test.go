package loadgen

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/budget/budgettest"
)

// FuzzCommand takes command lines apart as a person may type them. With another duration
// only the word that holds it is another, and it is found in the same place again.
func FuzzCommand(f *testing.F) {
	for _, line := range []string{
		"wrk -c 10 -d 10s http://h/", "wrk -d5s --latency http://h", "hey -z 1.5s 'http://h/?a b'", "nsenter -t 1 -n ab -t 5 -c 1 http://h/", "k6 run --duration=3s x.js",
		"sysbench --time=9 oltp", "A=1 wrk -d 1s x", "vegeta attack | vegeta report", "wrk -d -", "wrk -d", "\"wrk", "''", "wrk -d -d5 -R 10",
	} {
		f.Add(line, int64(1500*time.Millisecond))
	}
	f.Fuzz(func(t *testing.T, line string, d int64) {
		budgettest.Within(t, len(line), budgettest.Usual, func() {
			c, err := Parse(line)
			if err != nil {
				return
			}
			c.Closed()
			made := c.For(time.Duration(d))
			if !c.Adjustable() {
				if made.Line != c.Line {
					t.Errorf("%q became %q", c.Line, made.Line)
				}
				return
			}
			if len(made.argv) != len(c.argv) {
				t.Fatalf("%q became %q", c.argv, made.argv)
			}
			for i := range made.argv {
				if i != c.at && made.argv[i] != c.argv[i] {
					t.Errorf("%q became %q", c.argv, made.argv)
				}
			}
			again := made.For(time.Duration(d))
			if !slices.Equal(again.argv, made.argv) {
				t.Errorf("%q, and then %q", made.argv, again.argv)
			}
			// Where no word needs a quote the line says what will run.
			if !strings.ContainsAny(line, "'\"\n\t ") {
				if words, err := words(made.Line); err != nil || !slices.Equal(words, made.argv) {
					t.Errorf("%q runs %q: %v", made.Line, made.argv, err)
				}
			}
			lastLine(line)
		})
	})
}
