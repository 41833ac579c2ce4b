package top

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/request"
)

var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) {
	time.Local = time.UTC // times of day are in the golden files
	os.Exit(m.Run())
}

var start = time.Unix(1_700_000_000, 0)

// script is a recorder that plays requests.
type script struct {
	mu       sync.Mutex
	waiting  []observe.Request
	counters []request.Counters
	stats    request.Stats
	all      bool
}

// play changes what the recorder has.
func (s *script) play(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *script) Poll(each func(*observe.Request)) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.waiting)
	for i := range s.waiting {
		each(&s.waiting[i])
	}
	s.waiting = nil
	return n
}
func (s *script) Flush() error                   { return nil }
func (s *script) FlushAll() error                { s.all = true; return nil }
func (s *script) Caller(int) (string, int, bool) { return "", 0, false }
func (s *script) Close()                         {}

func (s *script) Counters() []request.Counters {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counters
}

func (s *script) Stats() request.Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// streamOf is the stream of a recorder; it ends with the test.
func streamOf(t *testing.T, src request.Source) *request.Stream {
	t.Helper()
	s := request.NewStream(src)
	t.Cleanup(s.Close)
	return s
}

func addrPort(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// scene is a host with a web server, its database, and something hostile.
func scene(at time.Time) []observe.Request {
	var list []observe.Request
	for i := range 400 {
		web := observe.Request{
			Side: observe.Served, StartNS: at.UnixNano() + int64(i)*2e6, NetNS: 4026531840, PID: 101 + i%4,
			Local: addrPort("10.0.0.1:443"), Peer: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, 0, byte(i % 50)}), uint16(40000+i)),
			Seq: uint32(1 + i%9), Requests: 1, Weight: 1, BytesIn: 300, BytesOut: 20_000, RTTNS: 400e3 + int64(i)*100, MinRTTNS: 350e3, MSS: 1448,
			Status: observe.StatusOK, HTTP: 200, Label: "GET /shop/cart",
		}
		web.Ledger[observe.RecvWait] = 20e3
		web.Ledger[observe.Server] = 3e6 + int64(i)*20e3
		web.Followed = true
		web.Split[observe.ServerCPU], web.Split[observe.ServerCall] = 1e6, 1400e3
		web.Split[observe.ServerHandoff] = web.Ledger[observe.Server] - web.Split[observe.ServerCPU] - web.Split[observe.ServerCall]
		web.Ledger[observe.Network] = 450e3
		web.Ledger[observe.AckDelay] = 40e6
		if i%100 == 99 {
			web.Ledger[observe.Retrans], web.Retrans, web.Flags = 200e6, 1, observe.FlagTimeout
			web.Status, web.HTTP = observe.StatusError, 503
		}
		list = append(list, web)
		for range 2 {
			db := observe.Request{
				Side: observe.Called, StartNS: web.StartNS + 1e6, NetNS: web.NetNS, PID: 201,
				Local: addrPort("10.0.0.1:50123"), Peer: addrPort("10.0.0.7:3306"), Seq: uint32(i), Requests: 1, Weight: 1,
				BytesIn: 900, BytesOut: 80, RTTNS: 150e3, MinRTTNS: 120e3, MSS: 1448, Status: observe.StatusOK,
			}
			db.Ledger[observe.Server], db.Ledger[observe.Network] = 700e3, 150e3
			list = append(list, db)
		}
	}
	v6 := observe.Request{
		Side: observe.Served, StartNS: at.UnixNano(), NetNS: 4026532999, PID: 301,
		Local: addrPort("[2001:db8:1234:5678:9abc:def0:1234:5678]:6379"), Peer: addrPort("[2001:db8::2]:9"), Seq: 1, Requests: 1, Weight: 1,
		Status: observe.StatusOK, BytesOut: 5, Label: "GET \x1b[2Jkey\u202e",
	}
	v6.Ledger[observe.AcceptWait], v6.Ledger[observe.Server] = 2e9, 30e3
	return append(list, v6)
}

func master(pid int) (int, string) {
	switch pid / 100 {
	case 1:
		return 100, "nginx"
	case 2:
		return 200, "php-fpm"
	}
	return pid, "red\x1b]0;x\x07is\u202e"
}

