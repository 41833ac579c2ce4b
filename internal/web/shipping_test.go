package web

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slowray/slowray/internal/fleet/ship"
)

// How far the targets of --to are is in the status, and what they answered is text
// without anything that drives a terminal.
func TestStatusTellsOfTargets(t *testing.T) {
	at := noon.Add(-time.Minute)
	want := []ship.Status{
		{Title: "clickhouse://a:8123/slowray", Sent: 12, Records: 3, Bytes: 400, Behind: 90 * time.Second, GaveUp: 7, Failures: 2, Error: "away", LastError: "away", LastAt: at},
		{Title: "victorialogs://b:9428", Sent: 5},
	}
	h := serve(t, incident(), Options{Targets: func() []ship.Status { return want }})
	st := ask[statusJSON](t, h, "/api/status")
	if diff := cmp.Diff(want, st.Shipping); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	text := get(t, h, "/api/status").Body.String()
	for _, name := range []string{`"url":`, `"behind_seconds":90`, `"waiting":3`, `"waiting_bytes":400`, `"gave_up":7`, `"error":"away"`, `"last_error":"away"`, `"last_error_at":`} {
		if !strings.Contains(text, name) {
			t.Errorf("the status has no %s: %s", name, text)
		}
	}
	want[0].Error = "\x1b[2J\u202ewell"
	if text := get(t, h, "/api/status").Body.String(); strings.ContainsAny(text, "\x1b\u202e") || strings.Contains(text, `\u001b`) {
		t.Errorf("what a target answered drives a terminal: %q", text)
	}
}
