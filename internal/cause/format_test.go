package cause

import (
	"testing"

	"github.com/slowray/slowray/internal/observe"
)

func TestPermille(t *testing.T) {
	for f, want := range map[float64]string{0: "0 ‰", 0.0105: "0.011 ‰", 2.04: "2 ‰", 20.6: "21 ‰", 99.4: "99 ‰", 249.7: "250 ‰", 1000: "1000 ‰"} {
		if got := permille(f); got != want {
			t.Errorf("permille(%v) = %q, want %q", f, got, want)
		}
	}
}

// TestParts: what is counted apart is no part of a whole that it exceeds.
func TestParts(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{ofLimit(9, 10, "entries"), "9 of 10 entries"}, {ofLimit(11, 10, "entries"), "11 entries, limit 10"},
		{ofLimit(11, "10", "connections"), "11 connections, limit 10"}, {ofLimit(11, "", "connections"), "11 connections"},
		{memoryOf(58<<20, 60<<20), "58 MB of 60 MB"}, {memoryOf(62<<20, 60<<20), "62 MB, limit 60 MB"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
	e := &observe.Endpoint{Requests: 11_612, Errors: 11_613, Unanswered: 11_613, OK: 12_000, Segments: 5, Retrans: 6, Statuses: map[string]uint64{"5xx": 11_613, "2xx": 4}}
	l := NewView(&observe.Observation{}).newLedger(e)
	if l.failedRequests() != 11_612 || l.Unanswered != 11_612 || l.OK != 11_612 || l.Retrans != 5 || l.Statuses["5xx"] != 11_612 || l.Statuses["2xx"] != 4 {
		t.Errorf("parts exceed the whole: %+v", l.Endpoint)
	}
	if e.Errors != 11_613 || e.Statuses["5xx"] != 11_613 {
		t.Error("the observation was changed")
	}
}

// TestCutAlerts: a client over TLS that closes with its answer has lost nothing.
func TestCutAlerts(t *testing.T) {
	cut := func(unacked uint32) observe.RequestSample {
		return observe.RequestSample{Unacked: unacked, Status: "error", Flags: []string{"reset", "truncated"}}
	}
	e := &observe.Endpoint{Requests: 500, Errors: 86, TLS: 500, Flags: map[string]uint64{"reset": 80, "truncated": 80}, Failed: []observe.RequestSample{cut(24), cut(0), cut(24), cut(5000)}}
	if l := NewView(&observe.Observation{}).newLedger(e); l.failedRequests() != 26 {
		t.Errorf("%d failed, want 6 and a quarter of 80", l.failedRequests())
	}
	e.TLS = 0
	if l := NewView(&observe.Observation{}).newLedger(e); l.failedRequests() != 86 {
		t.Errorf("%d failed of what is not encrypted, want 86", l.failedRequests())
	}
}
