package top

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/fleet/answer"
	"github.com/slowray/slowray/internal/printable"
)

// grid is a table of cells: what the fleet's services, or its hosts, are shown as.
type grid struct {
	name    string
	columns []gridColumn
	rows    [][]cell
}

type gridColumn struct {
	name  string
	width int  // at least
	text  bool // aligned to the left
	rank  int  // when the terminal is narrow, columns of the highest rank are left out; 0 never
}

type cell struct {
	text string
	sort float64 // 0 of texts, which are sorted from A to Z
	warn bool
}

func word(text string) cell { return cell{text: printable.Text(text)} }

func figureCell(text string, v float64) cell { return cell{text: text, sort: v} }

func warning(n int) cell {
	if n == 0 {
		return cell{text: "-"}
	}
	return cell{text: figure.Count(uint64(n)), sort: float64(n), warn: true}
}

func micros(us int64) cell {
	if us <= 0 {
		return cell{text: "-"}
	}
	return figureCell(duration(float64(us)*1e3), float64(us))
}

func rate(v float64) cell { return figureCell(amount(v), v) }

// whole is a number of things.
func whole(n int) cell { return figureCell(figure.Count(uint64(n)), float64(n)) }

func failed(v float64) cell {
	c := rate(v)
	c.warn = v > 0
	return c
}

// serviceGrid is a row for each service.
func serviceGrid(t *answer.Table) *grid {
	g := &grid{name: "service", columns: []gridColumn{
		{"service", 16, true, 0}, {"hosts", 5, false, 2}, {"req/s", 5, false, 0}, {"err/s", 5, false, 0}, {"p50", 5, false, 0}, {"p99", 5, false, 0},
		{"worst host", 12, true, 1}, {"its p99", 7, false, 1}, {"abnormal", 8, false, 0},
	}}
	for i := range t.Services {
		s := &t.Services[i]
		g.rows = append(g.rows, []cell{word(s.Service), whole(s.Hosts), rate(s.Rate), failed(s.Errors), micros(s.P50US), micros(s.P99US),
			word(s.Worst), micros(s.WorstUS), warning(s.Abnormal)})
	}
	return g
}

// hostGrid is a row for each host.
func hostGrid(t *answer.Table) *grid {
	g := &grid{name: "host", columns: []gridColumn{
		{"host", 16, true, 0}, {"services", 8, false, 2}, {"req/s", 5, false, 0}, {"err/s", 5, false, 0}, {"loss‰", 5, false, 1},
		{"worst service", 13, true, 1}, {"its p99", 7, false, 0}, {"abnormal", 8, false, 0}, {"heard of", 9, true, 0},
	}}
	for i := range t.Hosts {
		h := &t.Hosts[i]
		heard := cell{text: h.Last.Format("15:04:05")}
		if h.Silent {
			heard = cell{text: "SILENT since " + h.Last.Format("15:04:05"), warn: true}
		}
		g.rows = append(g.rows, []cell{word(h.Host), whole(h.Services), rate(h.Rate), failed(h.Errors), rate(h.Retrans),
			word(h.Worst), micros(h.WorstUS), warning(h.Abnormal), heard})
	}
	return g
}

// sort orders the rows by a column: numbers from the largest, texts from A.
func (g *grid) sort(by int, reversed bool) {
	slices.SortStableFunc(g.rows, func(a, b []cell) int {
		order := cmp.Or(cmp.Compare(b[by].sort, a[by].sort), strings.Compare(a[by].text, b[by].text))
		if !g.columns[by].text && a[by].sort == b[by].sort {
			order = 0
		}
		if reversed {
			order = -order
		}
		return cmp.Or(order, strings.Compare(a[0].text, b[0].text))
	})
}

// widest is the widest that a column of text becomes.
const widest = 40

// widths are those of the columns that are shown in so many columns of a terminal (0: all
// of them, as wide as they need); 0 is a column that is not shown.
func (g *grid) widths(width int) []int {
	w := make([]int, len(g.columns))
	for i := range g.columns {
		w[i] = max(g.columns[i].width, ansi.StringWidth(g.columns[i].name))
		for _, row := range g.rows {
			w[i] = min(max(w[i], ansi.StringWidth(row[i].text)), widest)
		}
	}
	sum := func() (n int) {
		for _, x := range w {
			if x > 0 {
				n += x + 1
			}
		}
		return n
	}
	for rank := 2; rank > 0 && width > 0 && sum() > width; rank-- {
		for i := range w {
			if g.columns[i].rank == rank {
				w[i] = 0
			}
		}
	}
	if over := sum() - width; width > 0 && over > 0 {
		w[0] = max(w[0]-over, 8)
	}
	return w
}

func (g *grid) line(cells func(i int) (string, bool), widths []int, warn func(string) string) string {
	var b strings.Builder
	for i, width := range widths {
		if width == 0 {
			continue
		}
		text, alarm := cells(i)
		if g.columns[i].text {
			text = left(text, width)
		} else {
			text = right(text, width)
		}
		if alarm {
			text = warn(text)
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(text)
	}
	return b.String()
}

func plain(s string) string { return s }

// FleetText writes a table of a fleet once, for people: what is abnormal, the services,
// the hosts.
func FleetText(w io.Writer, t *answer.Table) error {
	lines := []string{fmt.Sprintf("%s UTC, average of %d s: %s, %s", t.At.Format("2006-01-02 15:04:05"), t.Seconds, figure.Counted(len(t.Services), "service"), figure.Counted(len(t.Hosts), "host"))}
	lines = append(lines, incidentLines(t)...)
	for _, g := range []*grid{serviceGrid(t), hostGrid(t)} {
		if len(g.rows) == 0 {
			continue
		}
		widths := g.widths(0)
		lines = append(lines, "", trimmed(g.line(func(i int) (string, bool) { return g.columns[i].name, false }, widths, plain)))
		for _, row := range g.rows {
			lines = append(lines, trimmed(g.line(func(i int) (string, bool) { return row[i].text, false }, widths, plain)))
		}
	}
	_, err := io.WriteString(w, strings.Join(lines, "\n")+"\n")
	return err
}

// lateText says why no service is in a table: empty where some are.
func lateText(t *answer.Table) string {
	if len(t.Services) > 0 {
		return ""
	}
	if len(t.Hosts) == 0 {
		return "no host has ever shipped here: start slowray record --to with this URL on the hosts"
	}
	last := t.Hosts[0].Last
	for i := range t.Hosts {
		if t.Hosts[i].Last.After(last) {
			last = t.Hosts[i].Last
		}
	}
	return "no host has figures of these seconds; the last that was heard of any is of " + last.Format("2006-01-02 15:04:05") + " (slowray record --status on a host says how far it is)"
}

// incidentLines are what is abnormal now, a line each, after what is missing.
func incidentLines(t *answer.Table) (lines []string) {
	if text := lateText(t); text != "" {
		lines = append(lines, text)
	}
	for i := range t.Incidents {
		x := &t.Incidents[i]
		lines = append(lines, printable.Text(fmt.Sprintf("since %s: %s", x.Since.Format("15:04:05"), x.Text)))
	}
	return lines
}
