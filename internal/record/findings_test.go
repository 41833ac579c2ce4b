package record

import (
	"testing"
	"time"

	"github.com/slowray/slowray/internal/cause"
)

func found(id cause.ID, port, pid int) cause.Finding {
	return cause.Finding{Cause: id, Role: cause.RoleCause, Subject: cause.Subject{Kind: "listener", Port: port, PID: pid}}
}

func TestFindingsGoOnFromWindowToWindow(t *testing.T) {
	var c course
	minute := func(n int) time.Time { return start.Add(time.Duration(n) * time.Minute) }
	window := func(n int, findings ...cause.Finding) []Finding {
		return c.add(minute(n), minute(n).Add(59*time.Second), findings)
	}
	type want struct {
		cause   cause.ID
		onset   int // minute
		windows int
		isNew   bool
		end     int // minute of the window at whose end it ended; -1: goes on
	}
	check := func(got []Finding, wants ...want) {
		t.Helper()
		if len(got) != len(wants) {
			t.Fatalf("%d findings, want %d: %+v", len(got), len(wants), got)
		}
		for i, w := range wants {
			g := &got[i]
			end := time.Time{}
			if w.end >= 0 {
				end = minute(w.end).Add(59 * time.Second)
			}
			if g.Cause != w.cause || !g.Onset.Equal(minute(w.onset)) || g.Windows != w.windows || g.New != w.isNew || !g.End.Equal(end) {
				t.Errorf("%d: %s since %s, %d windows, new %t, end %s; want %+v", i, g.Cause, g.Onset, g.Windows, g.New, g.End, w)
			}
		}
	}
	check(window(0, found("a", 80, 10)), want{"a", 0, 1, true, -1})
	// The service was restarted, and is the same.
	check(window(1, found("b", 0, 7), found("a", 80, 11)), want{"b", 1, 1, true, -1}, want{"a", 0, 2, false, -1})
	check(window(2, found("a", 80, 11), found("a", 90, 11)), want{"a", 0, 3, false, -1}, want{"a", 2, 1, true, -1}, want{"b", 1, 1, false, 1})
	// Twice in a window is one.
	check(window(3, found("a", 80, 11), found("a", 80, 12)), want{"a", 0, 4, false, -1}, want{"a", 2, 1, false, 2})
	// Nobody looked for a while: what is there now began now.
	check(window(9, found("a", 80, 11)), want{"a", 9, 1, true, -1}, want{"a", 0, 4, false, 3})
	check(window(10), want{"a", 9, 1, false, 9})
	check(window(11))
}
