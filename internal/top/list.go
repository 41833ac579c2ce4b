package top

import (
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/printable"
)

// View draws the page.
func (m *model) View() tea.View {
	v := tea.NewView(m.draw())
	v.AltScreen = true
	v.WindowTitle = "slowray top"
	return v
}

// draw is the screen: exactly as many lines as it has, none wider than it is.
func (m *model) draw() string {
	var body []string
	switch m.page {
	case listPage:
		body = m.list()
	case endpointPage:
		body = m.drawEndpoint()
	case requestPage:
		body = m.drawRequest()
	case helpPage:
		body = m.help()
	}
	foot := m.foot()
	room := max(m.height-len(foot), 0)
	body = body[:min(len(body), room)]
	for len(body) < room {
		body = append(body, "")
	}
	lines := append(body, foot...)
	lines = lines[:min(len(lines), max(m.height, 1))]
	for i := range lines {
		lines[i] = ansi.Truncate(lines[i], m.width, "…")
	}
	return strings.Join(lines, "\n")
}

const listHead, footLines = 2, 2

// listHeight is how many endpoints are on the screen.
func (m *model) listHeight() int { return max(m.height-listHead-footLines, 1) }

func (m *model) list() []string {
	title := m.style.bold("slowray top")
	if m.shown == nil {
		return []string{title + "  watching…"}
	}
	title += fmt.Sprintf("  %s, average of %s, by %s", figure.Counted(len(m.shown.Endpoints), "endpoint"), span(m.shown.Seconds), columns[m.sort].long)
	if m.filter != "" || m.typing {
		title = m.style.bold("slowray top") + fmt.Sprintf("  %d of %s, filter: ", len(m.rows), figure.Counted(len(m.shown.Endpoints), "endpoint")) + m.filter
		if m.typing {
			title += m.style.reverse(" ")
		}
	}
	lines := []string{title + m.frozenMark()}
	places := place(m.width, m.rows)
	lines = append(lines, m.style.bold(header(places, m.sort, m.reversed)))
	from, to := m.selected.window(m.listHeight())
	for i := from; i < to; i++ {
		lines = append(lines, m.line(places, &m.rows[i], i == m.selected.at))
	}
	if len(m.rows) == 0 {
		lines = append(lines, " no requests seen")
	}
	return lines
}

func header(places []placed, sorted int, reversed bool) string {
	var b strings.Builder
	for _, p := range places {
		b.WriteString(p.header(p.index == sorted, reversed))
	}
	return b.String()
}

// line is one endpoint's.
func (m *model) line(places []placed, r *row, selected bool) string {
	mark := " "
	if selected {
		mark = "›"
	}
	cells := make([]string, len(places))
	for i, p := range places {
		cells[i] = p.cell(r)
		if selected {
			continue
		}
		switch name := columns[p.index].name; {
		case name == mostIn && r.largest.share > 0:
			cells[i] = m.style.part(r.largest.of, cells[i])
		case name == "err/s" && r.errors > 0, name == "loss‰" && r.loss >= 1:
			cells[i] = m.style.warn(cells[i])
		}
	}
	text := mark + strings.Join(cells, " ")
	if selected {
		return m.style.reverse(left(text, m.width))
	}
	return text
}

// foot is the two lines at the bottom.
func (m *model) foot() []string {
	keys := "↵ open  ↑↓ select  s sort  r reverse  / filter  f freeze  ? help  q quit"
	switch {
	case m.typing:
		keys = "type what to show · enter keep · esc show all"
	case m.page == endpointPage:
		keys = "↵ life of a request  ↑↓ select  f freeze  esc back  ? help  q quit"
	case m.page != listPage:
		keys = "esc back  q quit"
	}
	return []string{m.style.faint(left(m.price(), m.width)), m.style.faint(left(keys, m.width))}
}

// price says what slowray itself takes, and what it did not see.
func (m *model) price() string {
	if m.shown == nil {
		return ""
	}
	return priceText(m.shown)
}

func priceText(s *Snapshot) string {
	text := "slowray takes " + figure.Percent(s.CPU) + " of the CPU"
	switch {
	case s.Follow > 1:
		text += fmt.Sprintf(" · 1 of %s connections followed at a time: counts are estimates", figure.Count(s.Follow))
	case s.Weight > 1:
		text += fmt.Sprintf(" · 1 of %s requests recorded, all counted", figure.Count(s.Weight))
	case s.Sampled > 0:
		text += fmt.Sprintf(" · %s only counted", figure.Counted(s.Sampled, "request"))
	}
	if s.Lost > 0 {
		text += fmt.Sprintf(" · %s LOST", figure.Counted(s.Lost, "record"))
	}
	if s.Weight <= 1 && s.Sampled == 0 && s.Lost == 0 {
		text += " · every request recorded"
	}
	for _, what := range s.Missing {
		text += " · " + printable.Text(what)
	}
	return text
}

func (m *model) frozenMark() string {
	if !m.frozen {
		return ""
	}
	return "  " + m.style.reverse(" FROZEN ")
}

// span writes a number of seconds.
func span(seconds float64) string {
	return time.Duration(seconds*1e9 + 5e7).Truncate(100 * time.Millisecond).String()
}

// help is the page of keys and columns.
func (m *model) help() []string {
	lines := []string{
		m.style.bold("slowray top"),
		" ↑ ↓ j k  select            s S  sort by the next, previous column",
		" enter    open              r    reverse the order",
		" esc      back              /    filter by side, address, process, part",
		" f        freeze, go on     q    quit",
		"",
	}
	shown := map[int]bool{}
	for _, p := range place(m.width, m.rows) {
		shown[p.index] = true
	}
	for i := range columns {
		c := &columns[i]
		text := " " + left(c.name, 8) + " " + c.long
		if !shown[i] {
			text += " (shown on a wider terminal)"
		}
		lines = append(lines, text)
	}
	return lines
}
