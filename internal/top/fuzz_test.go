package top

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/slowray/slowray/internal/budget/budgettest"
	"github.com/slowray/slowray/internal/observe"
)

// FuzzScreen types any keys on a screen of any size, with any names on it: no line is
// wider than the screen, and nothing reaches the terminal but what slowray draws.
func FuzzScreen(f *testing.F) {
	names := []string{"down", "up", "pgdown", "pgup", "home", "end", "enter", "esc", "backspace", "s", "S", "r", "/", "?", "f", "space", "j", "k", "g", "G", "x"}
	f.Add("nginx", []byte{6, 6, 7, 0, 0, 13, 7}, 100, 30, "a")
	f.Add(worst[0], []byte{12, 20, 6, 9, 9, 10, 11, 6, 0, 6}, 20, 3, "\x1b]0;x\a")
	f.Add(worst[9], []byte{2, 3, 4, 5, 18, 19, 6, 2}, 1, 1, "é")
	f.Add("", []byte{6, 14, 15, 8}, 0, 0, "")
	f.Add("nginx", []byte{12, 20, 20, 20}, 80, 24, strings.Repeat("é", 4096))
	f.Fuzz(func(t *testing.T, text string, keys []byte, width, height int, typed string) {
		width, height, keys = min(max(width, 0), 400), min(max(height, 0), 200), keys[:min(len(keys), 64)]
		snap := sceneOf(t, text)
		budgettest.Within(t, len(text)+len(typed), budgettest.Cost{PerByte: 64 << 10, Fixed: 256 << 20, CPU: 5 * time.Second}, func() {
			m := newModel(Options{Every: time.Second, NoColor: true})
			m.Update(tea.WindowSizeMsg{Width: width, Height: height})
			m.Update(snapshotMsg(snap))
			for i, k := range keys {
				if name := names[int(k)%len(names)]; name == "x" {
					m.Update(tea.KeyPressMsg{Text: typed})
				} else {
					press(m, name)
				}
				if i%8 == 7 { // it goes on meanwhile
					m.Update(snapshotMsg(snap))
				}
				if len(m.filter) > maxFilter {
					t.Fatalf("a filter of %d bytes", len(m.filter))
				}
				drawn := m.draw()
				if !utf8.ValidString(drawn) {
					t.Fatalf("after %v: not UTF-8", keys[:i+1])
				}
				harmless(t, "the screen", ansi.Strip(drawn))
				for _, bad := range []string{"\x1b]", "\x1b[2J", "\x1b[?", "\u009b"} {
					if strings.Contains(drawn, bad) {
						t.Fatalf("%q reached the terminal", bad)
					}
				}
				for _, line := range strings.Split(drawn, "\n") {
					if n := ansi.StringWidth(line); width >= 20 && n > width {
						t.Fatalf("after %v: %d columns of %d: %q", keys[:i+1], n, width, line)
					}
				}
			}
		})
	})
}

// FuzzClient writes the other end of a request, whatever it is.
func FuzzClient(f *testing.F) {
	f.Add("10.0.0.1:80", "[::1]:1", true)
	f.Add("[fe80::1%\x1b[31m]:1", "\xff", false)
	f.Fuzz(func(t *testing.T, local, peer string, called bool) {
		side := "served"
		if called {
			side = "called"
		}
		harmless(t, "the client", clientOf(side, &observe.RequestSample{Local: local, Peer: peer}))
	})
}
