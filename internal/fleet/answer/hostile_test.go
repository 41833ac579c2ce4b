package answer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/anomaly"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
	"github.com/slowray/slowray/internal/store"
)

// hostileTexts are what a host may call itself and all that it has.
var hostileTexts = []string{
	"\x1b[2J\x1b]0;title\x07", "<script>alert(1)</script>", "'; DROP TABLE requests; --\\", "a\nb\r\nc", "nul\x00nul", strings.Repeat("A", 10_000),
	"\xff\xfe\x80bad", "\u202e\u2066turned", "", " ", "a:b:c", "%s%d%n", "\u2028\u2029", "💩" + strings.Repeat("é", 3000), "::1", "[::1]:80",
}

// hostile makes a host of each text, whose figures are as wrong as its names.
func (w *world) hostile() {
	for i, text := range hostileTexts {
		for s := range int64(700) {
			w.AddSecond(text, hostileSecond(i, text, s))
		}
		f := &store.Finding{Start: moment(640), End: moment(700)}
		f.Cause, f.Title, f.Role, f.Verdict = cause.ID(text), text, cause.RoleCause, cause.Supported
		f.Impact = cause.Impact{Share: math.MaxFloat64, Of: text, Text: text}
		f.Subject = cause.Subject{Kind: text, Comm: text, Addr: text, Interface: text, Rule: text, Container: text, Path: text, PID: -5, Port: -1}
		f.Evidence = []cause.Evidence{{Fact: text, Value: map[string]any{text: []any{text, nil}}, Unit: text, Source: text}}
		f.Fix = cause.Fix{Text: text, Commands: []shell.Command{shell.Line("x %s   # %s", shell.Word(text), shell.Text(text))}}
		w.AddFinding(text, f)
		h := &fleet.Host{Name: text, ID: text, Addresses: []string{text, "10.9.0.1"}, Kernel: text, CPUs: -3, Version: text, Labels: map[string]string{text: text, "rack": text}}
		if err := w.Hello(context.Background(), h, moment(690)); err != nil {
			panic(err)
		}
		for k := range 50 {
			r := &store.Request{Process: observe.Identity{Comm: text, Unit: text}, Why: store.Slow}
			r.Side, r.Seq, r.Weight, r.PID, r.Label = observe.Side(1+k%2), uint32(k/2), math.MaxUint32, -1, text
			r.Local, r.Peer = netip.MustParseAddrPort("10.9.0.1:80"), netip.MustParseAddrPort("10.9.0.2:4000")
			r.StartNS, r.FirstByte = (began+550)*1e9+int64(k), math.MaxInt64/2
			r.Ledger[observe.Server], r.Ledger[observe.Network] = math.MaxInt64/2000, math.MinInt64/2000
			w.AddRequest(text, r)
		}
	}
}

func hostileSecond(i int, text string, s int64) *store.Second {
	x := &store.Second{At: began + s, Process: observe.Identity{Comm: text, Unit: hostileTexts[(i+1)%len(hostileTexts)], Cgroup: text, Container: text, ContainerName: text}}
	e := &x.Endpoint
	e.Side, e.Addr, e.Port, e.Comm, e.Requests = "served", "10.9.0.1", 80+i, text, 10
	for k := range 10 {
		e.Total.Add(int64(time.Millisecond) * int64(1+k))
	}
	switch i {
	case 1:
		e.Requests = math.MaxUint64
	case 2:
		e.Total.AddN(math.MaxInt64, math.MaxUint64/2)
	case 3:
		e.Total.AddN(-5, 10)
		e.Errors = math.MaxUint64
	case 4:
		e.Requests, e.Errors = 0, 7
	case 5:
		e.Parts = map[string]observe.PartStats{"server": {SumNS: math.MinInt64}, "network": {SumNS: math.MaxInt64}}
	case 6:
		e.Segments, e.Retrans = 0, math.MaxUint64
	case 7:
		if s > 600 {
			e.Parts = map[string]observe.PartStats{"server": {SumNS: math.MaxInt64}}
		}
	case 8:
		if s > 600 {
			e.Total.AddN(math.MaxInt64, 5)
		}
	}
	return x
}

// bearable fails where something would drive a terminal.
func bearable(t *testing.T, what string, text []byte) {
	t.Helper()
	if !utf8.Valid(text) {
		t.Errorf("%s: is no UTF-8", what)
	}
	for _, c := range string(text) {
		if c < ' ' && c != '\n' || c >= 0x7f && c < 0xa0 || c >= 0x2028 && c <= 0x202e || c >= 0x2066 && c <= 0x2069 {
			t.Errorf("%s: has %q", what, c)
			return
		}
	}
}

func whole(t *testing.T, what string, doc []byte) {
	t.Helper()
	bearable(t, what, doc)
	if !json.Valid(doc) {
		t.Errorf("%s: is no JSON: %.200s … %s", what, doc, doc[max(0, len(doc)-200):])
	}
}

// Hosts whose names drive terminals, and whose figures cannot be, hide nothing of the
// others, and nothing that is printed or sent breaks.
func TestHostileHosts(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	w := newWorld(4)
	w.db = step(600, 45*time.Millisecond)
	w.run(700)
	w.hostile()
	r := w.why(t, 300, 700)
	if len(r.Causes) == 0 || !strings.Contains(r.Causes[0].Text, "10.0.0.7:3306") {
		t.Errorf("the cause of the others is not told first: %s", textOf(t, r))
	}
	bearable(t, "text", []byte(textOf(t, r)))
	var doc bytes.Buffer
	if err := r.JSON(&doc); err != nil {
		t.Error(err)
	}
	whole(t, "report", doc.Bytes())

	watcher := NewWatcher(w, nil)
	if err := watcher.Learn(t.Context(), moment(590).Add(Settle)); err != nil {
		t.Fatal(err)
	}
	for _, e := range watched(t, watcher, 591, 690) {
		line, err := e.JSON()
		if err != nil {
			t.Error(err)
		}
		whole(t, "event", line)
		bearable(t, "event's line", []byte(e.Line()))
		if x, err := e.Stored(); err != nil || !json.Valid(x.Document) {
			t.Errorf("stored: %v", err)
		}
	}
	table, err := watcher.Table(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	doc.Reset()
	if err := table.JSON(&doc); err != nil {
		t.Error(err)
	}
	whole(t, "table", doc.Bytes())
	view, err := NewLooker(w).Look(t.Context(), Question{From: moment(300), To: moment(700)})
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []any{view.Report.Told(), view.Map.Graph(view.Report.Abnormal), view.Table} {
		if _, err := json.Marshal(of); err != nil {
			t.Errorf("%T: %v", of, err)
		}
	}
}

// An event is one line of whole JSON, however many endpoints it is of.
func TestLargeEventIsWhole(t *testing.T) {
	e := Event{Schema: SchemaEvent, Kind: Onset, At: moment(0)}
	for i := range 1000 {
		e.Endpoints = append(e.Endpoints, endpointOf(&anomaly.Anomaly{Key: fleet.Key{Host: fmt.Sprintf("web-%d", i), Service: "app:8080"}}))
	}
	line, err := e.JSON()
	if err != nil {
		t.Fatal(err)
	}
	whole(t, "event", line)
	if bytes.ContainsRune(line, '\n') || bytes.Count(line, []byte("app:8080")) != 1000 {
		t.Errorf("%d bytes: is not one line with all endpoints", len(line))
	}
}