// pictures plays seconds of the scene.
func pictures(t *testing.T, seconds int) []Snapshot {
	t.Helper()
	src := &script{stats: request.Stats{Weight: 1}}
	s := newSampler(streamOf(t, src), Options{Every: time.Second, Master: master}, start)
	var list []Snapshot
	for i := range seconds {
		src.play(func() {
			src.waiting = scene(start.Add(time.Duration(i) * time.Second))
			src.stats.CPU += 8 * time.Millisecond
		})
		snap, err := s.take(start.Add(time.Duration(i+1)*time.Second), false)
		if err != nil {
			t.Fatal(err)
		}
		snap.CPU = 0.004 // not that of the machine which runs the test
		list = append(list, snap)
	}
	return list
}

func modelOf(t *testing.T, width, height int) *model {
	t.Helper()
	m := newModel(Options{Every: time.Second, NoColor: true})
	m.Update(tea.WindowSizeMsg{Width: width, Height: height})
	for _, s := range pictures(t, 2) {
		m.Update(snapshotMsg(s))
	}
	return m
}

// press types keys: names of keys, or text.
func press(m *model, keys ...string) {
	named := map[string]rune{"enter": tea.KeyEnter, "esc": tea.KeyEscape, "up": tea.KeyUp, "down": tea.KeyDown, "backspace": tea.KeyBackspace, "end": tea.KeyEnd, "pgdown": tea.KeyPgDown}
	for _, key := range keys {
		if code, ok := named[key]; ok {
			m.Update(tea.KeyPressMsg{Code: code})
			continue
		}
		for _, r := range key {
			m.Update(tea.KeyPressMsg{Code: r, Text: string(r)})
		}
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (write it anew with -update):\n%s", file, d)
	}
}

// screen is what is drawn, without attributes and blanks at the ends.
func screen(m *model) string {
	var b strings.Builder
	for line := range strings.Lines(ansi.Strip(m.draw())) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return b.String()
}

func TestViews(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {140, 40}} {
		for _, c := range []struct {
			name string
			keys []string
		}{
			{"list", nil},
			{"sorted", []string{"sss", "r"}},
			{"filter", []string{"/NGI"}},
			{"endpoint", []string{"/nginx", "enter", "enter"}},
			{"slow", []string{"/nginx", "enter", "enter", "j"}},
			{"request", []string{"/nginx", "enter", "enter", "enter"}},
			{"help", []string{"?"}},
		} {
			name := fmt.Sprintf("%s-%dx%d", c.name, size[0], size[1])
			t.Run(name, func(t *testing.T) {
				m := modelOf(t, size[0], size[1])
				press(m, c.keys...)
				golden(t, name, screen(m))
			})
		}
	}
}

func TestPlain(t *testing.T) {
	snap := pictures(t, 1)[0]
	snap.Lost, snap.Sampled, snap.Weight, snap.Missing = 3, 1200, 8, []string{"send_wait: this kernel has no transmit timestamps"}
	var b bytes.Buffer
	if err := Text(&b, &snap); err != nil {
		t.Fatal(err)
	}
	golden(t, "plain", b.String())
}

// TestScreenFits holds for any size, any page and any keys, and nothing that
// the host sent reaches the terminal as a control character.
func TestScreenFits(t *testing.T) {
	snaps := pictures(t, 3)
	keys := []string{"enter", "esc", "up", "down", "end", "pgdown", "s", "S", "r", "f", "?", "/", "g", "n", "backspace", "6"}
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(Options{Every: time.Second, NoColor: rapid.Bool().Draw(t, "plain")})
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			width, height := rapid.IntRange(1, 200).Draw(t, "width"), rapid.IntRange(1, 60).Draw(t, "height")
			m.Update(tea.WindowSizeMsg{Width: width, Height: height})
			if rapid.Bool().Draw(t, "picture") {
				s := rapid.SampledFrom(snaps).Draw(t, "snapshot")
				if rapid.Bool().Draw(t, "nobody") {
					s.Endpoints = nil
				}
				m.Update(snapshotMsg(s))
			}
			press(m, rapid.SampledFrom(keys).Draw(t, "key"))
			drawn := m.draw()
			lines := strings.Split(drawn, "\n")
			if len(lines) != height {
				t.Fatalf("%d lines on a screen of %d", len(lines), height)
			}
			for _, line := range lines {
				if n := ansi.StringWidth(line); n > width {
					t.Fatalf("%d columns on a screen of %d: %q", n, width, line)
				}
			}
			for _, bad := range []string{"\x1b[2J", "\x1b]0;", "\x07", "\u202e"} {
				if strings.Contains(drawn, bad) {
					t.Fatalf("%q reached the terminal", bad)
				}
			}
		}
	})
}

