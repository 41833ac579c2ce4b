package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/fleet/ship"
)

// TestRecordStatus: what a recorder left is shown to people and programs, and nothing
// that a target answered drives the terminal.
func TestRecordStatus(t *testing.T) {
	dir := t.TempDir()
	leave := func(r ship.Report) {
		t.Helper()
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(dir, "ship"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "ship", "status.json"), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	status := func(args ...string) (string, int) {
		var out, errs bytes.Buffer
		code := run(append([]string{"record", "--status", "--dir", dir}, args...), &out, &errs)
		return out.String() + errs.String(), code
	}
	if text, code := status(); code != exitFailed || !strings.Contains(text, "sent anywhere") || strings.Count(text, "\n") != 1 {
		t.Errorf("without --to: %d %q", code, text)
	}
	well := ship.Status{Title: "clickhouse://a:8123/slowray", Sent: 1234567}
	leave(ship.Report{At: time.Now(), Targets: []ship.Status{well}})
	if text, code := status(); code != exitNothing || !strings.Contains(text, "clickhouse://a:8123/slowray") || !strings.Contains(text, "1,234,567") || !strings.Contains(text, "well") || strings.Contains(text, "nothing records") {
		t.Errorf("well: %d\n%s", code, text)
	}
	bad := ship.Status{Title: "victorialogs://b:9428", Behind: 12 * time.Minute, Records: 48000, Bytes: 3 << 20, GaveUp: 99, Failures: 4, Error: "refused\x1b[31m", LastError: "refused", LastAt: time.Now()}
	leave(ship.Report{At: time.Now(), Targets: []ship.Status{well, bad}})
	text, code := status()
	if code != exitFindings || !strings.Contains(text, "48,000") || !strings.Contains(text, "99") || !strings.Contains(text, "fails: refused") || strings.Contains(text, "\x1b") {
		t.Errorf("failing: %d\n%s", code, text)
	}
	var got struct {
		Schema  string
		Running bool
		Targets []ship.Status
	}
	text, code = status("--json")
	if err := json.Unmarshal([]byte(text), &got); err != nil || code != exitFindings || !got.Running || len(got.Targets) != 2 || got.Targets[1].GaveUp != 99 || got.Schema != recordStatusSchema {
		t.Errorf("as JSON: %v, %d\n%s", err, code, text)
	}
	// Of a recorder that was killed, what waits is reported, and since when.
	leave(ship.Report{At: time.Now().Add(-time.Hour), Targets: []ship.Status{{Title: "clickhouse://a", Bytes: 5}}})
	if text, code := status(); code != exitFindings || !strings.Contains(text, "nothing records there now") {
		t.Errorf("of one that was killed: %d\n%s", code, text)
	}
	if err := os.WriteFile(filepath.Join(dir, "ship", "status.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, code := status(); code != exitFailed || strings.Count(text, "\n") != 1 {
		t.Errorf("damaged: %d %q", code, text)
	}
	if text, code := status("--dir", filepath.Join(dir, "none")); code != exitFailed || !strings.Contains(text, "nothing was recorded there") {
		t.Errorf("no directory: %d %q", code, text)
	}
}
