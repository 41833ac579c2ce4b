package top

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/ansi"

	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/fleet/answer"
	"github.com/slowray/slowray/internal/printable"
)

// fleetModel is a fleet's table on the screen.
type fleetModel struct {
	style         style
	width, height int
	shown, newest *answer.Table
	trouble       string // why the newest is not newer
	frozen        bool
	hosts         bool // and not services
	sort          [2]int
	reversed      [2]bool
	top           int // first row on the screen
}

type (
	fleetMsg   struct{ *answer.Table }
	troubleMsg string
)

func newFleetModel(noColor bool) *fleetModel {
	return &fleetModel{style: style{color: !noColor}, width: 80, height: 24, sort: [2]int{2, 2}}
}

// Init is called once.
func (m *fleetModel) Init() tea.Cmd { return nil }

// Update reacts to a message.
func (m *fleetModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case troubleMsg:
		m.trouble = string(msg)
	case fleetMsg:
		m.newest, m.trouble = msg.Table, ""
		if !m.frozen || m.shown == nil {
			m.shown = m.newest
		}
	case tea.KeyPressMsg:
		return m, m.key(msg.String())
	}
	return m, nil
}

func (m *fleetModel) key(key string) tea.Cmd {
	view := m.view()
	n := len(m.grid().columns)
	switch key {
	case "q", "ctrl+c", "esc":
		return tea.Quit
	case "tab", "h":
		m.hosts, m.top = !m.hosts, 0
	case "s":
		m.sort[view] = (m.sort[view] + 1) % n
	case "S":
		m.sort[view] = (m.sort[view] + n - 1) % n
	case "r":
		m.reversed[view] = !m.reversed[view]
	case "f":
		if m.frozen = !m.frozen; !m.frozen {
			m.shown = m.newest
		}
	case "down", "j":
		m.top++
	case "up", "k":
		m.top--
	case "pgdown", "space":
		m.top += m.height / 2
	case "pgup":
		m.top -= m.height / 2
	}
	return nil
}

func (m *fleetModel) view() int {
	if m.hosts {
		return 1
	}
	return 0
}

func (m *fleetModel) grid() *grid {
	t := m.shown
	if t == nil {
		t = &answer.Table{}
	}
	if m.hosts {
		return hostGrid(t)
	}
	return serviceGrid(t)
}

// View draws the screen.
func (m *fleetModel) View() tea.View {
	v := tea.NewView(m.draw())
	v.AltScreen = true
	v.WindowTitle = "slowray fleet top"
	return v
}

// draw is the screen: exactly as many lines as it has, none wider than it is.
func (m *fleetModel) draw() string {
	var head []string
	title := m.style.bold("slowray fleet top")
	g := m.grid()
	by, view := m.sort[m.view()], m.view()
	if m.shown == nil {
		title += "  asking…"
	} else {
		title += fmt.Sprintf("  %s, %s, average of %d s to %s UTC, by %s", figure.Counted(len(m.shown.Services), "service"), figure.Counted(len(m.shown.Hosts), "host"),
			m.shown.Seconds, m.shown.At.Format("15:04:05"), g.columns[by].name)
	}
	if m.frozen {
		title += "  " + m.style.reverse(" FROZEN ")
	}
	head = append(head, title)
	if m.shown != nil {
		lines := incidentLines(m.shown)
		room := max(m.height/4, 1)
		if len(lines) > room {
			lines = append(lines[:room-1], fmt.Sprintf("and %d more", len(lines)-room+1))
		}
		for _, l := range lines {
			head = append(head, m.style.warn(left(l, m.width)))
		}
	}
	widths := g.widths(m.width)
	head = append(head, m.style.bold(g.line(func(i int) (string, bool) { return g.columns[i].name, false }, widths, plain)))
	g.sort(by, m.reversed[view])
	room := max(m.height-len(head)-1, 0)
	m.top = max(min(m.top, len(g.rows)-room), 0)
	lines := head
	for _, row := range g.rows[m.top:min(m.top+room, len(g.rows))] {
		lines = append(lines, g.line(func(i int) (string, bool) { return row[i].text, row[i].warn }, widths, m.style.warn))
	}
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	foot := "tab services/hosts  s sort  r reverse  ↑↓ scroll  f freeze  q quit"
	if m.trouble != "" {
		foot = printable.Text(m.trouble)
	}
	lines = append(lines[:min(len(lines), max(m.height-1, 0))], m.style.faint(left(foot, m.width)))
	for i := range lines {
		lines[i] = ansi.Truncate(lines[i], m.width, "…")
	}
	return strings.Join(lines, "\n")
}

// LiveFleet shows a fleet's table on the terminal until it is quit or ctx is done. next
// is asked for a table again and again, after every; its errors are shown, and it is
// asked again.
func LiveFleet(ctx context.Context, next func(context.Context) (*answer.Table, error), every time.Duration, noColor bool, in io.Reader, out io.Writer) error {
	m := newFleetModel(noColor)
	options := []tea.ProgramOption{
		tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out), tea.WithoutSignalHandler(), tea.WithFPS(redraws), tea.WithWindowSize(m.width, m.height),
	}
	if noColor {
		options = append(options, tea.WithColorProfile(colorprofile.ASCII))
	}
	program := tea.NewProgram(m, options...)
	asking, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			t, err := next(asking)
			switch {
			case asking.Err() != nil:
				return
			case err != nil:
				program.Send(troubleMsg(err.Error()))
			default:
				program.Send(fleetMsg{t})
			}
			select {
			case <-asking.Done():
				return
			case <-time.After(every):
			}
		}
	}()
	_, err := program.Run()
	stop()
	<-done
	if ctx.Err() != nil || errors.Is(err, tea.ErrInterrupted) {
		return nil
	}
	return err
}