func TestSelectionStays(t *testing.T) {
	m := modelOf(t, 120, 30)
	press(m, "down")
	before := m.rows[m.selected.at].id
	press(m, "s", "r") // other orders
	m.Update(snapshotMsg(pictures(t, 1)[0]))
	if got := m.rows[m.selected.at].id; got != before {
		t.Errorf("selected %+v, was %+v", got, before)
	}
	press(m, "/nothing is called so", "enter")
	if len(m.rows) != 0 || !strings.Contains(screen(m), "no requests seen") {
		t.Error("the filter let something through")
	}
	press(m, "enter") // opens nothing
	press(m, "esc")
	if len(m.rows) != 3 {
		t.Errorf("%d rows without a filter", len(m.rows))
	}
}

func TestFreeze(t *testing.T) {
	m := modelOf(t, 120, 30)
	before := screen(m)
	press(m, "f")
	m.Update(snapshotMsg(Snapshot{Start: start, Seconds: 1, Weight: 1}))
	if got := screen(m); got == before || !strings.Contains(got, "FROZEN") || !strings.Contains(got, "10.0.0.7:3306") {
		t.Errorf("frozen:\n%s", got)
	}
	press(m, "f")
	if got := screen(m); strings.Contains(got, "10.0.0.7:3306") {
		t.Errorf("going on:\n%s", got)
	}
}

func TestEndpointThatGoesAway(t *testing.T) {
	m := modelOf(t, 120, 30)
	press(m, "enter")
	m.Update(snapshotMsg(Snapshot{Start: start, Seconds: 1, Weight: 1}))
	if got := screen(m); !strings.Contains(got, "no requests any more") || !strings.Contains(got, "10.0.0.7:3306") {
		t.Errorf("gone:\n%s", got)
	}
}

func TestQuit(t *testing.T) {
	for _, msg := range []tea.KeyPressMsg{{Code: 'q', Text: "q"}, {Code: 'c', Mod: tea.ModCtrl}} {
		m := modelOf(t, 80, 24)
		if _, cmd := m.Update(msg); cmd == nil {
			t.Errorf("%s does nothing", msg)
		}
	}
	m := modelOf(t, 80, 24)
	press(m, "/")
	if _, cmd := m.Update(tea.KeyPressMsg{Code: 'q', Text: "q"}); cmd != nil || m.filter != "q" {
		t.Error("a filter cannot have a q")
	}
}

func TestSampler(t *testing.T) {
	snaps := pictures(t, 15)
	for i, s := range snaps {
		seconds := min(i+1, 10)
		if s.Seconds != float64(seconds) {
			t.Fatalf("picture %d is of %g s", i, s.Seconds)
		}
		for _, e := range s.Endpoints {
			want := map[int]uint64{443: 400, 3306: 800, 6379: 1}[e.Port] * uint64(seconds)
			if e.Requests != want || e.Total.Count() != want {
				t.Fatalf("picture %d: port %d has %d requests, want %d", i, e.Port, e.Requests, want)
			}
		}
	}
	// Counters are exact also for what had no record.
	src := &script{stats: request.Stats{Weight: 4, Sampled: 100, Lost: 1, CPU: time.Second}}
	src.counters = []request.Counters{{Side: observe.Served, NetNS: 4026531840, Addr: netip.MustParseAddr("10.0.0.1"), Port: 443, Requests: 5000, Segments: 10}}
	s := newSampler(streamOf(t, src), Options{Every: time.Second, Master: master, PID: 100}, start)
	src.play(func() {
		src.counters = slices.Clone(src.counters)
		src.counters[0].Requests += 1000
		src.stats.Sampled += 600
		src.waiting = scene(start)
	})
	snap, err := s.take(start.Add(2*time.Second), true)
	if err != nil || !src.all {
		t.Fatalf("error %v, all flushed: %t", err, src.all)
	}
	if len(snap.Endpoints) != 1 || snap.Endpoints[0].Requests != 1000 || snap.Endpoints[0].Recorded != 400 || snap.Sampled != 600 || snap.Lost != 0 || snap.Seconds != 2 {
		t.Errorf("%d endpoints, sampled %d, lost %d: %+v", len(snap.Endpoints), snap.Sampled, snap.Lost, snap.Endpoints[0].Requests)
	}
}

