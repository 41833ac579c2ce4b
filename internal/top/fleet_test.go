package top

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/slowray/slowray/internal/fleet/answer"
)

func fleetTable(name string) *answer.Table {
	at := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	t := &answer.Table{At: at, Seconds: 10}
	for i := range 40 {
		t.Services = append(t.Services, answer.ServiceRow{Service: fmt.Sprintf("%s-%d:80", name, i), Hosts: i, Rate: float64(i), P50US: 1000, P99US: int64(100 * i), Worst: name, WorstUS: 3000, Abnormal: i / 39})
		t.Hosts = append(t.Hosts, answer.HostRow{Host: fmt.Sprintf("%s-%d", name, i), Services: 1, Rate: float64(100 - i), Errors: float64(i % 2), Last: at, Silent: i == 3})
	}
	for range 9 {
		t.Incidents = append(t.Incidents, answer.Incident{Since: at, Text: "37 of 40 slow services call " + name + "."})
	}
	return t
}

func TestFleetText(t *testing.T) {
	var b bytes.Buffer
	if err := FleetText(&b, fleetTable("app")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"40 services, 40 hosts", "since 12:00:00: 37 of 40", "SILENT since 12:00:00", "worst host", "abnormal"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if text := serviceGrid(fleetTable("app")).rows[2][1].text; text != "2" {
		t.Errorf("two hosts are %q", text)
	}
	b.Reset()
	if err := FleetText(&b, &answer.Table{}); err != nil || !strings.Contains(b.String(), "0 services") {
		t.Errorf("empty: %v %q", err, b.String())
	}
}

// TestFleetScreen: whatever the names, the size and the keys, the screen keeps its size.
func TestFleetScreen(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	for i, name := range append(worst, "app") {
		for _, size := range [][2]int{{80, 24}, {20, 5}, {200, 60}, {1, 1}} {
			m := newFleetModel(true)
			m.Update(tea.WindowSizeMsg{Width: size[0], Height: size[1]})
			m.draw()
			m.Update(fleetMsg{fleetTable(name)})
			for _, key := range []string{"", "s", "tab", "j", "pgdown", "S", "r", "f", "tab", "k"} {
				m.key(key)
				drawn := m.draw()
				harmless(t, fmt.Sprintf("text %d after %q", i, key), ansi.Strip(drawn))
				lines := strings.Split(drawn, "\n")
				if len(lines) > size[1] {
					t.Fatalf("%d lines of %d", len(lines), size[1])
				}
				for _, l := range lines {
					if n := ansi.StringWidth(l); n > size[0] {
						t.Fatalf("text %d after %q: %d columns of %d: %q", i, key, n, size[0], l)
					}
				}
			}
		}
	}
	m := newFleetModel(true)
	m.Update(tea.WindowSizeMsg{Width: 100, Height: 24})
	m.Update(fleetMsg{fleetTable("app")})
	rowAfter := func() string { return strings.Fields(strings.Split(m.draw(), "\n")[8])[0] }
	if got := rowAfter(); got != "app-39:80" {
		t.Errorf("the busiest service first, not %s:\n%s", got, m.draw())
	}
	m.key("r")
	if got := rowAfter(); got != "app-0:80" {
		t.Errorf("reversed: %s first", got)
	}
	m.key("tab")
	if got := rowAfter(); got != "app-0" {
		t.Errorf("hosts: %s first", got)
	}
	m.Update(troubleMsg("no route\x1b[2J to host"))
	if d := m.draw(); !strings.Contains(d, "no route") || strings.Contains(d, "\x1b[2J") {
		t.Errorf("trouble: %q", d)
	}
}

func TestLiveFleetEnds(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	asked := 0
	in, inEnd := io.Pipe()
	defer inEnd.Close()
	err := LiveFleet(ctx, func(context.Context) (*answer.Table, error) {
		if asked++; asked == 3 {
			stop()
		}
		if asked == 2 {
			return nil, errors.New("away")
		}
		return fleetTable("app"), nil
	}, time.Millisecond, true, in, io.Discard)
	if err != nil || asked < 3 {
		t.Errorf("asked %d times, %v", asked, err)
	}
}
