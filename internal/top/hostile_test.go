package top

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/request"
)

// worst are texts that a process, a container or a request of the watched host
// may be, to harm whoever looks on.
var worst = []string{
	"\x1b]0;owned\x07\x1b[2J\x1b[?1049l\u009b31m\x9b31m", `<script>alert(1)</script>"'&`, strings.Repeat("A", 64<<10),
	strings.Repeat("é\u202e", 20<<10), "GET /" + strings.Repeat("%2e", 21<<10) + " HTTP/1.1\r\nX: y", "\xff\xfe\xc3", "\u2066\u200b\ufeff\u2028",
	"\r\n\r\nroot@host:~#", "\x00", "日本語のプロセス名前",
}

// harmless fails when text could drive a terminal or hide something on it.
func harmless(t *testing.T, what, text string) {
	t.Helper()
	if !utf8.ValidString(text) {
		t.Errorf("%s: not UTF-8", what)
	}
	for i, c := range text {
		if c != '\n' && (unicode.IsControl(c) || unicode.In(c, unicode.Cf, unicode.Zl, unicode.Zp)) {
			t.Errorf("%s: character %U in %q", what, c, text[max(0, i-20):min(len(text), i+20)])
			return
		}
	}
}

// sceneOf is the scene in which all names and labels are s.
func sceneOf(t *testing.T, s string) Snapshot {
	t.Helper()
	src := &script{stats: request.Stats{Weight: 1}}
	from := newSampler(streamOf(t, src), Options{Every: time.Second, Master: func(pid int) (int, string) { return pid / 100 * 100, s }}, start)
	waiting := scene(start)
	for i := range waiting {
		waiting[i].Label = s
	}
	src.play(func() { src.waiting = waiting })
	snap, err := from.take(start.Add(time.Second), false)
	if err != nil {
		t.Fatal(err)
	}
	snap.Missing = []string{s}
	return snap
}

// TestWorstText: the table, as text, as JSON and on each page of the screen.
func TestWorstText(t *testing.T) {
	for i, s := range worst {
		what := fmt.Sprintf("text %d", i)
		snap := sceneOf(t, s)
		var text, plain bytes.Buffer
		if err := Text(&text, &snap); err != nil {
			t.Fatal(err)
		}
		harmless(t, what, text.String())
		for line := range strings.Lines(text.String()) {
			if n := utf8.RuneCountInString(line); n > 10_000 {
				t.Errorf("%s: a line of %d characters", what, n)
			}
		}
		processOf := func(int, int64) (observe.Identity, bool) {
			return observe.Identity{Comm: s, Cgroup: s, Container: s, ContainerName: s, Unit: s}, true
		}
		if err := JSON(&plain, &snap, processOf); err != nil {
			t.Fatal(err)
		}
		harmless(t, "JSON of "+what, plain.String())
		var v any
		if err := json.Unmarshal(plain.Bytes(), &v); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		const width, height = 100, 30
		m := newModel(Options{Every: time.Second, NoColor: true})
		m.Update(tea.WindowSizeMsg{Width: width, Height: height})
		m.Update(snapshotMsg(snap))
		for _, keys := range []string{"", "s", "enter", "down", "enter", "?", "esc"} {
			if keys != "" {
				press(m, keys)
			}
			drawn := m.draw()
			harmless(t, what+" after "+keys, ansi.Strip(drawn))
			for _, line := range strings.Split(drawn, "\n") {
				if n := ansi.StringWidth(line); n > width {
					t.Fatalf("%s after %q: %d columns", what, keys, n)
				}
			}
			for _, bad := range []string{"\x1b]", "\x1b[2J", "\x1b[?", "\u009b"} {
				if strings.Contains(drawn, bad) {
					t.Errorf("%s after %q: %q reached the terminal", what, keys, bad)
				}
			}
		}
	}
}
