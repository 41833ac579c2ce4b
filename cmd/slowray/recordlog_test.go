package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/slowray/slowray/internal/alert"
	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/record"
	"github.com/slowray/slowray/internal/store"
)

// tellWindows tells of two windows: a finding begins in the first, and is over
// in the second. Its title is hostile.
func tellWindows(l *recordLog) {
	f := record.Finding{Onset: noon, Windows: 1, New: true, Finding: cause.Finding{
		Cause: "conntrack-full", Title: "The table\x1b[2J is full", Role: cause.RoleCause, Subject: cause.Subject{Kind: "listener", Port: 80, Comm: "nginx", PID: 7},
	}}
	also := record.Finding{Onset: noon, Windows: 1, New: true, Finding: cause.Finding{Cause: "nginx-upstream-errors", Title: "Upstreams fail", Role: cause.RoleConsequence}}
	l.begin("/var/lib/x", "http://127.0.0.1:7788/", time.Minute)
	for range 60 {
		l.Second(noon.Unix(), []store.Second{{Endpoint: observe.Endpoint{Side: "served", Requests: 20}}, {Endpoint: observe.Endpoint{Side: "served", Requests: 1}}, {Endpoint: observe.Endpoint{Side: "called", Requests: 300}}})
	}
	slow, sampled, called := store.Request{Why: store.Slow}, store.Request{Why: store.Sampled}, store.Request{Why: store.Slow}
	slow.Side, sampled.Side, called.Side = observe.Served, observe.Served, observe.Called // this one is a request at its other end
	for _, r := range []*store.Request{&slow, &sampled, &called} {
		l.Request(r)
	}
	l.Window(&record.Window{Observation: &observe.Observation{Window: observe.Window{Start: noon, Seconds: 60}}, Findings: []record.Finding{f, also}})
	f.New, f.End = false, noon.Add(60e9)
	l.Window(&record.Window{Observation: &observe.Observation{Window: observe.Window{Start: noon.Add(60e9), Seconds: 60}}, Findings: []record.Finding{f}})
	l.trouble(errors.New("disk \x1b[2J full"))
	l.Window(&record.Window{Err: errors.New("not told twice")})
	l.end(record.Status{Requests: record.RequestStats{Seen: 1260, Slow: 1, Sampled: 1}, Windows: 2, Losses: []observe.Loss{{What: "something", Count: 3}}})
}

func TestRecordLogForPeople(t *testing.T) {
	for _, c := range []struct {
		terminal   bool
		want, none []string
	}{
		{true, []string{"recording into /var/lib/x; Ctrl-C ends\nslowray: read it back: slowray why --at -5m --dir /var/lib/x\n", "open http://127.0.0.1:7788/", "\nslowray: first verdict in 60 s\n", "  21 requests/s answered, kept: the slowest 1, 0 failed; found: The table�[2J is full (nginx (pid 7), port 80)\n", "; nothing found\n", "1,260 requests counted, 2 kept, 2 windows judged", "something: 3"}, []string{"over:"}},
		{false, []string{"found: The table", "[conntrack-full], nginx (pid 7), port 80\n", "over: The table", ": from 12:00:00 to 12:01:00\n"}, []string{"requests/s", "Upstreams fail"}},
	} {
		var out, errs bytes.Buffer
		l := newRecordLog(&streams{&out, &errs}, false)
		l.terminal = c.terminal
		tellWindows(l)
		for _, want := range c.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("terminal %t: lacks %q:\n%s", c.terminal, want, out.String())
			}
		}
		for _, none := range append(c.none, "\x1b") {
			if strings.Contains(out.String()+errs.String(), none) {
				t.Errorf("terminal %t: has %q:\n%s%s", c.terminal, none, out.String(), errs.String())
			}
		}
		if !strings.HasPrefix(errs.String(), "slowray: disk ") || strings.Count(errs.String(), "\n") != 1 {
			t.Errorf("%q", errs.String())
		}
	}
}

// TestRecordLogFits: on a terminal no line is broken within a word.
func TestRecordLogFits(t *testing.T) {
	var out bytes.Buffer
	l := newRecordLog(&streams{&out, &out}, false)
	l.terminal, l.columns = true, func() int { return 80 }
	tellWindows(l)
	text := out.String()
	for line := range strings.Lines(text) {
		if ansi.StringWidth(strings.TrimSuffix(line, "\n")) > 80 {
			t.Errorf("too wide: %s", line)
		}
	}
	if joined := strings.Join(strings.Fields(text), " "); !strings.Contains(joined, "requests/s answered, kept: the slowest 1, 0 failed; found: The table�[2J is full (nginx (pid 7), port 80)") {
		t.Errorf("broken within a word:\n%s", text)
	}
}

func TestRecordLogForPrograms(t *testing.T) {
	var out, errs bytes.Buffer
	tellWindows(newRecordLog(&streams{&out, &errs}, true))
	var events []string
	for line := range strings.Lines(out.String()) {
		var e recordEvent
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		text := e.Event
		switch {
		case e.Event == "window":
			text += " " + strings.Join(e.Findings, ",")
		case e.Event == "finding" && e.End != nil:
			text += " over " + string(e.Finding.Cause)
		case e.Event == "finding":
			text += " " + string(e.Finding.Cause)
		}
		events = append(events, text)
	}
	want := "begin; window conntrack-full,nginx-upstream-errors; finding conntrack-full; finding nginx-upstream-errors; window ; finding over conntrack-full; trouble; end"
	if got := strings.Join(events, "; "); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// TestRecordLogNamesFew: a line names three causes, by title, and says where the others are.
func TestRecordLogNamesFew(t *testing.T) {
	var out bytes.Buffer
	l := newRecordLog(&streams{&out, &out}, false)
	l.terminal, l.dir = true, "/var/lib/x"
	var list []record.Finding
	for i := range 13 {
		list = append(list, record.Finding{Onset: noon, Finding: cause.Finding{Cause: "lock-convoy", Title: "A lock", Role: cause.RoleCause, Subject: cause.Subject{Port: 80 + i, NetNS: 4026532213}}})
	}
	l.Window(&record.Window{Observation: &observe.Observation{Window: observe.Window{Start: noon, Seconds: 60}}, Findings: list})
	text := out.String()
	if strings.Count(text, "A lock (port") != 3 || !strings.Contains(text, ", and 10 more: slowray why --at ") || !strings.Contains(text, "--dir /var/lib/x") || strings.Contains(text, "4026532213") {
		t.Error(text)
	}
}

// TestRecordLogTellsOfAlerts: that they are on, of how many receivers, and where they are kept.
func TestRecordLogTellsOfAlerts(t *testing.T) {
	var out bytes.Buffer
	newRecordLog(&streams{&out, &out}, false).alerts("/srv/x/alerts", &alert.Config{Receivers: make([]alert.Receiver, 2), Routes: make([]alert.Route, 1)})
	if want := "slowray: alerts: 2 receivers, 1 route; kept in /srv/x/alerts: slowray alert status --dir /srv/x/alerts\n"; out.String() != want {
		t.Errorf("%q", out.String())
	}
}
