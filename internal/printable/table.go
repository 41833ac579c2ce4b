package printable

import (
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// Fold wraps those lines of a printable text that are longer than width columns; what
// follows of a line stands further in than its beginning. A width of 0 is any.
func Fold(text string, width int) string {
	if width <= 0 {
		return text
	}
	var out strings.Builder
	for line := range strings.Lines(text) {
		line, end := strings.CutSuffix(line, "\n")
		if ansi.StringWidth(line) > width {
			body := strings.TrimLeft(line, " ")
			in := line[:len(line)-len(body)]
			line = in + strings.Join(Wrap(body, max(width-len(in)-2, 20)), "\n"+in+"  ")
		}
		out.WriteString(line)
		if end {
			out.WriteByte('\n')
		}
	}
	return out.String()
}

// Table is rows of printable cells that stand under each other. The last cell of a row is
// wrapped under itself where the table would be wider than width columns, 0 being any; under
// the row where that leaves it too little.
func Table(rows [][]string, width int) string {
	var widths []int
	for _, row := range rows {
		for i, cell := range row[:max(len(row)-1, 0)] {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], ansi.StringWidth(cell))
		}
	}
	var out strings.Builder
	for _, row := range rows {
		line := ""
		for i, cell := range row[:len(row)-1] {
			line += Pad(cell, widths[i]) + "  "
		}
		last, in := row[len(row)-1], ansi.StringWidth(line)
		lines := []string{last}
		switch {
		case width <= 0 || in+ansi.StringWidth(last) <= width:
		case width-in < min(ansi.StringWidth(last), leastLast):
			in = 4
			lines = append([]string{""}, Wrap(last, max(width-in, 20))...)
		default:
			lines = Wrap(last, width-in)
		}
		for i, l := range lines {
			if i > 0 {
				line = strings.Repeat(" ", in)
			}
			out.WriteString(strings.TrimRight(line+l, " ") + "\n")
		}
	}
	return out.String()
}

// leastLast is how many columns the last cell of a table has at least.
const leastLast = 24
