package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/fleet/clickhouse/clickhousetest"
	labcli "github.com/slowray/slowray/lab/cli"
)

// TestFleetCommandsSayWhatToDo: each thing that goes wrong with an engine is one line, from
// each command that asks one.
func TestFleetCommandsSayWhatToDo(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	commands := [][]string{{"why"}, {"top", "--once"}, {"watch", "--for", "2s"}, {"page", "--listen", "127.0.0.1:0"}}
	for _, args := range commands {
		_, messages, status := slowrayOut(append(append([]string{"fleet"}, args...), "--from", "clickhouse://127.0.0.1:1/slowray")...)
		if status != exitFailed || strings.Count(messages, "\n") != 1 || !strings.Contains(messages, "no server is reached") {
			t.Errorf("%q of nowhere: status %d, %q", args, status, messages)
		}
	}
	if _, messages, status := slowrayOut("fleet", "init", "clickhouse://127.0.0.1:1/slowray"); status != exitFailed || strings.Count(messages, "\n") != 1 || !strings.Contains(messages, "no server is reached") {
		t.Errorf("init of nowhere: status %d, %q", status, messages)
	}
	if _, messages, status := slowrayOut("fleet", "init", "clickhouse://127.0.0.1:1/slowray?password-file=/nowhere/password"); status != exitFailed || strings.Count(messages, "\n") != 1 {
		t.Errorf("init with a file that is missing: status %d, %q", status, messages)
	}
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("SECRET\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	at := clickhousetest.ForTest(t, clickhousetest.Layout{}).Servers[0][0].HTTP
	for _, args := range commands {
		for url, want := range map[string]string{
			"clickhouse://" + at + "/slowray":                                   "slowray fleet init",
			"clickhouse://default@" + at + "/slowray?password-file=" + password: "password-file=",
		} {
			_, messages, status := slowrayOut(append(append([]string{"fleet"}, args...), "--from", url)...)
			if status != exitFailed || strings.Count(messages, "\n") != 1 || !strings.Contains(messages, want) || strings.Contains(messages, "SECRET") {
				t.Errorf("%q of %s: status %d, %q, want %q", args, url, status, messages, want)
			}
		}
	}
	// Tables, and nothing in them, then nothing of the period.
	url := "clickhouse://" + at + "/slowray"
	if _, messages, status := slowrayOut("fleet", "init", url+"?dialect=modern"); status != exitFailed || strings.Count(messages, "\n") != 1 || !strings.Contains(messages, "leave out dialect=modern") {
		t.Errorf("a dialect that the server does not know: status %d, %q", status, messages)
	}
	if out, messages, status := slowrayOut("fleet", "init", url); status != exitNothing || !strings.Contains(out, "slowray record --to "+url+"\n") {
		t.Fatalf("init: status %d, %q\n%s", status, messages, out)
	}
	if out, messages, status := slowrayOut("fleet", "why", "--from", url); status != exitFailed || strings.Count(messages, "\n") != 1 || !strings.Contains(out, "no host has ever shipped here") {
		t.Errorf("of nothing: status %d, %q\n%s", status, messages, out)
	}
	if _, messages, status := slowrayOut("fleet", "why", "--from", url, "--host", "db-7"); status != exitFailed || strings.Count(messages, "\n") != 1 || !strings.Contains(messages, `no host is called "db-7"`) {
		t.Errorf("a host that is none: status %d, %q", status, messages)
	}
	var messages strings.Builder
	if status := labcli.Run([]string{"fleet", "--fast", "--hosts", "8", "--for", "70s", "--to", url}, io.Discard, &messages); status != exitNothing {
		t.Fatalf("lab fleet: status %d, %q", status, messages.String())
	}
	if out, messages, status := slowrayOut("fleet", "why", "--from", url, "--at", "2020-01-01 12:00"); status != exitFailed || strings.Count(messages, "\n") != 1 || !strings.Contains(out, "no host has figures of this range") {
		t.Errorf("a time before: status %d, %q\n%s", status, messages, out)
	}
	if out, messages, status := slowrayOut("fleet", "why", "--from", url, "--service", "nowhere"); status != exitFailed || strings.Count(messages, "\n") != 1 || !strings.Contains(out, "the service nowhere: nobody was seen") {
		t.Errorf("a service that is none: status %d, %q\n%s", status, messages, out)
	}
	if out, messages, status := slowrayOut("fleet", "top", "--once", "--from", url); status != exitNothing || messages != "" || !strings.Contains(out, "heard of") {
		t.Errorf("top: status %d, %q\n%s", status, messages, out)
	}
}
