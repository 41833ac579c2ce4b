package printable

import "testing"

func TestFold(t *testing.T) {
	for _, c := range []struct {
		text  string
		width int
		want  string
	}{
		{"", 10, ""},
		{"fits  as it is\n", 20, "fits  as it is\n"},
		{"any width at all", 0, "any width at all"},
		{"  - a list of words that is long\nnext", 26, "  - a list of words that\n    is long\nnext"},
	} {
		if got := Fold(c.text, c.width); got != c.want {
			t.Errorf("%q in %d columns: %q", c.text, c.width, got)
		}
	}
}

func TestTable(t *testing.T) {
	rows := [][]string{{"ID", "WHEN", "WHAT"}, {"7", "10:00", "a text that has to be wrapped somewhere"}, {"全连接", "x", ""}}
	for width, want := range map[int]string{
		0:  "ID      WHEN   WHAT\n7       10:00  a text that has to be wrapped somewhere\n全连接  x\n",
		40: "ID      WHEN   WHAT\n7       10:00  a text that has to be\n               wrapped somewhere\n全连接  x\n",
		30: "ID      WHEN   WHAT\n7       10:00\n    a text that has to be\n    wrapped somewhere\n全连接  x\n",
	} {
		if got := Table(rows, width); got != want {
			t.Errorf("in %d columns:\n%s", width, got)
		}
	}
}
