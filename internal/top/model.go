package top

import (
	"slices"
	"strings"
	"time"
	"unicode"

	tea "charm.land/bubbletea/v2"

	"github.com/slowray/slowray/internal/observe"
)

type page int

const (
	listPage page = iota
	endpointPage
	requestPage
	helpPage
)

// model is what is on the screen. Update changes it, View draws it; neither
// touches the system.
type model struct {
	style         style
	width, height int
	every         time.Duration

	shown  *Snapshot // nil before the first
	newest *Snapshot // kept aside while frozen
	frozen bool

	page, behind page // behind the help
	sort         int
	reversed     bool
	filter       string
	typing       bool
	rows         []row // of shown, filtered and sorted

	selected cursor[endpointID]
	endpoint row // the one drilled into, as last seen
	gone     bool
	slow     cursor[sampleID]
	request  observe.RequestSample
}

// sampleID finds a request again in the next picture.
type sampleID struct {
	start       int64
	local, peer string
	seq         uint32
}

func idOf(s *observe.RequestSample) sampleID {
	return sampleID{s.StartNS, s.Local, s.Peer, s.Seq}
}

type snapshotMsg Snapshot

func newModel(opt Options) *model {
	return &model{style: style{color: !opt.NoColor}, width: 80, height: 24, every: opt.Every, sort: defaultSort}
}

// Init is called once.
func (m *model) Init() tea.Cmd { return nil }

// Update reacts to a message.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case snapshotMsg:
		snap := Snapshot(msg)
		if m.newest = &snap; !m.frozen || m.shown == nil {
			m.show(m.newest)
		}
	case tea.KeyPressMsg:
		if key := msg.String(); key == "ctrl+c" {
			return m, tea.Quit
		}
		if m.typing {
			m.typed(msg)
			return m, nil
		}
		return m, m.key(msg.String())
	}
	return m, nil
}

// show takes a snapshot to the screen.
func (m *model) show(s *Snapshot) {
	m.shown = s
	m.arrange()
	if m.page == listPage || m.endpoint.e == nil {
		return
	}
	m.gone = true
	for i := range s.Endpoints {
		if r := rowOf(&s.Endpoints[i], s.Seconds); r.id == m.endpoint.id {
			m.endpoint, m.gone = r, false
		}
	}
	m.slow.follow(m.slowIDs())
}

// arrange filters and sorts the rows and finds the selected one again.
func (m *model) arrange() {
	m.rows = m.rows[:0]
	if m.shown == nil {
		return
	}
	for i := range m.shown.Endpoints {
		r := rowOf(&m.shown.Endpoints[i], m.shown.Seconds)
		if strings.Contains(r.search, strings.ToLower(m.filter)) {
			m.rows = append(m.rows, r)
		}
	}
	sortRows(m.rows, m.sort, m.reversed)
	ids := make([]endpointID, len(m.rows))
	for i := range m.rows {
		ids[i] = m.rows[i].id
	}
	m.selected.follow(ids)
}

func (m *model) slowIDs() []sampleID {
	var ids []sampleID
	for i := range m.endpoint.e.Slowest {
		ids = append(ids, idOf(&m.endpoint.e.Slowest[i]))
	}
	return ids
}

// maxFilter is how long a filter may be, bytes: a terminal may send any text as one key.
const maxFilter = 64

// typed edits the filter.
func (m *model) typed(msg tea.KeyPressMsg) {
	switch msg.String() {
	case "enter":
		m.typing = false
	case "esc":
		m.typing, m.filter = false, ""
	case "backspace":
		if r := []rune(m.filter); len(r) > 0 {
			m.filter = string(r[:len(r)-1])
		}
	case "ctrl+u":
		m.filter = ""
	default:
		if len(m.filter)+len(msg.Text) <= maxFilter && !strings.ContainsFunc(msg.Text, unicode.IsControl) {
			m.filter += msg.Text
		}
	}
	m.arrange()
}

// key reacts to a key that is a command.
func (m *model) key(key string) tea.Cmd {
	switch key {
	case "q":
		return tea.Quit
	case "?":
		if m.page != helpPage {
			m.page, m.behind = helpPage, m.page
			return nil
		}
		m.page = m.behind
	case "esc", "backspace":
		m.leave()
	case "f", "p", "space":
		m.frozen = !m.frozen
		if !m.frozen && m.newest != nil {
			m.show(m.newest)
		}
	default:
		m.pageKey(key)
	}
	return nil
}

// leave goes back one page; on the first it takes the filter away.
func (m *model) leave() {
	switch m.page {
	case helpPage:
		m.page = m.behind
	case requestPage:
		m.page = endpointPage
	case endpointPage:
		m.page = listPage
		m.arrange()
	default:
		m.filter = ""
		m.arrange()
	}
}

func (m *model) pageKey(key string) {
	switch m.page {
	case listPage:
		switch key {
		case "s", "S":
			m.sort = (m.sort + 1) % len(columns)
			if key == "S" {
				m.sort = (m.sort + len(columns) - 2) % len(columns)
			}
			m.arrange()
		case "r":
			m.reversed = !m.reversed
			m.arrange()
		case "/":
			m.typing = true
		case "enter":
			if at := m.selected.at; at < len(m.rows) {
				m.endpoint, m.gone, m.page = m.rows[at], false, endpointPage
				m.slow = cursor[sampleID]{}
				m.slow.follow(m.slowIDs())
			}
		default:
			m.selected.move(key, m.listHeight())
		}
	case endpointPage:
		if slow := m.endpoint.e.Slowest; key == "enter" && m.slow.at < len(slow) {
			m.request, m.page = slow[m.slow.at], requestPage
			return
		}
		m.slow.move(key, m.slowHeight())
	}
}

// cursor is a selected line that stays with what it stands for when the lines
// change.
type cursor[ID comparable] struct {
	ids []ID
	at  int
	top int  // first line on the screen
	set bool // moved by hand: before that it stays on the first line
}

// follow finds the selected line among new ones.
func (c *cursor[ID]) follow(ids []ID) {
	if c.set && c.at < len(c.ids) {
		if i := slices.Index(ids, c.ids[c.at]); i >= 0 {
			c.at = i
		}
	}
	c.ids = ids
	c.at = max(min(c.at, len(ids)-1), 0)
}

// move reacts to a key, with so many lines on the screen.
func (c *cursor[ID]) move(key string, height int) {
	switch key {
	case "up", "k":
		c.at--
	case "down", "j":
		c.at++
	case "pgup", "ctrl+b":
		c.at -= height
	case "pgdown", "ctrl+f":
		c.at += height
	case "home", "g":
		c.at = 0
	case "end", "G":
		c.at = len(c.ids) - 1
	default:
		return
	}
	c.set = true
	c.at = max(min(c.at, len(c.ids)-1), 0)
}

// window is the lines that are on the screen, the selected one among them.
func (c *cursor[ID]) window(height int) (from, to int) {
	height = max(height, 1)
	c.top = min(c.top, c.at, max(len(c.ids)-height, 0))
	c.top = max(c.top, c.at-height+1, 0)
	return c.top, min(c.top+height, len(c.ids))
}