// TestJSON validates the endpoints against the schema of the report.
func TestJSON(t *testing.T) {
	snap := pictures(t, 1)[0]
	snap.Lost = 7
	snap.Endpoints = append(snap.Endpoints, observe.Endpoint{Side: "called", Addr: "other", Requests: 12})
	var b bytes.Buffer
	if err := JSON(&b, &snap, nil); err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(b.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	schema, err := jsonschema.NewCompiler().Compile("../../schema/report.schema.json#/properties/endpoints")
	if err != nil {
		t.Fatal(err)
	}
	instance, err := jsonschema.UnmarshalJSON(bytes.NewReader(b.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	endpoints := instance.(map[string]any)["endpoints"]
	if err := schema.Validate(endpoints); err != nil {
		t.Error(err)
	}
	list := endpoints.([]any)
	if len(list) != 3 || doc["schema"] != SchemaTop || len(doc["losses"].([]any)) != 2 {
		t.Errorf("%d endpoints in\n%s", len(list), b.String())
	}
	share := 0.0
	for name, part := range doc["endpoints"].([]any)[0].(map[string]any)["ledger_us"].(map[string]any) {
		if s, ok := part.(map[string]any)["share"].(float64); ok != (name != "ack_delay") {
			t.Errorf("%s: share %v", name, part)
		} else if !strings.HasPrefix(name, "server.") { // those are parts of server
			share += s
		}
	}
	if share < 0.9999 || share > 1.0001 {
		t.Errorf("shares add up to %g", share)
	}
}

func TestDivide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		width := rapid.IntRange(0, 200).Draw(t, "width")
		values := rapid.SliceOfN(rapid.Float64Range(0, 1e15), 0, 10).Draw(t, "values")
		var sum float64
		for _, v := range values {
			sum += v
		}
		cells := 0
		for i, n := range divide(width, values) {
			cells += n
			if n < 0 || (values[i] == 0 && n > 0) {
				t.Fatalf("%d cells for %g", n, values[i])
			}
			if sum > 0 && width >= 20 && values[i]/sum > 0.005 && n == 0 {
				t.Fatalf("no cell for %g of %g", values[i], sum)
			}
		}
		if want := width; sum > 0 && cells != want {
			t.Fatalf("%d cells of %d", cells, want)
		}
	})
}

func TestFigures(t *testing.T) {
	for ns, want := range map[float64]string{
		0: "0", -1: "0", 1: "0.1µs", 999: "1.0µs", 9.94e3: "9.9µs", 9.96e3: "10µs", 999.4e3: "999µs", 999.6e3: "1.0ms",
		12.4e6: "12ms", 999.6e6: "1.0s", 3e9: "3.0s", 9999e9: "9999s", 1e18: "hours",
	} {
		if got := duration(ns); got != want {
			t.Errorf("%g ns: %q, want %q", ns, got, want)
		}
	}
	for v, want := range map[float64]string{0: "0", 0.01: "<0.1", 0.1: "0.1", 9999: "9999", 10000: "10k", 123456: "123k", 1.25e6: "1.2M", 1e10: "many"} {
		if got := amount(v); got != want {
			t.Errorf("%g: %q, want %q", v, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Float64().Draw(t, "v")
		if a, b, c := duration(v), amount(v), percent(v); ansi.StringWidth(a) > 5 || len(b) > 5 || len(c) > 4 {
			t.Fatalf("%g: %q %q %q", v, a, b, c)
		}
	})
	if got := percent(0.9999); got != "99%" {
		t.Errorf("not quite all: %s", got)
	}
}
